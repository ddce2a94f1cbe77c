use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::event::{Event, Level};

/// A disk of `room` bytes, shared by every opening of the file.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<DiskState>>);

#[derive(Default)]
struct DiskState {
    bytes: Vec<u8>,
    room: usize,
    /// Cutting a file needs no room, but a disk that is gone refuses that too.
    is_gone: bool,
    openings: u32,
    /// Bytes at the last fsync.
    synced_bytes: usize,
}

struct DiskFile(Disk);

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.0.lock().unwrap();
        let free = disk.room.saturating_sub(disk.bytes.len());
        if free == 0 || disk.is_gone {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let count = bytes.len().min(free);
        disk.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogFile for DiskFile {
    fn size(&mut self) -> io::Result<u64> {
        Ok(self.0.0.lock().unwrap().bytes.len() as u64)
    }

    fn cut(&mut self, size: u64) -> io::Result<()> {
        let mut disk = self.0.0.lock().unwrap();
        if disk.is_gone {
            return Err(io::ErrorKind::NotConnected.into());
        }
        disk.bytes.truncate(size as usize);
        Ok(())
    }

    fn whole_size(&mut self) -> io::Result<u64> {
        let disk = self.0.0.lock().unwrap();
        let newline = disk.bytes.iter().rposition(|byte| *byte == b'\n');
        Ok(newline.map_or(0, |position| position as u64 + 1))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.0.0.lock().unwrap();
        if disk.is_gone {
            return Err(io::ErrorKind::NotConnected.into());
        }
        disk.synced_bytes = disk.bytes.len();
        Ok(())
    }
}

impl Disk {
    fn with_room(room: usize) -> Self {
        let disk = Self::default();
        disk.0.lock().unwrap().room = room;
        disk
    }

    fn set_room(&self, room: usize) {
        self.0.lock().unwrap().room = room;
    }

    fn set_gone(&self, is_gone: bool) {
        self.0.lock().unwrap().is_gone = is_gone;
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }

    /// What a power cut would leave.
    fn synced_bytes(&self) -> usize {
        self.0.lock().unwrap().synced_bytes
    }

    fn events(&self) -> Vec<Event> {
        let bytes = self.bytes();
        assert!(
            bytes.is_empty() || bytes.ends_with(b"\n"),
            "the last line is torn"
        );
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    /// With so many bytes that become free when it gives them back.
    fn recorder_with_reserve(&self, options: Options, bytes: u64) -> Recorder {
        let disk = self.clone();
        let give_back = move || disk.0.lock().unwrap().room += bytes as usize;
        let reserve = Reserve::new(bytes, give_back);
        let name = "the test's disk";
        Recorder::begin(self.opener(), name, None, options, None, Some(reserve)).unwrap()
    }

    fn recorder(&self, options: Options) -> Recorder {
        Recorder::with_opener(self.opener(), "the test's disk", None, options, None).unwrap()
    }

    fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move || {
            disk.0.lock().unwrap().openings += 1;
            Ok(Box::new(DiskFile(disk.clone())) as Box<dyn LogFile>)
        })
    }
}

fn quick() -> Options {
    Options {
        queue_events: 100,
        flush_after: Duration::from_millis(1),
        retry_first: Duration::from_millis(1),
        retry_most: Duration::from_millis(2),
        close_patience: Duration::ZERO,
    }
}

/// Gives up after a minute, which only a broken recorder needs.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "the condition never held");
        std::thread::yield_now();
    }
}

fn log(message: impl Into<String>) -> EventKind {
    EventKind::LogLine {
        level: Level::Info,
        target: "test".to_owned(),
        message: message.into(),
    }
}

fn message(event: &Event) -> &str {
    match &event.kind {
        EventKind::LogLine { message, .. } | EventKind::Alarm { message, .. } => message,
        _ => "",
    }
}

