//! Which tools exist: made from a verl tool YAML by class name, or registered one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use experiment::yaml::Value as Yaml;
use serde::Deserialize;
use serde_json::Value;

use super::calculator::Calculator;
use super::command::Command;
use super::gate::Gate;
use super::guess::Guess;
use super::http::Http;
use super::python::Python;
use super::search::Search;
use super::{Parameters, Tool, ToolLimits, ToolSchema, mcp};

/// What is wrong with a tool YAML. `place` is `file:line: tools[index]`.
#[derive(Debug, thiserror::Error)]
pub enum ToolConfigError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}: {message}")]
    Yaml { path: String, message: String },
    #[error("{place}.class_name is `{class_name}`; expected one of {known}")]
    UnknownClass {
        place: String,
        class_name: String,
        known: String,
    },
    #[error("{place}.config.type is `{kind}`; only `native` tools are supported")]
    UnknownType { place: String, kind: String },
    #[error("{place}: {message}")]
    Entry { place: String, message: String },
    #[error("{place}: two tools are called `{name}`; rename one (tool_schema.function.name)")]
    NameClash { place: String, name: String },
    #[error("{place}: there is no tool `{name}`; the tools are {known}")]
    UnknownTool {
        place: String,
        name: String,
        known: String,
    },
}

/// A tool as its YAML declares it.
#[derive(Debug)]
pub struct Declared<'a> {
    /// The class's own keys of `config`; those of [`ToolLimits`] are taken out.
    pub config: &'a Parameters,
    pub limits: ToolLimits,
    pub schema: &'a ToolSchema,
    /// Where the YAML lies.
    pub folder: &'a Path,
}

impl Declared<'_> {
    /// A file of the `config`: a relative path is looked for here, then beside the YAML.
    pub fn file(&self, written: &Path) -> PathBuf {
        let beside = self.folder.join(written);
        if written.is_relative() && !written.exists() && beside.exists() {
            beside
        } else {
            written.to_owned()
        }
    }
}

/// Errors say what is wrong with what was declared, without a place.
pub type MakeTool = Arc<dyn Fn(&Declared<'_>) -> Result<Arc<dyn Tool>, String> + Send + Sync>;

/// How the tools of one class are made.
#[derive(Clone)]
pub struct ToolClass {
    pub make: MakeTool,
    /// Used when the YAML gives no `tool_schema`. None: it must give one.
    pub schema: Option<ToolSchema>,
}

impl ToolClass {
    /// A class whose tools are made from the `config` alone.
    pub fn new<T: Tool + 'static>(
        schema: Option<ToolSchema>,
        make: impl Fn(&Declared<'_>) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            make: Arc::new(move |declared| Ok(Arc::new(make(declared)?))),
            schema,
        }
    }
}

impl fmt::Debug for ToolClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ToolClass")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Tools, each with its own schema.
pub(super) type Made = Vec<(ToolSchema, Arc<dyn Tool>)>;

