//! The samples of one step as people look at them: parsed once, off the drawing thread. Knows the recorded rows, no screen.

use std::collections::HashMap;

use dialogue::message::Message;
use dialogue::rollout::ToolRecord;
use runlog::store::RolloutRow;

use crate::tui::widgets::text::finds;

/// Every recorded sample of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub step: u64,
    /// In the order of the file.
    pub samples: Vec<Sample>,
    /// In the order of their first sample.
    pub groups: Vec<Group>,
    /// Names of the numbers a score is made of, over all samples, in order.
    pub parts: Vec<String>,
}

/// One dialogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub row: RolloutRow,
    pub messages: Vec<Message>,
    /// Why `messages` are missing although there is text.
    pub unreadable: Option<String>,
    pub tools: Vec<ToolRecord>,
    pub parts: Vec<(String, f64)>,
    /// Mean over the tokens that the model drew; None where none was recorded or drawn.
    pub advantage: Option<f64>,
    /// Turns of the model.
    pub turns: usize,
    /// Tokens the model drew.
    pub drawn: usize,
    /// Index of its group.
    pub group: usize,
}

/// The samples of one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The last thing that was asked, on one line.
    pub title: String,
    /// Indices of samples.
    pub samples: Vec<usize>,
    /// Of the finite rewards; None: there are none.
    pub mean: Option<f64>,
    /// Their standard deviation (divided by their number); 0 means that the group teaches nothing.
    pub spread: Option<f64>,
}

impl Batch {
    pub fn new(step: u64, rows: Vec<RolloutRow>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: HashMap<String, usize> = HashMap::new();
        let mut samples = Vec::with_capacity(rows.len());
        let mut parts: Vec<String> = Vec::new();
        for row in rows {
            let group = *group_of.entry(row.uid.clone()).or_insert_with(|| {
                groups.push(Group {
                    title: String::new(),
                    samples: Vec::new(),
                    mean: None,
                    spread: None,
                });
                groups.len() - 1
            });
            let sample = Sample::new(row, group);
            groups[group].samples.push(samples.len());
            for (name, _) in &sample.parts {
                if !parts.contains(name) {
                    parts.push(name.clone());
                }
            }
            samples.push(sample);
        }
        parts.sort();
        for group in &mut groups {
            group.title = samples[group.samples[0]].asked();
            let rewards: Vec<f64> = group
                .samples
                .iter()
                .filter_map(|&index| samples[index].row.score)
                .filter(|reward| reward.is_finite())
                .collect();
            if !rewards.is_empty() {
                let count = rewards.len() as f64;
                let mean = rewards.iter().sum::<f64>() / count;
                let variance = rewards
                    .iter()
                    .map(|reward| (reward - mean).powi(2))
                    .sum::<f64>()
                    / count;
                group.mean = Some(mean);
                group.spread = Some(variance.sqrt());
            }
        }
        Self {
            step,
            samples,
            groups,
            parts,
        }
    }

    pub fn group_of(&self, sample: usize) -> &Group {
        &self.groups[self.samples[sample].group]
    }

    /// Its samples have the same reward and no advantage. With a critic, equal rewards can teach all the same.
    pub fn teaches_nothing(&self, group: &Group) -> bool {
        let has_advantage = |index: &usize| {
            self.samples[*index]
                .advantage
                .is_some_and(|advantage| advantage.abs() > 1e-6)
        };
        group.spread == Some(0.0)
            && group.samples.len() > 1
            && !group.samples.iter().any(has_advantage)
    }

    /// A group with the same prompt as `sample`, which may be of another step or run.
    pub fn find_prompt(&self, sample: &Sample) -> Option<&Group> {
        let is_same = |group: &&Group| {
            let other = &self.samples[group.samples[0]];
            other.prompt() == sample.prompt()
        };
        // The same row of the data comes first, since a data set may hold a prompt twice.
        self.groups
            .iter()
            .filter(is_same)
            .find(|group| {
                let other = &self.samples[group.samples[0]];
                other.row.row_index == sample.row.row_index
            })
            .or_else(|| self.groups.iter().find(is_same))
    }
}

impl Sample {
    fn new(row: RolloutRow, group: usize) -> Self {
        let (messages, unreadable) = match serde_json::from_str::<Vec<Message>>(&row.messages) {
            Ok(messages) => (messages, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let tools = serde_json::from_str(&row.tools).unwrap_or_default();
        let parts =
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&row.score_parts)
                .unwrap_or_default()
                .into_iter()
                .filter_map(|(name, value)| {
                    // JSON has no NaN: serde writes null.
                    let number = match value {
                        serde_json::Value::Null => f64::NAN,
                        value => value.as_f64()?,
                    };
                    Some((name, number))
                })
                .collect();
        let drawn = row.response_mask.iter().filter(|drawn| **drawn).count();
        let advantage = row.advantages.as_ref().filter(|_| drawn > 0).map(|all| {
            let sum: f64 = all
                .iter()
                .zip(&row.response_mask)
                .filter(|(_, drawn)| **drawn)
                .map(|(advantage, _)| f64::from(*advantage))
                .sum();
            sum / drawn as f64
        });
        let turns = messages
            .iter()
            .skip(prompt_length(&messages))
            .filter(|message| message.role == "assistant")
            .count();
        Self {
            row,
            messages,
            unreadable,
            tools,
            parts,
            advantage,
            turns,
            drawn,
            group,
        }
    }

    /// What the dialogue started from.
    pub fn prompt(&self) -> &[Message] {
        &self.messages[..prompt_length(&self.messages)]
    }

    /// The last thing that was asked, on one line.
    pub fn asked(&self) -> String {
        let asked = self
            .prompt()
            .iter()
            .rev()
            .find(|message| message.role == "user")
            .or_else(|| self.prompt().last());
        match asked {
            Some(message) => message
                .text()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            None => format!("row {} of {}", self.row.row_index, self.row.data_source),
        }
    }

    /// Whether a text occurs in what was said or called, any letter case where `needle` has no capitals.
    pub fn contains(&self, needle: &str) -> bool {
        self.messages.iter().any(|message| {
            finds(&message.text(), needle)
                || message.tool_calls.iter().any(|call| {
                    finds(&call.function.name, needle)
                        || finds(&call.function.arguments.to_string(), needle)
                })
        })
    }

    /// Oldest and newest weights that drew its tokens.
    pub fn versions(&self) -> Option<(u64, u64)> {
        let drawn = || {
            self.row
                .policy_versions
                .iter()
                .zip(&self.row.response_mask)
                .filter(|(_, drawn)| **drawn)
                .map(|(version, _)| *version)
        };
        Some((drawn().min()?, drawn().max()?))
    }
}

/// Whether a dialogue, as JSON text, starts from the same prompt as `sample`.
pub fn has_prompt(messages: &str, sample: &Sample) -> bool {
    let Ok(messages) = serde_json::from_str::<Vec<Message>>(messages) else {
        return false;
    };
    messages[..prompt_length(&messages)] == *sample.prompt()
}

/// Messages before the first turn of an assistant. A prompt with examples in it has more, but what is recorded does not tell
/// them from turns of the model.
fn prompt_length(messages: &[Message]) -> usize {
    messages
        .iter()
        .position(|message| message.role == "assistant")
        .unwrap_or(messages.len())
}
