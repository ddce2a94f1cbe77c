use std::fs::{self, OpenOptions};
use std::io::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::run_dir::{NewRun, RunDir};
use crate::state::RunState;
use crate::testing::{any_events, lines};

fn run() -> (tempfile::TempDir, RunDir) {
    let root = tempfile::tempdir().unwrap();
    let run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
    (root, run_dir)
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

/// What opening gives, and that it came from sealed segments.
fn opened(run_dir: &RunDir) -> RunState {
    let opened = crate::open::open(run_dir).unwrap();
    assert!(opened.problem.is_none(), "{:?}", opened.problem);
    opened.state
}

fn names(run_dir: &RunDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(run_dir.metrics_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
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
    let sealed = fs::read(run_dir.metrics_dir().join("steps-000000.parquet")).unwrap();
    let mut log = OpenOptions::new()
        .append(true)
        .open(run_dir.events_path())
        .unwrap();
    log.write_all(step_lines(10..15).as_bytes()).unwrap();
    assert_eq!(project(&run_dir, true).unwrap(), 5);
    assert_eq!(
        fs::read(run_dir.metrics_dir().join("steps-000000.parquet")).unwrap(),
        sealed
    );
    assert_eq!(project(&run_dir, true).unwrap(), 0, "nothing is new");
    assert_eq!(
        names(&run_dir),
        [
            "index.json",
            "state-000002.bin",
            "steps-000000.parquet",
            "steps-000001.parquet"
        ]
    );
    let state = opened(&run_dir);
    let series = state.series.get("actor/lr").unwrap();
    let steps: Vec<u64> = series.iter().map(|point| point.step).collect();
    assert_eq!(steps, (0..15).collect::<Vec<_>>());
}

#[test]
fn a_projection_that_does_not_fit_its_log_is_rebuilt() {
    let (_root, run_dir) = run();
    fs::write(run_dir.events_path(), step_lines(0..10)).unwrap();
    project(&run_dir, true).unwrap();
    fs::write(run_dir.events_path(), step_lines(0..3)).unwrap();
    assert_eq!(project(&run_dir, true).unwrap(), 3);
    assert_eq!(opened(&run_dir).step, 2);
    fs::write(run_dir.events_path(), step_lines(5..20)).unwrap();
    assert_eq!(
        project(&run_dir, true).unwrap(),
        15,
        "a longer log that is another one"
    );
    fs::remove_file(run_dir.metrics_dir().join("steps-000000.parquet")).unwrap();
    assert_eq!(project(&run_dir, true).unwrap(), 15);
}

#[test]
fn what_an_earlier_layout_left_is_removed_and_made_again() {
    let (_root, run_dir) = run();
    fs::write(run_dir.events_path(), step_lines(0..4)).unwrap();
    fs::create_dir(run_dir.metrics_dir()).unwrap();
    fs::write(
        run_dir.metrics_dir().join("index.json"),
        r#"{"segments":1,"events_offset":10,"step":2}"#,
    )
    .unwrap();
    fs::write(run_dir.metrics_dir().join("segment-000000.parquet"), "old").unwrap();
    fs::write(run_dir.metrics_dir().join("mine.txt"), "kept").unwrap();
    let early = crate::open::open(&run_dir).unwrap();
    assert_eq!(early.state.step, 3, "the log is read instead");
    let problem = early.problem.unwrap().to_string();
    assert!(problem.contains("made by another version"), "{problem}");
    assert_eq!(project(&run_dir, true).unwrap(), 4);
    assert_eq!(
        names(&run_dir),
        [
            "index.json",
            "mine.txt",
            "state-000001.bin",
            "steps-000000.parquet"
        ]
    );
}

/// A run of some hundred lines of every kind, sealed in three pieces.
fn sealed_run() -> (tempfile::TempDir, RunDir, RunState) {
    let (root, run_dir) = run();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut events = any_events(400).new_tree(&mut runner).unwrap().current();
    let tail = step_lines(1000..1020);
    for (seq, event) in events.iter_mut().enumerate() {
        event.seq = seq as u64;
    }
    let bytes = [lines(&events), tail.into_bytes()].concat();
    for end in [bytes.len() / 3, bytes.len() / 2, bytes.len()] {
        fs::write(run_dir.events_path(), &bytes[..end]).unwrap();
        project(&run_dir, true).unwrap();
    }
    let (events, bad_lines) = crate::tail::read_all(&run_dir.events_path()).unwrap();
    assert!(bad_lines.is_empty());
    (root, run_dir, RunState::fold(&events))
}

/// Debug text, since a NaN time is unequal to itself; series by their own equality, which also sees tokens and samples.
fn assert_same(found: &RunState, expected: &RunState) {
    assert!(found.series == expected.series);
    assert_eq!(format!("{found:?}"), format!("{expected:?}"));
}

#[test]
fn whatever_is_broken_in_a_projection_the_log_is_read_instead() {
    let (_root, run_dir, expected) = sealed_run();
    assert_same(&opened(&run_dir), &expected);
    for name in names(&run_dir) {
        let path = run_dir.metrics_dir().join(&name);
        let whole = fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn.truncate(whole.len() / 2);
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle..].fill(0);
        for broken in [&torn, &flipped, &Vec::new()] {
            fs::write(&path, broken).unwrap();
            let opened = crate::open::open(&run_dir).unwrap();
            assert!(opened.problem.is_some(), "{name}");
            assert_same(&opened.state, &expected);
            assert_eq!(
                opened.tail.offset(),
                fs::metadata(run_dir.events_path()).unwrap().len()
            );
        }
        fs::remove_file(&path).unwrap();
        assert_same(&crate::open::open(&run_dir).unwrap().state, &expected);
        fs::write(&path, whole).unwrap();
    }
    assert_same(&opened(&run_dir), &expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However often it was sealed, wherever the log was cut at that moment, and with lines that are no events.
    #[test]
    fn opening_a_run_gives_what_folding_its_whole_log_gives(
        events in any_events(40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        bad_line in any::<prop::sample::Index>(),
    ) {
        let (_root, run_dir) = run();
        let mut all: Vec<Vec<u8>> = events.iter().map(crate::testing::line).collect();
        all.insert(bad_line.index(all.len() + 1), b"{no event\n".to_vec());
        let bytes = all.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        for cut in cuts {
            fs::write(run_dir.events_path(), &bytes[..cut]).unwrap();
            project(&run_dir, true).unwrap();
        }
        fs::write(run_dir.events_path(), &bytes).unwrap();
        let (read, _) = crate::tail::read_all(&run_dir.events_path()).unwrap();
        let expected = RunState::fold(&read);
        let opened = crate::open::open(&run_dir).unwrap();
        prop_assert!(opened.problem.is_none(), "{:?}", opened.problem);
        prop_assert!(opened.state.series == expected.series);
        prop_assert_eq!(format!("{:?}", &opened.state), format!("{:?}", &expected));
        prop_assert_eq!(opened.tail.offset(), bytes.len() as u64);
        prop_assert_eq!(opened.sealed_bad_lines + opened.bad_lines.len() as u64, 1);
    }
}

#[test]
fn opening_goes_on_with_what_is_written_later_and_starts_again_when_the_log_is_cut() {
    let (_root, run_dir) = run();
    fs::write(run_dir.events_path(), step_lines(0..10)).unwrap();
    project(&run_dir, true).unwrap();
    let mut log = OpenOptions::new()
        .append(true)
        .open(run_dir.events_path())
        .unwrap();
    log.write_all(step_lines(10..12).as_bytes()).unwrap();
    let mut opening = crate::open::Opening::start(&run_dir);
    assert_eq!(
        (opening.state().step, opening.state().series.len()),
        (9, 0),
        "all but the series is there first"
    );
    while opening.advance().unwrap() {}
    let mut opened = opening.finish();
    assert_eq!((opened.state.step, opened.state.series.points()), (11, 12));
    log.write_all(step_lines(12..13).as_bytes()).unwrap();
    let batch = opened.tail.read(crate::tail::Limits::LIVE).unwrap();
    assert_eq!(batch.events.len(), 1);
}

#[test]
fn a_live_run_is_sealed_to_its_end_by_the_thread_that_follows_it() {
    let (_root, run_dir) = run();
    let sealing = follow(&run_dir).unwrap();
    fs::write(run_dir.events_path(), step_lines(0..5)).unwrap();
    sealing.finish().unwrap();
    let state = opened(&run_dir);
    assert_eq!(state.series.points(), 5);
    assert!(names(&run_dir).contains(&"steps-000000.parquet".to_owned()));
}

/// One line of each kind that leaves something in the state.
const EVERY_KIND: &str = r#"{"seq":0,"elapsed_ms":0.5,"event":"phase_changed","phase":"setup"}
{"seq":1,"elapsed_ms":1.5,"event":"run_started","experiment_name":"x","mode":"sync","total_steps":9,"parameters":8,"pid":7,"host":"h","seed":6}
{"seq":2,"elapsed_ms":2.5,"event":"rollout_ended","step":1,"uid":"u","sample":0,"policy_version_min":0,"policy_version_max":0,"turns":2,"tool_calls":1,"response_tokens":10,"score":0.5,"finish":"stop"}
{"seq":3,"elapsed_ms":3.5,"event":"step_ended","step":1,"policy_version":1,"values":{"actor/lr":0.25,"perf/total_num_tokens":100}}
{"seq":4,"elapsed_ms":4.5,"event":"span","lane":"generate","name":"g","step":1,"start_ms":1,"end_ms":2}
{"seq":5,"elapsed_ms":5.5,"event":"weights_synced","version":1,"bytes":2,"blocked_ms":3,"transfer_ms":4,"total_ms":5,"sent_fingerprint":"a","received_fingerprint":"a","canary_max_diff_nats":"NaN","verified":true}
{"seq":6,"elapsed_ms":6.5,"event":"eval_ended","step":1,"policy_version":1,"samples":4,"values":{"val-core/a/reward/mean@1":0.5}}
{"seq":7,"elapsed_ms":7.5,"event":"checkpoint_saved","step":1,"path":"checkpoints/step-000001","bytes":9,"save_ms":2}
{"seq":8,"elapsed_ms":8.5,"event":"host_sampled","cpu_percent":1,"memory_used_bytes":2,"memory_total_bytes":3,"process_memory_bytes":4,"process_cpu_percent":5,"gpus":[{"index":0,"name":"g","utilization_percent":1,"memory_used_bytes":2,"memory_total_bytes":3,"power_watts":4}]}
{"seq":9,"elapsed_ms":9.5,"event":"alarm","name":"n","step":1,"message":"m"}
{"seq":10,"elapsed_ms":10.5,"event":"log_line","level":"info","target":"t","message":"m"}
{"seq":12,"elapsed_ms":11.5,"event":"run_started","experiment_name":"x","mode":"sync","total_steps":9,"parameters":8,"pid":7,"host":"h","seed":6}
{"seq":13,"elapsed_ms":11.6,"event":"run_resumed","from_step":1,"checkpoint":"checkpoints/step-000001","lost_steps":2}
{"seq":14,"elapsed_ms":11.7,"event":"guard_tripped","guard":"kl","watched":"actor/ppo_kl","step":1,"since_step":1,"value":0.5,"limit":0.25,"reason":"r","relapse":0,"done":[{"action":"sync 1","before":"1","after":"0","is_done":true}]}
{"seq":15,"elapsed_ms":11.8,"event":"control_applied","request":1,"who":"w","command":"pause","step":1}
{"seq":16,"elapsed_ms":12.5,"event":"run_ended","status":"finished","exit_code":0,"reason":"r","steps":9}
{"seq":17,"elapsed_ms":13.5,"event":"bandit_chose","pull":0,"step":1,"uid":"u","sample":0,"arm":"a","why":"sampled","scores":[0.5]}
{"seq":18,"elapsed_ms":14.5,"event":"bandit_updated","update":1,"step":1,"policy":"thompson","arms":[{"name":"a","counted":1,"timed_out":0,"missing":0,"mean":0.5,"sd":0.25,"is_frozen":false,"is_forced":false}],"regret":0}
"#;

/// When this fails, raise `FOLD_VERSION` and put both numbers here: else a state that an earlier version sealed would be
/// taken for one of this.
#[test]
fn the_sealed_state_is_the_one_of_this_fold_version() {
    let (_root, run_dir) = run();
    fs::write(run_dir.events_path(), EVERY_KIND).unwrap();
    let state = RunState::fold(&crate::tail::read_all(&run_dir.events_path()).unwrap().0);
    let bytes = postcard::to_allocvec(&state).unwrap();
    assert_eq!(
        (RunState::FOLD_VERSION, crc32c::crc32c(&bytes)),
        (11, 3_134_442_434)
    );
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
    let error = read_rollouts(&run_dir.metrics_dir().join("steps-000000.parquet")).unwrap_err();
    assert!(error.to_string().contains("there is no column"), "{error}");
}

#[test]
fn each_group_is_looked_at_once() {
    let (_root, run_dir) = run();
    let path = rollouts_path(&run_dir, 3);
    let twin = |sample| RolloutRow {
        uid: "a".to_owned(),
        ..row(sample, 2)
    };
    write_rollouts(&path, &[twin(0), twin(1), row(2, 2)]).unwrap();
    let mut looked = 0;
    let found = any_rollout_group(&path, |messages| {
        assert!(messages.contains("2 + 2"));
        looked += 1;
        false
    });
    assert!(!found.unwrap());
    assert_eq!(looked, 2);
    assert!(any_rollout_group(&path, |_| true).unwrap());
}
