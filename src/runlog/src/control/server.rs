//! The run's side: one thread that owns the socket and every connection, and hands commands over without ever waiting.
//!
//! Bounds: [`MAX_CONNECTIONS`] connections (beyond it the one silent longest makes room), one line of 64 KiB and 1 MiB of
//! unread answers each; the bound on waiting commands is that of the channel behind `submit`.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::socket_peercred;

use super::connection::Connection;
use super::protocol::{Answer, Applied, Command, Request, Status};
use super::socket;
use super::waits::WaitState;
use crate::run_dir::RunDir;

const MAX_CONNECTIONS: usize = 16;
/// Wait after an `accept` that failed (no file descriptors left, say): trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Live control could not be started; the run can do without.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for commands at {}: {source}", path.display())]
pub struct ServerError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// How the run stands, shared by the run that writes it and the server that tells it.
#[derive(Clone, Default)]
pub struct Board {
    status: Arc<Mutex<Status>>,
    /// Asked anew for each status, since nobody writes down when a wait begins.
    waits: Arc<OnceLock<Box<Waits>>>,
}

type Waits = dyn Fn() -> Vec<WaitState> + Send + Sync;

/// Kinds of waits that a status lists: a line has its limit.
const MOST_WAITS: usize = 40;

impl fmt::Debug for Board {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Board")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Board {
    pub fn new(status: Status) -> Self {
        Self {
            status: Arc::new(Mutex::new(status)),
            waits: Arc::default(),
        }
    }

    /// Where sessions' waits are asked for, without waiting. The first that is given stays.
    pub fn watch(&self, waits: impl Fn() -> Vec<WaitState> + Send + Sync + 'static) {
        drop(self.waits.set(Box::new(waits)));
    }

    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().expect("no holder panics"));
    }

    pub fn status(&self) -> Status {
        let mut status = self.status.lock().expect("no holder panics").clone();
        if let Some(waits) = self.waits.get() {
            status.waits = waits();
            status.waits.truncate(MOST_WAITS);
        }
        status
    }
}

/// A command on its way through the run. Whatever happens to it, its client is answered: dropping it says that it was not
/// applied.
#[derive(Debug)]
pub struct Job {
    request: Box<Request>,
    reply: Option<Reply>,
}

struct Reply {
    connection: u64,
    answers: mpsc::Sender<(u64, Answer)>,
    bell: Arc<Bell>,
}

impl Job {
    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn command(&self) -> &Command {
        &self.request.command
    }

    pub fn applied(mut self, applied: Applied) {
        let id = self.request.id;
        self.answer(Answer::Applied { id, applied });
    }

    pub fn refused(mut self, reason: impl Into<String>) {
        self.refuse(reason.into());
    }

    fn refuse(&mut self, reason: String) {
        let id = Some(self.request.id);
        self.answer(Answer::Refused { id, reason });
    }

