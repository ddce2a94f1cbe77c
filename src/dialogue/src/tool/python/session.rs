//! One Python that runs code.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sandbox::{Kind, Limits, Sandbox, Spec};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::{Life, Options, Wish};
use crate::process::Process;
use crate::tool::{ToolError, ToolOutcome};

const PROGRAM: &str = include_str!("program.py");
/// Where Python is, and what it was installed to.
const FIND: &str = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix]))";

/// How Python is started on this machine.
#[derive(Debug)]
pub struct Launch {
    sandbox: Option<Sandbox>,
    /// After each piece of code nothing of it is left, so that any other may follow.
    clears_up: bool,
    /// One dialogue has it alone.
    is_dialogues: bool,
    spec: Spec,
}

impl Launch {
    /// Finds the interpreter and a sandbox; the error says which is missing, and which option (after `prefix`) would help.
    pub fn new(options: &Options, limits: Limits, prefix: &str) -> Result<Self, String> {
        let places = find(&options.python, prefix)?;
        let sandbox = match options.sandbox {
            Wish::None => None,
            Wish::Auto => Some(Sandbox::find(None)),
            Wish::Namespaces => Some(Sandbox::find(Some(Kind::Namespaces))),
            Wish::Bubblewrap => Some(Sandbox::find(Some(Kind::Bubblewrap))),
        };
        let sandbox = sandbox.transpose().map_err(|error| {
            let refused = format!("{error}. Code of a model is not run openly");
            match prefix {
                "config" => refused + "; `config.sandbox: none` would",
                _ => refused,
            }
        })?;
        let mut readable = options.readable.clone();
        readable.extend(places.prefixes);
        let mut env: std::collections::BTreeMap<String, String> = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", "/tmp"),
            ("LANG", "C.UTF-8"),
            // Threads count as processes.
            ("OMP_NUM_THREADS", "1"),
            ("OPENBLAS_NUM_THREADS", "1"),
            ("MKL_NUM_THREADS", "1"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        env.extend(options.env.clone());
        let is_apart = options.process == Life::Call && sandbox.is_some();
        let how = if is_apart { "call" } else { "dialogue" };
        let command = [&*places.executable, "-B", "-I", "-c", PROGRAM, how];
        Ok(Self {
            sandbox,
            clears_up: is_apart,
            is_dialogues: options.process == Life::Dialogue,
            spec: Spec {
                command: command.map(str::to_owned).into(),
                readable,
                env,
                limits,
            },
        })
    }

    /// For `lathe check`.
    pub fn describe(&self) -> String {
        match &self.sandbox {
            Some(sandbox) => format!("code runs apart by {}", sandbox.kind()),
            None => "code of the model runs openly on this machine, with all rights of the run (config.sandbox: none)".to_owned(),
        }
    }

    pub fn start(&self, max_output_bytes: usize) -> Result<Session, String> {
        let command = if let Some(sandbox) = &self.sandbox {
            sandbox.command(&self.spec)
        } else {
            let mut command = Command::new(&self.spec.command[0]);
            command
                .args(&self.spec.command[1..])
                .env_clear()
                .envs(&self.spec.env)
                .current_dir(std::env::temp_dir());
            command
        };
        let process = Process::start(&mut command.into(), "program", 1 << 16)
            .map_err(|error| format!("cannot start Python: {error}"))?;
        Ok(Session {
            may_stay: self.clears_up || self.is_dialogues,
            process,
            max_output_bytes,
            is_whole: true,
        })
    }
}

struct Places {
    executable: String,
    prefixes: Vec<PathBuf>,
}

fn find(python: &str, prefix: &str) -> Result<Places, String> {
    let problem = |problem: String| {
        format!("cannot start {python}: {problem}; set `{prefix}.python` to an interpreter")
    };
    let output = Command::new(python)
        .args(["-I", "-c", FIND])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| problem(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let found: Vec<String> = serde_json::from_str(&said).map_err(|_| {
        let printed = String::from_utf8_lossy(&output.stderr);
        problem(
            printed
                .trim()
                .lines()
                .last()
                .unwrap_or("it is no Python")
                .to_owned(),
        )
    })?;
    let [executable, prefixes @ ..] = found.as_slice() else {
        return Err(problem("it is no Python".to_owned()));
    };
    let mut prefixes: Vec<PathBuf> = prefixes.iter().map(PathBuf::from).collect();
    prefixes.sort();
    prefixes.dedup();
    // Python would bring all of them along.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    prefixes.retain(|prefix| *prefix != Path::new("/") && Some(prefix) != home.as_ref());
    Ok(Places {
        executable: executable.clone(),
        prefixes,
    })
}

/// What came of a piece of code.
#[derive(Debug)]
pub struct Ran {
    pub printed: Vec<u8>,
    pub end: End,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Good,
    /// With an error, which is printed, or with another exit status than 0.
    Bad,
    /// It was not done in time.
    Late,
    /// The sandbox did not outlive it, or it printed too much: why.
    Broken(String),
}

/// A Python, apart.
#[derive(Debug)]
pub struct Session {
    process: Process,
    max_output_bytes: usize,
    /// What one piece of code leaves is no matter to the next.
    may_stay: bool,
    is_whole: bool,
}

impl Session {
    /// Waits until it takes code.
    pub async fn be_ready(&mut self, limit: Duration) -> Result<(), String> {
        let greeting = timeout(limit, self.process.line());
        greeting
            .await
            .map_err(|_| format!("Python was not ready within {} s", limit.as_secs()))??;
        Ok(())
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    pub fn calls(&self) -> u64 {
        self.process.calls()
    }

    /// It may be used again.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Runs code. What it printed is part of every answer.
    pub async fn run(&mut self, code: &str, limit: Duration) -> Result<ToolOutcome, ToolError> {
        let Ran { printed, end } = self.run_raw(code, limit).await;
        let text = String::from_utf8_lossy(&printed);
        let text = text.trim_end();
        let with = |problem: &str| match text {
            "" => problem.to_owned(),
            text => format!("{problem}; it printed:\n{text}"),
        };
        match (end, text) {
            (End::Good, "") => Ok(ToolOutcome::text("(nothing was printed)")),
            (End::Good, text) => Ok(ToolOutcome::text(text)),
            (End::Bad, "") => Err(ToolError::Failed("it failed without a word".to_owned())),
            (End::Bad, text) => Err(ToolError::Failed(text.to_owned())),
            (End::Late, _) => Err(ToolError::TimedOut(with(&format!(
                "stopped after {} s",
                limit.as_secs_f64()
            )))),
            (End::Broken(problem), _) => Err(ToolError::Failed(with(&problem))),
        }
    }

    /// The same, told as it was: every byte that it printed, and how it ended.
    pub async fn run_raw(&mut self, code: &str, limit: Duration) -> Ran {
        // Until its answer is here, it is in the middle of something.
        self.is_whole = false;
        let mark = format!("\0{:032x}", rand::random::<u128>());
        let mut printed = Vec::new();
        let told = timeout(limit, self.converse(code, &mark, &mut printed)).await;
        let end = match told {
            Err(_) => End::Late,
            Ok(Err(problem)) => End::Broken(problem),
            Ok(Ok(answer)) => {
                self.is_whole = self.may_stay && answer["last"] == false;
                if answer["good"] == true {
                    End::Good
                } else {
                    End::Bad
                }
            }
        };
        Ran { printed, end }
    }

    /// Sends the code and reads up to the mark; `printed` has what came before it.
    async fn converse(
        &mut self,
        code: &str,
        mark: &str,
        printed: &mut Vec<u8>,
    ) -> Result<Value, String> {
        // The mark without its NUL, which the program writes itself.
        let request = format!("{}\n{code}{}\n", code.len(), &mark[1..]);
        self.process.write(request.as_bytes()).await?;
        let mark = mark.as_bytes();
        let mut chunk = [0; 8192];
        let mut looked = 0;
        loop {
            if let Some(at) = find_in(&printed[looked..], mark) {
                let answer = printed.split_off(looked + at);
                return self.answer(answer, mark.len()).await;
            }
            // The mark may have begun.
            looked = printed.len().saturating_sub(mark.len());
            if printed.len() > self.max_output_bytes + mark.len() {
                printed.truncate(self.max_output_bytes);
                return Err(format!(
                    "stopped: it printed more than {} bytes",
                    self.max_output_bytes
                ));
            }
            match self.process.output().read(&mut chunk).await {
                Ok(count @ 1..) => printed.extend_from_slice(&chunk[..count]),
                _ => return Err(self.process.ended().await),
            }
        }
    }

    /// The line after the mark; `begun` is the mark and what was read after it.
    async fn answer(&mut self, begun: Vec<u8>, mark: usize) -> Result<Value, String> {
        let mut line = begun[mark..].to_vec();
        while !line.ends_with(b"\n") && line.len() < 1000 {
            match self.process.output().read_u8().await {
                Ok(byte) => line.push(byte),
                Err(_) => return Err(self.process.ended().await),
            }
        }
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line).map_err(|_| "the program broke its own Python".to_owned())
    }
}

fn find_in(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}
