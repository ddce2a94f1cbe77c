//! Conversations with tools in plain words (`ReAct`), for templates and models that know no tools: the tools stand in the system
//! message, a call is text of the assistant, and answers are a message of the user that begins with `Observation:`.

use std::fmt::Write as _;

use serde_json::Value;

use crate::message::Message;

/// The messages as the template gets them, which has no tools of its own.
pub(super) fn presented(messages: &[Message], tools: &[Value]) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match message.role.as_str() {
            "tool" => {
                let observation = format!("Observation: {}", message.text());
                match all.last_mut() {
                    // Answers to calls of one turn.
                    Some(last) if last.extra.contains_key(MARK) => {
                        last.content = format!("{}\n{observation}", last.text()).into();
                    }
                    _ => {
                        let mut answer = Message::new("user", observation);
                        answer.extra.insert(MARK.to_owned(), true.into());
                        all.push(answer);
                    }
                }
            }
            "assistant" if !message.tool_calls.is_empty() => all.push(acting(message)),
            _ => all.push(message.clone()),
        }
    }
    for message in &mut all {
        message.extra.remove(MARK);
    }
    if !tools.is_empty() {
        let form = instructions(tools);
        match all.first_mut() {
            Some(first) if first.role == "system" => {
                first.content = format!("{}\n\n{form}", first.text()).into();
            }
            _ => all.insert(0, Message::new("system", form)),
        }
    }
    all
}

/// On a message that further observations may join; no message of a row has it.
const MARK: &str = "\u{F0000}observation";

/// An assistant's calls as it would have written them.
fn acting(message: &Message) -> Message {
    let mut text = message.text();
    // What a model wrote itself has its actions in it.
    if !text.contains("Action:") {
        for call in &message.tool_calls {
            let arguments = match &call.function.arguments {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if !text.is_empty() {
                text.push('\n');
            }
            let name = &call.function.name;
            write!(text, "Action: {name}\nAction Input: {arguments}").expect("text takes all");
        }
    }
    let mut acting = message.clone();
    acting.content = text.into();
    acting.tool_calls = Vec::new();
    acting
}

fn instructions(tools: &[Value]) -> String {
    let mut text = String::from("You can use these tools:\n\n");
    let mut names = Vec::new();
    for tool in tools {
        let function = tool.get("function").unwrap_or(tool);
        let name = function["name"].as_str().unwrap_or_default();
        names.push(name);
        let description = function["description"].as_str().unwrap_or_default();
        let parameters = &function["parameters"]["properties"];
        writeln!(text, "{name}: {description} Input: {parameters}").expect("text takes all");
    }
    write!(
        text,
        "\nUse this form:\n\n\
         Thought: what you think about what to do\n\
         Action: the tool to use, one of {}\n\
         Action Input: its input, as a JSON object\n\n\
         Then stop. You will be told its answer as \"Observation: ...\", and may go on in the same form. When you know the answer:\n\n\
         Thought: I know the answer\n\
         Final Answer: the answer",
        names.join(", ")
    )
    .expect("text takes all");
    text
}
