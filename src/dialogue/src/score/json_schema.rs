//! JSON in the answer that fits a schema (<https://json-schema.org>, the keywords of draft 2020-12 that a document of an answer needs).
//!
//! `type enum const properties required additionalProperties minProperties maxProperties items prefixItems minItems maxItems
//! uniqueItems minLength maxLength pattern minimum maximum exclusiveMinimum exclusiveMaximum multipleOf allOf anyOf oneOf not`, and
//! `$ref` into the same document. Any other keyword that would judge is refused when the schema is read, never passed over.

use std::cell::Cell;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::{Score, ScoreError, Scorer, Sees, Transcript};
use crate::generate::BoxFuture;

/// Schemas inside each other, references followed included.
const MOST_DEPTH: u32 = 64;

/// Schemas tried on a document: one that refers to itself twice would try more than anyone waits for.
const MOST_STEPS: u32 = 1_000_000;

/// Keywords that describe and do not judge.
const NOTES: [&str; 12] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "format",
];

/// What a check may still spend; without it the document does not fit.
#[derive(Clone, Copy)]
struct Left<'a> {
    depth: u32,
    steps: &'a Cell<u32>,
}

impl Left<'_> {
    fn down(self) -> Option<Self> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        Some(Self {
            depth: self.depth.checked_sub(1)?,
            ..self
        })
    }
}

/// A schema that was read.
#[derive(Debug, Clone)]
pub struct Schema {
    root: Value,
    patterns: HashMap<String, Regex>,
}

impl Schema {
    /// The error names the place and the keyword.
    pub fn new(root: Value) -> Result<Self, String> {
        let mut schema = Self {
            root: Value::Null,
            patterns: HashMap::new(),
        };
        schema.read(&root, &root, "#", MOST_DEPTH)?;
        schema.root = root;
        Ok(schema)
    }

