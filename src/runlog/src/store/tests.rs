use std::fs::{self, OpenOptions};
use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::run_dir::{NewRun, RunDir};
use crate::state::RunState;
use crate::testing::{any_events, lines};

fn run() -> (tempfile::TempDir, RunDir) {
    let root = tempfile::tempdir().unwrap();
    let run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
    (root, run_dir)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However often it is brought up to date, and wherever the log was cut at that moment.
    #[test]
    fn the_projected_series_equal_the_folds(
        events in any_events(12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let (_root, run_dir) = run();
        let bytes = lines(&events);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        for cut in cuts {
            fs::write(run_dir.events_path(), &bytes[..cut]).unwrap();
            project(&run_dir, true).unwrap();
        }
        fs::write(run_dir.events_path(), &bytes).unwrap();
        let expected = format!("{:?}", RunState::fold(&events).series);
        prop_assert_eq!(format!("{:?}", read_metrics(&run_dir).unwrap()), expected.clone());
        project(&run_dir, true).unwrap();
        prop_assert_eq!(format!("{:?}", read_metrics(&run_dir).unwrap()), expected);
    }
}

fn step_lines(steps: std::ops::Range<u64>) -> String {
    steps
        .map(|step| {
            format!(
                "{{\"seq\":{step},\"elapsed_ms\":{step}.5,\"event\":\"step_ended\",\"step\":{step},\"policy_version\":{step},\"values\":{{\"actor/lr\":{step}.25}}}}\n"
            )
        })
        .collect::<Vec<_>>()
        .concat()
}

#[test]
fn a_projection_is_sealed_and_goes_on_where_it_stopped() {
    let (_root, run_dir) = run();
    fs::write(run_dir.events_path(), step_lines(0..10)).unwrap();
    assert_eq!(
        project(&run_dir, false).unwrap(),
        0,
        "ten points are no whole segment"
    );
    assert_eq!(project(&run_dir, true).unwrap(), 10);
    let sealed = fs::read(run_dir.metrics_dir().join("segment-000000.parquet")).unwrap();
    let mut log = OpenOptions::new()
        .append(true)
        .open(run_dir.events_path())
        .unwrap();
    log.write_all(step_lines(10..15).as_bytes()).unwrap();
    assert_eq!(project(&run_dir, true).unwrap(), 5);
    assert_eq!(
        fs::read(run_dir.metrics_dir().join("segment-000000.parquet")).unwrap(),
        sealed
    );
    let series = read_metrics(&run_dir).unwrap();
    let steps: Vec<u64> = series["actor/lr"].iter().map(|point| point.step).collect();
    assert_eq!(steps, (0..15).collect::<Vec<_>>());
}

#[test]
fn a_projection_that_does_not_fit_its_log_is_rebuilt() {
    let (_root, run_dir) = run();
    fs::write(run_dir.events_path(), step_lines(0..10)).unwrap();
    project(&run_dir, true).unwrap();
    fs::write(run_dir.events_path(), step_lines(0..3)).unwrap();
    assert_eq!(project(&run_dir, true).unwrap(), 3);
    assert_eq!(read_metrics(&run_dir).unwrap()["actor/lr"].len(), 3);
    fs::remove_file(run_dir.metrics_dir().join("segment-000000.parquet")).unwrap();
    assert_eq!(project(&run_dir, true).unwrap(), 3);
}

fn row(sample: u32, tokens: usize) -> RolloutRow {
    let floats = |offset: f32| {
        (0..tokens)
            .map(|token| token as f32 + offset)
            .collect::<Vec<f32>>()
    };
    RolloutRow {
        uid: format!("uid-{sample}"),
        sample,
        step: 120,
        data_source: "lathe/arithmetic".to_owned(),
        row_index: 7,
        messages: r#"[{"role":"user","content":"2 + 2 = ?"}]"#.to_owned(),
        prompt_ids: vec![1, 2, 3],
        response_ids: (0..tokens as u32).collect(),
        response_mask: (0..tokens).map(|token| token % 2 == 0).collect(),
        behavior_logprobs: floats(-0.5),
        old_logprobs: Some(floats(-0.25)),
        ref_logprobs: None,
        values: Some(floats(0.0)),
        advantages: Some(vec![f32::INFINITY; tokens]),
        policy_versions: vec![9; tokens],
        score: Some(0.5),
        score_parts: r#"{"format":1.0}"#.to_owned(),
        tools: "[]".to_owned(),
        finish: "stop".to_owned(),
    }
}

#[test]
fn rollouts_read_back_as_they_were_written() {
    let (_root, run_dir) = run();
    let path = rollouts_path(&run_dir, 120);
    assert!(path.ends_with("rollouts/step-000120.parquet"));
    let missing = RolloutRow {
        score: None,
        values: None,
        ..row(1, 4)
    };
    let rows = [row(0, 3), missing, row(2, 0)];
    write_rollouts(&path, &rows).unwrap();
    assert_eq!(read_rollouts(&path).unwrap(), rows);
    assert_eq!(
        fs::read_dir(run_dir.rollouts_dir()).unwrap().count(),
        1,
        "nothing lies aside"
    );
    write_rollouts(&path, &[]).unwrap();
    assert!(read_rollouts(&path).unwrap().is_empty());
}

#[test]
fn lists_of_unequal_length_are_refused_with_row_and_name() {
    let (_root, run_dir) = run();
    let path = rollouts_path(&run_dir, 1);
    let mut bad = row(0, 3);
    bad.values = Some(vec![0.0]);
    let error = write_rollouts(&path, &[row(1, 2), bad]).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("row 1: values has 1 entries and response_ids 3"),
        "{error}"
    );
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_rollouts_file_is_an_error_that_names_it() {
    let (_root, run_dir) = run();
    let path = run_dir.path().join("x.parquet");
    fs::write(&path, "not parquet").unwrap();
    let error = read_rollouts(&path).unwrap_err().to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    fs::write(run_dir.events_path(), step_lines(0..2)).unwrap();
    project(&run_dir, true).unwrap();
    let error = read_rollouts(&run_dir.metrics_dir().join("segment-000000.parquet")).unwrap_err();
    assert!(error.to_string().contains("there is no column"), "{error}");
}
