//! Servers as tools.

use dialogue::rollout::{CallFailure, ToolRecord};
use dialogue::tool::{ToolClasses, ToolRegistry};
use serde_json::{Value, json};

use crate::common::{call, run, toolbox};
use crate::server::{Received, Server};

const SCHEMA: &str = "tool_schema: {function: {name: weather, parameters: {type: object, properties: {city: {type: string}, \
                      days: {type: integer}}}}}";

fn tools(config: &str) -> Result<ToolRegistry, String> {
    let text = format!("tools: [{{class_name: http, config: {{{config}}}, {SCHEMA}}}]");
    ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default()).map_err(|error| error.to_string())
}

/// The answer to one call of a server that answers so, and what the server was sent. `config` stands after the url.
async fn ask(
    path: &str,
    config: &str,
    answers: &[(&str, &str)],
    arguments: &Value,
) -> (ToolRecord, Vec<Received>) {
    let server = Server::start(answers);
    let tools = tools(&format!("url: \"{}{path}\", {config}", server.url)).expect("a tool");
    let record = run(&mut toolbox(&tools, "d"), [call("weather", arguments)]).await;
    (record.into_iter().next().expect("one"), server.received())
}

#[tokio::test]
async fn arguments_go_out_as_json_and_the_answer_is_text() {
    let arguments = json!({"city": "Ulm", "days": 2});
    let (record, received) = ask("/v1", "", &[("200 OK", " {\"sun\": true} ")], &arguments).await;
    assert_eq!(record.result, "{\"sun\": true}");
    assert_eq!(received[0].line, "POST /v1");
    assert_eq!(received[0].header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(&received[0].body).expect("JSON");
    assert_eq!(body, arguments);
}

#[tokio::test]
async fn arguments_stand_in_the_path_and_the_query_and_nowhere_else() {
    let (record, received) = ask(
        "/of/{city}?units=si",
        "method: GET, select: /days/0/text",
        &[("200 OK", "{\"days\": [{\"text\": \"rain\"}]}")],
        &json!({"city": "../admin?x=1#&y", "days": 2}),
    )
    .await;
    assert_eq!(record.result, "rain");
    assert_eq!(
        received[0].line,
        "GET /of/..%2Fadmin%3Fx%3D1%23%26y?units=si&days=2"
    );
    let (record, received) = ask("/of/{city}", "method: GET", &[], &json!({"city": ".."})).await;
    assert_eq!(record.result, "error: parameter \"city\" may not be \"..\"");
    assert_eq!(received, []);
}

#[tokio::test]
async fn a_secret_goes_to_its_server_and_is_never_part_of_an_answer() {
    // Cargo sets it for every test, and nobody else has it.
    let secret = env!("CARGO_MANIFEST_DIR");
    let config = "method: GET, retries: 0, key_env: CARGO_MANIFEST_DIR, headers_env: {x-key: CARGO_MANIFEST_DIR}, headers: {accept: text/plain}";
    let echo = format!("you sent {secret}");
    let (record, received) = ask("/", config, &[("403 Forbidden", &echo)], &json!({})).await;
    assert_eq!(
        received[0].header("authorization"),
        Some(&*format!("Bearer {secret}"))
    );
    assert_eq!(received[0].header("x-key"), Some(secret));
    assert_eq!(received[0].header("accept"), Some("text/plain"));
    assert_eq!(record.failure, Some(CallFailure::Tool));
    assert!(
        record.result.ends_with("status 403: you sent ***"),
        "{}",
        record.result
    );
    let missing =
        tools("url: \"http://localhost/\", key_env: LATHE_NO_SUCH_KEY").expect_err("none");
    assert!(
        missing.ends_with(
            "key_env names the environment variable LATHE_NO_SUCH_KEY, which is not set here"
        ),
        "{missing}"
    );
}

#[tokio::test]
async fn a_busy_server_is_asked_again_where_that_does_no_harm() {
    let busy = ("503 Busy", "later");
    let (record, received) = ask("/", "method: GET", &[busy, ("200 OK", "1")], &json!({})).await;
    assert_eq!((record.result.as_str(), received.len()), ("1", 2));
    let (record, received) = ask("/", "method: POST", &[busy], &json!({})).await;
    assert!(
        record.result.ends_with("status 503: later"),
        "{}",
        record.result
    );
    assert_eq!(received.len(), 1);
}

#[tokio::test]
async fn what_a_server_does_wrong_is_told() {
    for (config, answer, expected) in [
        (
            "max_response_bytes: 10",
            ("200 OK", "12345678901"),
            "the answer is longer than 10 bytes",
        ),
        (
            "select: /a",
            ("200 OK", "no json"),
            "the server's answer is not JSON",
        ),
        (
            "select: /a",
            ("200 OK", "{}"),
            "the server's answer has no /a",
        ),
        ("", ("302 Found", "elsewhere"), "status 302: elsewhere"),
    ] {
        let (record, _) = ask("/", config, &[answer], &json!({})).await;
        assert_eq!(record.failure, Some(CallFailure::Tool));
        assert!(
            record.result.contains(expected),
            "{config}: {}",
            record.result
        );
    }
    // Nobody listens there.
    let tools = tools("url: \"http://127.0.0.1:1/\", timeout: 5s").expect("a tool");
    let record = run(&mut toolbox(&tools, "d"), [call("weather", &json!({}))])
        .await
        .remove(0);
    assert_eq!(record.failure, Some(CallFailure::Tool));
    assert!(
        record.result.starts_with("error: http://127.0.0.1:1: "),
        "{}",
        record.result
    );
}

#[test]
fn what_is_wrong_with_an_http_tool_is_said() {
    for (config, expected) in [
        ("url: ftp://x", "expected http:// or https://"),
        ("url: \"http://{city}.example.com/\"", "not in the host"),
        (
            "url: \"http://x/{town}\"",
            "{town}, which is no parameter of tool_schema",
        ),
        ("url: \"http://x/{city\"", "a { without its }"),
        ("url: \"http://x/\", select: a", "expected a JSON pointer"),
        ("url: \"http://x/\", method: HEAD", "unknown variant `HEAD`"),
        ("url: \"http://x/\", key: secret", "unknown field `key`"),
    ] {
        let error = tools(config).expect_err("refused");
        assert!(error.contains(expected), "{config}: {error}");
    }
}
