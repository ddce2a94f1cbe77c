//! From YAML, or from the flat form, to guards, with complaints that name the guard and the field.

use super::{ALARMS, Against, Condition, Guard, ONLINE, OneOrMore, PRESETS, Rung, Watch, Written};
use crate::keys::or_list;
use crate::yaml::{self, Node, Value};

const FIELDS: [&str; 17] = [
    "name",
    "metric",
    "alarm",
    "above",
    "below",
    "above_baseline",
    "below_baseline",
    "baseline",
    "drop_points",
    "drop_relative",
    "against",
    "for",
    "window",
    "cooldown",
    "after",
    "calm",
    "action",
];

const CONDITIONS: &str =
    "above, below, above_baseline, below_baseline, drop_points or drop_relative";

/// Baseline of a ratio, when a guard does not say.
const BASELINE_POINTS: u32 = 10;
const COOLDOWN_STEPS: u64 = 5;
const AFTER_STEPS: u64 = 1;
const CALM_VALUES: u32 = 20;

/// The value of `trainer.guards`; the error says which guard and where it stands.
pub fn read(node: &Node) -> Result<Vec<Guard>, String> {
    let mut guards: Vec<Guard> = Vec::new();
    let mut add = |guard: Guard, place: &str| {
        // A guard of one's own replaces that of a preset before it.
        match guards.iter_mut().find(|known| known.name == guard.name) {
            Some(known) if place.is_empty() => *known = guard,
            Some(_) => {
                return Err(format!(
                    "{place}: there are two guards called {}; give one another name",
                    guard.name
                ));
            }
            None => guards.push(guard),
        }
        Ok(())
    };
    let items = match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Null | Value::Bool(false) => Vec::new(),
        _ => vec![node],
    };
    let mut own: Vec<String> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let place = place(index, item);
        match &item.value {
            Value::Text(name) if name == "online" => {
                let open = online()
                    .into_iter()
                    .filter(|guard| !own.contains(&guard.name));
                for guard in open {
                    add(guard, &place)?;
                }
            }
            Value::Text(name) if name == "off" || name == "none" => {}
            Value::Map(_) => {
                let guard = one(item).map_err(|problem| format!("{place}: {problem}"))?;
                let is_new = !own.contains(&guard.name);
                own.push(guard.name.clone());
                add(guard, if is_new { "" } else { &place })?;
            }
            _ => {
                return Err(format!(
                    "{place}: expected a guard {{metric: ..., above: ..., action: ...}} or the preset {}, got {}",
                    or_list(&PRESETS),
                    crate::convert::shown(item)
                ));
            }
        }
    }
    Ok(guards)
}

/// The guards of the preset.
pub(crate) fn online() -> Vec<Guard> {
    let parsed = yaml::parse(ONLINE);
    let root = parsed.root.expect("a test reads the preset");
    read(&root).expect("a test reads the preset")
}

/// `guard 2 (line 14)`.
fn place(index: usize, node: &Node) -> String {
    match node.span.line {
        0 => format!("guard {}", index + 1),
        line => format!("guard {} (line {line})", index + 1),
    }
}

fn one(node: &Node) -> Result<Guard, String> {
    let Value::Map(entries) = &node.value else {
        unreachable!("the caller looked");
    };
    for entry in entries {
        if !FIELDS.contains(&entry.key.as_str()) {
            let meant = FIELDS
                .into_iter()
                .map(|field| (strsim::osa_distance(field, &entry.key), field))
                .filter(|(distance, field)| *distance <= (field.len() / 3).max(1))
                .min()
                .map_or_else(String::new, |(_, field)| format!("; did you mean {field}?"));
            return Err(format!("there is no field {:?}{meant}", entry.key));
        }
    }
    let written: Written = serde_json::from_value(node.to_json()).map_err(|_| {
        // Serde's words name Rust types; find the field at fault and say what it takes.
        let wrong = entries.iter().find(|entry| !fits(entry));
        wrong.map_or_else(
            || "it cannot be read".to_owned(),
            |entry| {
                format!(
                    "{} is {}; expected {}",
                    entry.key,
                    crate::convert::shown(&entry.value),
                    expected(&entry.key)
                )
            },
        )
    })?;
    Guard::try_from(written)
}

