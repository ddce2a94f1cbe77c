//! JSON over HTTP, bounded in time, size and attempts. Knows secrets and never says them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::{Agent, Body};

/// Before the first retry; twice as long before each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// No server makes us wait longer before a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Characters of a server's own words in an error.
const QUOTED: usize = 200;

/// What is asked of a server.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub url: String,
    /// The environment variable with the key, sent as `Authorization: Bearer`.
    pub key_env: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// Headers whose values are those of environment variables.
    pub headers_env: BTreeMap<String, String>,
    pub retries: u32,
    pub max_response_bytes: u64,
    /// Of one attempt.
    pub timeout: Duration,
}

impl Target {
    /// No key, no headers, two retries, 1 MiB, 30 s.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            key_env: None,
            headers: BTreeMap::new(),
            headers_env: BTreeMap::new(),
            retries: 2,
            max_response_bytes: 1 << 20,
            timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    target: Arc<Target>,
    /// Headers of every request.
    headers: Arc<[(String, String)]>,
    /// What may never be said.
    secrets: Arc<[String]>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

/// What came of a message.
#[derive(Debug)]
pub(crate) struct Reply {
    headers: HeaderMap,
    /// The message that was wanted, if it came.
    pub wanted: Option<Value>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    }
}

/// What came of an attempt.
enum Attempt {
    Answered(Vec<u8>),
    /// Worth another: after this long, if the server said so.
    Again(String, Option<Duration>),
    Failed(String),
}

/// The value of an environment variable; `key` is what named it.
fn secret(key: &str, name: &str) -> Result<String, String> {
    std::env::var(name)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
        .ok_or_else(|| {
            format!("{key} names the environment variable {name}, which is not set here")
        })
}

