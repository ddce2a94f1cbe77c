//! Programs as tools.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dialogue::rollout::{CallFailure, ToolRecord};
use dialogue::tool::{ToolClasses, ToolRegistry, Toolbox};
use serde_json::json;

use crate::common::{call, run, toolbox};

/// A command whose `config` is given, called `tool`, with the parameter `word`.
fn tools(config: &str) -> ToolRegistry {
    let text = format!(
        "tools:\n  - class_name: command\n    config: {config}\n    tool_schema: {{type: function, function: {{name: tool, \
         parameters: {{type: object, properties: {{word: {{type: string}}}}}}}}}}\n"
    );
    ToolRegistry::parse(&text, "tools.yaml", &ToolClasses::default()).expect("a tool")
}

async fn ask(toolbox: &mut Toolbox, words: &[&str]) -> Vec<ToolRecord> {
    let calls = words
        .iter()
        .map(|word| call("tool", &json!({"word": word})));
    run(toolbox, calls).await
}

async fn one(toolbox: &mut Toolbox, word: &str) -> (Option<CallFailure>, String) {
    let record = ask(toolbox, &[word]).await.remove(0);
    (record.failure, record.result)
}

/// A shell program, as a `command`.
fn sh(program: &str) -> String {
    format!("[sh, -c, {}]", json!(program))
}

/// Does what the word says: dies, hangs, prints, or counts its calls.
const ODD: &str = r#"n=0
while read -r line; do
  n=$((n+1))
  case "$line" in
    *die*) echo 'about to die' >&2; exit 3;;
    *hang*) sleep 1000;;
    *nonsense*) echo 'no json';;
    *other*) echo '{"id": 99999, "text": "of another"}';;
    *empty*) echo '{}';;
    *refuse*) echo '{"error": "not today"}';;
    *long*) head -c 3000 /dev/zero | tr '\0' x; echo;;
    *) echo "{\"text\": \"call $n\", \"reward\": 0.5, \"metrics\": {\"n\": $n}}";;
  esac
done"#;

#[tokio::test]
async fn a_program_answers_line_by_line_and_whatever_it_does_costs_one_call() {
    let config = format!(
        "{{command: {}, timeout: 2s, max_answer_bytes: 2000}}",
        sh(ODD)
    );
    let tools = tools(&config);
    let mut toolbox = toolbox(&tools, "d");
    let first = ask(&mut toolbox, &["a"]).await.remove(0);
    assert_eq!((first.failed, first.result.as_str()), (false, "call 1"));
    assert_eq!((first.reward, first.metrics["n"]), (Some(0.5), 1.0));
    assert_eq!(one(&mut toolbox, "a").await.1, "call 2");
    assert_eq!(
        one(&mut toolbox, "refuse").await,
        (Some(CallFailure::Tool), "error: not today".to_owned())
    );
    assert_eq!(one(&mut toolbox, "empty").await.0, Some(CallFailure::Tool));
    assert_eq!(
        one(&mut toolbox, "a").await.1,
        "call 5",
        "none of these cost the process"
    );
    for (word, failure, expected) in [
        (
            "die",
            CallFailure::Tool,
            "ended: exit status: 3; it printed last: about to die",
        ),
        ("hang", CallFailure::TimedOut, "error: no answer within 2 s"),
        ("nonsense", CallFailure::Tool, "answer is not JSON"),
        (
            "other",
            CallFailure::Tool,
            "answered request 99999 instead of",
        ),
        (
            "long",
            CallFailure::Tool,
            "answer is longer than 2000 bytes",
        ),
    ] {
        let (failed, said) = one(&mut toolbox, word).await;
        assert_eq!(failed, Some(failure), "{word}: {said}");
        assert!(said.contains(expected), "{word}: {said}");
        assert_eq!(
            one(&mut toolbox, "a").await.1,
            "call 1",
            "a new process after {word}"
        );
    }
}

