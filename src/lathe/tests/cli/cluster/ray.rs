//! Ray's Jobs API, played by a thread: what it is asked, with which token, and what comes of its answers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use runlog::event::RunStatus;
use serde_json::{Value, json};

use super::queue::{Cluster, assert_no_file_has};
use crate::fake_trainer::{Act, checkpoint, ended, learning, started, step};

const TOKEN: &str = "hunter2-0451-of-ray";

#[derive(Default)]
pub struct State {
    pub jobs: BTreeMap<String, Job>,
    /// Jobs wait for resources.
    is_full: bool,
    /// A job that runs is told to wait all the same.
    is_late: bool,
    asked: Vec<Value>,
}

pub struct Job {
    entrypoint: String,
    child: Option<Child>,
    code: Option<i32>,
}

/// A dashboard.
pub struct Api {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Api {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        // Ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &shared);
            }
        });
        Self { address, state }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        for job in self.lock().jobs.values_mut() {
            if let Some(child) = &mut job.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length, mut token) = (String::new(), 0, None);
    input.read_line(&mut head).unwrap();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let (status, text) = match token.as_deref() {
        None => (401, "Unauthorized: Missing authentication token".to_owned()),
        Some(TOKEN) => {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            route(method, path, body, &mut state.lock().unwrap())
        }
        Some(_) => (403, "Forbidden: Invalid authentication token".to_owned()),
    };
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
}

fn route(method: &str, path: &str, body: Value, state: &mut State) -> (u16, String) {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method, &parts[..]) {
        ("GET", ["api", "version"]) => (200, json!({"ray_version": "2.60.0"}).to_string()),
        ("GET", ["api", "cluster_status"]) => {
            let report = json!({"autoscalerReport": {"activeNodes": {"a": 1}}, "loadMetricsReport": {"usage": {"CPU": [1.0, 8.0], "GPU": [3.0, 4.0]}}});
            (200, json!({"data": {"clusterStatus": report}}).to_string())
        }
        ("GET", ["api", "v0", "nodes?detail=true"]) => {
            let node = json!({"state": "ALIVE", "resources_total": {"CPU": 8.0, "GPU": 4.0}});
            (
                200,
                json!({"data": {"result": {"result": [node]}}}).to_string(),
            )
        }
        ("POST", ["api", "jobs"]) => {
            let id = body["submission_id"].as_str().unwrap().to_owned();
            if state.jobs.contains_key(&id) {
                return (
                    500,
                    format!(
                        "Traceback:\nValueError: Job with submission_id {id} already exists.\n.\n"
                    ),
                );
            }
            let entrypoint = body["entrypoint"].as_str().unwrap().to_owned();
            let child = (!state.is_full).then(|| start(&entrypoint, &body));
            state.jobs.insert(
                id.clone(),
                Job {
                    entrypoint,
                    child,
                    code: None,
                },
            );
            state.asked.push(body);
            (200, json!({"job_id": id, "submission_id": id}).to_string())
        }
        ("GET", ["api", "jobs", id]) => match state.jobs.get_mut(*id) {
            None => (404, format!("Job {id} does not exist")),
            Some(job) => {
                if let Some(child) = &mut job.child
                    && let Ok(Some(status)) = child.try_wait()
                {
                    job.code = status.code();
                    job.child = None;
                }
                let (status, message) = match (&job.child, job.code) {
                    (Some(_), _) if state.is_late => ("PENDING", "Job has not started yet.".to_owned()),
                    (Some(_), _) => ("RUNNING", String::new()),
                    (None, None) => ("PENDING", "Job has not started yet. It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available.".to_owned()),
                    (None, Some(0)) => ("SUCCEEDED", String::new()),
                    (None, Some(code)) => ("FAILED", format!("Job entrypoint command failed with exit code {code}, last available logs")),
                };
                (200, json!({"status": status, "entrypoint": job.entrypoint, "message": message, "driver_exit_code": job.code}).to_string())
            }
        },
        ("POST", ["api", "jobs", _, "stop"]) => (200, json!({"stopped": true}).to_string()),
        _ => (404, "404: Not Found".to_owned()),
    }
}

