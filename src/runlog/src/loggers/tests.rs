use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::event::{EventKind, GpuSample, Level, RunStatus};
use crate::number::{Number, Values};
use crate::recorder::{Options, Recorder};
use crate::run_dir::NewRun;
use decode::{bodies, items, tensorboard_events, wandb_records};

mod decode;

fn values(pairs: &[(&str, f64)]) -> Values {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Number(*value)))
        .collect()
}

fn step(step: u64, pairs: &[(&str, f64)]) -> EventKind {
    EventKind::StepEnded {
        step,
        policy_version: step,
        values: values(pairs),
    }
}

fn eval(step: u64, reward: f64) -> EventKind {
    EventKind::EvalEnded {
        step,
        policy_version: step,
        samples: 4,
        values: values(&[("val-core/a/reward/mean@1", reward)]),
    }
}

fn host() -> EventKind {
    EventKind::HostSampled {
        cpu_percent: 12.5,
        memory_used_bytes: 1 << 30,
        memory_total_bytes: 4 << 30,
        process_memory_bytes: 512 << 20,
        process_cpu_percent: 150.0,
        gpus: vec![GpuSample {
            index: 0,
            name: "GPU".to_owned(),
            utilization_percent: 75.0,
            memory_used_bytes: 2 << 30,
            memory_total_bytes: 8 << 30,
            power_watts: 250.0,
        }],
    }
}

fn ended(exit_code: i32) -> EventKind {
    EventKind::RunEnded {
        status: RunStatus::Completed,
        exit_code,
        reason: "all steps done".to_owned(),
        steps: 2,
    }
}

fn a_run() -> Vec<EventKind> {
    vec![
        eval(0, 0.4),
        step(1, &[("actor/pg_loss", 0.01), ("actor/lr", 1e-6)]),
        host(),
        eval(1, 0.5),
        EventKind::Alarm {
            name: "all_equal".to_owned(),
            step: Some(2),
            message: "3 of 4 groups".to_owned(),
        },
        step(
            2,
            &[("actor/pg_loss", f64::NAN), ("actor/lr", f64::INFINITY)],
        ),
        EventKind::LogLine {
            level: Level::Info,
            target: "trainer".to_owned(),
            message: "quiet".to_owned(),
        },
        ended(0),
    ]
}

fn context(directory: &Path) -> Context {
    Context {
        run_path: directory.to_owned(),
        run_id: "1f0c9a3e".to_owned(),
        run_name: "20261129-120000-exp-1f0c9a3e".to_owned(),
        project_name: "lathe".to_owned(),
        experiment_name: "exp".to_owned(),
        started_at: "2026-11-29T12:00:00Z".parse().unwrap(),
        host: "node1".to_owned(),
        git: Some(Git {
            commit: "fea8fea".to_owned(),
            dirty: false,
        }),
        command: vec!["lathe".to_owned(), "run".to_owned()],
        config: serde_json::json!({"trainer": {"seed": 42}, "data": {"train_files": ["a"]}}),
        resumed_from: None,
    }
}

fn feed(logger: &mut dyn Logger, kinds: Vec<EventKind>) {
    for (seq, kind) in kinds.into_iter().enumerate() {
        logger
            .take(&Event {
                seq: seq as u64,
                elapsed_ms: seq as f64 * 500.0,
                kind,
            })
            .unwrap();
    }
    logger.finish().unwrap();
}

#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn the_console_has_a_line_a_step_as_verl_does() {
    let screen = Screen::default();
    feed(&mut Console::new(Box::new(screen.clone())), a_run());
    assert_eq!(
        screen.text(),
        "step:0 - val-core/a/reward/mean@1:0.4\n\
         step:1 - actor/lr:1e-6 - actor/pg_loss:0.01\n\
         step:1 - val-core/a/reward/mean@1:0.5\n\
         alarm all_equal: 3 of 4 groups\n\
         step:2 - actor/lr:inf - actor/pg_loss:NaN\n\
         ended after 2 steps: all steps done\n"
    );
}

#[test]
fn the_file_has_verls_rows_and_grows_at_each_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b.jsonl");
    feed(
        &mut FileRows::open(&path).unwrap(),
        vec![step(1, &[("actor/pg_loss", 0.25)])],
    );
    // An earlier writer was cut off in a row.
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"{\"step\":2,")
        .unwrap();
    feed(
        &mut FileRows::open(&path).unwrap(),
        vec![step(2, &[("actor/pg_loss", f64::NAN)])],
    );
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "{\"step\":1,\"data\":{\"actor/pg_loss\":0.25}}\n{\"step\":2,\n{\"step\":2,\"data\":{\"actor/pg_loss\":\"NaN\"}}\n"
    );
}

