//! A server that gives its answers one after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// `POST /path?query`
    pub line: String,
    /// By name in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }
}

pub struct Server {
    pub url: String,
    received: Arc<Mutex<Vec<Received>>>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Each answer is a status line's end and a body, such as `200 OK` and `{}`; each goes to a connection of its own.
    pub fn start(answers: &[(&str, &str)]) -> Self {
        Self::raw(
            answers
                .iter()
                .map(|(status, body)| {
                    format!(
                        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    )
                })
                .collect(),
        )
    }

    /// Answers as they go over the wire.
    pub fn raw(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&received);
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a connection");
                let request = read(&stream);
                seen.lock().expect("unpoisoned").push(request);
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

    /// Once every answer was fetched.
    pub fn received(self) -> Vec<Received> {
        self.thread.join().expect("every answer was fetched");
        self.received.lock().expect("unpoisoned").clone()
    }
}

fn read(stream: &TcpStream) -> Received {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).expect("a request");
    let line = first.rsplit_once(" HTTP/").expect("a version").0.to_owned();
    let mut headers: Vec<(String, String)> = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    Received {
        line,
        headers,
        body: String::from_utf8(body).expect("text"),
    }
}