    fn read(&mut self, node: &Value, root: &Value, place: &str, depth: u32) -> Result<(), String> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| format!("{place}: nested more than {MOST_DEPTH} deep"))?;
        let rules = match node {
            Value::Bool(_) => return Ok(()),
            Value::Object(rules) => rules,
            other => return Err(format!("{place}: expected a schema, got {other}")),
        };
        for (keyword, value) in rules {
            let here = format!("{place}/{keyword}");
            let wrong = |expected: &str| Err(format!("{here}: expected {expected}, got {value}"));
            match keyword.as_str() {
                "$defs" | "definitions" | "properties" => {
                    let Some(schemas) = value.as_object() else {
                        return wrong("a mapping of schemas");
                    };
                    for (name, schema) in schemas {
                        self.read(schema, root, &format!("{here}/{name}"), depth)?;
                    }
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                    let Some(schemas) = value.as_array() else {
                        return wrong("a list of schemas");
                    };
                    for (index, schema) in schemas.iter().enumerate() {
                        self.read(schema, root, &format!("{here}/{index}"), depth)?;
                    }
                }
                "items" | "additionalProperties" | "not" => self.read(value, root, &here, depth)?,
                "type" => {
                    const TYPES: [&str; 7] = [
                        "object", "array", "string", "number", "integer", "boolean", "null",
                    ];
                    let is_type =
                        |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
                    let fits = is_type(value)
                        || value
                            .as_array()
                            .is_some_and(|names| names.iter().all(is_type));
                    if !fits {
                        return wrong("a type of JSON or a list of these");
                    }
                }
                "required" => {
                    if !value
                        .as_array()
                        .is_some_and(|names| names.iter().all(Value::is_string))
                    {
                        return wrong("a list of names");
                    }
                }
                "enum" => {
                    if !value.is_array() {
                        return wrong("a list of values");
                    }
                }
                "minProperties" | "maxProperties" | "minItems" | "maxItems" | "minLength"
                | "maxLength" => {
                    if value.as_u64().is_none() {
                        return wrong("a whole number");
                    }
                }
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                    if !value.is_number() {
                        return wrong("a number");
                    }
                }
                "multipleOf" => {
                    if !value.as_f64().is_some_and(|step| step > 0.0) {
                        return wrong("a number above 0");
                    }
                }
                "uniqueItems" => {
                    if !value.is_boolean() {
                        return wrong("true or false");
                    }
                }
                "pattern" => {
                    let Some(pattern) = value.as_str() else {
                        return wrong("a regular expression");
                    };
                    let regex = RegexBuilder::new(pattern)
                        .size_limit(1 << 20)
                        .build()
                        .map_err(|error| format!("{here}: {error}"))?;
                    self.patterns.insert(pattern.to_owned(), regex);
                }
                "$ref" => {
                    if value.as_str().and_then(|path| find(root, path)).is_none() {
                        return wrong("a place in this schema, such as #/$defs/name");
                    }
                }
                "const" => {}
                name if NOTES.contains(&name) => {}
                _ => return Err(format!("{here}: this keyword is not known here")),
            }
        }
        Ok(())
    }

    /// Whether a document fits.
    pub fn fits(&self, document: &Value) -> bool {
        let steps = Cell::new(MOST_STEPS);
        let left = Left {
            depth: MOST_DEPTH,
            steps: &steps,
        };
        self.holds(&self.root, document, left)
    }

    fn holds(&self, schema: &Value, value: &Value, left: Left) -> bool {
        let (Some(left), Value::Object(rules)) = (left.down(), schema) else {
            return schema == &Value::Bool(true);
        };
        rules
            .iter()
            .all(|(keyword, rule)| self.one(rules, keyword, rule, value, left))
    }

    fn one(
        &self,
        rules: &Map<String, Value>,
        keyword: &str,
        rule: &Value,
        value: &Value,
        left: Left,
    ) -> bool {
        let all = |schemas: &Value, test: &dyn Fn(&Value) -> bool| {
            schemas
                .as_array()
                .is_some_and(|schemas| schemas.iter().all(test))
        };
        let count = |schemas: &Value| {
            let schemas = schemas.as_array().map_or(&[][..], Vec::as_slice);
            schemas
                .iter()
                .filter(|schema| self.holds(schema, value, left))
                .count()
        };
        let size = rule.as_u64().unwrap_or(0);
        let bound = rule.as_f64().unwrap_or(0.0);
        let number = |test: &dyn Fn(f64) -> bool| value.as_f64().is_none_or(test);
        let text = |test: &dyn Fn(&str) -> bool| value.as_str().is_none_or(test);
        let items =
            |test: &dyn Fn(&[Value]) -> bool| value.as_array().is_none_or(|items| test(items));
        let entries =
            |test: &dyn Fn(&Map<String, Value>) -> bool| value.as_object().is_none_or(test);
        match keyword {
            "type" => match rule {
                Value::Array(names) => names.iter().any(|name| is_type(name, value)),
                name => is_type(name, value),
            },
            "enum" => rule
                .as_array()
                .is_some_and(|values| values.iter().any(|other| same(other, value))),
            "const" => same(rule, value),
            "properties" => entries(&|entries| {
                rule.as_object().is_some_and(|schemas| {
                    schemas.iter().all(|(name, schema)| {
                        entries
                            .get(name)
                            .is_none_or(|value| self.holds(schema, value, left))
                    })
                })
            }),
            "additionalProperties" => entries(&|entries| {
                let known = rules.get("properties").and_then(Value::as_object);
                entries
                    .iter()
                    .filter(|(name, _)| !known.is_some_and(|known| known.contains_key(*name)))
                    .all(|(_, value)| self.holds(rule, value, left))
            }),
            "required" => entries(&|entries| {
                all(rule, &|name| {
                    name.as_str().is_some_and(|name| entries.contains_key(name))
                })
            }),
            "minProperties" => entries(&|entries| entries.len() as u64 >= size),
            "maxProperties" => entries(&|entries| entries.len() as u64 <= size),
            "items" => items(&|items| {
                let first = rules
                    .get("prefixItems")
                    .and_then(Value::as_array)
                    .map_or(0, Vec::len);
                items
                    .iter()
                    .skip(first)
                    .all(|item| self.holds(rule, item, left))
            }),
            "prefixItems" => items(&|items| {
                let schemas = rule.as_array().map_or(&[][..], Vec::as_slice);
                schemas
                    .iter()
                    .zip(items)
                    .all(|(schema, item)| self.holds(schema, item, left))
            }),
            "minItems" => items(&|items| items.len() as u64 >= size),
            "maxItems" => items(&|items| items.len() as u64 <= size),
            "uniqueItems" => {
                rule != &Value::Bool(true)
                    || items(&|items| {
                        // By their canonical text: comparing each with each would take quadratic time.
                        let mut seen = std::collections::HashSet::new();
                        items.iter().all(|item| seen.insert(canonical(item)))
                    })
            }
            "minLength" => text(&|text| text.chars().count() as u64 >= size),
            "maxLength" => text(&|text| text.chars().count() as u64 <= size),
            "pattern" => text(&|text| {
                rule.as_str()
                    .and_then(|pattern| self.patterns.get(pattern))
                    .is_some_and(|regex| regex.is_match(text))
            }),
            "minimum" => number(&|number| number >= bound),
            "maximum" => number(&|number| number <= bound),
            "exclusiveMinimum" => number(&|number| number > bound),
            "exclusiveMaximum" => number(&|number| number < bound),
            "multipleOf" => number(&|number| {
                let times = number / bound;
                (times - times.round()).abs() <= 1e-9 * times.abs().max(1.0)
            }),
            "allOf" => all(rule, &|schema| self.holds(schema, value, left)),
            "anyOf" => count(rule) > 0,
            "oneOf" => count(rule) == 1,
            "not" => !self.holds(rule, value, left),
            "$ref" => rule
                .as_str()
                .and_then(|path| find(&self.root, path))
                .is_some_and(|schema| self.holds(schema, value, left)),
            _ => true,
        }
    }
}