/// Steps 1 to 4 and an evaluation after 2; killed, gone back to 3, killed after the new 5, gone back to 4, ended with 5.
fn a_run_killed_twice() -> [Vec<EventKind>; 3] {
    let train = |from: u64, to: u64, value: f64| {
        (from..=to).map(move |at| step(at, &[("actor/pg_loss", value)]))
    };
    let resumed = |from_step| EventKind::RunResumed {
        from_step,
        checkpoint: None,
        lost_steps: 1,
        passed_over: Vec::new(),
    };
    let mut first: Vec<EventKind> = train(1, 3, 0.5).collect();
    first.push(eval(2, 0.25));
    first.extend(train(4, 4, 0.5));
    let second = std::iter::once(resumed(3))
        .chain(train(4, 5, 1.5))
        .collect();
    let last = std::iter::once(resumed(4))
        .chain(train(5, 5, 2.5))
        .chain([ended(0)])
        .collect();
    [first, second, last]
}

/// Writes a run's log as it grows, and has `open` make a logger at each start of its trainer.
fn feed_in_three_starts(
    run: &Path,
    open: impl Fn(&Context) -> Box<dyn Logger>,
) -> [Vec<EventKind>; 3] {
    let sessions = a_run_killed_twice();
    let mut log = fs::File::create(run.join("events.jsonl")).unwrap();
    let mut seq = 0;
    for (kinds, resumed_from) in sessions.iter().zip([None, Some(3), Some(4)]) {
        let mut logger = open(&Context {
            resumed_from,
            ..context(run)
        });
        for kind in kinds {
            let event = Event {
                seq,
                elapsed_ms: seq as f64 * 500.0,
                kind: kind.clone(),
            };
            seq += 1;
            log.write_all(&serde_json::to_vec(&event).unwrap()).unwrap();
            log.write_all(b"\n").unwrap();
            logger.take(&event).unwrap();
        }
        if resumed_from == Some(4) {
            logger.finish().unwrap();
        }
    }
    sessions
}

const ROWS_OF_A_RUN_KILLED_TWICE: [(u64, &str, f64); 6] = [
    (1, "actor/pg_loss", 0.5),
    (2, "actor/pg_loss", 0.5),
    (3, "actor/pg_loss", 0.5),
    (2, "val-core/a/reward/mean@1", 0.25),
    (4, "actor/pg_loss", 1.5),
    (5, "actor/pg_loss", 2.5),
];

fn rows_of(path: &Path) -> Vec<(u64, String, f64)> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .flat_map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let step = row["step"].as_u64().unwrap();
            let data = row["data"].as_object().unwrap().clone();
            data.into_iter()
                .map(move |(name, value)| (step, name, value.as_f64().unwrap()))
        })
        .collect()
}

fn owned(rows: &[(u64, &str, f64)]) -> Vec<(u64, String, f64)> {
    rows.iter()
        .map(|(step, name, value)| (*step, (*name).to_owned(), *value))
        .collect()
}

#[test]
fn the_file_of_a_resumed_run_has_each_step_once() {
    let run = tempfile::tempdir().unwrap();
    let path = run.path().join("metrics.jsonl");
    feed_in_three_starts(run.path(), |context| {
        Box::new(FileRows::of_run(&path, context).unwrap())
    });
    assert_eq!(rows_of(&path), owned(&ROWS_OF_A_RUN_KILLED_TWICE));
}

#[test]
fn a_file_shared_with_other_runs_loses_only_the_superseded_rows_of_this_one() {
    let run = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("all.jsonl");
    let theirs = "{\"step\":9,\"data\":{\"actor/pg_loss\":7.0}}\n";
    fs::write(&path, theirs).unwrap();
    feed_in_three_starts(run.path(), |context| {
        Box::new(FileRows::of_run(&path, context).unwrap())
    });
    let mut expected = owned(&[(9, "actor/pg_loss", 7.0)]);
    expected.extend(owned(&ROWS_OF_A_RUN_KILLED_TWICE));
    assert_eq!(rows_of(&path), expected);
}