/// Tools of which there are as many as somebody else says.
type MakeTools = fn(&Declared<'_>) -> Result<Made, String>;

#[derive(Debug, Clone)]
enum Class {
    One(ToolClass),
    Several(MakeTools),
}

/// The classes a YAML may name.
#[derive(Debug, Clone)]
pub struct ToolClasses(BTreeMap<String, Class>);

impl Default for ToolClasses {
    /// All that are built in.
    fn default() -> Self {
        let mut classes = Self(BTreeMap::new());
        classes.add(
            "calculator",
            ToolClass::new(Some(Calculator::schema()), |declared| {
                Calculator::from_config(declared.config)
            }),
        );
        classes.add("command", ToolClass::new(None, Command::new));
        classes.add(
            "guess",
            ToolClass::new(Some(Guess::schema()), |declared| {
                Guess::from_config(declared.config)
            }),
        );
        classes.add("http", ToolClass::new(None, Http::new));
        classes
            .0
            .insert("mcp".to_owned(), Class::Several(mcp::tools));
        classes.add(
            "python",
            ToolClass::new(Some(Python::schema()), Python::new),
        );
        for name in ["search", "verl.tools.search_tool.SearchTool"] {
            classes.add(name, ToolClass::new(Some(Search::schema()), Search::new));
        }
        classes
    }
}

impl ToolClasses {
    /// Adds a class or replaces the one of that name.
    pub fn add(&mut self, class_name: impl Into<String>, class: ToolClass) {
        self.0.insert(class_name.into(), Class::One(class));
    }

    fn names(&self) -> String {
        // Verl's long names are for files that were written for it.
        join(self.0.keys().filter(|name| !name.contains('.')))
    }
}

fn join<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolEntry {
    class_name: String,
    #[serde(default)]
    config: Option<Parameters>,
    #[serde(default)]
    tool_schema: Option<Value>,
}

#[derive(Clone)]
pub(super) struct Registered {
    pub schema: ToolSchema,
    pub tool: Arc<dyn Tool>,
    pub gate: Arc<Gate>,
}

/// The tools of an experiment, by the name the model calls.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    /// In the order of the YAML, which is the order the model sees them in.
    tools: Vec<Registered>,
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("ToolRegistry")
            .field(&self.names())
            .finish()
    }
}