impl Client {
    /// The error says which environment variable is missing.
    pub fn new(target: Target) -> Result<Self, String> {
        if !target.url.starts_with("http://") && !target.url.starts_with("https://") {
            return Err(format!(
                "url is {:?}; expected http:// or https://",
                target.url
            ));
        }
        let mut headers: Vec<(String, String)> = target.headers.clone().into_iter().collect();
        let mut secrets = Vec::new();
        if let Some(name) = &target.key_env {
            let key = secret("key_env", name)?;
            headers.push(("authorization".to_owned(), format!("Bearer {key}")));
            secrets.push(key);
        }
        for (header, name) in &target.headers_env {
            let value = secret(&format!("headers_env.{header}"), name)?;
            headers.push((header.clone(), value.clone()));
            secrets.push(value);
        }
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
            headers: headers.into(),
            secrets: secrets.into(),
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

    /// Without a secret, should a server have said it.
    fn cleaned(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &*self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        text.chars().take(QUOTED).collect()
    }

    /// The JSON that a server answers to `body`, after as many attempts as it may take.
    pub async fn post(&self, body: Value) -> Result<Value, String> {
        let url = self.target.url.clone();
        let answer = self.send(Method::POST, url, Some(body)).await?;
        serde_json::from_slice(&answer).map_err(|_| {
            let quoted = self.cleaned(&String::from_utf8_lossy(&answer));
            format!("{}: the answer is not JSON: {quoted}", self.server())
        })
    }

    /// What a server answers, as it is. `url`: another path or query of the target.
    pub async fn send(
        &self,
        method: Method,
        url: String,
        body: Option<Value>,
    ) -> Result<Vec<u8>, String> {
        let body: Option<Arc<[u8]>> = body.map(|body| body.to_string().into_bytes().into());
        let url: Arc<str> = url.into();
        let mut wait = FIRST_WAIT;
        let mut left = self.target.retries;
        loop {
            let (client, method) = (self.clone(), method.clone());
            let (url, body) = (Arc::clone(&url), body.clone());
            // The client blocks; its own time-out ends it even when nobody waits any more.
            let work = move || client.attempt(method, &url, body.as_deref());
            let attempt = tokio::task::spawn_blocking(work).await.map_err(|error| {
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

    /// Sends a JSON-RPC message, once: the answer is JSON, or a stream of events (`text/event-stream`) that is read up to the
    /// message that is wanted.
    pub async fn messages(
        &self,
        message: &Value,
        headers: Vec<(String, String)>,
        is_wanted: impl Fn(&Value) -> bool + Send + 'static,
    ) -> Result<Reply, String> {
        let client = self.clone();
        let body = message.to_string().into_bytes();
        let work = move || client.exchange(&body, &headers, is_wanted);
        let answered = tokio::task::spawn_blocking(work).await;
        answered
            .map_err(crate::tool::panic_text)
            .and_then(|answered| answered)
            .map_err(|problem| format!("{}: {problem}", self.server()))
    }

    fn exchange(
        &self,
        body: &[u8],
        headers: &[(String, String)],
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Reply, String> {
        let says = |error: ureq::Error| self.cleaned(&error.to_string());
        let mut response = self
            .open(Method::POST, &self.target.url, Some(body), headers)
            .map_err(says)?;
        let status = response.status().as_u16();
        let is_stream = response
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        let headers = response.headers().clone();
        let limited = response
            .body_mut()
            .with_config()
            .limit(self.target.max_response_bytes);
        let failed = |error: std::io::Error| self.cleaned(&error.to_string());
        if !is_stream || !(200..=299).contains(&status) {
            let bytes = limited.read_to_vec().map_err(says)?;
            let quoted = || self.cleaned(&String::from_utf8_lossy(&bytes));
            if !(200..=299).contains(&status) {
                return Err(format!("status {status}: {}", quoted()));
            }
            let wanted = if bytes.iter().all(u8::is_ascii_whitespace) {
                None
            } else {
                let message = serde_json::from_slice(&bytes);
                Some(message.map_err(|_| format!("the answer is not JSON: {}", quoted()))?)
            };
            return Ok(Reply {
                headers,
                wanted: wanted.filter(&is_wanted),
            });
        }
        let mut data = String::new();
        for line in BufReader::new(limited.reader()).lines() {
            let line = line.map_err(failed)?;
            if let Some(more) = line.strip_prefix("data:") {
                data.push_str(more.strip_prefix(' ').unwrap_or(more));
                data.push('\n');
            } else if line.is_empty() && !data.is_empty() {
                let wanted = serde_json::from_str(&data).ok().filter(&is_wanted);
                if wanted.is_some() {
                    return Ok(Reply { headers, wanted });
                }
                data.clear();
            }
        }
        Ok(Reply {
            headers,
            wanted: None,
        })
    }

    /// Sends a request. `more`: headers that win over the client's own.
    fn open(
        &self,
        method: Method,
        url: &str,
        body: Option<&[u8]>,
        more: &[(String, String)],
    ) -> Result<Response<Body>, ureq::Error> {
        let mut request = Request::builder().method(method).uri(url);
        let given = || {
            let own = self.headers.iter().filter(|(name, _)| {
                !more
                    .iter()
                    .any(|(other, _)| other.eq_ignore_ascii_case(name))
            });
            own.chain(more)
        };
        let is_given = |name: &str| given().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if body.is_some() && !is_given("content-type") {
            request = request.header("content-type", "application/json");
        }
        if !is_given("accept") {
            request = request.header("accept", "application/json");
        }
        for (name, value) in given() {
            request = request.header(name.as_str(), value.as_str());
        }
        match body {
            Some(body) => self.agent.run(request.body(body)?),
            None => self.agent.run(request.body(())?),
        }
    }

    fn attempt(&self, method: Method, url: &str, body: Option<&[u8]>) -> Attempt {
        let mut response = match self.open(method, url, body, &[]) {
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
            200..=299 => Attempt::Answered(bytes),
            408 | 429 | 500..=599 => {
                Attempt::Again(format!("status {status}: {}", quoted()), asked)
            }
            _ => Attempt::Failed(format!("status {status}: {}", quoted())),
        }
    }
}