fn find<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    root.pointer(path.strip_prefix('#')?)
}

fn is_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        // 1.0 is a whole number too.
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

/// Equal as JSON: 1 and 1.0 are one number, and entries have no order.
fn same(left: &Value, right: &Value) -> bool {
    canonical(left) == canonical(right)
}

fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(entries) => {
            let mut entries: Vec<String> = entries
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        other => other.to_string(),
    }
}

/// The scorer. 1 when the JSON fits, `format_score` when it does not, 0 when there is none.
#[derive(Debug, Clone)]
pub struct JsonSchema {
    pub sees: Sees,
    /// None: each row's ground truth is its schema.
    schema: Option<Schema>,
    format_score: f64,
}

impl JsonSchema {
    /// The error says what is wrong with the schema.
    pub fn new(options: &experiment::arms::JsonSchema, sees: Sees) -> Result<Self, String> {
        let schema = options
            .schema
            .clone()
            .map(Schema::new)
            .transpose()
            .map_err(|error| format!("schema: {error}"))?;
        Ok(Self {
            sees,
            schema,
            format_score: options.format_score,
        })
    }

    /// The document in an answer: the last fenced block, else everything, else what lies between its outermost braces.
    pub fn extract(text: &str) -> Option<Value> {
        let fenced = text.rsplit_once("```").and_then(|(before, _)| {
            let (_, inside) = before.rsplit_once("```")?;
            Some(inside.strip_prefix("json").unwrap_or(inside))
        });
        let between = || {
            let start = text.find(['{', '['])?;
            let end = text.rfind(['}', ']'])?;
            text.get(start..=end)
        };
        let parse = |text: &str| serde_json::from_str(text.trim()).ok();
        fenced
            .and_then(parse)
            .or_else(|| parse(text))
            .or_else(|| parse(between()?))
    }

    fn of_truth(ground_truth: &Value) -> Result<Schema, ScoreError> {
        let wrong = || ScoreError::GroundTruth {
            scorer: "json_schema",
            given: ground_truth.to_string(),
            expected: "a JSON schema, as a mapping or as JSON text (or the arm's option `schema`)",
        };
        let schema = match ground_truth {
            Value::String(text) => serde_json::from_str(text).map_err(|_| wrong())?,
            other => other.clone(),
        };
        Schema::new(schema).map_err(|_| wrong())
    }
}

impl Scorer for JsonSchema {
    fn name(&self) -> &'static str {
        "json_schema"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let of_truth;
            let schema = if let Some(schema) = &self.schema {
                schema
            } else {
                of_truth = Self::of_truth(&transcript.ground_truth)?;
                &of_truth
            };
            let Some(document) = Self::extract(&transcript.text(self.sees)) else {
                return Ok(Score::of_answer(false, false));
            };
            let mut score = Score::of_answer(schema.fits(&document), true);
            if score.value == 0.0 {
                score.value = self.format_score;
            }
            Ok(score)
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        match self.schema {
            Some(_) => Ok(()),
            None => Self::of_truth(ground_truth).map(drop),
        }
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::scorers::sample;
    use super::*;

