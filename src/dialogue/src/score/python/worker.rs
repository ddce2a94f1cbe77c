//! One Python process.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use experiment::arms::Python as Settings;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PROGRAM: &str = include_str!("worker.py");
/// Importing what a reward function needs may take long; a judge model takes longer than a rule.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of an answer; a score and some numbers are far below.
const ANSWER_LIMIT: u64 = 1 << 20;
/// Bytes of what was printed last that are kept for an error.
const TAIL_BYTES: usize = 2000;

#[derive(Debug)]
pub struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The end of what it printed.
    printed: Arc<Mutex<Vec<u8>>>,
    /// Reads that; ends with the worker.
    reader: JoinSet<()>,
    calls: u64,
}

impl Worker {
    /// Starts a process and waits until it has its function. The error says why there is none.
    pub async fn start(settings: &Settings) -> Result<Self, String> {
        let argument = json!({
            "path": settings.path,
            "name": settings.name,
            "kwargs": settings.kwargs,
            "memory_bytes": settings.memory_mb.map(|limit| limit << 20),
        });
        let mut child = Command::new(&settings.python)
            .args(["-u", "-c", PROGRAM])
            .arg(argument.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: what the function starts is killed with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                format!(
                    "cannot start {}: {error}; set the arm's option `python` to an interpreter",
                    settings.python
                )
            })?;
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
        let mut worker = Self {
            child,
            requests,
            answers,
            printed,
            reader,
            calls: 0,
        };
        let greeting = timeout(START_LIMIT, worker.line()).await.map_err(|_| {
            format!(
                "{} was not ready within {} s",
                settings.path,
                START_LIMIT.as_secs()
            )
        })??;
        match greeting["error"].as_str() {
            Some(error) => Err(format!(
                "cannot load {} of {}: {error}",
                settings.name, settings.path
            )),
            None => Ok(worker),
        }
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// One call. After an error, or when it is cancelled, the worker is in the middle of something and only good to be dropped.
    pub async fn call(&mut self, request: &Value) -> Result<Value, String> {
        self.calls += 1;
        let mut line = request.to_string();
        line.push('\n');
        let sent = async {
            self.requests.write_all(line.as_bytes()).await?;
            self.requests.flush().await
        };
        // A pipe that broke says less than how the process ended.
        if sent.await.is_err() {
            return Err(self.ended().await);
        }
        self.line().await
    }

    async fn line(&mut self) -> Result<Value, String> {
        let mut line = Vec::new();
        let read = (&mut self.answers)
            .take(ANSWER_LIMIT)
            .read_until(b'\n', &mut line)
            .await;
        match read {
            Ok(_) if line.ends_with(b"\n") => serde_json::from_slice(&line)
                .map_err(|error| format!("the reward worker's answer is not JSON: {error}")),
            Ok(_) if line.len() as u64 >= ANSWER_LIMIT => Err(format!(
                "the reward worker's answer is longer than {ANSWER_LIMIT} bytes"
            )),
            _ => Err(self.ended().await),
        }
    }

    /// How the process ended, with the last of what it printed.
    async fn ended(&mut self) -> String {
        // Its pipes are closed; it ends now, or is not worth waiting for.
        let status = match timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "it closed its pipes".to_owned(),
        };
        let _ = timeout(Duration::from_secs(1), self.reader.join_next()).await;
        let printed = self
            .printed
            .lock()
            .expect("nothing panics while it holds the lock");
        let printed = String::from_utf8_lossy(&printed);
        match printed.trim() {
            "" => format!("the reward worker ended: {status}"),
            printed => format!("the reward worker ended: {status}; it printed last: {printed}"),
        }
    }
}

impl Drop for Worker {
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
