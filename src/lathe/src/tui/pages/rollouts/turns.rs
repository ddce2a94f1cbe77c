//! A dialogue as lines of text: who speaks, what was called, what came back. Wrapped to a width, without style but a role.

use std::fmt::Write as _;

use dialogue::rollout::ToolRecord;

use super::data::{Batch, Sample};
use super::list::{reward, signed};
use crate::tui::shared::Glyphs;
use crate::tui::theme::Role;
use crate::tui::widgets::text;

/// One line; `role` says how it is drawn, its words say what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialogueLine {
    pub text: String,
    pub role: Role,
}

fn line(text: impl Into<String>, role: Role) -> DialogueLine {
    DialogueLine {
        text: text.into(),
        role,
    }
}

/// What is known of a sample, in a few lines.
pub fn head(batch: &Batch, index: usize, width: usize, glyphs: Glyphs) -> Vec<DialogueLine> {
    let sample = &batch.samples[index];
    let group = batch.group_of(index);
    let dot = glyphs.pick("·", "|");
    let place = group.samples.iter().position(|&other| other == index);
    let mut facts = vec![format!(
        "row {} of {} {dot} sample {} ({} of {} in its group)",
        sample.row.row_index,
        sample.row.data_source,
        sample.row.sample,
        place.map_or(0, |place| place + 1),
        group.samples.len(),
    )];
    let mut rewarded = format!("reward {}", reward(sample.row.score));
    if !sample.parts.is_empty() {
        let parts: Vec<String> = sample
            .parts
            .iter()
            .map(|(name, value)| format!("{name} {}", text::number(*value)))
            .collect();
        let _ = write!(rewarded, " ({})", parts.join(", "));
    }
    let _ = write!(rewarded, " {dot} advantage {}", signed(sample.advantage));
    if let (Some(mean), Some(spread)) = (group.mean, group.spread) {
        let _ = write!(
            rewarded,
            " {dot} group {} {} {}",
            text::number(mean),
            glyphs.pick("±", "+-"),
            text::number(spread)
        );
        if batch.teaches_nothing(group) {
            rewarded += " (all equal: teaches nothing)";
        }
    }
    facts.push(rewarded);
    let weights = match sample.versions() {
        None => "nothing drawn".to_owned(),
        Some((oldest, newest)) if oldest == newest => format!("weights v{newest}"),
        Some((oldest, newest)) => format!("weights v{oldest} to v{newest}"),
    };
    facts.push(format!(
        "{} {dot} {} {dot} {} tokens, {} drawn {dot} {weights} {dot} finish {}",
        counted(sample.turns, "turn"),
        counted(sample.tools.len(), "tool call"),
        sample.row.response_ids.len(),
        sample.drawn,
        sample.row.finish,
    ));
    facts
        .iter()
        .flat_map(|fact| text::wrap(fact, width))
        .map(|fact| line(fact, Role::Muted))
        .collect()
}

pub fn counted(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

/// The whole dialogue.
pub fn lines(sample: &Sample, width: usize, glyphs: Glyphs) -> Vec<DialogueLine> {
    let mut lines = Vec::new();
    if let Some(reason) = &sample.unreadable {
        lines.push(line(
            format!("the messages are no JSON: {reason}"),
            Role::Bad,
        ));
        body(&mut lines, &sample.row.messages, width, Role::Text);
        return lines;
    }
    let mut turn = 0;
    let mut calls = 0;
    let prompt = sample.prompt().len();
    for (index, message) in sample.messages.iter().enumerate() {
        let content = message.text();
        match message.role.as_str() {
            "tool" => {
                let record = sample.tools.get(calls);
                calls += 1;
                let (title, role) = match record {
                    Some(record) => result_title(record, glyphs),
                    None => (
                        format!("{} tool result", glyphs.pick("◂", "<")),
                        Role::Accent,
                    ),
                };
                heading(&mut lines, &title, width, glyphs, role);
                body(&mut lines, &content, width, Role::Text);
            }
            "assistant" if index >= prompt => {
                turn += 1;
                let title = format!("{} assistant, turn {turn}", glyphs.pick("●", "@"));
                heading(&mut lines, &title, width, glyphs, Role::Good);
                body(&mut lines, &content, width, Role::Text);
            }
            other => {
                let mark = match other {
                    "system" => glyphs.pick("◆", "#"),
                    _ => glyphs.pick("○", "o"),
                };
                let title = format!("{mark} {}", text::printable(other));
                heading(&mut lines, &title, width, glyphs, Role::Title);
                body(&mut lines, &content, width, Role::Text);
            }
        }
        for call in &message.tool_calls {
            let arguments = match &call.function.arguments {
                serde_json::Value::String(json) => json.clone(),
                other => other.to_string(),
            };
            let said = format!(
                "{} calls {} {arguments}",
                glyphs.pick("▸", ">"),
                call.function.name
            );
            body(&mut lines, &said, width, Role::Accent);
        }
        if content.is_empty() && message.tool_calls.is_empty() {
            lines.push(line("  (empty)", Role::Muted));
        }
    }
    // Calls whose result never reached the dialogue: a limit ended it first.
    for record in sample.tools.iter().skip(calls) {
        let (title, role) = result_title(record, glyphs);
        heading(
            &mut lines,
            &format!("{title}, not seen by the model"),
            width,
            glyphs,
            role,
        );
        body(&mut lines, &record.result, width, Role::Muted);
    }
    let mark = glyphs.pick("■", "=");
    lines.push(line(
        format!("{mark} {}", finish_words(&sample.row.finish)),
        Role::Muted,
    ));
    lines
}

fn result_title(record: &ToolRecord, glyphs: Glyphs) -> (String, Role) {
    let name = text::printable(&record.name);
    let time = format!("{} ms", text::number(record.elapsed_ms));
    if record.failed {
        let why = record
            .failure
            .and_then(|failure| serde_json::to_value(failure).ok())
            .and_then(|why| Some(why.as_str()?.replace('_', " ")))
            .unwrap_or_default();
        let title = format!("{} {name} FAILED: {why}, {time}", glyphs.pick("✗", "!"));
        (title, Role::Bad)
    } else {
        let own = record.reward.map_or_else(String::new, |reward| {
            format!(", own reward {}", text::number(reward))
        });
        let title = format!("{} {name} answers, {time}{own}", glyphs.pick("◂", "<"));
        (title, Role::Accent)
    }
}

fn finish_words(finish: &str) -> String {
    let why = match finish {
        "stop" => "the model ended its turn",
        "length" => "cut: the response reached its most tokens",
        "turn_limit" => "cut: no more turns were allowed",
        "deadline" => "cut: its time was over",
        "aborted" => "aborted",
        "error" => "generation failed",
        other => return text::printable(other),
    };
    format!("{finish}: {why}")
}

fn heading(lines: &mut Vec<DialogueLine>, title: &str, width: usize, glyphs: Glyphs, role: Role) {
    let title = text::fit(title, width.saturating_sub(1), glyphs.unicode);
    let rest = width.saturating_sub(text::width(&title) + 1);
    let rule = glyphs.pick("─", "-").repeat(rest);
    lines.push(line(format!("{title} {rule}"), role));
}

fn body(lines: &mut Vec<DialogueLine>, said: &str, width: usize, role: Role) {
    for wrapped in text::wrap(said, width.saturating_sub(2).max(1)) {
        lines.push(line(format!("  {wrapped}"), role));
    }
}
