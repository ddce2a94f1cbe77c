//! Foreign runs as runs of ours: what the fold of the projected log says, however often and in how many pieces it was made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use foreign::{Format, Found, Options, Projection, find};
use runlog::run_dir::{Origin, RunDir, RunDirError};
use runlog::state::{Liveness, RunState, liveness};
use runlog::tail::read_all;

use crate::common::{all, copy, data, only, series, snapshot};

fn import(found: &Found, root: &Path) -> RunDir {
    let mut projection = Projection::open(found, root, None, &Options::default()).unwrap();
    while projection.advance(true).unwrap().has_more {}
    projection.run_dir().clone()
}

#[test]
fn a_binary_file_is_no_text_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    fs::write(&path, b"step,reward\n\0\x01\x02").unwrap();
    for format in [
        Format::Csv,
        Format::Jsonl,
        Format::Verl,
        Format::VerlConsole,
    ] {
        let options = Options {
            format: Some(format),
            ..Options::default()
        };
        let error = find(&path, &options).unwrap_err().to_string();
        assert!(error.contains("binary data"), "{error}");
    }
}

fn state(run_dir: &RunDir) -> RunState {
    let (events, bad_lines) = read_all(&run_dir.events_path()).unwrap();
    assert_eq!(bad_lines, []);
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(index, event)| event.seq == index as u64),
        "seq has no gaps"
    );
    RunState::fold(&events)
}

/// (step, value) of a metric as the fold has it.
fn points(state: &RunState, name: &str) -> Vec<(u64, String)> {
    let series = state
        .series
        .get(name)
        .unwrap_or_else(|| panic!("no {name}"));
    series
        .iter()
        .map(|point| (point.step, format!("{:?}", point.value.0)))
        .collect()
}

#[test]
fn the_fold_of_a_projection_has_every_value_of_its_source() {
    let root = tempfile::tempdir().unwrap();
    for path in [
        "tensorboard-torch",
        "tensorboard-tf2",
        "wandb-run",
        "verl/metrics.jsonl",
        "verl/console.log",
        "trackio",
        "mlflow-files",
        "mlflow-sqlite",
    ] {
        for found in find(&data(path), &Options::default()).unwrap() {
            let run_dir = import(&found, root.path());
            let source = Projection::source(&run_dir, &Options::default());
            let place = source.map(|source| source.place());
            assert_eq!(place, Some(found.place()), "{path} is found again");
            let state = state(&run_dir);
            let wanted = series(&all(&found));
            assert_eq!(state.missing_events, 0);
            for (name, values) in &wanted {
                assert_eq!(&points(&state, name), values, "{path} {name}");
            }
        }
    }
}

#[test]
fn a_projection_says_what_its_source_says_of_the_run() {
    let root = tempfile::tempdir().unwrap();
    let found = only(&data("wandb-run"));
    let run_dir = import(&found, root.path());
    let info = run_dir.info();
    assert_eq!(
        (
            info.experiment_name.as_str(),
            info.project_name.as_str(),
            info.host.as_str()
        ),
        ("blue-sky", "demo", "host-1")
    );
    assert_eq!(info.foreign_format(), Some("wandb"));
    let Some(Origin::Foreign { path, .. }) = &info.origin else {
        panic!("{info:?}")
    };
    assert_eq!(Path::new(path).extension(), Some("wandb".as_ref()));
    assert_eq!(info.started_at.as_second(), found.started_s.unwrap() as i64);
    let state = state(&run_dir);
    let ended = state.ended.as_ref().unwrap();
    assert_eq!(
        (ended.exit_code, ended.steps, ended.status.word()),
        (3, 30, "failed")
    );
    assert!(
        state.elapsed_ms > 500.0 && state.elapsed_ms < 60_000.0,
        "{}",
        state.elapsed_ms
    );
    assert_eq!(
        state
            .alarms
            .iter()
            .filter(|alarm| alarm.name == "alert")
            .count(),
        1
    );
    assert_eq!(
        fs::read_to_string(run_dir.log_path()).unwrap(),
        "a line of the console\n"
    );
    let yaml = fs::read_to_string(run_dir.experiment_path()).unwrap();
    assert!(
        yaml.contains("lr: 1e-6\n")
            && yaml.contains("actor:\n  clip: 0.2\n")
            && yaml.contains("late: 7\n"),
        "{yaml}"
    );
    assert_eq!(
        liveness(
            &run_dir,
            Some((ended.status, &ended.reason)),
            SystemTime::now()
        )
        .word(),
        "failed"
    );
}