#[tokio::test]
async fn a_late_program_is_killed_with_what_it_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let ids = folder.path().join("ids");
    let program = format!(
        "read line; sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait",
        ids.display()
    );
    let tools = tools(&format!("{{command: {}, timeout: 1s}}", sh(&program)));
    let (failed, _) = one(&mut toolbox(&tools, "d"), "a").await;
    assert_eq!(failed, Some(CallFailure::TimedOut));
    let ids = fs::read_to_string(ids).expect("written before the hang");
    for id in ids.split_whitespace() {
        let is_running = || {
            fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| {
                !matches!(stat.rsplit(") ").next(), Some(rest) if rest.starts_with(['Z', 'X']))
            })
        };
        while Path::new("/proc").exists() && is_running() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_process_of_a_dialogue_remembers_and_is_not_shared() {
    let config = format!("{{command: {}, process: dialogue, timeout: 2s}}", sh(ODD));
    let tools = tools(&config);
    let (mut a, mut b) = (toolbox(&tools, "a"), toolbox(&tools, "b"));
    for (toolbox, expected) in [(&mut a, "call 1"), (&mut b, "call 1")] {
        assert_eq!(one(toolbox, "x").await.1, expected);
    }
    assert_eq!(one(&mut a, "x").await.1, "call 2");
    // Calls of one turn go to the same process, one after the other.
    let mut said: Vec<String> = ask(&mut a, &["x", "y", "z"])
        .await
        .into_iter()
        .map(|record| record.result)
        .collect();
    said.sort();
    assert_eq!(said, ["call 3", "call 4", "call 5"]);
    assert_eq!(one(&mut a, "hang").await.0, Some(CallFailure::TimedOut));
    assert_eq!(one(&mut a, "x").await.1, "call 1");
    assert_eq!(one(&mut b, "x").await.1, "call 2");
}

#[tokio::test]
async fn a_program_for_one_call_may_answer_in_plain_text_or_in_json() {
    let program = r#"read -r line
case "$line" in
  *json*) echo '{"error": "not today"}';;
  *die*) echo gone >&2; exit 4;;
  *) echo "plain {text}";;
esac
cat"#;
    let tools = tools(&format!("{{command: {}, process: call}}", sh(program)));
    let mut toolbox = toolbox(&tools, "d");
    assert_eq!(
        one(&mut toolbox, "a").await,
        (None, "plain {text}".to_owned())
    );
    assert_eq!(one(&mut toolbox, "json").await.1, "error: not today");
    let (failed, said) = one(&mut toolbox, "die").await;
    assert_eq!(failed, Some(CallFailure::Tool));
    assert_eq!(
        said,
        "error: the tool's program ended: exit status: 4; it printed last: gone"
    );
}

#[tokio::test]
async fn calls_wait_for_their_turn_and_the_wait_is_not_their_time_out() {
    // Each takes a second, three of them in a row; none may take 2.5 s.
    let program = "while read -r line; do sleep 1; echo '{\"text\": \"done\"}'; done";
    let tools = tools(&format!(
        "{{command: {}, concurrency: 1, timeout: 2500ms}}",
        sh(program)
    ));
    let records = ask(&mut toolbox(&tools, "d"), &["a", "b", "c"]).await;
    assert_eq!(records.len(), 3);
    for record in &records {
        assert_eq!(record.result, "done");
    }
    let mut waits: Vec<f64> = records.iter().map(|record| record.wait_ms).collect();
    waits.sort_by(f64::total_cmp);
    assert!(waits[0] < waits[1] && waits[1] < waits[2], "{waits:?}");
    assert!(
        waits[2] >= 2000.0,
        "{waits:?}: two calls went before the last"
    );
}