    fn answer(&mut self, answer: Answer) {
        if let Some(reply) = self.reply.take() {
            // The server ends after the run; if it is gone, so are its clients.
            let _ = reply.answers.send((reply.connection, answer));
            reply.bell.ring();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.refuse("the run ended before this was applied".to_owned());
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reply")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

/// Wakes the server's thread.
struct Bell {
    event: OwnedFd,
    is_closing: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

/// Takes commands for a run until it is dropped; then it answers what is left, joins its thread and removes the socket.
#[must_use = "dropping it ends live control"]
pub struct Server {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Server {
    /// Listens at the run's `control.sock`. Call it as the run's one writer (see [`RunDir::take`]): a socket that is there
    /// already belongs to a dead run and is replaced.
    ///
    /// `submit` takes every command but `status` and must not wait: `Ok` says in words when the job will be applied, `Err`
    /// gives it back with the reason why not. `board` answers `status`.
    pub fn start(
        run_dir: &RunDir,
        board: Board,
        submit: impl FnMut(Job) -> Result<String, (Job, String)> + Send + 'static,
    ) -> Result<Self, ServerError> {
        let path = run_dir.control_path();
        let fail = |source| ServerError {
            path: path.clone(),
            source,
        };
        let listener = socket::listen(&path).map_err(fail)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| fail(errno.into()))?;
        let bell = Arc::new(Bell {
            event,
            is_closing: AtomicBool::new(false),
        });
        let (answers, given) = mpsc::channel();
        let mut desk = Desk {
            listener,
            bell: Arc::clone(&bell),
            board,
            submit,
            answers,
            given,
            connections: Vec::new(),
            next_key: 0,
            accept_after: None,
        };
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || desk.run())
            .map_err(fail)?;
        Ok(Self {
            bell,
            thread: Some(thread),
            path,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // First the name, so that nobody arrives after the last answer.
        let _ = fs::remove_file(&self.path);
        self.bell.is_closing.store(true, Ordering::SeqCst);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic in it has cost the run its control and nothing else.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Server")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What the thread owns.
struct Desk<S> {
    listener: UnixListener,
    bell: Arc<Bell>,
    board: Board,
    submit: S,
    answers: mpsc::Sender<(u64, Answer)>,
    given: mpsc::Receiver<(u64, Answer)>,
    connections: Vec<Connection>,
    next_key: u64,
    accept_after: Option<Instant>,
}

impl<S: FnMut(Job) -> Result<String, (Job, String)>> Desk<S> {
    fn run(&mut self) {
        let mut chunk = vec![0; 16 << 10];
        loop {
            let ready = self.wait();
            self.bell.silence();
            let is_closing = self.bell.is_closing.load(Ordering::SeqCst);
            for (index, flags) in ready.connections.into_iter().enumerate() {
                if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    self.read(index, &mut chunk, flags.contains(PollFlags::HUP));
                }
            }
            // After the reads: it may close a connection, and so move the others' places.
            if ready.listener {
                self.accept();
            }
            while let Ok((key, answer)) = self.given.try_recv() {
                if let Some(connection) = self.connections.iter_mut().find(|one| one.key == key) {
                    connection.waiting -= 1;
                    connection.say(&answer);
                }
            }
            for connection in &mut self.connections {
                connection.write();
            }
            self.connections.retain(|connection| !connection.is_over());
            if is_closing {
                return;
            }
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) -> Ready {
        let now = Instant::now();
        if self.accept_after.is_some_and(|at| now >= at) {
            self.accept_after = None;
        }
        let timeout = self.accept_after.map(|at| {
            let left = at - now;
            Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let listens = if self.accept_after.is_none() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![
            PollFd::new(&self.bell.event, PollFlags::IN),
            PollFd::new(&self.listener, listens),
        ];
        fds.extend(self.connections.iter().map(|connection| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.wants_read());
            flags.set(PollFlags::OUT, connection.wants_write());
            PollFd::from_borrowed_fd(connection.stream.as_fd(), flags)
        }));
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal; the next round looks again.
            return Ready::default();
        }
        Ready {
            listener: fds[1].revents().contains(PollFlags::IN),
            connections: fds[2..].iter().map(PollFd::revents).collect(),
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) => self.admit(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.accept_after = Some(Instant::now() + ACCEPT_PAUSE),
        }
    }

    fn admit(&mut self, stream: UnixStream) {
        self.next_key += 1;
        let user = socket_peercred(&stream).map(|peer| peer.uid);
        let Ok(mut connection) = Connection::new(self.next_key, stream) else {
            return;
        };
        let ours = rustix::process::geteuid();
        let reason = if user != Ok(ours) {
            Some(format!("only user {} may control this run", ours.as_raw()))
        } else if self.connections.len() >= MAX_CONNECTIONS && !self.make_room() {
            Some(format!(
                "{MAX_CONNECTIONS} clients are waiting for answers; try again later"
            ))
        } else {
            None
        };
        if let Some(reason) = reason {
            connection.say(&Answer::Refused { id: None, reason });
            connection.write();
            return;
        }
        self.connections.push(connection);
    }

    /// Closes the connection that has been silent longest and waits for nothing.
    fn make_room(&mut self) -> bool {
        let idle = self
            .connections
            .iter()
            .enumerate()
            .filter(|(_, connection)| connection.waiting == 0)
            .min_by_key(|(_, connection)| connection.heard)
            .map(|(index, _)| index);
        idle.map(|index| self.connections.remove(index)).is_some()
    }

    /// `is_gone`: the client has closed its end; what it wrote before still counts.
    fn read(&mut self, index: usize, chunk: &mut [u8], is_gone: bool) {
        loop {
            let connection = &mut self.connections[index];
            let lines = connection.read(chunk);
            let goes_on = is_gone && connection.wants_read() && !connection.is_over();
            for line in lines {
                let answer = self.take(index, &line);
                self.connections[index].say(&answer);
                if self.connections[index].is_over() {
                    return;
                }
            }
            if !goes_on {
                break;
            }
        }
        if is_gone {
            self.connections[index].hang_up();
        }
    }

    /// The first answer to a line.
    fn take(&mut self, index: usize, line: &[u8]) -> Answer {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(malformed) => {
                return Answer::Refused {
                    id: malformed.id,
                    reason: malformed.reason,
                };
            }
        };
        let id = request.id;
        if request.command == Command::Status {
            let status = self.board.status();
            return Answer::Status { id, status };
        }
        let connection = &mut self.connections[index];
        let job = Job {
            request: Box::new(request),
            reply: Some(Reply {
                connection: connection.key,
                answers: self.answers.clone(),
                bell: Arc::clone(&self.bell),
            }),
        };
        match (self.submit)(job) {
            Ok(when) => {
                connection.waiting += 1;
                Answer::Accepted { id, when }
            }
            Err((mut job, reason)) => {
                job.reply = None;
                Answer::Refused {
                    id: Some(id),
                    reason,
                }
            }
        }
    }
}

#[derive(Default)]
struct Ready {
    listener: bool,
    /// In the order of `Desk::connections`.
    connections: Vec<PollFlags>,
}