fn names_of_alarms(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Alarm { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn events_of_many_threads_are_in_the_file_in_seq_order() {
    let disk = Disk::with_room(usize::MAX);
    let recorder = disk.recorder(Options {
        queue_events: 10_000,
        ..quick()
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                for count in 0..500 {
                    assert!(recorder.record(log(format!("{thread} {count}"))).is_some());
                }
            });
        }
    });
    recorder.close().unwrap();
    let events = disk.events();
    assert_eq!(events.len(), 2000);
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(index, event)| event.seq == index as u64)
    );
    for thread in 0..4 {
        let prefix = format!("{thread} ");
        let own: Vec<&str> = events
            .iter()
            .map(message)
            .filter(|text| text.starts_with(&prefix))
            .collect();
        let expected: Vec<String> = (0..500).map(|count| format!("{thread} {count}")).collect();
        assert_eq!(own, expected);
    }
}

#[test]
fn a_full_disk_loses_no_event_and_leaves_no_torn_line() {
    // Room for the first line and a part of the second.
    let disk = Disk::with_room(150);
    let recorder = disk.recorder(quick());
    for count in 0..20 {
        recorder.record(log(format!("line {count}")));
    }
    wait_until(|| {
        recorder
            .health()
            .failing
            .is_some_and(|failing| failing.attempts > 3)
    });
    let health = recorder.health();
    assert!(health.failing.unwrap().error.contains("no storage space"));
    assert_eq!(health.lost_events, 0);
    assert_eq!(
        disk.events().len() as u64,
        health.written_events,
        "whole lines only, while it fails"
    );
    disk.set_room(usize::MAX);
    wait_until(|| recorder.health().failing.is_none());
    wait_until(|| recorder.health().waiting_events == 0);
    recorder.close().unwrap();
    let events = disk.events();
    assert_eq!(events.len(), 21);
    assert_eq!(message(&events[19]), "line 19");
    assert_eq!(names_of_alarms(&events), [RECOVERED_ALARM]);
}

#[test]
fn a_half_line_that_could_not_be_cut_at_once_is_cut_before_the_next_try() {
    let disk = Disk::with_room(150);
    let recorder = disk.recorder(Options {
        flush_after: Duration::from_secs(3600),
        ..quick()
    });
    recorder.record(log("first"));
    // The alarm is essential: both lines go out in one write, which the room cuts in two.
    let torn = Disk::clone(&disk);
    recorder.record(EventKind::Alarm {
        name: "a".to_owned(),
        step: None,
        message: "x".repeat(200),
    });
    wait_until(|| recorder.health().failing.is_some());
    torn.set_gone(true);
    torn.0
        .lock()
        .unwrap()
        .bytes
        .extend_from_slice(b"{\"seq\":1,\"ela");
    torn.set_room(usize::MAX);
    torn.set_gone(false);
    wait_until(|| recorder.health().waiting_events == 0);
    recorder.close().unwrap();
    assert_eq!(disk.events()[1].seq, 1);
    assert_eq!(message(&disk.events()[1]), "x".repeat(200));
}

#[test]
fn a_full_queue_refuses_and_counts_but_keeps_room_for_essential_events() {
    let disk = Disk::with_room(0);
    let recorder = disk.recorder(quick());
    for count in 0..150 {
        recorder.record(log(format!("{count}")));
    }
    assert_eq!(recorder.health().lost_events, 50);
    assert!(recorder.record(log("refused")).is_none());
    let step = recorder.record(EventKind::StepEnded {
        step: 1,
        policy_version: 1,
        values: crate::number::Values::new(),
    });
    assert_eq!(step, Some(100), "refused events take no sequence number");
    disk.set_room(usize::MAX);
    wait_until(|| {
        recorder.health().waiting_events == 0
            && disk.bytes().windows(16).any(|w| w == b"_lost_events\",\"m")
    });
    recorder.close().unwrap();
    let events = disk.events();
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(index, event)| event.seq == index as u64)
    );
    assert!(names_of_alarms(&events).contains(&LOST_ALARM));
    let lost = events
        .iter()
        .find(|event| message(event).contains("lost"))
        .unwrap();
    assert!(
        message(lost).starts_with("51 events were lost"),
        "{}",
        message(lost)
    );
}

