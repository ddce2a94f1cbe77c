//! Servers of the Model Context Protocol, over stdio and over HTTP.

use dialogue::rollout::CallFailure;
use dialogue::tool::{ToolClasses, ToolRegistry, Toolbox};
use serde_json::{Value, json};

use crate::common::{call, run, toolbox};
use crate::server::Server;

fn load(config: &str) -> Result<ToolRegistry, String> {
    let text = format!("tools: [{{class_name: mcp, config: {{{config}}}}}]");
    ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default()).map_err(|error| error.to_string())
}

/// The server beside this file; None, said on stderr, where there is no python3 to run it.
fn python(config: &str) -> Option<ToolRegistry> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/mcp_server.py");
    match load(&format!("command: [python3, \"{program}\"], {config}")) {
        Ok(tools) => Some(tools),
        Err(problem) => {
            assert!(problem.contains("cannot start python3"), "{problem}");
            eprintln!("skipped: {problem}");
            None
        }
    }
}

async fn ask(toolbox: &mut Toolbox, name: &str, arguments: Value) -> (Option<CallFailure>, String) {
    let record = run(toolbox, [call(name, &arguments)]).await.remove(0);
    (record.failure, record.result)
}

#[tokio::test]
async fn the_tools_that_a_server_lists_are_tools() {
    let Some(tools) = python("prefix: t_") else {
        return;
    };
    assert_eq!(tools.names(), ["t_add", "t_count", "t_odd"]);
    assert_eq!(
        tools.schemas()[0],
        json!({"type": "function", "function": {"name": "t_add", "description": "Adds two numbers.", "parameters": {
            "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}})
    );
    let mut toolbox = toolbox(&tools, "d");
    assert_eq!(
        ask(&mut toolbox, "t_add", json!({"a": 1.5, "b": 2})).await,
        (None, "3.5".to_owned())
    );
    assert_eq!(
        ask(&mut toolbox, "t_add", json!({"a": 1})).await,
        (
            Some(CallFailure::BadArguments),
            "error: parameter \"b\" is missing".to_owned()
        )
    );
}

#[tokio::test]
async fn whatever_a_server_does_costs_one_call() {
    let Some(tools) = python("timeout: 2s, concurrency: 1") else {
        return;
    };
    let mut toolbox = toolbox(&tools, "d");
    for (how, failure, expected) in [
        ("plain", None, "plain"),
        ("asks", None, "heard"),
        ("picture", None, "[image]\ninside"),
        ("structured", None, "{\"x\":1}"),
        ("fails", Some(CallFailure::Tool), "error: not today"),
        (
            "dies",
            Some(CallFailure::Tool),
            "error: the MCP server ended: exit status: 3; it printed last: about to die",
        ),
        (
            "hangs",
            Some(CallFailure::TimedOut),
            "error: no answer within 2 s",
        ),
        ("plain", None, "plain"),
    ] {
        assert_eq!(
            ask(&mut toolbox, "odd", json!({"how": how})).await,
            (failure, expected.to_owned())
        );
    }
}

#[tokio::test]
async fn connections_are_shared_or_one_for_each_dialogue() {
    let Some(tools) = python("concurrency: 1, tools: [count]") else {
        return;
    };
    assert_eq!(tools.names(), ["count"]);
    let (mut a, mut b) = (toolbox(&tools, "a"), toolbox(&tools, "b"));
    for (toolbox, expected) in [(&mut a, "call 1"), (&mut b, "call 2")] {
        assert_eq!(ask(toolbox, "count", json!({})).await.1, expected);
    }
    let Some(tools) = python("process: dialogue") else {
        return;
    };
    let (mut a, mut b) = (toolbox(&tools, "a"), toolbox(&tools, "b"));
    for (toolbox, expected) in [(&mut a, "call 1"), (&mut b, "call 1")] {
        assert_eq!(ask(toolbox, "count", json!({})).await.1, expected);
    }
    assert_eq!(ask(&mut b, "count", json!({})).await.1, "call 2");
}

/// An answer over HTTP.
fn http(head: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\n{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

#[tokio::test]
async fn a_server_over_http_may_answer_in_json_or_in_events() {
    let is_json = "content-type: application/json\r\n";
    let answer = |head: &str, id: u64, result: Value| {
        http(
            head,
            &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
        )
    };
    let begin = || {
        [
            answer(
                &format!("{is_json}mcp-session-id: s-7\r\n"),
                1,
                json!({"protocolVersion": "2025-03-26", "capabilities": {}}),
            ),
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        ]
    };
    let mut answers = Vec::from(begin());
    answers.push(answer(
        is_json,
        2,
        json!({"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}),
    ));
    answers.extend(begin());
    // No length: such a stream goes on, and is left when the answer is there.
    let events = [
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "seen"}]}}),
    ]
    .map(|event| format!("event: message\ndata: {event}\n\n"))
    .concat();
    answers.push(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hello\n\n{events}"));
    answers.push(
        "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\nconnection: close\r\n\r\ngone".to_owned(),
    );
    let server = Server::raw(answers);
    let tools = load(&format!(
        "url: \"{}/mcp\", headers: {{x-team: a}}",
        server.url
    ))
    .expect("tools");
    let mut toolbox = toolbox(&tools, "d");
    assert_eq!(
        ask(&mut toolbox, "look", json!({})).await,
        (None, "seen".to_owned())
    );
    let (failure, said) = ask(&mut toolbox, "look", json!({})).await;
    assert_eq!(failure, Some(CallFailure::Tool));
    assert!(said.ends_with("status 404: gone"), "{said}");
    let received = server.received();
    let methods: Vec<String> = received
        .iter()
        .map(|request| {
            let body: Value = serde_json::from_str(&request.body).expect("JSON");
            body["method"].as_str().expect("a method").to_owned()
        })
        .collect();
    let begun = ["initialize", "notifications/initialized"];
    assert_eq!(
        methods,
        [
            &begun[..],
            &["tools/list"],
            &begun,
            &["tools/call", "tools/call"]
        ]
        .concat()
    );
    for (request, method) in received.iter().zip(&methods) {
        assert_eq!(
            request.header("accept"),
            Some("application/json, text/event-stream")
        );
        assert_eq!(request.header("x-team"), Some("a"));
        if method != "initialize" {
            assert_eq!(request.header("mcp-session-id"), Some("s-7"), "{method}");
            assert_eq!(
                request.header("mcp-protocol-version"),
                Some("2025-03-26"),
                "{method}"
            );
        }
    }
}

#[test]
fn what_is_wrong_with_an_mcp_server_is_said() {
    for (config, expected) in [
        (
            "",
            "expected `config.command` (a program here) or `config.url` (a server)",
        ),
        (
            "command: [/no/such/server]",
            "the MCP server: cannot start /no/such/server: ",
        ),
        (
            "command: [sh, -c, \"echo gone >&2; exit 5\"]",
            "the MCP server ended: exit status: 5; it printed last: gone",
        ),
        (
            "command: [sh, -c, \"read x; echo hello\"]",
            "the MCP server's answer is not JSON",
        ),
        (
            "url: \"http://127.0.0.1:1/\"",
            "the MCP server: http://127.0.0.1:1: ",
        ),
        ("command: [sh], tool: x", "unknown field `tool`"),
    ] {
        let error = load(config).expect_err("refused");
        assert!(error.starts_with("t.yaml:1: tools[0]: "), "{error}");
        assert!(error.contains(expected), "{config}: {error}");
    }
    if let Some(tools) = python("") {
        assert_eq!(tools.names().len(), 3);
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/mcp_server.py");
        let error = load(&format!(
            "command: [python3, \"{program}\"], tools: [subtract]"
        ))
        .expect_err("none");
        assert!(error.contains("`config.tools` names subtract, which the MCP server does not have; it has add, count, odd"), "{error}");
    }
}