fn fits(entry: &yaml::Entry) -> bool {
    let mut alone = serde_json::Map::new();
    alone.insert(entry.key.clone(), entry.value.to_json());
    serde_json::from_value::<Written>(alone.into()).is_ok()
}

fn expected(field: &str) -> &'static str {
    match field {
        "name" | "alarm" => "a word",
        "metric" => "a metric's name or a list of such",
        "action" => "an action or a list of such",
        "against" => "best or previous",
        "for" | "window" | "baseline" | "calm" => "a whole number from 1 on",
        "cooldown" | "after" => "a whole number of steps",
        _ => "a number",
    }
}

impl TryFrom<Written> for Guard {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let condition = condition(&written)?;
        let metrics = written.metric.map(OneOrMore::into_vec).unwrap_or_default();
        let watch = match (metrics.is_empty(), written.alarm, condition) {
            (true, None, _) => {
                return Err("it watches nothing; give a metric or an alarm".to_owned());
            }
            (false, Some(_), _) => {
                return Err("it has both a metric and an alarm; make two guards of it".to_owned());
            }
            (true, Some(alarm), None) if ALARMS.contains(&alarm.as_str()) => Watch::Alarm(alarm),
            (true, Some(alarm), None) => {
                return Err(format!("alarm is {alarm:?}; expected {}", or_list(&ALARMS)));
            }
            (true, Some(_), Some(_)) => {
                return Err("an alarm has its own limits; drop the condition".to_owned());
            }
            (false, None, None) => {
                return Err(format!("it has no condition; give one of {CONDITIONS}"));
            }
            (false, None, Some(condition)) => Watch::Metric { metrics, condition },
        };
        let name = written.name.unwrap_or_else(|| match &watch {
            Watch::Metric { metrics, .. } => metrics[0].clone(),
            Watch::Alarm(alarm) => alarm.clone(),
        });
        if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!(
                "name is {name:?}; expected a word without spaces (commands name it)"
            ));
        }
        let ladder: Vec<Rung> = written
            .action
            .map(OneOrMore::into_vec)
            .unwrap_or_default()
            .iter()
            .map(|rung| rung.parse())
            .collect::<Result<_, _>>()?;
        if ladder.is_empty() {
            return Err("it has no action; give at least `action: alert`".to_owned());
        }
        let at_least_one = |field: &str, value: Option<u32>, default: u32| match value {
            Some(0) => Err(format!("{field} is 0; expected {}", expected(field))),
            value => Ok(value.unwrap_or(default)),
        };
        Ok(Self {
            name,
            watch,
            consecutive: at_least_one("for", written.consecutive, 1)?,
            window: at_least_one("window", written.window, 1)?,
            cooldown: written.cooldown.unwrap_or(COOLDOWN_STEPS),
            after: written.after.unwrap_or(AFTER_STEPS),
            calm: at_least_one("calm", written.calm, CALM_VALUES)?,
            ladder,
        })
    }
}

