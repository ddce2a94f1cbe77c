use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use experiment::arms::Judged;

use super::super::scorers::sample;
use super::*;

/// What a server was sent.
#[derive(Debug, Clone, PartialEq)]
struct Received {
    path: String,
    authorization: Option<String>,
    body: Value,
}

/// A server that gives its answers one after the other: raw, each to a connection of its own; it ends with the last.
struct Server {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&received);
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().expect("a connection");
                let request = read(&stream);
                seen.lock().expect("unpoisoned").push(request);
                let mut stream = stream;
                // A client that has heard enough may be gone.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self {
            url,
            received,
            thread,
        }
    }

    fn received(self) -> Vec<Received> {
        self.thread.join().expect("every answer was fetched");
        self.received.lock().expect("unpoisoned").clone()
    }
}

fn read(stream: &TcpStream) -> Received {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a request");
    let path = line.split(' ').nth(1).expect("a path").to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length"),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    Received {
        path,
        authorization,
        body: serde_json::from_slice(&body).expect("JSON"),
    }
}

fn response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn settings(url: String) -> Settings {
    Settings {
        url,
        ..Settings::default()
    }
}

const LIMIT: Duration = Duration::from_secs(20);

async fn score(scorer: &dyn Scorer) -> Result<Score, String> {
    let mut transcript = sample("it is 42", json!("42"));
    transcript.data_source = "my/data".to_owned();
    transcript.messages[0] = crate::message::Message::new("user", "six times seven?");
    scorer
        .score(&transcript)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_reward_server_gets_the_dialogue_and_gives_a_number_or_an_object() {
    let server = Server::start(vec![
        response("200 OK", "0.5"),
        response(
            "200 OK",
            "{\"score\": 0.75, \"acc\": true, \"why\": \"x\", \"depth\": 2}",
        ),
    ]);
    let scorer = Http::new(
        &settings(format!("{}/score?v=1", server.url)),
        Sees::ModelText,
        LIMIT,
    )
    .expect("a client");
    assert_eq!(score(&scorer).await, Ok(Score::new(0.5)));
    let parts = BTreeMap::from([("acc".to_owned(), 1.0), ("depth".to_owned(), 2.0)]);
    assert_eq!(
        score(&scorer).await,
        Ok(Score {
            value: 0.75,
            parts,
            says: None
        })
    );
    let received = server.received();
    assert_eq!(
        received[0],
        Received {
            path: "/score?v=1".to_owned(),
            authorization: None,
            body: json!({"data_source": "my/data", "solution_str": "it is 42", "ground_truth": "42", "extra_info": null}),
        }
    );
}

#[tokio::test]
async fn what_is_worth_another_attempt_gets_one_and_the_rest_is_an_error() {
    let server = Server::start(vec![
        response("503 Busy", "wait"),
        response("429 Slow", ""),
        response("200 OK", "1"),
    ]);
    let scorer =
        Http::new(&settings(server.url.clone()), Sees::ModelText, LIMIT).expect("a client");
    assert_eq!(score(&scorer).await, Ok(Score::new(1.0)));
    assert_eq!(server.received().len(), 3);

    for (answer, problem) in [
        (
            response("400 Bad", "no such field"),
            "status 400: no such field",
        ),
        (response("302 Found", ""), "status 302: "),
        (
            response("200 OK", "<html>"),
            "the answer is not JSON: <html>",
        ),
        (
            response("200 OK", "{\"reward\": 1}"),
            "the server's answer is neither a number nor",
        ),
        (
            response("200 OK", &"1".repeat(2000)),
            "the answer is longer than 1000 bytes",
        ),
    ] {
        let server = Server::start(vec![answer]);
        let mut settings = settings(server.url.clone());
        settings.max_response_bytes = 1000;
        let scorer = Http::new(&settings, Sees::ModelText, LIMIT).expect("a client");
        let error = score(&scorer).await.expect_err("no score");
        assert!(error.contains(problem), "{error}");
        assert_eq!(server.received().len(), 1);
    }

    // Nobody there, to the end.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(format!("http://{}", free.local_addr().expect("an address")));
    drop(free);
    settings.retries = 1;
    let scorer = Http::new(&settings, Sees::ModelText, LIMIT).expect("a client");
    let error = score(&scorer).await.expect_err("no server");
    assert!(error.starts_with("http://127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut settings = settings(format!(
        "http://{}",
        listener.local_addr().expect("an address")
    ));
    settings.retries = 0;
    let scorer =
        Http::new(&settings, Sees::ModelText, Duration::from_millis(200)).expect("a client");
    let error = score(&scorer).await.expect_err("no answer");
    assert!(error.contains("timeout"), "{error}");
}

#[tokio::test]
async fn a_key_comes_from_the_environment_and_is_said_to_nobody_else() {
    // PATH is there in every environment, and its value stands in for a key.
    let key = std::env::var("PATH").expect("it is set");
    let server = Server::start(vec![
        response("200 OK", "1"),
        response("401 No", &format!("bad key {key}")),
    ]);
    let mut settings = settings(format!("{}/secret-path?token=abc", server.url));
    settings.key_env = Some("PATH".to_owned());
    let scorer = Http::new(&settings, Sees::ModelText, LIMIT).expect("a client");
    assert_eq!(score(&scorer).await, Ok(Score::new(1.0)));
    let error = score(&scorer).await.expect_err("refused");
    assert!(error.ends_with("status 401: bad key ***"), "{error}");
    let said = format!("{error} {scorer:?}");
    for secret in [key.as_str(), "secret-path", "abc"] {
        assert!(!said.contains(secret), "{said}");
    }
    assert_eq!(
        server.received()[0].authorization,
        Some(format!("Bearer {key}"))
    );
    settings.key_env = Some("LATHE_NO_SUCH_KEY".to_owned());
    let error = Http::new(&settings, Sees::ModelText, LIMIT).expect_err("no key");
    assert_eq!(
        error,
        "options: key_env names the environment variable LATHE_NO_SUCH_KEY, which is not set here"
    );
}

#[tokio::test]
async fn tool_text_leaves_the_machine_only_for_a_scorer_that_sees_it() {
    let mut transcript = sample("it is 42", json!("42"));
    transcript
        .messages
        .push(crate::message::Message::new("tool", "hidden"));
    for (sees, is_sent) in [(Sees::ModelText, false), (Sees::Dialogue, true)] {
        let server = Server::start(vec![response("200 OK", "1")]);
        let scorer = Http::new(&settings(server.url.clone()), sees, LIMIT).expect("a client");
        scorer.score(&transcript).await.expect("a score");
        let body = server.received()[0].body.to_string();
        assert_eq!(body.contains("hidden"), is_sent, "{body}");
    }
}

fn said(text: &str) -> String {
    let body = json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    response("200 OK", &body.to_string())
}

#[tokio::test]
async fn a_chat_model_rates_the_answer_and_the_last_rating_counts() {
    let server = Server::start(vec![
        said("At first [[1]], but yes: Rating: [[10]]"),
        said("[[5.5]]"),
    ]);
    let judge = Judge::new(
        Judged {
            url: format!("{}/v1/chat/completions", server.url),
            model: "judge-1".to_owned(),
            system: Some("Be strict.".to_owned()),
            template: "Q {{question}} T {{ truth }} S {{data_source}} A {{answer}} {{other}} {{"
                .to_owned(),
            ..Judged::default()
        },
        Sees::ModelText,
        LIMIT,
    )
    .expect("a judge");
    let first = score(&judge).await.expect("a score");
    assert_eq!((first.value, first.parts["rating"]), (1.0, 10.0));
    assert_eq!(score(&judge).await.expect("a score").value, 0.5);
    let received = server.received();
    assert_eq!(received[0].path, "/v1/chat/completions");
    assert_eq!(
        received[0].body,
        json!({
            "model": "judge-1",
            "messages": [
                {"role": "system", "content": "Be strict."},
                {"role": "user", "content": "Q six times seven? T 42 S my/data A it is 42 {{other}} {{"},
            ],
            "temperature": 0.0,
            "max_tokens": 512,
        })
    );
}

#[tokio::test]
async fn a_judge_that_rates_nothing_or_out_of_range_gives_no_score() {
    for (text, problem) in [
        (
            "I like it",
            "the judge gave no rating that the pattern finds; it ended: I like it",
        ),
        ("[[11]]", "the judge's rating is 11; expected 1 to 10"),
    ] {
        let server = Server::start(vec![said(text)]);
        let settings = Judged {
            url: server.url.clone(),
            model: "m".to_owned(),
            ..Judged::default()
        };
        let judge = Judge::new(settings, Sees::ModelText, LIMIT).expect("a judge");
        assert_eq!(score(&judge).await, Err(problem.to_owned()));
        server.received();
    }
    let no_group = Judged {
        pattern: "x".to_owned(),
        ..Judged::default()
    };
    assert!(Judge::new(no_group, Sees::ModelText, LIMIT).is_err());
}

#[tokio::test]
async fn a_judge_that_compares_gets_the_other_answer_or_gives_no_score() {
    let settings = Judged {
        url: "http://127.0.0.1:9".to_owned(),
        model: "m".to_owned(),
        template: "A {{answer}} B {{ reference }}".to_owned(),
        ..Judged::default()
    };
    let judge = Judge::new(settings, Sees::ModelText, LIMIT).expect("a judge");
    assert!(judge.compares());
    let mut seen = sample("it is 42", json!("42"));
    let error = judge.request(&seen).expect_err("there is no other");
    assert!(
        error
            .to_string()
            .contains("extra_info.reference, which this row lacks"),
        "{error}"
    );
    seen.extra_info = json!({"reference": "it is {{answer}}"});
    let request = judge.request(&seen).expect("both are there");
    assert_eq!(
        request["messages"][0]["content"],
        "A it is 42 B it is {{answer}}"
    );
}

#[tokio::test]
async fn an_answer_cannot_have_the_truth_put_into_it() {
    let settings = Judged {
        url: "http://127.0.0.1:9".to_owned(),
        model: "m".to_owned(),
        ..Judged::default()
    };
    let judge = Judge::new(settings, Sees::ModelText, LIMIT).expect("a judge");
    let request = judge
        .request(&sample("it is {{truth}}", json!("42")))
        .expect("it has all it needs");
    let prompt = request["messages"][0]["content"].as_str().expect("text");
    assert!(prompt.contains("it is {{truth}}"), "{prompt}");
}
