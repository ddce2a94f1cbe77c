//! A tool's schema as the model and the chat template see it, and the check of a call's arguments against it.

use serde_json::{Value, json};

use super::Parameters;

/// `{"type": "function", "function": {"name", "description", "parameters": {…JSON Schema…}}}`, kept as written.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSchema {
    name: String,
    value: Value,
}

impl ToolSchema {
    /// Errors say what is missing, without a place.
    pub fn new(value: Value) -> Result<Self, String> {
        if value.get("type").is_some_and(|kind| kind != "function") {
            return Err("`type` must be `function`".to_owned());
        }
        let function = value
            .get("function")
            .and_then(Value::as_object)
            .ok_or("`function` is missing")?;
        let name = function
            .get("name")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
            .ok_or("`function.name` is missing")?
            .to_owned();
        if let Some(parameters) = function.get("parameters") {
            let object = parameters
                .as_object()
                .ok_or("`function.parameters` must be a mapping")?;
            if object.get("type").is_some_and(|kind| kind != "object") {
                return Err("`function.parameters.type` must be `object`".to_owned());
            }
            if let Some(required) = object.get("required") {
                let names = required
                    .as_array()
                    .ok_or("`function.parameters.required` must be a list")?;
                for name in names {
                    let known = name.as_str().is_some_and(|name| {
                        object
                            .get("properties")
                            .is_some_and(|properties| properties.get(name).is_some())
                    });
                    if !known {
                        return Err(format!(
                            "`function.parameters.required` names {name}, which is not in `properties`"
                        ));
                    }
                }
            }
        }
        Ok(Self { name, value })
    }

    /// A function with the given parameters, all required: (name, JSON type, description).
    pub fn function(name: &str, description: &str, parameters: &[(&str, &str, &str)]) -> Self {
        let mut properties = Parameters::new();
        for (parameter, kind, text) in parameters {
            properties.insert(
                (*parameter).to_owned(),
                json!({"type": kind, "description": text}),
            );
        }
        let required: Vec<&str> = parameters.iter().map(|(name, ..)| *name).collect();
        Self {
            name: name.to_owned(),
            value: json!({
                "type": "function",
                "function": {
                    "name": name,
                    "description": description,
                    "parameters": {"type": "object", "properties": properties, "required": required},
                },
            }),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// As chat templates read it.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Checks types, `enum`s, required and (where `additionalProperties` is false) surplus parameters. The error is
    /// written for the model.
    pub fn check(&self, arguments: &Parameters) -> Result<(), String> {
        match self.value["function"].get("parameters") {
            Some(parameters) => check_object(arguments, parameters, ""),
            None => Ok(()),
        }
    }
}

fn check_object(object: &Parameters, schema: &Value, path: &str) -> Result<(), String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !object.contains_key(name) {
            return Err(format!("parameter \"{path}{name}\" is missing"));
        }
    }
    for (name, value) in object {
        let place = format!("{path}{name}");
        match properties.and_then(|properties| properties.get(name)) {
            Some(property) => check_value(value, property, &place)?,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                let known: Vec<&str> = properties
                    .into_iter()
                    .flat_map(|properties| properties.keys().map(String::as_str))
                    .collect();
                return Err(format!(
                    "there is no parameter \"{place}\", only {}",
                    known.join(", ")
                ));
            }
            None => {}
        }
    }
    Ok(())
}

fn check_value(value: &Value, schema: &Value, place: &str) -> Result<(), String> {
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(value, kind)) {
        return Err(format!(
            "parameter \"{place}\" must be {} {}",
            if kinds[0].starts_with(['a', 'i', 'o']) {
                "an"
            } else {
                "a"
            },
            kinds.join(" or ")
        ));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Err(format!(
            "parameter \"{place}\" must be one of {}",
            allowed.join(", ")
        ));
    }
    match value {
        Value::Object(object) => check_object(object, schema, &format!("{place}.")),
        Value::Array(items) => match schema.get("items") {
            Some(schema) => items.iter().enumerate().try_for_each(|(index, item)| {
                check_value(item, schema, &format!("{place}[{index}]"))
            }),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        // JSON Schema: 3.0 is an integer, too.
        "integer" => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> ToolSchema {
        ToolSchema::new(json!({"type": "function", "function": {"name": "f", "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["c", "f"]},
                "tags": {"type": "array", "items": {"type": ["string", "null"]}},
                "place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": false},
            },
            "required": ["city"],
        }}}))
        .expect("a schema")
    }

    fn check(arguments: Value) -> Result<(), String> {
        let Value::Object(arguments) = arguments else {
            panic!("an object")
        };
        schema().check(&arguments)
    }

    #[test]
    fn arguments_that_fit_are_accepted() {
        assert_eq!(
            check(
                json!({"city": "Ulm", "days": 3.0, "unit": "c", "tags": ["a", null], "place": {"x": 1}, "more": 1})
            ),
            Ok(())
        );
    }

    #[test]
    fn arguments_that_do_not_fit_are_named() {
        for (arguments, message) in [
            (json!({}), "parameter \"city\" is missing"),
            (json!({"city": 1}), "parameter \"city\" must be a string"),
            (
                json!({"city": "", "days": 1.5}),
                "parameter \"days\" must be an integer",
            ),
            (
                json!({"city": "", "unit": "k"}),
                "parameter \"unit\" must be one of \"c\", \"f\"",
            ),
            (
                json!({"city": "", "tags": ["a", 1]}),
                "parameter \"tags[1]\" must be a string or null",
            ),
            (
                json!({"city": "", "place": {}}),
                "parameter \"place.x\" is missing",
            ),
            (
                json!({"city": "", "place": {"x": 1, "y": 1}}),
                "there is no parameter \"place.y\", only x",
            ),
        ] {
            assert_eq!(check(arguments), Err(message.to_owned()));
        }
    }

    #[test]
    fn a_schema_that_says_nothing_is_refused() {
        for (value, message) in [
            (json!({}), "`function` is missing"),
            (json!({"function": {}}), "`function.name` is missing"),
            (
                json!({"type": "x", "function": {"name": "f"}}),
                "`type` must be `function`",
            ),
            (
                json!({"function": {"name": "f", "parameters": {"required": ["x"]}}}),
                "`function.parameters.required` names \"x\", which is not in `properties`",
            ),
        ] {
            assert_eq!(ToolSchema::new(value), Err(message.to_owned()));
        }
    }
}