#[test]
fn closing_on_a_full_disk_says_how_many_events_were_given_up() {
    let disk = Disk::with_room(0);
    let recorder = disk.recorder(quick());
    for _ in 0..3 {
        recorder.record(log("x"));
    }
    let error = recorder.close().unwrap_err();
    assert_eq!(error.unwritten, 3);
    assert!(error.to_string().contains("the test's disk"), "{error}");
    assert!(recorder.record(log("late")).is_none());
}

/// Two steps among many lines, and the end.
fn a_run(recorder: &Recorder, lines: u64) {
    for step in 1..=2 {
        for count in 0..lines {
            recorder.record(log(format!("line {count}")));
        }
        recorder.record(EventKind::StepEnded {
            step,
            policy_version: step,
            values: crate::number::Values::new(),
        });
    }
    recorder.record(EventKind::RunEnded {
        status: crate::event::RunStatus::Failed,
        exit_code: 4,
        reason: "no room".to_owned(),
        steps: 2,
    });
}

#[test]
fn a_run_that_ends_on_a_full_disk_says_how_in_the_room_that_was_kept_for_it() {
    let disk = Disk::with_room(0);
    let recorder = disk.recorder_with_reserve(quick(), 80 << 10);
    a_run(&recorder, 20);
    wait_until(|| recorder.health().failing.is_some());
    recorder.close().unwrap();
    let events = disk.events();
    assert_eq!(events.len(), 43, "nothing is missing");
    assert!(matches!(events[42].kind, EventKind::RunEnded { .. }));
}

#[test]
fn where_not_all_fits_what_a_run_cannot_be_understood_without_is_written_the_newest_first() {
    let written = |room_kb: u64| {
        let disk = Disk::with_room(0);
        let options = Options {
            queue_events: 10_000,
            ..quick()
        };
        // 64 KiB are left to others.
        let recorder = disk.recorder_with_reserve(options, (64 << 10) + room_kb);
        a_run(&recorder, 1000);
        wait_until(|| recorder.health().failing.is_some());
        let error = recorder.close().unwrap_err();
        let names: Vec<u64> = disk.events().iter().map(|event| event.seq).collect();
        assert_eq!(error.unwritten + names.len(), 2003);
        names
    };
    assert_eq!(written(4 << 10), [1000, 2001, 2002]);
    assert_eq!(written(200), [2002]);
    assert_eq!(written(10), [0; 0]);
}

#[test]
fn the_room_is_a_file_that_is_there_while_the_run_is_written() {
    let root = tempfile::tempdir().unwrap();
    let mut run_dir = RunDir::create(root.path(), &crate::run_dir::NewRun::default()).unwrap();
    let recorder = Recorder::start(&mut run_dir, Options::default()).unwrap();
    let file = std::fs::metadata(run_dir.reserve_path()).unwrap();
    assert_eq!(file.len(), reserve::RESERVE_BYTES);
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&file) * 512 >= file.len(),
        "it takes room"
    );
    recorder.record(log("x"));
    recorder.close().unwrap();
    assert!(!run_dir.reserve_path().exists());
}

#[test]
fn dropping_the_last_handle_writes_what_is_queued() {
    let disk = Disk::with_room(usize::MAX);
    let recorder = disk.recorder(Options {
        flush_after: Duration::from_secs(3600),
        ..quick()
    });
    let clone = recorder.clone();
    clone.record(log("last words"));
    drop(recorder);
    drop(clone);
    assert_eq!(message(&disk.events()[0]), "last words");
}

#[test]
fn an_essential_event_does_not_wait_for_the_flush_delay() {
    let disk = Disk::with_room(usize::MAX);
    let recorder = disk.recorder(Options {
        flush_after: Duration::from_secs(3600),
        ..quick()
    });
    recorder.record(log("waits"));
    recorder.record(EventKind::PhaseChanged {
        phase: crate::event::Phase::Train,
    });
    wait_until(|| recorder.health().written_events == 2);
}