#[test]
fn verl_s_own_times_and_evaluations_are_those_of_the_projection() {
    let root = tempfile::tempdir().unwrap();
    let run_dir = import(&only(&data("verl/metrics.jsonl")), root.path());
    let state = state(&run_dir);
    assert_eq!((state.step, state.evals.len()), (12, 4));
    let steps: Vec<u64> = state
        .evals
        .iter()
        .map(|evaluation| evaluation.step)
        .collect();
    assert_eq!(steps, [0, 4, 8, 12]);
    // Twelve steps of 2.5 s.
    assert_eq!(state.elapsed_ms, 30_000.0);
    assert_eq!(
        state.total_tokens,
        (1..=12).map(|step| f64::from(1000 + step)).sum::<f64>()
    );
    assert_eq!(points(&state, "actor/grad_norm"), [(5, "NaN".to_owned())]);
}

#[test]
fn importing_again_goes_on_and_writes_nothing_twice() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = fs::read_to_string(data("verl/metrics.jsonl")).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let path = source.path().join("metrics.jsonl");
    fs::write(&path, lines[..5].concat()).unwrap();
    let found = only(&path);
    let first = import(&found, root.path());
    let before = fs::read(first.events_path()).unwrap();
    let again = import(&found, root.path());
    assert_eq!(again.path(), first.path());
    assert_eq!(
        fs::read(first.events_path()).unwrap(),
        before,
        "nothing new, nothing written"
    );
    fs::write(&path, &text).unwrap();
    import(&found, root.path());
    let grown = fs::read(first.events_path()).unwrap();
    assert!(grown.starts_with(&before));
    let at_once = tempfile::tempdir().unwrap();
    let whole = import(&found, at_once.path());
    assert_eq!(grown, fs::read(whole.events_path()).unwrap());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        text,
        "the source is as it was"
    );
}

#[test]
fn what_a_killed_import_wrote_beyond_its_state_is_cut_off() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy(&data("verl"), source.path());
    let found = only(&source.path().join("console.log"));
    let run_dir = import(&found, root.path());
    let whole = [run_dir.events_path(), run_dir.log_path()].map(|path| fs::read(path).unwrap());
    for path in [run_dir.events_path(), run_dir.log_path()] {
        let mut file = fs::File::options().append(true).open(path).unwrap();
        file.write_all(b"{\"seq\":99,\"elapsed_ms\":1,\"event\":\"half a li")
            .unwrap();
    }
    import(&found, root.path());
    assert_eq!(
        [run_dir.events_path(), run_dir.log_path()].map(|path| fs::read(path).unwrap()),
        whole
    );
    // A disk that lost the end of the log: it is made anew.
    fs::File::options()
        .write(true)
        .open(run_dir.events_path())
        .unwrap()
        .set_len(100)
        .unwrap();
    import(&found, root.path());
    assert_eq!(fs::read(run_dir.events_path()).unwrap(), whole[0]);
}

#[test]
fn two_importers_of_one_run_do_not_mix() {
    let root = tempfile::tempdir().unwrap();
    let found = only(&data("verl/metrics.jsonl"));
    let first = Projection::open(&found, root.path(), None, &Options::default()).unwrap();
    let second = Projection::open(&found, root.path(), None, &Options::default());
    assert!(
        matches!(
            second,
            Err(foreign::ForeignError::RunDir(RunDirError::Busy { .. }))
        ),
        "{second:?}"
    );
    drop(first);
    assert!(Projection::open(&found, root.path(), None, &Options::default()).is_ok());
}

fn verl_row(step: u64, value: f64) -> String {
    format!("{{\"step\":{step},\"data\":{{\"actor/pg_loss\":{value},\"timing_s/step\":1}}}}\n")
}

#[test]
fn after_a_resume_later_values_win_and_it_is_said_once() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("metrics.jsonl");
    let rows: String = (1..=8)
        .map(|step| verl_row(step, 1.0))
        .chain((6..=9).map(|step| verl_row(step, 2.0)))
        .collect();
    fs::write(&path, rows).unwrap();
    let run_dir = import(&only(&path), root.path());
    let state = state(&run_dir);
    let values: Vec<(u64, String)> = (1..=9)
        .map(|step| (step, if step < 6 { "1.0" } else { "2.0" }.to_owned()))
        .collect();
    assert_eq!(points(&state, "actor/pg_loss"), values);
    assert_eq!((state.superseded_steps, state.step), (3, 9));
    let said = state
        .log_lines
        .iter()
        .filter(|line| line.message.contains("goes back from step 8 to 5"))
        .count();
    assert_eq!(said, 1);
}

