use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::*;
use crate::event::{Event, EventKind};
use crate::number::Number;
use crate::state::RunState;

fn two_files(directory: &Path) -> io::Result<()> {
    fs::write(directory.join("config.json"), "{}")?;
    fs::create_dir(directory.join("critic"))?;
    fs::write(directory.join("critic/model.safetensors"), [7; 100])
}

fn written(root: &Path, step: u64) -> PathBuf {
    write(root, step, two_files, || Ok(()))
        .expect("written")
        .path
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root)
        .expect("readable")
        .map(|entry| {
            let name = entry.expect("readable").file_name();
            name.into_string().expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_written_checkpoint_verifies_and_counts_its_bytes() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let written = write(root.path(), 120, two_files, || Ok(())).expect("written");
    assert_eq!(written.path, root.path().join("step-000120"));
    assert_eq!(written.bytes, 102);
    assert_eq!(verify(&written.path).expect("whole"), 102);
    assert_eq!(measure(&written.path).expect("whole"), 102);
}

#[test]
fn a_write_that_fails_leaves_the_checkpoint_before_it_and_nothing_else() {
    let root = tempfile::tempdir().expect("a temporary directory");
    written(root.path(), 1);
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let fill = |directory: &Path| {
        two_files(directory)?;
        Err(full())
    };
    let error = write(root.path(), 2, fill, || Ok(())).expect_err("the disk is full");
    assert!(error.to_string().contains("step-000002"), "{error}");
    write(root.path(), 2, two_files, || Err(full())).expect_err("it is not to get its name");
    assert_eq!(names(root.path()), ["step-000001"]);
}

#[test]
fn a_checkpoint_has_its_name_only_after_it_was_said_to_be_ready() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let mut seen = Vec::new();
    let ready = || {
        seen = names(root.path());
        Ok(())
    };
    write(root.path(), 3, two_files, ready).expect("written");
    assert_eq!(seen, [".step-000003.partial"]);
    assert_eq!(names(root.path()), ["step-000003"]);
}

#[test]
fn a_changed_missing_or_newer_checkpoint_is_refused_with_the_file_s_name() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let path = written(root.path(), 3);
    fs::write(path.join("critic/model.safetensors"), [8; 100]).expect("writable");
    let error = verify(&path).expect_err("changed").to_string();
    assert!(error.contains("critic/model.safetensors"), "{error}");
    measure(&path).expect("its lengths are right");
    fs::write(path.join("critic/model.safetensors"), [7; 99]).expect("writable");
    let error = measure(&path).expect_err("shorter").to_string();
    assert!(error.contains("critic/model.safetensors"), "{error}");
    fs::remove_file(path.join("critic/model.safetensors")).expect("removable");
    for error in [verify(&path), measure(&path)] {
        let error = error.expect_err("missing").to_string();
        assert!(
            error.contains("critic/model.safetensors is missing"),
            "{error}"
        );
    }
    // A newer format may have another manifest altogether.
    fs::write(
        path.join(MANIFEST),
        "{\"format_version\": 9, \"parts\": []}",
    )
    .expect("writable");
    assert!(matches!(
        verify(&path),
        Err(CheckpointError::Newer { found: 9, .. })
    ));
}

#[test]
fn checkpoints_are_listed_by_step_and_nothing_else_is() {
    let root = tempfile::tempdir().expect("a temporary directory");
    assert!(
        list(&root.path().join("none"))
            .expect("no folder")
            .is_empty()
    );
    for step in [1_000_000, 5, 999_999] {
        written(root.path(), step);
    }
    fs::create_dir(root.path().join(".step-000007.partial")).expect("writable");
    fs::create_dir(root.path().join("sft")).expect("writable");
    let steps: Vec<u64> = list(root.path())
        .expect("listed")
        .iter()
        .map(|found| found.step)
        .collect();
    assert_eq!(steps, [5, 999_999, 1_000_000]);
}

#[test]
fn a_removed_checkpoint_is_gone_and_removing_it_again_is_no_error() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let path = written(root.path(), 1);
    remove(&path).expect("removed");
    remove(&path).expect("gone already");
    assert!(names(root.path()).is_empty());
}