#[test]
fn a_span_is_recorded_when_its_guard_ends() {
    let disk = Disk::with_room(usize::MAX);
    let recorder = disk.recorder(quick());
    let span = recorder.span(Lane::Generate, "batch", Some(3));
    recorder.record(log("inside"));
    let length_ms = span.end();
    recorder.close().unwrap();
    let events = disk.events();
    let EventKind::Span {
        lane,
        step,
        start_ms,
        end_ms,
        ..
    } = events[1].kind
    else {
        panic!("not a span: {events:?}");
    };
    assert_eq!((lane, step), (Lane::Generate, Some(3)));
    assert!(end_ms - start_ms >= length_ms && start_ms <= events[0].elapsed_ms);
}

#[test]
fn a_second_recorder_on_one_run_is_refused_and_names_the_first() {
    let root = tempfile::tempdir().unwrap();
    let mut run_dir = RunDir::create(root.path(), &crate::run_dir::NewRun::default()).unwrap();
    let recorder = Recorder::start(&mut run_dir, Options::default()).unwrap();
    let mut again = RunDir::open(run_dir.path()).unwrap();
    let error = Recorder::start(&mut again, Options::default()).unwrap_err();
    assert!(
        matches!(error, RunDirError::Busy { pid, .. } if pid == std::process::id()),
        "{error}"
    );
    recorder.close().unwrap();
    Recorder::start(&mut again, Options::default()).unwrap();
}

#[test]
fn a_log_is_continued_after_its_last_whole_line() {
    let root = tempfile::tempdir().unwrap();
    let mut run_dir = RunDir::create(root.path(), &crate::run_dir::NewRun::default()).unwrap();
    let torn = "{\"seq\":0,\"elapsed_ms\":5000.0,\"event\":\"log_line\",\"level\":\"info\",\"target\":\"\",\"message\":\"\"}\n{\"seq\":1,\"el";
    std::fs::write(run_dir.events_path(), torn).unwrap();
    let recorder = Recorder::start(&mut run_dir, Options::default()).unwrap();
    assert_eq!(recorder.record(log("next")), Some(1));
    recorder.close().unwrap();
    let (events, bad_lines) = tail::read_all(&run_dir.events_path()).unwrap();
    assert_eq!((events.len(), bad_lines.len()), (2, 0));
    assert!(
        events[1].elapsed_ms >= 5000.0,
        "time goes on where the first writer stopped"
    );
}

#[test]
fn what_is_persisted_is_on_the_disk_when_the_call_returns() {
    let disk = Disk::with_room(1 << 20);
    // Nobody else hurries: an ordinary event alone would wait for an hour.
    let recorder = disk.recorder(Options {
        flush_after: Duration::from_secs(3600),
        ..quick()
    });
    recorder.persist(Duration::from_secs(60)).unwrap();
    assert!(disk.events().is_empty());
    for index in 0..50 {
        recorder.record(log(format!("{index}")));
    }
    recorder.persist(Duration::from_secs(60)).unwrap();
    assert_eq!(disk.events().len(), 50);
    assert_eq!(disk.synced_bytes(), disk.bytes().len());
    recorder.close().unwrap();
}

#[test]
fn a_disk_that_refuses_is_told_by_persist_and_tried_again_until_it_takes_the_log() {
    let disk = Disk::with_room(1 << 20);
    disk.set_gone(true);
    let recorder = disk.recorder(quick());
    recorder.record(log("a"));
    let error = recorder.persist(Duration::from_millis(20)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the test's disk is not on the disk: "),
        "{error}"
    );
    disk.set_gone(false);
    recorder.persist(Duration::from_secs(60)).unwrap();
    // An alarm about the trouble may follow.
    let first = disk.bytes().iter().position(|byte| *byte == b'\n').unwrap();
    assert!(disk.synced_bytes() > first);
    recorder.close().unwrap();
    let error = recorder.persist(Duration::from_secs(60)).unwrap_err();
    assert!(error.to_string().contains("the log is closed"), "{error}");
}
