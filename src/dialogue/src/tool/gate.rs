//! What stands between the dialogues and one tool: a cache, a number of calls at once, a time-out.
//!
//! The time-out counts from when a call's turn has come: that others are slow is not its fault. A call that is cancelled
//! gives its turn back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::call::Instance;
use super::isolated::{Interrupted, isolated};
use super::{Parameters, ToolError, ToolKwargs, ToolLimits, ToolOutcome};
use crate::rollout::CallFailure;

pub(super) struct Gate {
    timeout: Option<Duration>,
    turns: Option<Semaphore>,
    cache: Option<Mutex<Cache>>,
}

/// What came of a call.
pub(super) struct Answered {
    pub outcome: Result<ToolOutcome, (CallFailure, String)>,
    /// It waited so long for its turn.
    pub wait: Duration,
    pub is_cached: bool,
}

impl Answered {
    pub fn failed(failure: CallFailure, problem: String) -> Self {
        Self {
            outcome: Err((failure, problem)),
            wait: Duration::ZERO,
            is_cached: false,
        }
    }
}

impl Gate {
    pub fn new(limits: ToolLimits) -> Self {
        Self {
            timeout: limits.timeout,
            turns: limits.concurrency.map(Semaphore::new),
            cache: (limits.cache > 0).then(|| Mutex::new(Cache::new(limits.cache))),
        }
    }

    /// Of one call; `otherwise` where the tool does not say.
    pub fn timeout(&self, otherwise: Duration) -> Duration {
        self.timeout.unwrap_or(otherwise)
    }

    pub async fn call(
        &self,
        instance: Arc<Instance>,
        parameters: Parameters,
        otherwise: Duration,
    ) -> Answered {
        let key = self
            .cache
            .as_ref()
            .map(|_| key(&parameters, instance.kwargs()));
        if let (Some(cache), Some(key)) = (&self.cache, &key)
            && let Some(outcome) = lock(cache).get(key)
        {
            return Answered {
                outcome: Ok(outcome),
                wait: Duration::ZERO,
                is_cached: true,
            };
        }
        let asked = Instant::now();
        let _turn = match &self.turns {
            Some(turns) => Some(turns.acquire().await.expect("it is never closed")),
            None => None,
        };
        let wait = asked.elapsed();
        let limit = self.timeout(otherwise);
        let work = isolated(limit, async move { instance.execute(&parameters).await });
        let outcome = match work.await {
            Ok(Ok(outcome)) => {
                if let (Some(cache), Some(key)) = (&self.cache, key) {
                    lock(cache).put(key, outcome.clone());
                }
                Ok(outcome)
            }
            Ok(Err(ToolError::Failed(text))) => Err((CallFailure::Tool, text)),
            Ok(Err(ToolError::TimedOut(text))) => Err((CallFailure::TimedOut, text)),
            Err(Interrupted::TimedOut { limit_s }) => Err((
                CallFailure::TimedOut,
                format!("no answer within {limit_s} s"),
            )),
            Err(Interrupted::Panicked(text)) => {
                Err((CallFailure::Panicked, format!("the tool crashed: {text}")))
            }
        };
        Answered {
            outcome,
            wait,
            is_cached: false,
        }
    }
}

fn lock(cache: &Mutex<Cache>) -> std::sync::MutexGuard<'_, Cache> {
    cache
        .lock()
        .expect("nothing panics while it holds the lock")
}

/// Answers by what was asked; the oldest goes first.
struct Cache {
    most: usize,
    answers: HashMap<Arc<str>, ToolOutcome>,
    order: VecDeque<Arc<str>>,
}

impl Cache {
    fn new(most: usize) -> Self {
        Self {
            most,
            answers: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    fn get(&self, key: &str) -> Option<ToolOutcome> {
        self.answers.get(key).cloned()
    }

    fn put(&mut self, key: String, outcome: ToolOutcome) {
        let key: Arc<str> = key.into();
        if self.answers.insert(Arc::clone(&key), outcome).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}

/// The same for the same arguments in any order, and for rows that say the same to the tool.
fn key(parameters: &Parameters, kwargs: &ToolKwargs) -> String {
    let mut text = String::new();
    for part in [
        Some(parameters),
        kwargs.create_kwargs.as_ref(),
        kwargs.execute_kwargs.as_ref(),
    ] {
        match part {
            Some(map) => write_sorted(map, &mut text),
            None => text.push('-'),
        }
    }
    text
}

fn write_sorted(map: &Parameters, text: &mut String) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(name, _)| *name);
    text.push('{');
    for (name, value) in entries {
        text.push_str(&Value::from(name.as_str()).to_string());
        text.push(':');
        write_value(value, text);
        text.push(',');
    }
    text.push('}');
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => write_sorted(map, text),
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_value(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key_of(arguments: &Value) -> String {
        key(
            arguments.as_object().expect("an object"),
            &ToolKwargs::default(),
        )
    }

    #[test]
    fn the_same_arguments_in_another_order_are_the_same_call() {
        assert_eq!(
            key_of(&json!({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": "2"})),
            key_of(&json!({"b": "2", "a": {"y": [{"q": 2, "p": 1}], "x": 1}})),
        );
        assert_ne!(key_of(&json!({"a": 1})), key_of(&json!({"a": "1"})));
        assert_ne!(key_of(&json!({"a": [1, 2]})), key_of(&json!({"a": [2, 1]})));
        let kwargs = ToolKwargs {
            execute_kwargs: json!({"row": 7}).as_object().cloned(),
            ..ToolKwargs::default()
        };
        assert_ne!(
            key(&Parameters::new(), &ToolKwargs::default()),
            key(&Parameters::new(), &kwargs)
        );
    }

    #[test]
    fn a_cache_holds_as_many_as_it_may_and_drops_the_oldest() {
        let mut cache = Cache::new(2);
        for name in ["a", "b", "a", "c"] {
            cache.put(name.to_owned(), ToolOutcome::text(name));
        }
        assert_eq!(cache.get("a"), None);
        assert_eq!(cache.get("b"), Some(ToolOutcome::text("b")));
        assert_eq!(cache.get("c"), Some(ToolOutcome::text("c")));
        assert_eq!((cache.answers.len(), cache.order.len()), (2, 2));
    }
}