#[test]
fn tidying_clears_what_was_cut_off_and_brings_back_what_was_not_replaced() {
    let root = tempfile::tempdir().expect("a temporary directory");
    tidy(&root.path().join("none")).expect("nothing to do");
    for (step, aside) in [(1, ""), (2, ".partial"), (3, ".removed"), (4, ".replaced")] {
        let path = written(root.path(), step);
        if !aside.is_empty() {
            let to = root.path().join(format!(".step-00000{step}{aside}"));
            fs::rename(path, to).expect("renamed");
        }
    }
    // Killed after the new one had its name.
    written(root.path(), 5);
    fs::create_dir(root.path().join(".step-000005.replaced")).expect("writable");
    tidy(root.path()).expect("tidied");
    assert_eq!(
        names(root.path()),
        ["step-000001", "step-000004", "step-000005"]
    );
    verify(&root.path().join("step-000004")).expect("whole");
}

#[test]
fn an_adopted_checkpoint_is_whole_and_outlives_the_one_it_came_from() {
    let theirs = tempfile::tempdir().expect("a temporary directory");
    let ours = tempfile::tempdir().expect("a temporary directory");
    let source = written(theirs.path(), 12);
    fs::write(source.join("note.txt"), "not part of it").expect("writable");
    let path = adopt(&source, &ours.path().join("checkpoints"), 12).expect("adopted");
    assert_eq!(path, ours.path().join("checkpoints/step-000012"));
    remove(&source).expect("removed");
    assert_eq!(verify(&path).expect("whole"), 102);
    assert!(!path.join("note.txt").exists());
    assert_eq!(names(&ours.path().join("checkpoints")), ["step-000012"]);
    adopt(&source, ours.path(), 12).expect_err("it is gone");
    assert_eq!(names(ours.path()), ["checkpoints"]);
}

fn found(steps: &[u64]) -> Vec<Found> {
    let path = |step| PathBuf::from(format!("step-{step:06}"));
    steps
        .iter()
        .map(|step| Found {
            step: *step,
            path: path(*step),
        })
        .collect()
}

/// Steps that are kept, with the reasons.
fn kept(steps: &[u64], scores: &[(u64, f64)], rules: &Rules) -> Vec<(u64, Vec<Why>)> {
    let score = |step: u64| {
        let found = scores.iter().find(|(of, _)| *of == step);
        found.map(|(_, score)| *score)
    };
    judge(&found(steps), score, score, rules)
        .into_iter()
        .filter(|one| !one.kept.is_empty())
        .map(|one| (one.found.step, one.kept))
        .collect()
}

#[test]
fn without_a_number_to_keep_none_may_go() {
    let rules = Rules {
        every: Some(2),
        best: 1,
        ..Rules::default()
    };
    let all = [(1, vec![Why::All]), (2, vec![Why::All])];
    assert_eq!(kept(&[1, 2], &[], &rules), all);
}

#[test]
fn the_newest_each_multiple_and_the_best_are_kept_and_the_newest_even_with_none_to_keep() {
    let rules = Rules {
        last: Some(2),
        every: Some(10),
        best: 1,
        ..Rules::default()
    };
    let scores = [(5, 0.5), (12, 0.9), (15, 0.9), (25, f64::NAN)];
    assert_eq!(
        kept(&[0, 5, 10, 12, 15, 20, 25], &scores, &rules),
        [
            (10, vec![Why::Every(10)]),
            (15, vec![Why::Best(0.9)]),
            (20, vec![Why::Last(2), Why::Every(10)]),
            (25, vec![Why::Last(2)]),
        ]
    );
    let none = Rules {
        last: Some(0),
        ..Rules::default()
    };
    assert_eq!(kept(&[3, 4], &[], &none), [(4, vec![Why::Last(1)])]);
    assert!(kept(&[], &[], &rules).is_empty());
}

#[test]
fn a_checkpoint_whose_evaluation_is_still_to_come_waits_for_it() {
    let rules = Rules {
        last: Some(1),
        best: 1,
        scored_every: Some(2),
        ..Rules::default()
    };
    assert_eq!(
        kept(&[2, 3, 4, 5, 6], &[(2, 0.1)], &rules),
        [
            (2, vec![Why::Best(0.1)]),
            (4, vec![Why::Unscored]),
            (6, vec![Why::Last(1), Why::Unscored]),
        ]
    );
}

