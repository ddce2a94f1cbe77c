//! JSON over HTTP, bounded in time, size and attempts. Knows the key and never says it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// Before the first retry; twice as long before each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// No server makes us wait longer before a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Characters of a server's own words in an error.
const QUOTED: usize = 200;

/// What is asked of a server.
#[derive(Debug, Clone)]
pub struct Target {
    pub url: String,
    /// The environment variable with the key.
    pub key_env: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub retries: u32,
    pub max_response_bytes: u64,
    /// Of one attempt.
    pub timeout: Duration,
}

#[derive(Clone)]
pub struct Client {
    agent: Agent,
    target: Arc<Target>,
    key: Option<Arc<str>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

/// What came of an attempt.
enum Attempt {
    Answered(Value),
    /// Worth another: after this long, if the server said so.
    Again(String, Option<Duration>),
    Failed(String),
}

impl Client {
    /// The error says which environment variable is missing.
    pub fn new(target: Target) -> Result<Self, String> {
        let key = match &target.key_env {
            None => None,
            Some(name) => match std::env::var(name) {
                Ok(key) if !key.trim().is_empty() => Some(key.trim().into()),
                _ => {
                    return Err(format!(
                        "options: key_env names the environment variable {name}, which is not set here"
                    ));
                }
            },
        };
        let config = Agent::config_builder()
            .timeout_global(Some(target.timeout))
            .http_status_as_error(false)
            // A key goes to the server that was named and no other.
            .max_redirects(0)
            .user_agent(concat!("lathe/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            agent: config.into(),
            target: Arc::new(target),
            key,
        })
    }

    /// Scheme and host: paths and queries may hold secrets.
    fn server(&self) -> String {
        let (scheme, rest) = self
            .target
            .url
            .split_once("://")
            .unwrap_or(("", &self.target.url));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let host = rest[..end].rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}")
    }

    /// Without the key, should a server have said it.
    fn cleaned(&self, text: &str) -> String {
        let text = match &self.key {
            Some(key) => text.replace(&**key, "***"),
            None => text.to_owned(),
        };
        text.chars().take(QUOTED).collect()
    }

    /// The answer to `body`, after as many attempts as it may take.
    pub async fn post(&self, body: Value) -> Result<Value, String> {
        let body: Arc<[u8]> = body.to_string().into_bytes().into();
        let mut wait = FIRST_WAIT;
        let mut left = self.target.retries;
        loop {
            let (client, body) = (self.clone(), Arc::clone(&body));
            // The client blocks; its own time-out ends it even when nobody waits any more.
            let attempt = tokio::task::spawn_blocking(move || client.attempt(&body))
                .await
                .map_err(|error| {
                    format!("{}: {}", self.server(), crate::tool::panic_text(error))
                })?;
            match attempt {
                Attempt::Answered(answer) => return Ok(answer),
                Attempt::Again(_, asked) if left > 0 => {
                    left -= 1;
                    tokio::time::sleep(asked.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
                Attempt::Again(problem, _) | Attempt::Failed(problem) => {
                    return Err(format!("{}: {problem}", self.server()));
                }
            }
        }
    }

    fn attempt(&self, body: &[u8]) -> Attempt {
        let mut request = self
            .agent
            .post(&self.target.url)
            .header("content-type", "application/json")
            .header("accept", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in &self.target.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => {
                return Attempt::Failed(self.cleaned(&error.to_string()));
            }
            Err(error) => return Attempt::Again(self.cleaned(&error.to_string()), None),
        };
        let status = response.status().as_u16();
        let asked = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let read = response
            .body_mut()
            .with_config()
            .limit(self.target.max_response_bytes)
            .read_to_vec();
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(ureq::Error::BodyExceedsLimit(limit)) => {
                return Attempt::Failed(format!("the answer is longer than {limit} bytes"));
            }
            Err(error) => return Attempt::Again(self.cleaned(&error.to_string()), None),
        };
        let quoted = || self.cleaned(&String::from_utf8_lossy(&bytes));
        match status {
            200..=299 => match serde_json::from_slice(&bytes) {
                Ok(answer) => Attempt::Answered(answer),
                Err(_) => Attempt::Failed(format!("the answer is not JSON: {}", quoted())),
            },
            408 | 429 | 500..=599 => {
                Attempt::Again(format!("status {status}: {}", quoted()), asked)
            }
            _ => Attempt::Failed(format!("status {status}: {}", quoted())),
        }
    }
}
