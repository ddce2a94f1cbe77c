//! A chat template: the Jinja text that turns messages into the one string a model was trained on, rendered as
//! transformers' `apply_chat_template` renders it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Map;

use super::ChatError;
use super::python::{JsonStyle, display, json};

const DEFAULT: &str = "default";
/// The template that transformers picks from a named list when there are tools.
const TOOL_USE: &str = "tool_use";

/// A compiled chat template. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    origin: String,
}

impl ChatTemplate {
    /// From Jinja text; `origin` names it in messages.
    pub fn new(source: &str, origin: impl Into<String>) -> Result<Self, ChatError> {
        Self::named([(DEFAULT.to_owned(), source.to_owned())], origin.into())
    }

    /// From a Hugging Face directory: `chat_template.jinja` and `additional_chat_templates/*.jinja` if present, else
    /// `chat_template` of `tokenizer_config.json` (text, or a list of `{name, template}`).
    pub fn load(directory: &Path) -> Result<Self, ChatError> {
        let file = directory.join("chat_template.jinja");
        if file.is_file() {
            let mut templates = vec![(DEFAULT.to_owned(), read(&file)?)];
            if let Ok(entries) = std::fs::read_dir(directory.join("additional_chat_templates")) {
                for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                    if path
                        .extension()
                        .is_some_and(|extension| extension == "jinja")
                        && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
                    {
                        templates.push((name.to_owned(), read(&path)?));
                    }
                }
            }
            return Self::named(templates, file.display().to_string());
        }
        let file = directory.join("tokenizer_config.json");
        let missing = || ChatError::NoTemplate {
            directory: directory.to_owned(),
        };
        if !file.is_file() {
            return Err(missing());
        }
        let config: serde_json::Value =
            serde_json::from_str(&read(&file)?).map_err(|error| ChatError::Config {
                path: file.clone(),
                reason: error.to_string(),
            })?;
        let origin = file.display().to_string();
        match &config["chat_template"] {
            serde_json::Value::Null => Err(missing()),
            serde_json::Value::String(source) => Self::new(source, origin),
            serde_json::Value::Array(list) => {
                let templates: Option<Vec<_>> = list
                    .iter()
                    .map(|item| {
                        let text = |key: &str| Some(item.get(key)?.as_str()?.to_owned());
                        Some((text("name")?, text("template")?))
                    })
                    .collect();
                match templates {
                    Some(templates) if templates.iter().any(|(name, _)| name == DEFAULT) => {
                        Self::named(templates, origin)
                    }
                    _ => Err(ChatError::Config {
                        path: file,
                        reason: "chat_template is a list, but not of {name, template} with one named default"
                            .to_owned(),
                    }),
                }
            }
            other => Err(ChatError::Config {
                path: file,
                reason: format!(
                    "chat_template is {other}; expected text or a list of {{name, template}}"
                ),
            }),
        }
    }

    fn named(
        templates: impl IntoIterator<Item = (String, String)>,
        origin: String,
    ) -> Result<Self, ChatError> {
        let mut environment = environment();
        for (name, source) in templates {
            environment
                .add_template_owned(name, without_generation_blocks(&source))
                .map_err(|error| ChatError::Template {
                    origin: origin.clone(),
                    reason: explain(&error),
                })?;
        }
        Ok(Self {
            environment: Arc::new(environment),
            origin,
        })
    }

    /// Where the template came from, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Renders messages given as JSON. `variables` are the special tokens and the caller's own
    /// (`data.apply_chat_template_kwargs`); an empty `tools` is passed as `none`, as transformers does.
    pub fn render(
        &self,
        messages: &[serde_json::Value],
        tools: &[serde_json::Value],
        add_generation_prompt: bool,
        variables: &Map<String, serde_json::Value>,
    ) -> Result<String, ChatError> {
        let failed = |error: &Error| ChatError::Render {
            origin: self.origin.clone(),
            reason: explain(error),
        };
        let name = if tools.is_empty() || self.environment.get_template(TOOL_USE).is_err() {
            DEFAULT
        } else {
            TOOL_USE
        };
        let template = self
            .environment
            .get_template(name)
            .map_err(|error| failed(&error))?;
        let mut context = Map::new();
        context.insert("messages".to_owned(), messages.to_vec().into());
        let schemas = if tools.is_empty() {
            serde_json::Value::Null
        } else {
            tools.to_vec().into()
        };
        context.insert("tools".to_owned(), schemas);
        context.insert("documents".to_owned(), serde_json::Value::Null);
        context.insert(
            "add_generation_prompt".to_owned(),
            add_generation_prompt.into(),
        );
        for (key, value) in variables {
            context.insert(key.clone(), value.clone());
        }
        template
            .render(Value::from(Serde(&context)))
            .map_err(|error| failed(&error))
    }
}

fn read(path: &PathBuf) -> Result<String, ChatError> {
    std::fs::read_to_string(path).map_err(|error| ChatError::Config {
        path: path.clone(),
        reason: format!("cannot be read: {error}"),
    })
}

/// The error and its causes on one line.
fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Jinja set up as transformers sets it up.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .expect("Jinja's own delimiters are valid"),
    );
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, _, value| {
        out.write_str(&display(value))
            .map_err(|_| Error::new(ErrorKind::WriteFailure, "the rendered text cannot grow"))
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: &Value| display(value));
    environment.add_test("iterable", |value: &Value| {
        // Python's None cannot be iterated; its undefined can.
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map
        )
    });
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        jiff::fmt::strtime::format(&format, &jiff::ZonedDateTime::now()).map_err(|error| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now({format:?}): {error}"),
            )
        })
    });
    environment
}

/// `value|tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands filter arguments over by value"
)]
fn to_json(value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        match positional.get(index) {
            Some(value) => Ok(Some(value.clone())),
            None => kwargs.get(name),
        }
    };
    let ensure_ascii = argument(0, "ensure_ascii")?;
    let indent = argument(1, "indent")?.filter(|indent| !indent.is_none());
    let indent = match indent {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?),
        }),
    };
    let mut style = JsonStyle::new(indent);
    style.ensure_ascii = ensure_ascii.is_some_and(|value| value.is_true());
    if let Some(separators) = argument(2, "separators")?.filter(|value| !value.is_none()) {
        style.item_separator = display(&separators.get_item_by_index(0)?);
        style.key_separator = display(&separators.get_item_by_index(1)?);
    }
    style.sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    json(value, &style)
}

/// `{% generation %}` marks the model's words for training; it writes nothing itself, and minijinja does not know it.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let inner = &rest[start + 2..start + length];
        let word = inner.trim_matches(['-', '+']).trim();
        let replacement = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(&rest[..start]);
        match replacement {
            Some(replacement) => {
                out.push_str("{%");
                out.push_str(&inner.replacen(word, &format!(" {replacement} "), 1));
                out.push_str("%}");
            }
            None => out.push_str(&rest[start..start + length + 2]),
        }
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}