/// verl opens its file anew when it is started again, and evaluates the step it goes on from.
#[test]
fn a_file_that_verl_wrote_anew_goes_on_from_what_was_read_of_the_old_one() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("metrics.jsonl");
    let evaluated = |step: u64, value: f64| {
        format!("{{\"step\":{step},\"data\":{{\"val-core/x/reward/mean@1\":{value}}}}}\n")
    };
    let rows: String = (1..=8)
        .map(|step| verl_row(step, 1.0))
        .chain([evaluated(8, 0.5)])
        .collect();
    fs::write(&path, rows).unwrap();
    let found = only(&path);
    import(&found, root.path());
    let rows: String = [evaluated(6, 0.25)]
        .into_iter()
        .chain((7..=9).map(|step| verl_row(step, 2.0)))
        .collect();
    fs::write(&path, rows).unwrap();
    let state = state(&import(&found, root.path()));
    let values: Vec<(u64, String)> = (1..=9)
        .map(|step| (step, if step < 7 { "1.0" } else { "2.0" }.to_owned()))
        .collect();
    assert_eq!(points(&state, "actor/pg_loss"), values);
    assert_eq!(
        points(&state, "val-core/x/reward/mean@1"),
        [(6, "0.25".to_owned())]
    );
}

#[test]
fn a_metric_with_steps_of_its_own_neither_moves_the_run_nor_is_lost() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("log.jsonl");
    let mut text = String::new();
    for step in 1..=40 {
        writeln!(text, "{{\"step\": {step}, \"loss\": {step}}}").unwrap();
        if step % 10 == 0 {
            let own = if step == 40 { 2 } else { step / 10 };
            writeln!(text, "{{\"step\": {own}, \"epoch_loss\": 0.5}}").unwrap();
        }
    }
    fs::write(&path, text).unwrap();
    let state = state(&import(&only(&path), root.path()));
    assert_eq!((state.step, state.superseded_steps), (40, 0));
    assert_eq!(points(&state, "loss").len(), 40);
    let steps: Vec<u64> = points(&state, "epoch_loss")
        .into_iter()
        .map(|(step, _)| step)
        .collect();
    assert_eq!(steps, [1, 2, 3, 2]);
    assert!(state.log_lines.iter().any(|line| {
        line.message
            .starts_with("epoch_loss counts in steps of its own")
    }));
}

#[test]
fn a_source_that_tells_no_end_is_live_while_it_is_written_and_silent_after() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("metrics.jsonl");
    fs::write(&path, verl_row(1, 1.0)).unwrap();
    let found = only(&path);
    let run_dir = import(&found, root.path());
    assert_eq!(
        liveness(&run_dir, None, SystemTime::now()),
        Liveness::Running
    );
    let file = fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3 * 3600))
        .unwrap();
    let run_dir = import(&found, root.path());
    let silent = liveness(&run_dir, None, SystemTime::now());
    assert_eq!(silent.word(), "silent");
    assert_eq!(
        silent.reason(),
        Some("its verl log tells no end, and was last written 3 h ago")
    );
}

/// A writer writes while the projection follows: in the end both know the same.
#[test]
fn following_a_writer_gives_what_it_wrote() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("metrics.jsonl");
    fs::write(&path, "").unwrap();
    let options = Options {
        format: Some(Format::Verl),
        ..Options::default()
    };
    let found = find(&path, &options).unwrap().remove(0);
    let mut projection = Projection::open(&found, root.path(), None, &options).unwrap();
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::options().append(true).open(path).unwrap();
        for step in 1..=500 {
            let row = verl_row(step, step as f64);
            let (start, end) = row.split_at(step as usize % row.len());
            // Rows come in two pieces, as a buffer may cut them.
            file.write_all(start.as_bytes()).unwrap();
            file.write_all(end.as_bytes()).unwrap();
        }
    });
    while projection.report().step != Some(500) {
        projection.advance(false).unwrap();
    }
    writer.join().unwrap();
    projection.advance(true).unwrap();
    let state = state(projection.run_dir());
    let values: Vec<(u64, String)> = (1..=500)
        .map(|step| (step, format!("{:?}", step as f64)))
        .collect();
    assert_eq!(points(&state, "actor/pg_loss"), values);
}

#[test]
fn sources_are_left_as_they_are() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy(&data(""), source.path());
    let before = snapshot(source.path());
    let found = find(source.path(), &Options::default()).unwrap();
    let formats: BTreeMap<Format, usize> =
        found.iter().fold(BTreeMap::new(), |mut counts, found| {
            *counts.entry(found.format).or_default() += 1;
            counts
        });
    assert_eq!(
        formats.into_iter().collect::<Vec<_>>(),
        [
            (Format::Verl, 1),
            (Format::TensorBoard, 3),
            (Format::Wandb, 1),
            (Format::Trackio, 2),
            (Format::Mlflow, 2),
            (Format::MlflowSqlite, 2)
        ]
    );
    for found in &found {
        import(found, root.path());
    }
    assert_eq!(snapshot(source.path()), before);
}