    #[test]
    fn each_keyword_judges() {
        for (schema, right, wrong) in [
            (json!({"type": "integer"}), json!(3.0), json!(3.5)),
            (json!({"type": ["string", "null"]}), json!(null), json!(1)),
            (json!({"enum": [1, "a"]}), json!(1.0), json!("b")),
            (
                json!({"const": {"a": 1, "b": 2}}),
                json!({"b": 2, "a": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"properties": {"a": {"type": "string"}}}),
                json!({"b": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"required": ["a"]}),
                json!({"a": null}),
                json!({"b": 1}),
            ),
            (
                json!({"properties": {"a": true}, "additionalProperties": false}),
                json!({"a": 1}),
                json!({"a": 1, "b": 2}),
            ),
            (
                json!({"additionalProperties": {"type": "number"}}),
                json!({"a": 1}),
                json!({"a": "x"}),
            ),
            (
                json!({"minProperties": 1, "maxProperties": 2}),
                json!({"a": 1}),
                json!({}),
            ),
            (
                json!({"items": {"minimum": 0}}),
                json!([0, 1]),
                json!([0, -1]),
            ),
            (
                json!({"prefixItems": [{"type": "string"}], "items": false}),
                json!(["a"]),
                json!(["a", 1]),
            ),
            (
                json!({"minItems": 1, "maxItems": 2}),
                json!([1]),
                json!([1, 2, 3]),
            ),
            (
                json!({"uniqueItems": true}),
                json!([1, "1"]),
                json!([1, 1.0]),
            ),
            (
                json!({"minLength": 2, "maxLength": 3}),
                json!("日本"),
                json!("日"),
            ),
            (
                json!({"pattern": "^[A-Z]{3}$"}),
                json!("ABC"),
                json!("ABCD"),
            ),
            (
                json!({"exclusiveMinimum": 1, "maximum": 3}),
                json!(3),
                json!(1),
            ),
            (
                json!({"exclusiveMaximum": 3, "minimum": 1}),
                json!(1),
                json!(3),
            ),
            (json!({"multipleOf": 0.1}), json!(0.3), json!(0.35)),
            (
                json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}),
                json!(2),
                json!(3),
            ),
            (
                json!({"anyOf": [{"const": 1}, {"const": 2}]}),
                json!(2),
                json!(3),
            ),
            (
                json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}),
                json!(1),
                json!(2),
            ),
            (json!({"not": {"type": "string"}}), json!(1), json!("x")),
            (
                json!({"$defs": {"n": {"type": "number"}}, "items": {"$ref": "#/$defs/n"}}),
                json!([1]),
                json!(["x"]),
            ),
        ] {
            let read = Schema::new(schema.clone()).expect("a schema");
            assert!(read.fits(&right), "{schema} and {right}");
            assert!(!read.fits(&wrong), "{schema} and {wrong}");
        }
    }

    #[test]
    fn what_would_judge_and_is_not_known_is_refused() {
        for (schema, message) in [
            (
                json!({"items": {"if": true}}),
                "#/items/if: this keyword is not known here",
            ),
            (
                json!({"type": "text"}),
                "#/type: expected a type of JSON or a list of these, got \"text\"",
            ),
            (
                json!({"$ref": "http://x/y"}),
                "#/$ref: expected a place in this schema, such as #/$defs/name, got \"http://x/y\"",
            ),
            (json!(3), "#: expected a schema, got 3"),
        ] {
            assert_eq!(Schema::new(schema).expect_err("refused"), message);
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = Schema::new(json!({"$ref": "#"})).expect("a schema");
        assert!(!schema.fits(&json!(1)));
        let twice =
            Schema::new(json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})).expect("a schema");
        assert!(!twice.fits(&json!(1)));
        let tree = Schema::new(json!({"type": "object", "additionalProperties": {"$ref": "#"}}))
            .expect("a schema");
        assert!(tree.fits(&json!({"a": {"b": {}}})));
        assert!(!tree.fits(&json!({"a": {"b": 1}})));
    }

    #[tokio::test]
    async fn the_document_is_found_in_prose_and_fences() {
        let options = experiment::arms::JsonSchema {
            schema: Some(json!({"required": ["x"]})),
            format_score: 0.25,
        };
        let scorer = JsonSchema::new(&options, Sees::ModelText).expect("a schema");
        for (text, expected) in [
            ("{\"x\": 1}", 1.0),
            ("Here:\n```json\n{\"x\": 1}\n```\nbye", 1.0),
            ("so {\"x\": 1} it is", 1.0),
            ("{\"y\": 1}", 0.25),
            ("no", 0.0),
            ("} {", 0.0),
        ] {
            let score = scorer.score(&sample(text, json!(null))).await;
            assert_eq!(score.expect("a score").value, expected, "{text}");
        }
        let of_row = JsonSchema::new(&experiment::arms::JsonSchema::default(), Sees::ModelText);
        let of_row = of_row.expect("no schema");
        let truth = json!("{\"type\": \"array\"}");
        assert!(of_row.check(&truth).is_ok() && of_row.check(&json!("x")).is_err());
        let score = of_row.score(&sample("[1]", truth)).await;
        assert_eq!(score.expect("a score").value, 1.0);
    }
}
