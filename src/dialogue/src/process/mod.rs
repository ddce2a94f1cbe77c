//! Programs of other people, as processes that answer a JSON line with a JSON line.
//!
//! ```text
//!  Pool::take ─► Process (idle, else started) ─► ask: one line out, one line in ─► give_back
//! ```
//! Each is the leader of a group of its own and dies with all that it started when it is dropped, so a caller that is
//! cancelled or late leaves nothing behind. What it prints on stderr is read and its end kept for an error's words.

mod dialogues;
mod pool;

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) use dialogues::OfDialogues;
pub(crate) use pool::Pool;

/// Bytes of what was printed last that are kept for an error.
const TAIL_BYTES: usize = 2000;
/// How long an end is waited for that was already announced by a closed pipe.
const END_GRACE: Duration = Duration::from_secs(1);

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    /// In errors: `reward worker`.
    what: Arc<str>,
    child: Child,
    /// None once nothing more will be asked.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Bytes of an answer.
    answer_limit: u64,
    /// The end of what it printed.
    printed: Arc<Mutex<Vec<u8>>>,
    /// Reads that; ends with the process.
    reader: JoinSet<()>,
    calls: u64,
}

impl Process {
    /// Starts `command`, all three of its streams piped. An answer longer than `answer_limit` bytes is an error.
    pub fn start(
        command: &mut Command,
        what: impl Into<Arc<str>>,
        answer_limit: u64,
    ) -> std::io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: what it starts is killed with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let requests = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut errors = child.stderr.take().expect("it is piped");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let mut reader = JoinSet::new();
        let tail = Arc::clone(&printed);
        reader.spawn(async move {
            let mut chunk = [0; 8192];
            while let Ok(count @ 1..) = errors.read(&mut chunk).await {
                let mut tail = tail.lock().expect("nothing panics while it holds the lock");
                tail.extend_from_slice(&chunk[..count]);
                let surplus = tail.len().saturating_sub(TAIL_BYTES);
                tail.drain(..surplus);
            }
        });
        Ok(Self {
            what: what.into(),
            child,
            requests: Some(requests),
            answers,
            answer_limit,
            printed,
            reader,
            calls: 0,
        })
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// One call. After an error, or when it is cancelled, the process is in the middle of something and only good to be
    /// dropped.
    pub async fn ask(&mut self, request: &Value) -> Result<Value, String> {
        self.send(request).await?;
        self.line().await
    }

    /// Sends a request and counts it.
    pub async fn send(&mut self, request: &Value) -> Result<(), String> {
        let mut line = request.to_string();
        line.push('\n');
        self.write(line.as_bytes()).await
    }

    /// The same of a request in a form of its own.
    pub async fn write(&mut self, request: &[u8]) -> Result<(), String> {
        self.calls += 1;
        let sent = async {
            let requests = self
                .requests
                .as_mut()
                .ok_or(std::io::ErrorKind::BrokenPipe)?;
            requests.write_all(request).await?;
            requests.flush().await
        };
        // A pipe that broke says less than how the process ended.
        if sent.await.is_err() {
            return Err(self.ended().await);
        }
        Ok(())
    }

    /// What it writes, for who reads it in a form of his own.
    pub fn output(&mut self) -> &mut BufReader<ChildStdout> {
        &mut self.answers
    }

    /// The next line that it answers.
    pub async fn line(&mut self) -> Result<Value, String> {
        let mut line = Vec::new();
        let read = (&mut self.answers)
            .take(self.answer_limit)
            .read_until(b'\n', &mut line)
            .await;
        match read {
            Ok(_) if line.ends_with(b"\n") => serde_json::from_slice(&line)
                .map_err(|error| format!("the {}'s answer is not JSON: {error}", self.what)),
            Ok(_) if line.len() as u64 >= self.answer_limit => Err(self.too_long()),
            _ => Err(self.ended().await),
        }
    }

    /// Closes its input and gives all that it writes until it ends; an end with another status than 0 is an error.
    pub async fn rest(&mut self) -> Result<Vec<u8>, String> {
        self.requests = None;
        let mut all = Vec::new();
        let read = (&mut self.answers)
            .take(self.answer_limit + 1)
            .read_to_end(&mut all)
            .await;
        if all.len() as u64 > self.answer_limit {
            return Err(self.too_long());
        }
        if read.is_err() {
            return Err(self.ended().await);
        }
        match self.child.wait().await {
            Ok(status) if status.success() => Ok(all),
            _ => Err(self.ended().await),
        }
    }

    fn too_long(&self) -> String {
        format!(
            "the {}'s answer is longer than {} bytes",
            self.what, self.answer_limit
        )
    }

    /// How the process ended, with the last of what it printed.
    pub async fn ended(&mut self) -> String {
        // Its pipes are closed; it ends now, or is not worth waiting for.
        let status = match timeout(END_GRACE, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "it closed its pipes".to_owned(),
        };
        let _ = timeout(END_GRACE, self.reader.join_next()).await;
        let printed = self
            .printed
            .lock()
            .expect("nothing panics while it holds the lock");
        let printed = String::from_utf8_lossy(&printed);
        match printed.trim() {
            "" => format!("the {} ended: {status}", self.what),
            printed => format!(
                "the {} ended: {status}; it printed last: {printed}",
                self.what
            ),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Still its own: a process that was waited for has no id any more.
        if let Some(id) = self.child.id()
            && let Some(id) = Pid::from_raw(id as i32)
        {
            // It may have ended meanwhile, and that is all that was wanted.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}
