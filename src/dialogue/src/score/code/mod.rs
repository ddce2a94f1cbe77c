//! Code that the model wrote, run against tests in a sandbox.
//!
//! ```text
//!  answer ─► its last block of Python ─┐
//!  ground truth ─► tests ──────────────┴─► for each test a sandbox that waits ─► what it prints or gives ─► compared here
//! ```
//! Each test runs in a process of its own, which knows what goes in and never what must come out: that stays on this side. (Tests
//! that are assertions have to run beside the program, and one made for it could pass them.) Whatever a program does costs it its
//! test; where the machine allows no sandbox there is no score.

mod compare;
mod tests_of;

use std::collections::BTreeMap;
use std::time::Duration;

use experiment::arms::Code as Settings;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::tests_of::Tests;
use super::{Score, ScoreError, Scorer, Sees, Started, Transcript};
use crate::generate::BoxFuture;
use crate::tool::python::{End, Options, Ran, Waiting};

/// Tests that verl asks when it scores by their share.
const TESTS_OF_PARTIAL: u32 = 10;
const SCRATCH_BYTES: u64 = 64 << 20;
const PROCESSES: u64 = 32;

const PROGRAM: &str = include_str!("program.py");
const FUNCTION: &str = include_str!("function.py");
const ASSERTIONS: &str = include_str!("assertions.py");

/// The scorer. 1 when every test passes, else 0, or with `partial` the share that does.
#[derive(Debug)]
pub struct Code {
    pub sees: Sees,
    settings: Settings,
    timeout: Duration,
    waiting: Waiting,
    /// Programs at once: they would only slow each other down beyond the processors there are.
    turns: Semaphore,
}

impl Code {
    pub fn new(settings: Settings, sees: Sees) -> Self {
        let options = Options {
            python: settings.python.clone(),
            ..Options::default()
        };
        let timeout = Duration::from_secs_f64(settings.test_timeout_s);
        let limits = sandbox::Limits {
            memory_bytes: settings.memory_mb << 20,
            scratch_bytes: SCRATCH_BYTES,
            processes: PROCESSES,
            cpu_s: settings.test_timeout_s.ceil() as u64 + 1,
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            sees,
            timeout,
            waiting: Waiting::new(
                options,
                limits,
                settings.max_output_bytes as usize,
                "options",
            ),
            turns: Semaphore::new(processors),
            settings,
        }
    }

    /// As verl judges its sources of programs: by the share of the first ten tests.
    pub fn by_share() -> Self {
        let settings = Settings {
            partial: true,
            ..Settings::default()
        };
        Self::new(settings, Sees::default())
    }

    async fn judge(&self, transcript: &Transcript, started: &Started) -> Result<Score, ScoreError> {
        let tests = self.tests(&transcript.ground_truth)?;
        let text = transcript.text(self.sees);
        let Some(found) = block(&text) else {
            started.now();
            return Ok(score(0, tests.len(), 0, false, self.settings.partial));
        };
        let turn = self.turns.acquire().await;
        let turn = turn.expect("the semaphore is never closed");
        // The first is had before the clock of the answer starts.
        let mut next = Some(self.waiting.take().await.map_err(ScoreError::Failed)?);
        started.now();
        let most = match (self.settings.max_tests, self.settings.partial) {
            (Some(most), _) => most as usize,
            (None, true) => TESTS_OF_PARTIAL as usize,
            (None, false) => usize::MAX,
        };
        let count = tests.len().min(most);
        let (mut passed, mut late) = (0, 0);
        for at in 0..count {
            let mut session = match next.take() {
                Some(session) => session,
                None => self.waiting.take().await.map_err(ScoreError::Failed)?,
            };
            let case = Case::new(&tests, at, found.code);
            let ran = session.run_raw(&case.code, self.timeout).await;
            self.waiting.give_back(session);
            late += usize::from(ran.end == End::Late);
            if case.is_passed(&ran) {
                passed += 1;
            } else if !self.settings.partial {
                break;
            }
        }
        drop(turn);
        let mut score = score(passed, count, late, found.is_fenced, self.settings.partial);
        score.parts.insert("tests".to_owned(), count as f64);
        Ok(score)
    }

    fn tests(&self, ground_truth: &Value) -> Result<Tests, ScoreError> {
        Tests::read(ground_truth).ok_or_else(|| {
            let given: String = ground_truth.to_string().chars().take(200).collect();
            ScoreError::GroundTruth {
                scorer: self.name(),
                given,
                expected: tests_of::EXPECTED,
            }
        })
    }
}

