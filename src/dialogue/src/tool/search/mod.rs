//! Passages for queries: from a corpus in memory by BM25, or from a retrieval server in verl's form (Search-R1's):
//!
//! ```text
//!  {"queries":["…"],"topk":3,"return_scores":true}  ─►  {"result":[[{"document":{"contents":"title\ntext"},"score":1.2},…],…]}
//! ```
//! The model reads the same from both, as verl writes it: `{"result": "Doc 1 (Title: …)\n…"}`.

mod bm25;
mod corpus;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use self::corpus::Corpus;
use super::config::{take_count, typed};
use super::{
    Declared, InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolLimits, ToolOutcome,
    ToolSchema,
};
use crate::generate::BoxFuture;
use crate::http::{Client, Target};

/// As verl's tool.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 64;
/// Queries of one call that are answered.
const MOST_QUERIES: usize = 32;

/// One file or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Files {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

/// Verl's names are known, too.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Parquet or JSON Lines.
    corpus: Option<Files>,
    /// The column of the text.
    #[serde(default = "text_column")]
    text: String,
    /// The column of the title; None: the first line of the text.
    title: Option<String>,
    #[serde(default = "k1")]
    k1: f64,
    #[serde(default = "b")]
    b: f64,
    #[serde(alias = "retrieval_service_url")]
    url: Option<String>,
    key_env: Option<String>,
    #[serde(default = "retries")]
    retries: u32,
}

fn text_column() -> String {
    "contents".to_owned()
}

// Pyserini's, by which Search-R1's BM25 server finds.
fn k1() -> f64 {
    0.9
}

fn b() -> f64 {
    0.4
}

fn retries() -> u32 {
    2
}

#[derive(Debug)]
enum Source {
    Here {
        files: Vec<PathBuf>,
        options: Box<Options>,
        corpus: OnceLock<Result<Arc<Corpus>, String>>,
    },
    Server(Client),
}

/// The tool.
#[derive(Debug)]
pub struct Search {
    source: Source,
    topk: usize,
}

impl Search {
    pub fn new(declared: &Declared<'_>) -> Result<Self, String> {
        let mut config = declared.config.clone();
        let topk = take_count(&mut config, "topk", 1, 1000)?.unwrap_or(3) as usize;
        let max_response_bytes =
            take_count(&mut config, "max_response_bytes", 100, 1 << 40)?.unwrap_or(16 << 20);
        // Of verl's tool; `concurrency` says it here.
        for key in ["num_workers", "rate_limit", "enable_global_rate_limit"] {
            config.remove(key);
        }
        let options: Options = typed(&config)?;
        let is_weight = |value: f64| value.is_finite() && value >= 0.0;
        if !is_weight(options.k1) || !is_weight(options.b) || options.b > 1.0 {
            return Err("`config.k1` must be at least 0 and `config.b` from 0 to 1".to_owned());
        }
        let source = match (&options.corpus, &options.url) {
            (Some(files), None) => {
                let files = match files {
                    Files::One(file) => vec![file.clone()],
                    Files::Several(files) => files.clone(),
                };
                let files: Vec<PathBuf> =
                    files.into_iter().map(|file| declared.file(&file)).collect();
                if files.is_empty() {
                    return Err("`config.corpus` names no file".to_owned());
                }
                Source::Here {
                    files,
                    options: Box::new(options),
                    corpus: OnceLock::new(),
                }
            }
            (None, Some(url)) => Source::Server(Client::new(Target {
                key_env: options.key_env.clone(),
                retries: options.retries,
                max_response_bytes,
                timeout: declared.limits.timeout.unwrap_or(TIMEOUT),
                ..Target::new(url)
            })?),
            _ => {
                return Err(
                    "expected `config.corpus` (files here) or `config.url` (a server)".to_owned(),
                );
            }
        };
        Ok(Self { source, topk })
    }

    /// The schema used when the YAML gives none: verl's `search(query_list)`.
    pub fn schema() -> ToolSchema {
        let value = json!({"type": "function", "function": {
            "name": "search",
            "description": "Searches for relevant passages.",
            "parameters": {
                "type": "object",
                "properties": {"query_list": {
                    "type": "array", "items": {"type": "string"}, "description": "List of search queries."}},
                "required": ["query_list"]}}});
        ToolSchema::new(value).expect("it is one")
    }