#[test]
fn the_wandb_run_of_a_resumed_run_is_one_run_whose_steps_only_rise() {
    let run = tempfile::tempdir().unwrap();
    feed_in_three_starts(run.path(), |context| {
        Box::new(Wandb::open(run.path(), context).unwrap())
    });
    let records = wandb_records(&fs::read(wandb_file(run.path())).unwrap());
    let numbers: Vec<u64> = records
        .iter()
        .map(|record| record[&1][0].number())
        .collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
    assert_eq!(bodies(&records, 17).len(), 1, "one run record");
    assert_eq!(bodies(&records, 18).len(), 1, "one exit");
    let history: Vec<(String, String)> = bodies(&records, 2)
        .iter()
        .map(|row| {
            let row = items(row, 1);
            (row["_step"].clone(), row["actor/pg_loss"].clone())
        })
        .collect();
    let expected = [
        ("1", "0.5"),
        ("2", "0.5"),
        ("3", "0.5"),
        ("4", "1.5"),
        ("5", "2.5"),
    ];
    assert_eq!(
        history,
        expected.map(|(step, value)| (step.to_owned(), value.to_owned()))
    );
}

#[test]
fn the_files_path_follows_verls_variables() {
    let context = context(Path::new("/runs/r"));
    let path = |set: &[(&str, &str)]| {
        let set: BTreeMap<&str, &str> = set.iter().copied().collect();
        file::path(&context, &|key| {
            set.get(key).map(|value| (*value).to_owned())
        })
    };
    assert_eq!(path(&[]), Path::new("/runs/r/metrics.jsonl"));
    assert_eq!(
        path(&[("VERL_FILE_LOGGER_ROOT", "/logs")]),
        Path::new("/logs/lathe/exp.jsonl")
    );
    assert_eq!(
        path(&[
            ("VERL_FILE_LOGGER_ROOT", "/logs"),
            ("VERL_FILE_LOGGER_PATH", "/x.jsonl")
        ]),
        Path::new("/x.jsonl")
    );
}

#[test]
fn tensorboard_gets_every_scalar_with_its_step_and_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut logger = TensorBoard::open(directory.path(), &context(directory.path())).unwrap();
    feed(&mut logger, a_run());
    let files: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    assert_eq!(files.len(), 1);
    assert!(
        files[0]
            .file_name()
            .to_str()
            .unwrap()
            .starts_with("events.out.tfevents.")
    );
    let events = tensorboard_events(&fs::read(files[0].path()).unwrap());
    assert_eq!(
        events.iter().map(|event| event.0).collect::<Vec<_>>(),
        [0, 1, 1, 1, 2]
    );
    let start = context(directory.path()).started_at.as_second() as f64;
    assert_eq!(events[1].1, start + 0.5);
    assert_eq!(events[1].2["actor/pg_loss"], 0.01);
    assert_eq!(events[2].2["gpu/0/power_watts"], 250.0);
    assert_eq!(events[3].2["val-core/a/reward/mean@1"], 0.5);
    assert!(events[4].2["actor/pg_loss"].is_nan() && events[4].2["actor/lr"] == f32::INFINITY);
}

fn wandb_file(parent: &Path) -> PathBuf {
    parent.join("wandb/offline-run-20261129_120000-1f0c9a3e/run-1f0c9a3e.wandb")
}

#[test]
fn wandb_gets_the_run_its_history_its_machine_and_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut logger = Wandb::open(directory.path(), &context(directory.path())).unwrap();
    feed(&mut logger, a_run());
    let records = wandb_records(&fs::read(wandb_file(directory.path())).unwrap());
    let numbers: Vec<u64> = records
        .iter()
        .map(|record| record[&1][0].number())
        .collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
    assert!(records[0].contains_key(&21), "the header is first");

    let run = &bodies(&records, 17)[0];
    assert_eq!(
        (run[&1][0].text(), run[&3][0].text()),
        ("1f0c9a3e", "lathe")
    );
    assert_eq!(items(&run[&4][0].message(), 1)["trainer"], r#"{"seed":42}"#);
    assert_eq!(run[&21][0].message()[&2][0].text(), "fea8fea");

    let history: Vec<_> = bodies(&records, 2)
        .iter()
        .map(|body| items(body, 1))
        .collect();
    let steps: Vec<&str> = history.iter().map(|row| row["_step"].as_str()).collect();
    assert_eq!(steps, ["0", "1", "2"], "a row a step, in order");
    assert_eq!(history[1]["actor/pg_loss"], "0.01");
    assert_eq!(history[1]["val-core/a/reward/mean@1"], "0.5");
    assert_eq!(
        (
            history[2]["actor/pg_loss"].as_str(),
            history[2]["actor/lr"].as_str()
        ),
        ("NaN", "Infinity")
    );
    assert_eq!(history[2]["_runtime"], "2.5");

    let mut summary = BTreeMap::new();
    for body in bodies(&records, 3) {
        summary.extend(items(&body, 1));
    }
    assert_eq!(
        (
            summary["_step"].as_str(),
            summary["val-core/a/reward/mean@1"].as_str()
        ),
        ("2", "0.5")
    );

    let stats = items(&bodies(&records, 7)[0], 3);
    assert_eq!(
        (
            stats["gpu.0.gpu"].as_str(),
            stats["gpu.0.memoryAllocated"].as_str()
        ),
        ("75", "25")
    );
    assert_eq!(
        (
            stats["memory_percent"].as_str(),
            stats["proc.memory.rssMB"].as_str()
        ),
        ("25", "512")
    );

    let output: Vec<_> = bodies(&records, 13)
        .iter()
        .map(|body| body[&3][0].text().to_owned())
        .collect();
    assert!(
        output.contains(&"alarm all_equal: 3 of 4 groups\n".to_owned()),
        "{output:?}"
    );
    let exit = &bodies(&records, 18)[0];
    assert_eq!((exit[&1][0].number(), exit[&2][0].number()), (0, 3));
    assert!(
        records.last().unwrap().contains_key(&18),
        "the exit is last"
    );
}