#[test]
fn guards_keep_the_newest_from_before_any_trouble_they_may_find_and_the_best_of_those() {
    let guards = |steps, to_best| Rules {
        last: Some(1),
        guards: Some(Lookback { steps, to_best }),
        ..Rules::default()
    };
    let scores = [(10, 0.9), (20, 0.2), (30, 0.3), (40, 1.0)];
    let steps = |rules: &Rules| -> Vec<u64> {
        kept(&[10, 20, 30, 40, 50], &scores, rules)
            .into_iter()
            .map(|(step, _)| step)
            .collect()
    };
    assert_eq!(
        steps(&guards(15, false)),
        [30, 40, 50],
        "trouble since 35: 30"
    );
    assert_eq!(
        steps(&guards(15, true)),
        [10, 30, 40, 50],
        "40 is no best from before it"
    );
    assert_eq!(steps(&guards(500, true)), [10, 20, 30, 40, 50]);
}

#[test]
fn what_a_run_went_back_behind_is_no_best_one_and_nothing_to_go_back_to() {
    let scores = [(10, 0.2), (20, 0.9), (30, 0.95), (40, 0.3)];
    let rules = Rules {
        last: Some(1),
        best: 1,
        guards: Some(Lookback {
            steps: 15,
            to_best: true,
        }),
        left_behind: vec![(10, 40)],
        ..Rules::default()
    };
    assert_eq!(
        kept(&[10, 20, 30, 40], &scores, &rules),
        [
            (10, vec![Why::RollBack]),
            (40, vec![Why::Last(1), Why::Best(0.3), Why::RollBack]),
        ],
        "10 is the newest from before 25 that the run did not leave"
    );
    let waited_for = Rules {
        last: Some(1),
        best: 1,
        scored_every: Some(5),
        left_behind: vec![(10, 40)],
        ..Rules::default()
    };
    assert_eq!(
        kept(&[10, 30, 40], &[], &waited_for),
        [
            (10, vec![Why::Unscored]),
            (40, vec![Why::Last(1), Why::Unscored]),
        ]
    );
}

#[test]
fn where_a_run_went_back_behind_is_read_from_its_newest_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let all: Vec<Found> = [10, 20, 30]
        .map(|step| {
            let path = root.path().join(format!("step-{step:06}"));
            fs::create_dir(&path).unwrap();
            Found { step, path }
        })
        .into();
    assert!(left_behind(&all).is_empty());
    let say = |at: usize, text: &str| fs::write(all[at].path.join("state.json"), text).unwrap();
    say(0, r#"{"step":10,"guards":{"left_behind":[[1,5]]}}"#);
    say(1, r#"{"step":20,"guards":{"left_behind":[[1,5],[5,18]]}}"#);
    say(2, "torn");
    assert_eq!(left_behind(&all), [(1, 5), (5, 18)]);
    say(2, r#"{"step":30}"#);
    assert!(left_behind(&all).is_empty());
}

#[test]
fn a_score_is_the_mean_of_what_fits_at_that_step_and_lower_is_turned_around() {
    let ended = |seq, step, values: &[(&str, f64)]| Event {
        seq,
        elapsed_ms: 0.0,
        kind: EventKind::EvalEnded {
            step,
            policy_version: step,
            samples: 1,
            values: values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Number(*value)))
                .collect(),
        },
    };
    let state = RunState::fold(&[
        ended(
            0,
            2,
            &[
                ("val-core/a/reward/mean@1", 0.25),
                ("val-core/b/reward/mean@1", 0.75),
            ],
        ),
        ended(1, 4, &[("timing_s/step", 3.0)]),
    ]);
    let reward = |name: &str| name.starts_with("val-core/");
    assert_eq!(score(&state, reward, 2), Some(0.5));
    assert_eq!(score(&state, reward, 4), None);
    let time = |name: &str| name == "timing_s/step";
    assert_eq!(value(&state, time, 4), Some(3.0));
    assert_eq!(score(&state, time, 4), Some(-3.0));
}