#[tokio::test]
async fn a_cache_gives_the_same_answer_for_the_same_arguments_and_keeps_no_failure() {
    let tools = tools(&format!("{{command: {}, cache: 2}}", sh(ODD)));
    let (mut a, mut b) = (toolbox(&tools, "a"), toolbox(&tools, "b"));
    let seen = |record: &ToolRecord| (record.result.clone(), record.cached);
    assert_eq!(
        seen(&ask(&mut a, &["x"]).await[0]),
        ("call 1".to_owned(), false)
    );
    assert_eq!(
        seen(&ask(&mut b, &["x"]).await[0]),
        ("call 1".to_owned(), true)
    );
    for _ in 0..2 {
        let refused = ask(&mut a, &["refuse"]).await.remove(0);
        assert!(refused.failed && !refused.cached);
    }
    assert_eq!(
        seen(&ask(&mut a, &["y"]).await[0]),
        ("call 4".to_owned(), false)
    );
    assert_eq!(
        seen(&ask(&mut a, &["z"]).await[0]),
        ("call 5".to_owned(), false)
    );
    // Two are kept, and it was the oldest.
    assert_eq!(
        seen(&ask(&mut a, &["x"]).await[0]),
        ("call 6".to_owned(), false)
    );
}

#[test]
fn what_is_wrong_with_a_command_is_said() {
    let refused = |config: &str, schema: &str| {
        let text = format!("tools: [{{class_name: command, config: {config}{schema}}}]");
        ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default())
            .expect_err("refused")
            .to_string()
    };
    let schema = ", tool_schema: {function: {name: x}}";
    for (config, schema, expected) in [
        ("{command: [sh]}", "", "`tool_schema` is missing"),
        ("{}", schema, "missing field `command`"),
        ("{command: []}", schema, "`config.command` is empty"),
        (
            "{command: [sh], program: 1}",
            schema,
            "unknown field `program`",
        ),
        (
            "{command: [sh], cwd: /no/such}",
            schema,
            "which is no folder",
        ),
        (
            "{command: [sh], timeout: soon}",
            schema,
            "expected seconds above 0, or a time such as 50ms, 2s",
        ),
        (
            "{command: [sh], concurrency: 0}",
            schema,
            "`config.concurrency` is 0; expected a whole number from 1",
        ),
        (
            "{command: [sh], process: dialogue, cache: 9}",
            schema,
            "answers depend on the calls before",
        ),
    ] {
        let error = refused(config, schema);
        assert!(error.contains(expected), "{config}: {error}");
        assert!(error.starts_with("t.yaml:1: tools[0]"), "{error}");
    }
}

#[test]
fn no_key_of_a_config_is_passed_over() {
    for (class, config, expected) in [
        (
            "calculator",
            "{decimal: 2}",
            "there is no `config.decimal`; expected decimals, concurrency, timeout, cache",
        ),
        (
            "guess",
            "{high: 9, lo: 1}",
            "there is no `config.lo`; expected low, high, concurrency, timeout, cache",
        ),
        ("python", "{memory: 1}", "unknown field `memory`"),
        ("search", "{corpora: x}", "unknown field `corpora`"),
    ] {
        let text = format!("tools: [{{class_name: {class}, config: {config}}}]");
        let error = ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default())
            .expect_err("refused")
            .to_string();
        assert!(error.contains(expected), "{class}: {error}");
    }
    let limits = "{type: native, timeout: 1s, concurrency: 2, cache: 3, decimals: 2}";
    let text = format!("tools: [{{class_name: calculator, config: {limits}}}]");
    ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default()).expect("all of them known");
}

#[test]
fn a_program_that_is_not_there_is_told_before_anything_calls_it() {
    for (program, problem) in [
        (
            "no-such-program-of-anyone",
            "there is no program no-such-program-of-anyone in PATH",
        ),
        (
            "/no/such/program",
            "/no/such/program is no program that can be run",
        ),
        ("/etc/passwd", "/etc/passwd is no program that can be run"),
    ] {
        let tools = tools(&format!("{{command: [{program}]}}"));
        assert_eq!(tools.ready()[0].1, Err(problem.to_owned()));
    }
    assert_eq!(tools("{command: [sh]}").ready()[0].1, Ok(None));
}
