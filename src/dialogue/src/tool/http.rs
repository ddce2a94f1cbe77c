//! An HTTP server as a tool: the arguments go out as JSON, or in the path and query of the URL; the answer comes back as text.
//!
//! `{name}` in the URL's path or query is the argument of that name, encoded, so that a model can name neither another
//! server nor another path. What is left of the arguments is the query (`GET`, `DELETE`) or the body. Secrets come from the
//! environment, go to the server that is named, and are never part of an answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use ureq::http::Method;

use super::config::{take_count, typed};
use super::{
    Declared, InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolLimits, ToolOutcome,
};
use crate::generate::BoxFuture;
use crate::http::{Client, Target};

const TIMEOUT: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Verb {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }

    fn has_body(self) -> bool {
        !matches!(self, Self::Get | Self::Delete)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    url: String,
    #[serde(default)]
    method: Verb,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Header to environment variable.
    #[serde(default)]
    headers_env: BTreeMap<String, String>,
    key_env: Option<String>,
    /// JSON pointer to the part of the answer that the model gets.
    select: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub struct Http {
    client: Client,
    options: Options,
}

impl Http {
    pub fn new(declared: &Declared<'_>) -> Result<Self, String> {
        let mut config = declared.config.clone();
        let retries = take_count(&mut config, "retries", 0, 20)?;
        let max_response_bytes =
            take_count(&mut config, "max_response_bytes", 1, 1 << 40)?.unwrap_or(1 << 20);
        let options: Options = typed(&config)?;
        let after_scheme = options.url.find("://").map_or(0, |at| at + 3);
        let host_end = options.url[after_scheme..]
            .find(['/', '?'])
            .map_or(options.url.len(), |at| after_scheme + at);
        if options.url[..host_end].contains('{') {
            return Err(
                "`config.url`: {name} may stand in the path and the query, not in the host"
                    .to_owned(),
            );
        }
        let known = declared.schema.value()["function"]["parameters"]["properties"].as_object();
        for name in placeholders(&options.url)? {
            if !known.is_some_and(|known| known.contains_key(name)) {
                return Err(format!(
                    "`config.url` has {{{name}}}, which is no parameter of tool_schema"
                ));
            }
        }
        if let Some(select) = &options.select
            && !select.starts_with('/')
        {
            return Err(format!(
                "`config.select` is {select:?}; expected a JSON pointer such as /result/0/text"
            ));
        }
        let client = Client::new(Target {
            headers: options.headers.clone(),
            headers_env: options.headers_env.clone(),
            key_env: options.key_env.clone(),
            // What a second time would do, only its server knows.
            retries: retries.map_or(if options.method == Verb::Get { 2 } else { 0 }, |count| {
                count as u32
            }),
            max_response_bytes,
            timeout: declared.limits.timeout.unwrap_or(TIMEOUT),
            ..Target::new(&options.url)
        })
        .map_err(|problem| format!("`config`: {problem}"))?;
        Ok(Self { client, options })
    }

    /// Where a call goes and what it takes along.
    fn request(&self, parameters: &Parameters) -> Result<(String, Option<Value>), String> {
        let mut left = parameters.clone();
        let mut url = String::new();
        let mut rest = self.options.url.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("checked when it was made");
            let value = left
                .remove(name)
                .ok_or_else(|| format!("parameter \"{name}\" is missing"))?;
            let value = plain(&value);
            // Read as a step through the path, however it is written.
            if matches!(value.as_str(), "" | "." | "..") {
                return Err(format!("parameter \"{name}\" may not be {value:?}"));
            }
            url.push_str(before);
            url.push_str(&encoded(&value));
            rest = after;
        }
        url.push_str(rest);
        if self.options.method.has_body() {
            return Ok((url, Some(Value::Object(left))));
        }
        for (name, value) in &left {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&encoded(name));
            url.push('=');
            url.push_str(&encoded(&plain(value)));
        }
        Ok((url, None))
    }

    fn text(&self, answer: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(answer);
        let Some(select) = &self.options.select else {
            return Ok(text.trim().to_owned());
        };
        let answer: Value = serde_json::from_str(&text)
            .map_err(|_| "the server's answer is not JSON".to_owned())?;
        answer
            .pointer(select)
            .map(plain)
            .ok_or_else(|| format!("the server's answer has no {select}"))
    }
}

/// The names in `{}`.
fn placeholders(url: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    let mut rest = url;
    while let Some((_, after)) = rest.split_once('{') {
        let (name, after) = after
            .split_once('}')
            .ok_or("`config.url` has a { without its }")?;
        names.push(name);
        rest = after;
    }
    Ok(names)
}

/// A text as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// RFC 3986's unreserved characters as they are, all other bytes as %XX: no argument can leave its place in a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'.');
        if is_plain {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("text takes all");
        }
    }
    encoded
}

impl Tool for Http {
    fn execute<'a>(
        &'a self,
        _: &'a InstanceId,
        parameters: &'a Parameters,
        _: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let (url, body) = self.request(parameters).map_err(ToolError::Failed)?;
            let method = self.options.method.method();
            let answer = self.client.send(method, url, body).await;
            let text = answer.and_then(|answer| self.text(&answer));
            Ok(ToolOutcome::text(text.map_err(ToolError::Failed)?))
        })
    }

    fn limits(&self, given: ToolLimits) -> ToolLimits {
        ToolLimits {
            concurrency: given.concurrency.or(Some(CONCURRENCY)),
            timeout: given.timeout.or(Some(TIMEOUT)),
            ..given
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_cannot_leave_its_place_in_a_url() {
        for (text, expected) in [
            ("Ulm an der Donau", "Ulm%20an%20der%20Donau"),
            ("../../admin?x=1#y", "..%2F..%2Fadmin%3Fx%3D1%23y"),
            ("a&b=c", "a%26b%3Dc"),
            ("ü\r\n", "%C3%BC%0D%0A"),
            ("1.5-a_b~c", "1.5-a_b~c"),
        ] {
            assert_eq!(encoded(text), expected);
        }
    }
}