#[test]
fn wandb_records_of_every_length_fit_their_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let mut logger = Wandb::open(directory.path(), &context(directory.path())).unwrap();
    // Lengths around a whole block and around each way a block can end, incl. a rest smaller than a chunk's head.
    let lengths: Vec<usize> = (0..40)
        .map(|count| 6500 + count * 7)
        .chain([0, 32_768, 100_000])
        .chain(32_600..32_700)
        .collect();
    let kinds = lengths
        .iter()
        .map(|length| EventKind::Alarm {
            name: String::new(),
            step: None,
            message: "x".repeat(*length),
        })
        .collect();
    feed(&mut logger, kinds);
    let records = wandb_records(&fs::read(wandb_file(directory.path())).unwrap());
    let found: Vec<usize> = bodies(&records, 13)
        .iter()
        .map(|body| body[&3][0].text().len() - "alarm : \n".len())
        .collect();
    assert_eq!(found, lengths);
}

#[test]
fn an_evaluation_that_ends_after_the_next_step_joins_the_row_then_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut logger = Wandb::open(directory.path(), &context(directory.path())).unwrap();
    feed(
        &mut logger,
        vec![
            step(1, &[]),
            step(2, &[]),
            eval(1, 0.5),
            step(3, &[]),
            ended(4),
        ],
    );
    let records = wandb_records(&fs::read(wandb_file(directory.path())).unwrap());
    let history: Vec<_> = bodies(&records, 2)
        .iter()
        .map(|body| items(body, 1))
        .collect();
    let steps: Vec<&str> = history.iter().map(|row| row["_step"].as_str()).collect();
    assert_eq!(steps, ["1", "2", "3"]);
    assert_eq!(
        (
            history[1]["val/step"].as_str(),
            history[1]["val-core/a/reward/mean@1"].as_str()
        ),
        ("1", "0.5")
    );
    assert_eq!(bodies(&records, 18)[0][&1][0].number(), 4);
}

#[test]
fn an_unknown_logger_is_named_with_those_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let error = open("mlflow", &context(directory.path()), &|_| None)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "there is no logger `mlflow`; there are: console, file, tensorboard, wandb"
    );
}

#[test]
fn loggers_follow_a_recorded_run_to_its_end_and_a_failing_one_stops_none() {
    struct Broken;
    impl Logger for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn take(&mut self, _: &Event) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let root = tempfile::tempdir().unwrap();
    let mut run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
    let recorder = Recorder::start(&mut run_dir, Options::default()).unwrap();
    let screen = Screen::default();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let following = follow(
        &run_dir,
        vec![
            Box::new(Broken),
            Box::new(Console::new(Box::new(screen.clone()))),
        ],
        Box::new({
            let reports = Arc::clone(&reports);
            move |name, error| reports.lock().unwrap().push((name, error.is_some()))
        }),
    )
    .unwrap();
    for kind in a_run() {
        recorder.record(kind);
    }
    recorder.close().unwrap();
    following.finish();
    assert_eq!(screen.text().lines().count(), 6);
    assert_eq!(
        *reports.lock().unwrap(),
        [("broken", true), ("broken", false)]
    );
}
