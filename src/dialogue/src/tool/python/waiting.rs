//! Sandboxes that wait for code, each left by what ran in it before without a trace.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use sandbox::Limits;

use super::session::{Launch, Session};
use super::{Options, START_LIMIT};

/// A sandbox is replaced after as many, whatever may have gathered in it.
const CALLS_OF_SANDBOX: u64 = 1000;

/// Takes care of them. There are as many as were in use at once.
#[derive(Debug)]
pub(crate) struct Waiting {
    options: Options,
    limits: Limits,
    max_output_bytes: usize,
    /// Of the options, in errors.
    prefix: &'static str,
    launch: OnceLock<Result<Arc<Launch>, String>>,
    /// In which nothing is left of any code.
    sessions: Mutex<Vec<Session>>,
}

impl Waiting {
    pub fn new(
        options: Options,
        limits: Limits,
        max_output_bytes: usize,
        prefix: &'static str,
    ) -> Self {
        Self {
            options,
            limits,
            max_output_bytes,
            prefix,
            launch: OnceLock::new(),
            sessions: Mutex::default(),
        }
    }

    /// What keeps code apart here; the error says why there is nothing.
    pub fn describe(&self) -> Result<String, String> {
        self.launch().map(|launch| launch.describe())
    }

    /// One that waits, else a new one.
    pub async fn take(&self) -> Result<Session, String> {
        let launch = self.launch()?;
        loop {
            let next = self.sessions().pop();
            let Some(mut session) = next else {
                let mut session = launch.start(self.max_output_bytes)?;
                session.be_ready(START_LIMIT).await?;
                return Ok(session);
            };
            // It may have died in its sleep.
            if session.is_alive() {
                return Ok(session);
            }
        }
    }

    /// For the next one, unless something may be left in it.
    pub fn give_back(&self, session: Session) {
        if session.is_whole() && session.calls() < CALLS_OF_SANDBOX {
            self.sessions().push(session);
        }
    }

    fn launch(&self) -> Result<Arc<Launch>, String> {
        self.launch
            .get_or_init(|| Launch::new(&self.options, self.limits, self.prefix).map(Arc::new))
            .clone()
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        self.sessions
            .lock()
            .expect("nothing panics while it holds the lock")
    }
}
