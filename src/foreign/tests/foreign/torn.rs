//! Files in the middle of being written, and files that are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use foreign::{Found, Item, Options, open};
use proptest::prelude::*;

use crate::common::{all, data, notes, only, rest, series};

/// A file of each format that is one, under a name by which it is known.
fn files() -> Vec<(PathBuf, &'static str)> {
    let in_directory = |name: &str| {
        let entries = fs::read_dir(data(name)).unwrap().flatten();
        // The other one holds a version and nothing else.
        let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
        entries.map(|entry| entry.path()).max_by_key(size).unwrap()
    };
    vec![
        (
            in_directory("tensorboard-tf2"),
            "events.out.tfevents.1.host",
        ),
        (
            in_directory("tensorboard-hparams"),
            "events.out.tfevents.1.host",
        ),
        (only(&data("wandb-run")).path, "run-a.wandb"),
        (data("verl/metrics.jsonl"), "metrics.jsonl"),
        (data("verl/console.log"), "console.log"),
    ]
}

fn at(found: &Found, path: &Path) -> Found {
    Found {
        path: path.to_owned(),
        ..found.clone()
    }
}

/// What was given of a cut file is the start of what the whole one gives.
fn is_start_of(part: &[Item], whole: &[Item]) -> bool {
    let said = |items: &[Item]| -> Vec<String> {
        items
            .iter()
            .filter(|item| !matches!(item, Item::Note(_)))
            .map(|item| format!("{item:?}"))
            .collect()
    };
    said(whole).starts_with(&said(part))
}

#[test]
fn a_file_cut_at_any_byte_gives_no_wrong_value_and_goes_on_when_the_rest_comes() {
    let folder = tempfile::tempdir().unwrap();
    for (file, name) in files() {
        let found = only(&file);
        let bytes = fs::read(&file).unwrap();
        let whole = all(&found);
        assert!(!whole.is_empty(), "{name}");
        let whole_text = format!("{whole:?}");
        let path = folder.path().join(name);
        let end = bytes.len();
        // Every byte of the first and last records, and some between: the middle of a long setting is as good as another.
        let stride = if end < 8000 { 5 } else { 251 };
        let few = (0..end).filter(|cut| *cut < 250 || end - cut < 250 || cut % stride == 0);
        for cut in few {
            fs::write(&path, &bytes[..cut]).unwrap();
            let mut reader = open(&at(&found, &path), None, &Options::default()).unwrap();
            let part = rest(reader.as_mut(), false);
            assert!(is_start_of(&part, &whole), "{name} cut at {cut}");
            assert_eq!(
                notes(&part)
                    .iter()
                    .filter(|note| note.contains("byte"))
                    .count(),
                0,
                "{name} cut at {cut}"
            );
            let place = reader.place();
            fs::write(&path, &bytes).unwrap();
            let mut reader = open(&at(&found, &path), Some(&place), &Options::default()).unwrap();
            let mut both = part;
            both.extend(rest(reader.as_mut(), true));
            assert_eq!(format!("{both:?}"), whole_text, "{name} cut at {cut}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn damage_is_told_and_what_could_be_read_is_given() {
    let folder = tempfile::tempdir().unwrap();
    for (file, name) in files() {
        let found = only(&file);
        let bytes = fs::read(&file).unwrap();
        let whole = series(&all(&found));
        let path = folder.path().join(name);
        for damaged in (30..bytes.len()).step_by(bytes.len() / 97 + 1) {
            let mut bytes = bytes.clone();
            bytes[damaged] = !bytes[damaged];
            fs::write(&path, &bytes).unwrap();
            let mut reader = open(&at(&found, &path), None, &Options::default()).unwrap();
            let read = series(&rest(reader.as_mut(), true));
            if name.contains("tfevents") || name.contains("wandb") {
                // Checksums: what is read is right.
                for (metric, points) in &read {
                    assert!(
                        points.iter().all(|point| whole[metric].contains(point)),
                        "{name} {metric} {damaged}"
                    );
                }
            }
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn after_a_damaged_record_the_next_ones_are_read_where_they_can_be_found() {
    let folder = tempfile::tempdir().unwrap();
    let (file, name) = &files()[0];
    let path = folder.path().join(name);
    let mut bytes = fs::read(file).unwrap();
    let whole = all(&only(file));
    // In the data of the second record: the first one is the version, of 40 bytes with its frame.
    bytes[60] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let items = all(&only(&path));
    assert_eq!(
        series(&items)["train/lr"].len(),
        series(&whole)["train/lr"].len()
    );
    let told = notes(&items);
    assert!(
        told[0].contains("the checksum of a record's data does not fit"),
        "{told:?}"
    );

    let (file, name) = &files()[2];
    let mut bytes = fs::read(file).unwrap();
    // In the last block: what is before it is read, and so is nothing after.
    bytes[33_000] ^= 1;
    let path = folder.path().join(name);
    fs::write(&path, &bytes).unwrap();
    let told = all(&only(&path));
    assert!(
        notes(&told)
            .iter()
            .any(|note| note.contains("the checksum of a chunk does not fit")),
        "{:?}",
        notes(&told)
    );
}

#[test]
fn a_last_line_without_an_end_is_taken_when_the_file_has_settled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    fs::write(&path, "step,loss\n1,0.5\n2,0.25").unwrap();
    let items = all(&only(&path));
    assert_eq!(series(&items)["loss"].len(), 1);
    assert!(
        notes(&items)[0].contains("run.csv:3: left out: the line has no end yet"),
        "{:?}",
        notes(&items)
    );
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_modified(hour_ago)
        .unwrap();
    assert_eq!(series(&all(&only(&path)))["loss"].len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However a file grows, what is read of it in pieces is what is read of it at once.
    #[test]
    fn reading_as_it_grows_gives_what_reading_at_once_gives(which in 0_usize..5, cuts in proptest::collection::vec(0.0..1.0, 0..12)) {
        let folder = tempfile::tempdir().unwrap();
        let (file, name) = files().swap_remove(which);
        let found = only(&file);
        let bytes = fs::read(&file).unwrap();
        let path = folder.path().join(name);
        let mut sizes: Vec<usize> = cuts.iter().map(|cut: &f64| (cut * bytes.len() as f64) as usize).collect();
        sizes.sort_unstable();
        sizes.push(bytes.len());
        let mut items = Vec::new();
        let mut place = None;
        for size in sizes {
            fs::write(&path, &bytes[..size]).unwrap();
            let mut reader = open(&at(&found, &path), place.as_ref(), &Options::default()).unwrap();
            items.extend(rest(reader.as_mut(), false));
            place = Some(reader.place());
        }
        let whole = all(&found);
        prop_assert_eq!(format!("{items:?}"), format!("{whole:?}"));
    }

    /// Of any bytes a reader gives items or an error, and ends.
    #[test]
    fn any_bytes_are_read_to_their_end(which in 0_usize..5, bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000)) {
        let folder = tempfile::tempdir().unwrap();
        let (file, name) = files().swap_remove(which);
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let mut reader = open(&at(&only(&file), &path), None, &Options::default()).unwrap();
        while reader.read(true).is_ok_and(|batch| batch.has_more) {}
    }
}
