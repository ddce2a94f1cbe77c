//! `lathe keys`: the table of an experiment's keys, or all there is to say about one.

use experiment::keys::{self, Live};
use runlog::exit_code;
use serde_json::{Value, json};

use super::{Failure, Output};
use crate::terminal::{Role, Terminal};

pub fn keys(
    filter: Option<&str>,
    as_json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let wanted = filter.unwrap_or_default().to_lowercase();
    let matching: Vec<&Live> = keys::live()
        .iter()
        .filter(|key| {
            key.path.to_lowercase().contains(&wanted) || key.help.to_lowercase().contains(&wanted)
        })
        .collect();
    if as_json {
        for key in matching {
            out.json(&json_row(key))?;
        }
        return Ok(exit_code::OK);
    }
    // One key, in full: also verl's keys that do nothing here, and other names.
    if let Some(help) = filter.and_then(experiment::help) {
        out.line(&help)?;
        if matching.len() <= 1 {
            return Ok(exit_code::OK);
        }
        out.line("")?;
    }
    if matching.is_empty() {
        let nearest = keys::nearest(filter.unwrap_or_default());
        let hint = nearest.map_or_else(
            || "`lathe keys` lists all".to_owned(),
            |key| format!("did you mean {key}?"),
        );
        return Err(Failure::usage(format!(
            "no key has `{}` in its path or meaning; {hint}",
            filter.unwrap_or_default()
        )));
    }
    for key in matching {
        print(key, out, terminal)?;
    }
    Ok(exit_code::OK)
}

fn print(key: &Live, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    let mut kind = key.kind.noun();
    let range = key.kind.range(name(key));
    if !range.is_empty() {
        kind = format!("{kind}, {range}");
    }
    if key.nullable {
        kind.push_str(" or null");
    }
    let unit = if key.unit.is_empty() {
        String::new()
    } else {
        format!(" {}", key.unit)
    };
    out.line(&format!(
        "{}  {}",
        terminal.paint(Role::Strong, &key.path),
        terminal.paint(
            Role::Muted,
            &format!("{kind} [default: {}{unit}]", key.default)
        )
    ))?;
    out.line(&format!("    {}", key.help))
}

fn json_row(key: &Live) -> Value {
    json!({
        "key": key.path,
        "type": key.kind.noun(),
        "range": key.kind.range(name(key)),
        "nullable": key.nullable,
        "default": serde_json::from_str::<Value>(key.default).unwrap_or_else(|_| Value::from(key.default)),
        "unit": key.unit,
        "help": key.help,
    })
}

fn name(key: &Live) -> &str {
    key.path.rsplit('.').next().unwrap_or(&key.path)
}
