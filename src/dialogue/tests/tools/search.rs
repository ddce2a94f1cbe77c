//! Searches, here and by a server in verl's form.

use std::fs;
use std::path::Path;

use dialogue::data::write_parquet;
use dialogue::tool::{ToolClasses, ToolRegistry};
use serde_json::{Value, json};

use crate::common::{call, run, toolbox};
use crate::server::Server;

fn tools(config: &str, beside: &Path) -> ToolRegistry {
    let text = format!("tools: [{{class_name: search, config: {{{config}}}}}]");
    let path = beside.join("tools.yaml");
    ToolRegistry::parse(&text, &path.display().to_string(), &ToolClasses::default())
        .expect("a tool")
}

async fn ask(tools: &ToolRegistry, arguments: &Value) -> String {
    let name = tools.names()[0].to_owned();
    let records = run(&mut toolbox(tools, "d"), [call(&name, arguments)]).await;
    records[0].result.clone()
}

fn rows() -> Vec<serde_json::Map<String, Value>> {
    [
        ("Lathe", "A lathe turns wood and metal."),
        ("Mill", "A mill grinds corn."),
        ("Bread", "Bread is made of \"corn\"."),
    ]
    .into_iter()
    .map(|(title, body)| {
        let row = json!({"id": title.len(), "title": title, "body": body, "contents": format!("{title}\n{body}")});
        row.as_object().expect("an object").clone()
    })
    .collect()
}

#[tokio::test]
async fn passages_of_json_lines_and_of_parquet_are_found_and_written_as_verl_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines: Vec<String> = rows()
        .iter()
        .map(|row| Value::Object(row.clone()).to_string())
        .collect();
    fs::write(folder.path().join("c.jsonl"), lines.join("\n")).expect("written");
    write_parquet(&rows(), &folder.path().join("c.parquet")).expect("written");
    for config in [
        "corpus: c.jsonl",
        "corpus: [c.parquet]",
        "corpus: c.parquet, text: body, title: title",
    ] {
        let tools = tools(&format!("{config}, topk: 2"), folder.path());
        assert_eq!(
            ask(&tools, &json!({"query_list": ["a lathe", "corn bread"]})).await,
            "{\"result\": \"Doc 1 (Title: Lathe)\\nA lathe turns wood and metal.\\n\\nDoc 2 (Title: Mill)\\nA mill grinds corn.\\n---\\n\
             Doc 1 (Title: Bread)\\nBread is made of \\\"corn\\\".\\n\\nDoc 2 (Title: Mill)\\nA mill grinds corn.\"}",
            "{config}"
        );
        assert_eq!(
            ask(&tools, &json!({"query_list": ["zebra"]})).await,
            "{\"result\": \"No search results found.\"}"
        );
        assert_eq!(
            ask(&tools, &json!({"query_list": []})).await,
            "error: \"query_list\" is missing, empty, or not a list of texts"
        );
        let note = tools.ready()[0].1.clone().expect("it is there");
        assert_eq!(
            note.as_deref().map(|note| note.starts_with("3 passages, ")),
            Some(true)
        );
    }
}

#[tokio::test]
async fn a_corpus_that_cannot_be_read_is_told_before_and_at_a_call() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("c.jsonl"),
        "{\"contents\": \"a\"}\n{\"text\": \"b\"}\n",
    )
    .expect("written");
    let tools = tools("corpus: c.jsonl", folder.path());
    let problem = tools.ready()[0].1.clone().expect_err("a row without text");
    assert!(
        problem.contains("c.jsonl: row 1: column contents holds no text"),
        "{problem}"
    );
    assert_eq!(
        ask(&tools, &json!({"query_list": ["a"]})).await,
        format!("error: {problem}")
    );
    let missing = self::tools("corpus: none.jsonl", folder.path());
    assert!(
        missing.ready()[0]
            .1
            .clone()
            .expect_err("no file")
            .contains("cannot be opened")
    );
}

#[tokio::test]
async fn a_server_is_asked_as_verl_asks_it() {
    let answer = json!({"result": [
        [{"document": {"id": "1", "contents": "\"Lathe\"\nIt turns."}, "score": 2.5}],
        [{"contents": "Mill\nIt grinds."}],
    ]});
    let server = Server::start(&[
        ("200 OK", &answer.to_string()),
        ("200 OK", "{\"result\": []}"),
        ("200 OK", "{}"),
    ]);
    // As it stands in a YAML written for verl.
    let text = format!(
        "tools: [{{class_name: verl.tools.search_tool.SearchTool, config: {{retrieval_service_url: \"{}/retrieve\", \
         num_workers: 120, rate_limit: 120, timeout: 30, topk: 5, type: native}}}}]",
        server.url
    );
    let tools = ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default()).expect("a tool");
    let queries = json!({"query_list": ["lathe", "mill"]});
    assert_eq!(
        ask(&tools, &queries).await,
        "{\"result\": \"Doc 1 (Title: \\\"Lathe\\\")\\nIt turns.\\n---\\nDoc 1 (Title: Mill)\\nIt grinds.\"}"
    );
    assert_eq!(
        ask(&tools, &queries).await,
        "{\"result\": \"No search results found.\"}"
    );
    assert!(
        ask(&tools, &queries)
            .await
            .starts_with("error: the server's answer has no list `result`")
    );
    let received = server.received();
    assert_eq!(received[0].line, "POST /retrieve");
    let body: Value = serde_json::from_str(&received[0].body).expect("JSON");
    assert_eq!(
        body,
        json!({"queries": ["lathe", "mill"], "topk": 5, "return_scores": true})
    );
}