fn start(entrypoint: &str, body: &Value) -> Child {
    let variables = body["runtime_env"]["env_vars"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    Command::new("sh")
        .arg("-c")
        .arg(entrypoint)
        .envs(
            variables
                .iter()
                .map(|(name, value)| (name, value.as_str().unwrap())),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub fn cluster() -> (Cluster, Api) {
    let api = Api::start();
    let mut cluster = Cluster::bare();
    cluster
        .variables
        .push(("OUR_TOKEN".to_owned(), TOKEN.to_owned()));
    cluster.write_targets(
        "head",
        &format!(
            "  kind: ray\n  address: {}\n  token: OUR_TOKEN\n  cpus: 2\n  memory: 1G\n",
            api.address
        ),
    );
    (cluster, api)
}

#[test]
fn a_run_is_a_job_of_ray_s_under_its_own_name_and_its_copy_is_the_same() {
    let (cluster, api) = cluster();
    cluster.bench.trainer(&learning());
    let ran = cluster.run(&["run", "toy.yaml", "--on", "head", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    cluster.assert_same();
    let asked = api.lock().asked.pop().unwrap();
    let name = cluster
        .bench
        .run_dir()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(asked["submission_id"], name);
    assert_eq!(
        (&asked["entrypoint_num_cpus"], &asked["entrypoint_memory"]),
        (&json!(2), &json!(1 << 30))
    );
    assert_eq!(asked.get("entrypoint_num_gpus"), None);
    for folder in ["runs", "far"] {
        assert_no_file_has(&cluster.bench.path(folder), TOKEN);
    }
    assert!(
        !asked.to_string().contains(TOKEN)
            && !ran.stdout.contains(TOKEN)
            && !ran.stderr.contains(TOKEN)
    );
}

#[test]
fn a_job_that_waits_says_why_and_leaves_the_queue_when_it_is_told_to() {
    let (cluster, api) = cluster();
    cluster.bench.trainer(&learning());
    api.lock().is_full = true;
    let standing = cluster.detached("head", "one")["standing"].to_string();
    assert!(
        standing.contains(
            "it waits in Ray's queue: Job has not started yet. It may be waiting for resources"
        ),
        "{standing}"
    );
    let ran = cluster.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["follow", "latest", "--json"]);
    let reason = ran.last_json()["reason"].to_string();
    assert!(
        reason.contains("taken out of Ray's queue before it began"),
        "{reason}"
    );
    // Ray starts it all the same: it does not begin.
    let name = cluster
        .bench
        .run_dir()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let entrypoint = api.lock().jobs[&name].entrypoint.clone();
    let mut late = start(&entrypoint, &Value::Null);
    assert!(late.wait().unwrap().success());
    assert!(!cluster.run_there().join("events.jsonl").exists());
}

#[test]
fn a_run_is_stopped_through_the_folder_that_both_share() {
    let (cluster, api) = cluster();
    // As Ray's word of a job that has just begun.
    api.lock().is_late = true;
    cluster.bench.trainer(&[
        started(4),
        step(1, 0.5),
        Act::WaitForTerminate,
        checkpoint(1),
        ended(RunStatus::Stopped, 130, "stopped on request", 1),
        Act::Exit(130),
    ]);
    assert_eq!(cluster.detached("head", "one")["standing"], "it runs");
    let ran = cluster.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    cluster.assert_same();
}

#[test]
fn a_run_of_verl_is_a_job_of_ray_s_and_is_stopped_through_the_folder() {
    let (cluster, _api) = cluster();
    crate::verl::install(&cluster.bench, "");
    let ran = cluster.run(&["run", "verl.yaml", "--on", "head", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["summary"]["steps"], 4);
    cluster.assert_same();
    fs::remove_dir_all(cluster.bench.path("runs")).unwrap();
    fs::write(cluster.bench.path("wait"), "").unwrap();
    let ran = cluster.run(&["run", "verl.yaml", "--on", "head", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "stopped");
}

#[test]
fn a_job_that_fails_before_the_run_says_its_exit_code() {
    let (cluster, api) = cluster();
    cluster.bench.trainer(&learning());
    api.lock().is_full = true;
    cluster.detached("head", "one");
    let name = cluster
        .bench
        .run_dir()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    api.lock().jobs.get_mut(&name).unwrap().code = Some(127);
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let reason = ran.last_json()["reason"].to_string();
    assert!(
        reason.contains("Ray says FAILED: exit code 127"),
        "{reason}"
    );
    assert!(
        reason.contains("whether Ray's nodes see its directory"),
        "{reason}"
    );
}

#[test]
fn a_missing_or_wrong_token_is_told_with_what_to_do_and_never_shown() {
    let (mut cluster, _api) = cluster();
    cluster.bench.trainer(&learning());
    cluster.variables.clear();
    let ran = cluster.run(&["run", "toy.yaml", "--on", "head", "--detach"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("wants a token") && ran.stderr.contains("RAY_AUTH_TOKEN"),
        "{ran:?}"
    );
    cluster
        .variables
        .push(("OUR_TOKEN".to_owned(), "other-secret".to_owned()));
    let ran = cluster.run(&["doctor", "head"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("refuses the token"), "{ran:?}");
    assert!(!ran.stdout.contains("other-secret"), "{ran:?}");
}

#[test]
fn the_doctor_tells_what_the_cluster_has() {
    let (cluster, api) = cluster();
    cluster.bench.program("trainer", "echo lathe-trainer 0.1.0");
    let ran = cluster.run(&["doctor", "head"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("Ray 2.60.0 answers"), "{ran:?}");
    assert!(
        ran.stdout
            .contains("1 nodes, 1 of 4 GPUs free, 7 of 8 processors free"),
        "{ran:?}"
    );
    assert!(cluster.run(&["targets"]).stdout.contains(&api.address));
    fs::write(
        cluster.bench.path("targets.yaml"),
        "head: {kind: ray, folder: far, address: \"http://127.0.0.1:9\"}\n",
    )
    .unwrap();
    let ran = cluster.run(&["doctor", "head"]);
    assert!(
        ran.stdout
            .contains("Ray does not answer at http://127.0.0.1:9"),
        "{ran:?}"
    );
}
