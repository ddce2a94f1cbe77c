//! Real sockets: what clients get whatever they send, and that none of them stops the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::event::{EventKind, RunStatus};
use crate::recorder::{Options, Recorder};
use crate::run_dir::{NewRun, RunDir};

const PATIENCE: Duration = Duration::from_secs(60);

/// A run whose commands land in `jobs`; three may wait.
struct Bench {
    root: tempfile::TempDir,
    run_dir: RunDir,
    board: Board,
    jobs: mpsc::Receiver<Job>,
    server: Option<Server>,
}

impl Bench {
    fn new() -> Self {
        Self::below("")
    }

    fn below(folder: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let run_dir = RunDir::create(&root.path().join(folder), &NewRun::default()).unwrap();
        let board = Board::new(Status {
            doing: "testing".to_owned(),
            ..Status::default()
        });
        let (server, jobs) = serve(&run_dir, &board);
        Self {
            root,
            run_dir,
            board,
            jobs,
            server: Some(server),
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.run_dir, "ana@laptop").unwrap()
    }

    fn raw(&self) -> UnixStream {
        let stream = connect_now(&self.run_dir.control_path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn job(&self) -> Job {
        self.jobs.recv_timeout(PATIENCE).unwrap()
    }
}

fn serve(run_dir: &RunDir, board: &Board) -> (Server, mpsc::Receiver<Job>) {
    let (send, jobs) = mpsc::sync_channel(3);
    let server = Server::start(run_dir, board.clone(), move |job| {
        send.try_send(job)
            .map(|()| "soon".to_owned())
            .map_err(|error| match error {
                mpsc::TrySendError::Full(job) => (job, "too many wait".to_owned()),
                mpsc::TrySendError::Disconnected(job) => (job, "it is over".to_owned()),
            })
    })
    .unwrap();
    (server, jobs)
}

/// The answers to `lines`, read to the end of the connection.
fn talk(mut stream: UnixStream, lines: &[u8]) -> Vec<Answer> {
    // The server may close while we write; what it said is there all the same.
    let _ = stream.write_all(lines);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn waits_are_asked_for_anew_with_each_status() {
    let bench = Bench::new();
    let asked = std::sync::atomic::AtomicU64::new(0);
    bench.board.watch(move || {
        let sessions = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        vec![WaitState {
            name: "generator".to_owned(),
            sessions,
            ..WaitState::default()
        }]
    });
    let mut client = bench.client();
    for sessions in 0..3 {
        assert_eq!(client.status().unwrap().waits[0].sessions, sessions);
    }
}

#[test]
fn a_command_is_accepted_at_once_and_applied_later() {
    let bench = Bench::new();
    let mut client = bench.client();
    let command = Command::set("actor.optim.lr", 1e-5).unwrap();
    let (id, first) = client.ask(command.clone()).unwrap();
    let when = "soon".to_owned();
    assert_eq!(first, Answer::Accepted { id, when });
    let job = bench.job();
    assert_eq!(job.request().who, "ana@laptop");
    assert_eq!(job.command(), &command);
    let applied = Applied {
        step: 12,
        from_step: Some(13),
        ..Applied::default()
    };
    job.applied(applied.clone());
    assert_eq!(
        client.wait(id, PATIENCE).unwrap(),
        Answer::Applied { id, applied }
    );
}

#[test]
fn a_refusal_a_dropped_job_and_a_full_queue_are_answered_with_the_reason() {
    let bench = Bench::new();
    let mut client = bench.client();
    let reason = |answer: Answer| match answer {
        Answer::Refused { reason, .. } => reason,
        other => panic!("{other:?} is no refusal"),
    };
    let ids: Vec<u64> = (0..3)
        .map(|_| client.ask(Command::Pause).unwrap().0)
        .collect();
    assert_eq!(
        reason(client.ask(Command::Pause).unwrap().1),
        "too many wait"
    );
    bench.job().refused("no such thing");
    drop(bench.job());
    bench.job().applied(Applied::default());
    // Asked for in another order than they came.
    let last = client.wait(ids[2], PATIENCE).unwrap();
    assert!(matches!(last, Answer::Applied { .. }), "{last:?}");
    assert_eq!(
        reason(client.wait(ids[0], PATIENCE).unwrap()),
        "no such thing"
    );
    assert_eq!(
        reason(client.wait(ids[1], PATIENCE).unwrap()),
        "the run ended before this was applied"
    );
}

#[test]
fn status_is_told_while_the_run_is_busy_with_a_command() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.ask(Command::Checkpoint).unwrap();
    let _busy = bench.job();
    bench.board.update(|status| status.step = 41);
    let status = client.status().unwrap();
    assert_eq!((status.step, status.doing.as_str()), (41, "testing"));
}

#[test]
fn two_clients_get_their_own_answers() {
    let bench = Bench::new();
    let (mut one, mut other) = (bench.client(), bench.client());
    let (one_id, _) = one.ask(Command::Pause).unwrap();
    let (other_id, _) = other.ask(Command::Resume).unwrap();
    assert_eq!(one_id, other_id, "numbers are each client's own");
    for _ in 0..2 {
        let job = bench.job();
        let note = Some(job.command().name().to_owned());
        job.applied(Applied {
            note,
            ..Applied::default()
        });
    }
    for (client, id, word) in [
        (&mut other, other_id, "resume"),
        (&mut one, one_id, "pause"),
    ] {
        let Answer::Applied { applied, .. } = client.wait(id, PATIENCE).unwrap() else {
            panic!("applied")
        };
        assert_eq!(applied.note.as_deref(), Some(word));
    }
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_request_asked_for_nothing() {
    let bench = Bench::new();
    let mut dying = bench.raw();
    dying
        .write_all(b"{\"id\":1,\"command\":\"pause\"}\n{\"id\":2,\"command\":\"st")
        .unwrap();
    drop(dying);
    assert_eq!(bench.job().command(), &Command::Pause);
    // The next command that arrives is the next client's: half a line was none.
    let mut client = bench.client();
    client.ask(Command::Resume).unwrap();
    let next = bench.job();
    assert_eq!(next.command(), &Command::Resume);
    next.applied(Applied::default());
}

#[test]
fn a_client_that_reads_nothing_is_dropped_and_others_are_served() {
    let bench = Bench::new();
    let mut deaf = bench.raw();
    deaf.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut written = Ok(());
    while written.is_ok() {
        written = deaf.write_all(&b"no request\n".repeat(1000));
    }
    assert!(
        !matches!(
            written.as_ref().map_err(std::io::Error::kind),
            Err(std::io::ErrorKind::WouldBlock)
        ),
        "the server closed it rather than let it wait: {written:?}"
    );
    assert_eq!(bench.client().status().unwrap().doing, "testing");
}

#[test]
fn a_line_without_end_closes_its_connection_with_the_reason() {
    let bench = Bench::new();
    let answers = talk(bench.raw(), &vec![b'x'; 3 * MAX_LINE_BYTES]);
    let [Answer::Refused { id: None, reason }] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert!(reason.contains("at most 65536 bytes"), "{reason}");
    assert_eq!(bench.client().status().unwrap().doing, "testing");
}

#[test]
fn more_clients_than_there_is_room_for_push_out_the_one_silent_longest() {
    let bench = Bench::new();
    let mut crowd: Vec<Client> = (0..40).map(|_| bench.client()).collect();
    for client in crowd.iter_mut().rev().take(16) {
        assert_eq!(client.status().unwrap().doing, "testing");
    }
    let error = crowd[0].status().unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
}

#[test]
fn the_socket_is_the_owners_alone_and_goes_with_the_server() {
    let mut bench = Bench::new();
    let path = bench.run_dir.control_path();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut waiting = bench.client();
    let (id, _) = waiting.ask(Command::Pause).unwrap();
    // As a run ends: its queue first, then the server.
    bench.jobs = mpsc::sync_channel(0).1;
    drop(bench.server.take());
    let last = waiting.wait(id, PATIENCE).unwrap();
    assert!(matches!(last, Answer::Refused { .. }), "{last:?}");
    assert!(!path.exists());
    let error = Client::connect(&bench.run_dir, "ana").unwrap_err();
    assert!(matches!(error, ClientError::NoSocket { .. }), "{error}");
}

#[test]
fn a_run_in_a_directory_of_200_bytes_and_more_is_controlled_as_any_other() {
    let bench = Bench::below(&"a-folder-with-a-long-name/".repeat(8));
    assert!(bench.run_dir.control_path().as_os_str().len() > 200);
    assert_eq!(bench.client().status().unwrap().doing, "testing");
}

#[test]
fn the_socket_of_a_killed_run_is_replaced_by_the_next() {
    let mut bench = Bench::new();
    let path = bench.run_dir.control_path();
    let server = bench.server.take().unwrap();
    // What SIGKILL leaves: a file that nobody listens at.
    let kept = bench.root.path().join("kept");
    std::fs::rename(&path, &kept).unwrap();
    drop(server);
    std::fs::rename(&kept, &path).unwrap();
    let error = Client::connect(&bench.run_dir, "ana").unwrap_err();
    assert!(matches!(error, ClientError::NoSocket { .. }), "{error}");
    let (_server, _jobs) = serve(&bench.run_dir, &bench.board);
    assert_eq!(bench.client().status().unwrap().doing, "testing");
}

#[test]
fn a_run_that_has_ended_says_how() {
    let root = tempfile::tempdir().unwrap();
    let mut run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
    let recorder = Recorder::start(&mut run_dir, Options::default()).unwrap();
    recorder.record(EventKind::RunEnded {
        status: RunStatus::Failed,
        exit_code: 4,
        reason: "the disk is on fire".to_owned(),
        steps: 3,
    });
    recorder.close().unwrap();
    assert_eq!(
        Client::connect(&run_dir, "ana").unwrap_err().to_string(),
        format!(
            "{} is not running: it failed: the disk is on fire",
            run_dir.name()
        )
    );
}

#[test]
fn a_half_closed_connection_still_gets_its_answers() {
    let bench = Bench::new();
    let mut stream = bench.raw();
    stream
        .write_all(b"{\"id\":5,\"command\":\"step\"}\n")
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    bench.job().applied(Applied {
        step: 3,
        ..Applied::default()
    });
    let lines: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("\"step\":3"), "{lines:?}");
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "\\{\"id\":[0-9]{1,3},\"command\":\"(status|set|pose|pause)\"(,\"knob\":\"[a-z.]{0,9}\")?\\}?"
            .prop_map(String::into_bytes),
        (1_usize..100_000).prop_map(|length| vec![b'['; length]),
        Just(Vec::new()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_stop_the_server(lines in prop::collection::vec(any_line(), 0..8), torn in any_line()) {
        let bench = Bench::new();
        let mut bytes: Vec<u8> = lines.into_iter().flat_map(|mut line| { line.push(b'\n'); line }).collect();
        bytes.extend(torn.iter().filter(|byte| **byte != b'\n'));
        let raw = bench.raw();
        let jobs = bench.jobs;
        let worker = std::thread::spawn(move || jobs.into_iter().for_each(|job| job.applied(Applied::default())));
        for answer in talk(raw, &bytes) {
            prop_assert!(answer != Answer::Unknown);
        }
        let mut client = Client::connect(&bench.run_dir, "ana").unwrap();
        prop_assert_eq!(client.status().unwrap().doing, "testing");
        drop(bench.server);
        worker.join().unwrap();
    }
}