impl ToolRegistry {
    /// Reads `tools: [{class_name, config, tool_schema}]`.
    pub fn load(path: &Path, classes: &ToolClasses) -> Result<Self, ToolConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ToolConfigError::Read {
            path: path.display().to_string(),
            source,
        })?;
        Self::parse(&text, &path.display().to_string(), classes)
    }

    /// As `load`, of text; `path` is for messages, and files are looked for beside it.
    pub fn parse(text: &str, path: &str, classes: &ToolClasses) -> Result<Self, ToolConfigError> {
        let parsed = experiment::yaml::parse(text);
        let fault = |line: u32, message: String| ToolConfigError::Yaml {
            path: format!("{path}:{line}"),
            message,
        };
        if let Some(first) = parsed.faults.into_iter().next() {
            return Err(fault(first.line, first.message));
        }
        let root = parsed
            .root
            .ok_or_else(|| fault(1, "the file is empty; expected `tools:`".to_owned()))?;
        let Some(Yaml::List(entries)) = root.at(&["tools"]).map(|node| &node.value) else {
            return Err(fault(1, "expected `tools:` with a list".to_owned()));
        };
        if let Yaml::Map(keys) = &root.value
            && let Some(other) = keys.iter().find(|entry| entry.key != "tools")
        {
            let message = format!("unknown key `{}`; expected `tools` only", other.key);
            return Err(fault(other.key_span.line, message));
        }
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        let mut registry = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            let place = format!("{path}:{}: tools[{index}]", entry.span.line);
            match serde_json::from_value(entry.to_json()) {
                Ok(entry) => registry.add_entry(entry, place, folder, classes)?,
                Err(error) => {
                    return Err(ToolConfigError::Entry {
                        place,
                        message: error.to_string(),
                    });
                }
            }
        }
        Ok(registry)
    }

    fn add_entry(
        &mut self,
        entry: ToolEntry,
        place: String,
        folder: &Path,
        classes: &ToolClasses,
    ) -> Result<(), ToolConfigError> {
        let Some(class) = classes.0.get(&entry.class_name) else {
            return Err(ToolConfigError::UnknownClass {
                place,
                class_name: entry.class_name,
                known: classes.names(),
            });
        };
        let mut config = entry.config.unwrap_or_default();
        if let Some(kind) = config.remove("type").filter(|kind| *kind != "native") {
            return Err(ToolConfigError::UnknownType {
                place,
                kind: kind
                    .as_str()
                    .map_or_else(|| kind.to_string(), str::to_owned),
            });
        }
        let wrong = |message: String| ToolConfigError::Entry {
            place: place.clone(),
            message,
        };
        let class = match class {
            Class::One(class) => class,
            Class::Several(make) => {
                if entry.tool_schema.is_some() {
                    return Err(wrong(format!(
                        "`tool_schema` is set, but the tools of `{}` bring their own; remove it",
                        entry.class_name
                    )));
                }
                let limits = ToolLimits::take(&mut config).map_err(&wrong)?;
                let made = make(&Declared {
                    config: &config,
                    limits,
                    schema: &ToolSchema::function(&entry.class_name, "", &[]),
                    folder,
                })
                .map_err(&wrong)?;
                for (schema, tool) in made {
                    self.add_declared(schema, tool, limits, &place)?;
                }
                return Ok(());
            }
        };
        let schema = match (entry.tool_schema, &class.schema) {
            (Some(value), _) => {
                ToolSchema::new(value).map_err(|message| ToolConfigError::Entry {
                    place: format!("{place}.tool_schema"),
                    message,
                })?
            }
            (None, Some(schema)) => schema.clone(),
            (None, None) => {
                return Err(wrong(format!(
                    "`tool_schema` is missing: the model has to be told what `{}` does here",
                    entry.class_name
                )));
            }
        };
        let limits = ToolLimits::take(&mut config).map_err(&wrong)?;
        let tool = (class.make)(&Declared {
            config: &config,
            limits,
            schema: &schema,
            folder,
        })
        .map_err(&wrong)?;
        self.add_declared(schema, tool, limits, &place)
    }

    fn add_declared(
        &mut self,
        schema: ToolSchema,
        tool: Arc<dyn Tool>,
        limits: ToolLimits,
        place: &str,
    ) -> Result<(), ToolConfigError> {
        if limits.cache > 0 && tool.keeps_state() {
            return Err(ToolConfigError::Entry {
                place: place.to_owned(),
                message:
                    "`config.cache` is set, but its answers depend on the calls before; remove it"
                        .to_owned(),
            });
        }
        self.add(schema, tool, limits).map_err(|error| match error {
            ToolConfigError::NameClash { name, .. } => ToolConfigError::NameClash {
                place: place.to_owned(),
                name,
            },
            other => other,
        })
    }

    /// Adds one tool. Errors when its name is taken.
    pub fn register(
        &mut self,
        schema: ToolSchema,
        tool: Arc<dyn Tool>,
    ) -> Result<(), ToolConfigError> {
        self.add(schema, tool, ToolLimits::default())
    }

    fn add(
        &mut self,
        schema: ToolSchema,
        tool: Arc<dyn Tool>,
        given: ToolLimits,
    ) -> Result<(), ToolConfigError> {
        if self.get(schema.name()).is_some() {
            return Err(ToolConfigError::NameClash {
                place: "tools".to_owned(),
                name: schema.name().to_owned(),
            });
        }
        let gate = Arc::new(Gate::new(tool.limits(given)));
        self.tools.push(Registered { schema, tool, gate });
        Ok(())
    }

    pub fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.schema.name()).collect()
    }

    /// Whether each can work on this machine, by name: see [`Tool::ready`].
    pub fn ready(&self) -> Vec<(&str, Result<Option<String>, String>)> {
        self.tools
            .iter()
            .map(|registered| (registered.schema.name(), registered.tool.ready()))
            .collect()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Registered> {
        self.tools.iter().find(|tool| tool.schema.name() == name)
    }

    /// The parameter of a tool that has one.
    pub(super) fn only_parameter(&self, name: &str) -> Option<String> {
        let schema = self.get(name)?.schema.value();
        let properties = schema["function"]["parameters"]["properties"].as_object()?;
        match properties.keys().collect::<Vec<_>>().as_slice() {
            [only] => Some((*only).clone()),
            _ => None,
        }
    }

    /// Of these the tools a row may see: all, or those its `tool_selection` names. `place` says which row, for the error.
    pub fn select(
        &self,
        selection: Option<&[String]>,
        place: &str,
    ) -> Result<Self, ToolConfigError> {
        let Some(selection) = selection else {
            return Ok(self.clone());
        };
        if let Some(name) = selection.iter().find(|name| self.get(name).is_none()) {
            return Err(ToolConfigError::UnknownTool {
                place: format!("{place}: extra_info.tool_selection"),
                name: name.clone(),
                known: join(
                    self.names()
                        .into_iter()
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                        .iter(),
                ),
            });
        }
        Ok(Self {
            tools: self
                .tools
                .iter()
                .filter(|tool| selection.iter().any(|name| name == tool.schema.name()))
                .cloned()
                .collect(),
        })
    }

    /// The schemas as a chat template reads them.
    pub fn schemas(&self) -> Vec<Value> {
        self.tools
            .iter()
            .map(|tool| tool.schema.value().clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: &str = r"
tools:
  - class_name: calculator
    config: {type: native, decimals: 6}
    tool_schema:
      type: function
      function:
        name: calc
        description: Evaluate an expression.
        parameters:
          type: object
          properties: {expression: {type: string, description: The expression}}
          required: [expression]
        strict: false
  - class_name: guess
    config: {high: 31}
";

    fn parse(text: &str) -> Result<ToolRegistry, String> {
        ToolRegistry::parse(text, "tools.yaml", &ToolClasses::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_verl_tool_yaml_is_read() {
        let tools = parse(TOOLS).expect("valid tools");
        assert_eq!(tools.names(), ["calc", "guess"]);
        let schemas = tools.schemas();
        assert_eq!(schemas[0]["function"]["name"], "calc");
        assert_eq!(schemas[0]["function"]["strict"], false);
        assert_eq!(
            schemas[1]["function"]["parameters"]["required"][0],
            "number"
        );
    }

    #[test]
    fn what_is_wrong_with_a_tool_yaml_is_said_with_its_place() {
        for (text, expected) in [
            (
                "tools: [{class_name: verl.tools.Gsm8kTool}]",
                "tools.yaml:1: tools[0].class_name is `verl.tools.Gsm8kTool`; expected one of calculator, command, guess, http, mcp, python, search",
            ),
            (
                "tools: [{class_name: calculator, config: {type: mcp}}]",
                "tools.yaml:1: tools[0].config.type is `mcp`; only `native` tools are supported",
            ),
            (
                "tools: [{class_name: guess}]",
                "tools.yaml:1: tools[0]: `config.high` is missing",
            ),
            (
                "tools: [{class_name: calculator}, {class_name: calculator}]",
                "tools.yaml:1: tools[1]: two tools are called `calculator`; rename one (tool_schema.function.name)",
            ),
            (
                "tools: [{class_name: calculator, tool_schema: {type: function}}]",
                "tools.yaml:1: tools[0].tool_schema: `function` is missing",
            ),
        ] {
            assert_eq!(parse(text).expect_err("refused"), expected);
        }
        assert_eq!(
            parse("tool: []").expect_err("refused"),
            "tools.yaml:1: expected `tools:` with a list"
        );
        assert_eq!(
            parse("tools: []\nextra: 1").expect_err("refused"),
            "tools.yaml:2: unknown key `extra`; expected `tools` only"
        );
        let unknown_key =
            parse("tools: [{class_name: calculator, schema: {}}]").expect_err("refused");
        assert!(
            unknown_key.contains("unknown field `schema`"),
            "{unknown_key}"
        );
    }

    #[test]
    fn a_row_sees_the_tools_it_selects() {
        let tools = parse(TOOLS).expect("valid tools");
        let one = tools
            .select(Some(&["guess".to_owned()]), "row 3")
            .expect("it exists");
        assert_eq!(one.names(), ["guess"]);
        assert_eq!(tools.select(None, "row 3").expect("all").names().len(), 2);
        assert_eq!(
            tools
                .select(Some(&["search".to_owned()]), "row 3")
                .expect_err("refused")
                .to_string(),
            "row 3: extra_info.tool_selection: there is no tool `search`; the tools are calc, guess"
        );
    }
}