    fn corpus(&self) -> Option<Result<Arc<Corpus>, String>> {
        match &self.source {
            Source::Here {
                files,
                options,
                corpus,
            } => Some(
                corpus
                    .get_or_init(|| {
                        let title = options.title.as_deref();
                        Corpus::load(files, &options.text, title, options.k1, options.b)
                            .map(Arc::new)
                    })
                    .clone(),
            ),
            Source::Server(_) => None,
        }
    }

    async fn search(&self, queries: Vec<String>) -> Result<ToolOutcome, String> {
        let count = queries.len() as f64;
        let found: Vec<Vec<String>> = match &self.source {
            Source::Here { .. } => {
                let corpus = self.corpus().expect("it is here")?;
                let topk = self.topk;
                // Words that stand everywhere take milliseconds, and the dialogues' threads are few.
                let work = tokio::task::spawn_blocking(move || {
                    queries
                        .iter()
                        .map(|query| corpus.find(query, topk))
                        .collect()
                });
                work.await
                    .map_err(|error| format!("the search crashed: {error}"))?
            }
            Source::Server(client) => {
                let request = json!({"queries": queries, "topk": self.topk, "return_scores": true});
                read(&client.post(request).await?)?
            }
        };
        let total: usize = found.iter().map(Vec::len).sum();
        let said = if total == 0 {
            "No search results found.".to_owned()
        } else {
            let of_queries: Vec<String> = found.iter().map(|found| passages(found)).collect();
            of_queries.join("\n---\n")
        };
        // As Python writes it, with a space.
        Ok(ToolOutcome {
            text: format!("{{\"result\": {}}}", Value::from(said)),
            reward: None,
            metrics: [
                ("query_count".to_owned(), count),
                ("total_results".to_owned(), total as f64),
            ]
            .into(),
        })
    }
}

/// As verl writes the passages of a query; the first line of each is its title.
fn passages(found: &[String]) -> String {
    let mut text = String::new();
    for (index, contents) in found.iter().enumerate() {
        let (title, body) = contents.split_once('\n').unwrap_or((contents, ""));
        let number = index + 1;
        write!(text, "Doc {number} (Title: {title})\n{body}\n\n").expect("text takes all");
    }
    text.trim().to_owned()
}

/// The passages of each query in a server's answer.
fn read(answer: &Value) -> Result<Vec<Vec<String>>, String> {
    let results = answer["result"]
        .as_array()
        .ok_or("the server's answer has no list `result`")?;
    results
        .iter()
        .map(|of_query| {
            of_query
                .as_array()
                .ok_or("the server's `result` holds something else than lists")?
                .iter()
                .map(|item| {
                    // Without scores, the documents stand there themselves.
                    let document = item.get("document").unwrap_or(item);
                    let contents = document["contents"].as_str().map(str::to_owned);
                    contents.ok_or_else(|| "a document of the server has no `contents`".to_owned())
                })
                .collect()
        })
        .collect()
}

/// `query_list`, or `query`.
fn queries(parameters: &Parameters) -> Result<Vec<String>, String> {
    let texts = |value: &Value| match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    let given = parameters
        .get("query_list")
        .or_else(|| parameters.get("query"))
        .and_then(texts)
        .filter(|queries| !queries.is_empty())
        .ok_or("\"query_list\" is missing, empty, or not a list of texts")?;
    if given.len() > MOST_QUERIES {
        return Err(format!("more than {MOST_QUERIES} queries at once"));
    }
    Ok(given)
}

impl Tool for Search {
    fn execute<'a>(
        &'a self,
        _: &'a InstanceId,
        parameters: &'a Parameters,
        _: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let queries = queries(parameters).map_err(ToolError::Failed)?;
            self.search(queries).await.map_err(ToolError::Failed)
        })
    }

    fn limits(&self, given: ToolLimits) -> ToolLimits {
        ToolLimits {
            concurrency: given.concurrency.or(Some(CONCURRENCY)),
            timeout: given.timeout.or(Some(TIMEOUT)),
            ..given
        }
    }

    fn ready(&self) -> Result<Option<String>, String> {
        self.corpus()
            .map(|corpus| corpus.map(|corpus| corpus.describe()))
            .transpose()
    }
}