fn score(passed: usize, count: usize, late: usize, is_fenced: bool, partial: bool) -> Score {
    let share = passed as f64 / count.max(1) as f64;
    let mut parts = BTreeMap::from([("format".to_owned(), if is_fenced { 1.0 } else { 0.0 })]);
    if late > 0 {
        parts.insert("tests_timed_out".to_owned(), late as f64);
    }
    let value = if partial || passed == count {
        share
    } else {
        0.0
    };
    Score {
        value,
        parts,
        says: None,
    }
}

/// One test as Python is given it.
struct Case<'a> {
    code: String,
    must: Must<'a>,
}

enum Must<'a> {
    /// Print this.
    Print(&'a str),
    /// Give this, as JSON.
    Give(&'a Value),
    /// Come to the end of the assertions, where this is printed.
    ComeTo(String),
}

impl<'a> Case<'a> {
    fn new(tests: &'a Tests, at: usize, program: &str) -> Self {
        // A JSON text is a text in Python too.
        let text = |text: &str| json!(text).to_string();
        let program = text(program);
        match tests {
            Tests::Programs(cases) => Self {
                code: format!(
                    "_program, _input = {program}, {}\n{PROGRAM}",
                    text(&cases[at].input)
                ),
                must: Must::Print(&cases[at].output),
            },
            Tests::Calls { function, cases } => Self {
                code: format!(
                    "_program, _name, _arguments = {program}, {}, {}\n{FUNCTION}",
                    text(function),
                    text(&cases[at].arguments.to_string())
                ),
                must: Must::Give(&cases[at].result),
            },
            Tests::Assertions(all) => {
                let mark = format!("{:032x}", rand::random::<u128>());
                Self {
                    code: format!(
                        "_program, _tests, _mark = {program}, {}, {}\n{ASSERTIONS}",
                        text(&all[at]),
                        text(&mark)
                    ),
                    must: Must::ComeTo(mark),
                }
            }
        }
    }

    fn is_passed(&self, ran: &Ran) -> bool {
        let Ok(printed) = std::str::from_utf8(&ran.printed) else {
            return false;
        };
        ran.end == End::Good
            && match &self.must {
                Must::Print(expected) => compare::is_output(printed, expected),
                Must::Give(expected) => serde_json::from_str(printed)
                    .is_ok_and(|given| compare::is_result(&given, expected)),
                Must::ComeTo(mark) => printed == mark,
            }
    }
}

/// The program in an answer.
#[derive(Debug, PartialEq, Eq)]
struct Block<'a> {
    code: &'a str,
    is_fenced: bool,
}

/// The last block between fences that is Python or does not say what it is; one that is not closed ends with the text. Without any
/// fence all of it, as verl does. None: there is nothing.
fn block(text: &str) -> Option<Block<'_>> {
    let mut blocks = Vec::new();
    let mut rest = text;
    let mut is_any = false;
    while let Some(at) = rest.find("```") {
        is_any = true;
        let inside = &rest[at + 3..];
        let (code, after) = match inside.find("```") {
            Some(end) => (&inside[..end], &inside[end + 3..]),
            None => (inside, ""),
        };
        rest = after;
        let (language, code) = match code.split_once('\n') {
            Some((language, code)) => (language.trim(), code),
            // A fence within a line.
            None => ("", code),
        };
        let is_python = language
            .split_whitespace()
            .next()
            .is_none_or(|name| ["python", "python3", "py"].contains(&name.to_lowercase().as_str()));
        if is_python && !code.trim().is_empty() {
            blocks.push(code);
        }
    }
    if let Some(code) = blocks.pop() {
        return Some(Block {
            code,
            is_fenced: true,
        });
    }
    (!is_any && !text.trim().is_empty()).then_some(Block {
        code: text,
        is_fenced: false,
    })
}

impl Scorer for Code {
    fn name(&self) -> &'static str {
        "code"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move { self.judge(transcript, &Started::unheard()).await })
    }

    fn score_from<'a>(
        &'a self,
        transcript: &'a Transcript,
        started: &'a Started,
    ) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(self.judge(transcript, started))
    }

    /// Also that there is a sandbox: without one no row can be judged.
    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        self.tests(ground_truth)?;
        self.waiting
            .describe()
            .map(drop)
            .map_err(ScoreError::Failed)
    }

    /// What passes, nobody can say without writing the program.
    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