/// The one condition that was given; None: none was.
fn condition(written: &Written) -> Result<Option<Condition>, String> {
    let points = written.baseline.unwrap_or(BASELINE_POINTS);
    let against = written.against.unwrap_or(Against::Best);
    let given: Vec<(&str, Condition)> = [
        ("above", written.above.map(Condition::Above)),
        ("below", written.below.map(Condition::Below)),
        (
            "above_baseline",
            written
                .above_baseline
                .map(|ratio| Condition::AboveBaseline { ratio, points }),
        ),
        (
            "below_baseline",
            written
                .below_baseline
                .map(|ratio| Condition::BelowBaseline { ratio, points }),
        ),
        (
            "drop_points",
            written
                .drop_points
                .map(|points| Condition::DropPoints { points, against }),
        ),
        (
            "drop_relative",
            written
                .drop_relative
                .map(|share| Condition::DropRelative { share, against }),
        ),
    ]
    .into_iter()
    .filter_map(|(name, condition)| Some((name, condition?)))
    .collect();
    let only = match given.as_slice() {
        [] => None,
        [(_, condition)] => Some(*condition),
        [(first, _), (second, _), ..] => {
            return Err(format!(
                "it has two conditions, {first} and {second}; make two guards of it"
            ));
        }
    };
    let (number, name) = match only {
        None => (1.0, ""),
        Some(Condition::Above(limit)) => (limit, "above"),
        Some(Condition::Below(limit)) => (limit, "below"),
        Some(Condition::AboveBaseline { ratio, .. }) => (ratio, "above_baseline"),
        Some(Condition::BelowBaseline { ratio, .. }) => (ratio, "below_baseline"),
        Some(Condition::DropPoints { points, .. }) => (points, "drop_points"),
        Some(Condition::DropRelative { share, .. }) => (share, "drop_relative"),
    };
    let allowed = match only {
        Some(Condition::Above(_) | Condition::Below(_)) | None => number.is_finite(),
        Some(Condition::AboveBaseline { .. }) => number > 1.0 && number.is_finite(),
        Some(Condition::BelowBaseline { .. } | Condition::DropRelative { .. }) => {
            number > 0.0 && number < 1.0
        }
        Some(Condition::DropPoints { .. }) => number > 0.0 && number.is_finite(),
    };
    if !allowed {
        let range = match only {
            Some(Condition::AboveBaseline { .. }) => "a ratio above 1",
            Some(Condition::BelowBaseline { .. }) => "a ratio between 0 and 1",
            Some(Condition::DropRelative { .. }) => {
                "a share between 0 and 1 (for points give drop_points)"
            }
            Some(Condition::DropPoints { .. }) => "a number above 0",
            _ => "a finite number",
        };
        return Err(format!("{name} is {number}; expected {range}"));
    }
    let is_baseline = matches!(
        only,
        Some(Condition::AboveBaseline { .. } | Condition::BelowBaseline { .. })
    );
    let is_drop = matches!(
        only,
        Some(Condition::DropPoints { .. } | Condition::DropRelative { .. })
    );
    if written.baseline == Some(0) {
        return Err(format!("baseline is 0; expected {}", expected("baseline")));
    }
    if written.baseline.is_some() && !is_baseline {
        return Err(
            "baseline has no effect; it belongs to above_baseline and below_baseline".to_owned(),
        );
    }
    if written.against.is_some() && !is_drop {
        return Err(
            "against has no effect; it belongs to drop_points and drop_relative".to_owned(),
        );
    }
    Ok(only)
}

impl From<Guard> for Written {
    fn from(guard: Guard) -> Self {
        let mut written = Self {
            name: Some(guard.name),
            consecutive: Some(guard.consecutive),
            window: Some(guard.window),
            cooldown: Some(guard.cooldown),
            after: Some(guard.after),
            calm: Some(guard.calm),
            action: Some(OneOrMore::More(
                guard.ladder.iter().map(ToString::to_string).collect(),
            )),
            ..Self::default()
        };
        match guard.watch {
            Watch::Alarm(alarm) => written.alarm = Some(alarm),
            Watch::Metric { metrics, condition } => {
                written.metric = Some(OneOrMore::More(metrics));
                match condition {
                    Condition::Above(limit) => written.above = Some(limit),
                    Condition::Below(limit) => written.below = Some(limit),
                    Condition::AboveBaseline { ratio, points } => {
                        written.above_baseline = Some(ratio);
                        written.baseline = Some(points);
                    }
                    Condition::BelowBaseline { ratio, points } => {
                        written.below_baseline = Some(ratio);
                        written.baseline = Some(points);
                    }
                    Condition::DropPoints { points, against } => {
                        written.drop_points = Some(points);
                        written.against = Some(against);
                    }
                    Condition::DropRelative { share, against } => {
                        written.drop_relative = Some(share);
                        written.against = Some(against);
                    }
                }
            }
        }
        written
    }
}
