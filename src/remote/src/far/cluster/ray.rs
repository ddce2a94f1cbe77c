//! Ray, by its Jobs REST API. Its token comes with the conversation, else from where Ray itself looks for it here.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::{JobEnd, JobState};
use crate::scheduler::{ClusterFacts, PartFacts, Ray};
use crate::ssh::quoted;
use crate::wire::{Gpus, Means, SUPERVISE_COMMAND, Token};

/// A head node under load takes seconds to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const MOST_ANSWER_BYTES: u64 = 8 << 20;

/// That of this conversation. Set once: one process answers one conversation.
static TOKEN: OnceLock<Token> = OnceLock::new();

/// Takes the token of a conversation.
pub(in super::super) fn use_token(token: Token) {
    // A second one would be of another conversation, which this process does not hold.
    let _ = TOKEN.set(token);
}

/// As Ray's own programs find it: `RAY_AUTH_TOKEN`, the file that `RAY_AUTH_TOKEN_PATH` names, `~/.ray/auth_token`.
pub fn own_token(variable: Option<&str>) -> Option<Token> {
    let of = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|text| !text.trim().is_empty())
    };
    if let Some(name) = variable {
        return of(name).map(Token);
    }
    let from_file = || {
        let path = of("RAY_AUTH_TOKEN_PATH")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".ray/auth_token")))?;
        std::fs::read_to_string(path)
            .ok()
            .filter(|text| !text.trim().is_empty())
    };
    of("RAY_AUTH_TOKEN")
        .or_else(from_file)
        .map(|text| Token(text.trim().to_owned()))
}

/// An answer: its status, and its text.
type Answer = (u16, String);

fn ask(ray: &Ray, path: &str, body: Option<&Value>) -> Result<Answer, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .build()
        .into();
    let url = format!("{}{path}", ray.address.trim_end_matches('/'));
    let token = TOKEN.get().cloned().or_else(|| own_token(None));
    let bearer = token.map(|token| format!("Bearer {}", token.0));
    let told = |error: ureq::Error| {
        format!(
            "Ray does not answer at {}: {error}; is it started (ray start --head), and is `address` in targets.yaml its dashboard's as \
             seen from here?",
            ray.address
        )
    };
    let answered = if let Some(body) = body {
        let mut request = agent.post(&url).header("content-type", "application/json");
        if let Some(bearer) = &bearer {
            request = request.header("authorization", bearer);
        }
        request.send(body.to_string())
    } else {
        let mut request = agent.get(&url);
        if let Some(bearer) = &bearer {
            request = request.header("authorization", bearer);
        }
        request.call()
    };
    let mut response = answered.map_err(told)?;
    let status = response.status().as_u16();
    let text = response
        .body_mut()
        .with_config()
        .limit(MOST_ANSWER_BYTES)
        .read_to_string()
        .map_err(told)?;
    match status {
        401 => Err(format!(
            "Ray at {} wants a token ({}): set RAY_AUTH_TOKEN where you start lathe, or name the variable that holds it as `token` in \
             targets.yaml",
            ray.address,
            last_line(&text)
        )),
        403 => Err(format!(
            "Ray at {} refuses the token ({}): it is another cluster's, or an old one",
            ray.address,
            last_line(&text)
        )),
        _ => Ok((status, text)),
    }
}

/// Of a traceback, that is what happened.
fn last_line(text: &str) -> String {
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| line.len() > 1)
        .unwrap_or("no reason given");
    let line: String = line.chars().take(300).collect();
    line.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The whole line for the shell that Ray starts it with.
fn entrypoint(program: &Path, run: &Path) -> Result<String, String> {
    let word = |path: &Path| {
        path.to_str().and_then(quoted).ok_or_else(|| {
            format!(
                "{} cannot stand in a command: it holds a line break or no text",
                path.display()
            )
        })
    };
    Ok(format!(
        "exec {} {SUPERVISE_COMMAND} {}",
        word(program)?,
        word(run)?
    ))
}

/// Submits a run under its own name. One that is there already is that one: an answer got lost on its way.
pub(super) fn submit(
    ray: &Ray,
    program: &Path,
    run: &Path,
    name: &str,
    means: &Means,
) -> Result<String, String> {
    let entrypoint = entrypoint(program, run)?;
    let mut body = json!({
        "entrypoint": entrypoint,
        "submission_id": name,
        "metadata": {"lathe": name},
        "entrypoint_num_cpus": ray.cpus.unwrap_or(0),
    });
    let gpus = match &means.gpus {
        Gpus::AsIs | Gpus::None => 0,
        Gpus::Free(count) => *count,
        Gpus::These(_) => {
            return Err(
                "Ray chooses which GPUs a job gets: give a number as `gpus` in targets.yaml"
                    .to_owned(),
            );
        }
    };
    if gpus > 0 {
        body["entrypoint_num_gpus"] = gpus.into();
    }
    if let Some(bytes) = ray.memory_bytes {
        body["entrypoint_memory"] = bytes.into();
    }
    if !ray.resources.is_empty() {
        body["entrypoint_resources"] = json!(ray.resources);
    }
    if !means.environment.is_empty() {
        body["runtime_env"] = json!({"env_vars": &means.environment});
    }
    let (status, text) = ask(ray, "/api/jobs/", Some(&body))?;
    if (200..300).contains(&status) {
        return Ok(name.to_owned());
    }
    if text.contains("already exists")
        && let Ok(found) = job(ray, name)
        && found.is_some_and(|found| found["entrypoint"] == body["entrypoint"])
    {
        return Ok(name.to_owned());
    }
    Err(format!(
        "Ray refuses the job (status {status}): {}",
        last_line(&text)
    ))
}

/// The job as Ray tells it; None: it knows none of that name.
fn job(ray: &Ray, id: &str) -> Result<Option<Value>, String> {
    let (status, text) = ask(ray, &format!("/api/jobs/{}", escaped(id)), None)?;
    match status {
        200 => serde_json::from_str(&text).map(Some).map_err(|_| {
            format!(
                "what Ray says of job {id} is no JSON: {}; is `address` its dashboard's?",
                last_line(&text)
            )
        }),
        404 => Ok(None),
        _ => Err(format!(
            "Ray cannot tell of job {id} (status {status}): {}",
            last_line(&text)
        )),
    }
}

/// Of a path in an address.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

pub(super) fn state(ray: &Ray, id: &str) -> JobState {
    match job(ray, id) {
        Ok(Some(job)) => judged(&job, id),
        Ok(None) => JobState::Forgotten,
        Err(reason) => JobState::Unknown { reason },
    }
}

fn judged(job: &Value, id: &str) -> JobState {
    let text = |key: &str| job[key].as_str().unwrap_or("").trim().to_owned();
    let message = text("message");
    let first = message.lines().next().unwrap_or("").to_owned();
    match text("status").as_str() {
        "PENDING" => JobState::Waits {
            why: if first.is_empty() {
                "in Ray's queue".to_owned()
            } else {
                format!("in Ray's queue: {first}")
            },
        },
        "RUNNING" => JobState::Runs,
        status => {
            let code = job["driver_exit_code"]
                .as_i64()
                .and_then(|code| i32::try_from(code).ok());
            // A negative code is a signal, as Python tells it.
            let signal = code.filter(|code| *code < 0).map(|code| -code);
            let word = match status {
                "STOPPED" => "was stopped",
                "SUCCEEDED" => "ended",
                _ => "failed",
            };
            let said = match (code, first.as_str()) {
                (Some(code), "") => format!("exit code {code}"),
                (Some(code), _) if first.contains("exit code") => format!("exit code {code}"),
                (_, _) if first.is_empty() => "it gives no reason".to_owned(),
                _ => first.chars().take(300).collect(),
            };
            JobState::Ended(JobEnd {
                reason: format!(
                    "its job {id} {word} (Ray says {status}: {said}), and the run left no word; see supervisor.log beside it, `ray job \
                     logs {id}`, and whether Ray's nodes see its directory and lathe's program"
                ),
                code: code.filter(|code| *code >= 0),
                signal,
                is_out_of_memory: message.contains("OutOfMemory")
                    || message.contains("running low on memory"),
            })
        }
    }
}

/// Ends it: Ray terminates its process, and kills it three seconds later.
pub(super) fn stop(ray: &Ray, id: &str) -> Result<(), String> {
    let (status, text) = ask(
        ray,
        &format!("/api/jobs/{}/stop", escaped(id)),
        Some(&json!({})),
    )?;
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(format!(
        "Ray cannot stop job {id} (status {status}): {}",
        last_line(&text)
    ))
}

pub(super) fn facts(ray: &Ray) -> ClusterFacts {
    let version = match ask(ray, "/api/version", None) {
        Ok((200, text)) => serde_json::from_str::<Value>(&text).ok().and_then(|value| {
            value["ray_version"]
                .as_str()
                .map(|version| format!("Ray {version}"))
        }),
        Ok((status, text)) => {
            return ClusterFacts {
                problem: Some(format!(
                    "what answers at {} is not Ray's dashboard (status {status}: {}); name that as `address` in targets.yaml",
                    ray.address,
                    last_line(&text)
                )),
                ..ClusterFacts::default()
            };
        }
        Err(reason) => {
            return ClusterFacts {
                problem: Some(reason),
                ..ClusterFacts::default()
            };
        }
    };
    let json = |path: &str| {
        ask(ray, path, None)
            .ok()
            .and_then(|(_, text)| serde_json::from_str::<Value>(&text).ok())
            .unwrap_or_default()
    };
    let (nodes, status) = (
        json("/api/v0/nodes?detail=true"),
        json("/api/cluster_status"),
    );
    ClusterFacts {
        problem: version
            .is_none()
            .then(|| format!("what answers at {} tells no version of Ray", ray.address)),
        version,
        parts: vec![part(&nodes, &status)],
        history: Some("Ray's head node".to_owned()),
    }
}

/// The whole cluster as one part: what its nodes have, and what of it is used by the autoscaler's report, which a new cluster has not
/// made yet.
fn part(nodes: &Value, status: &Value) -> PartFacts {
    let usage = &status["data"]["clusterStatus"]["loadMetricsReport"]["usage"];
    let used = |name: &str| usage[name][0].as_f64().unwrap_or(0.0).max(0.0) as u32;
    let listed = nodes["data"]["result"]["result"].as_array();
    let alive: Vec<&Value> = listed
        .into_iter()
        .flatten()
        .filter(|node| node["state"] == "ALIVE")
        .collect();
    let sum = |name: &str| {
        let each = alive
            .iter()
            .filter_map(|node| node["resources_total"][name].as_f64());
        each.sum::<f64>().max(0.0) as u32
    };
    PartFacts {
        name: "cluster".to_owned(),
        is_default: true,
        is_up: true,
        nodes: alive.len() as u32,
        gpus: sum("GPU"),
        used_gpus: used("GPU"),
        cpus: sum("CPU"),
        used_cpus: used("CPU"),
        ..PartFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// As Ray 2.60 answered.
    fn failed() -> Value {
        json!({"status": "FAILED", "submission_id": "run-a", "driver_exit_code": 7, "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR",
            "message": "Job entrypoint command failed with exit code 7, last available logs (truncated to 20,000 chars):\nRunning\n"})
    }

    #[test]
    fn each_status_of_a_job_is_read() {
        let pending = json!({"status": "PENDING", "message": "Job has not started yet. It may be waiting for resources."});
        assert_eq!(
            judged(&pending, "r"),
            JobState::Waits {
                why: "in Ray's queue: Job has not started yet. It may be waiting for resources."
                    .to_owned()
            }
        );
        assert_eq!(judged(&json!({"status": "RUNNING"}), "r"), JobState::Runs);
        let JobState::Ended(end) = judged(&failed(), "run-a") else {
            panic!("it has failed");
        };
        assert_eq!((end.code, end.signal), (Some(7), None));
        assert!(
            end.reason.contains("Ray says FAILED: exit code 7"),
            "{}",
            end.reason
        );
        let killed = json!({"status": "FAILED", "driver_exit_code": -9, "message": ""});
        let JobState::Ended(end) = judged(&killed, "r") else {
            panic!("it was killed");
        };
        assert_eq!((end.code, end.signal), (None, Some(9)));
        assert!(matches!(
            judged(&json!({"status": "STOPPED"}), "r"),
            JobState::Ended(_)
        ));
        assert!(matches!(judged(&json!({}), "r"), JobState::Ended(_)));
    }

    #[test]
    fn a_traceback_is_told_by_its_last_line_and_a_name_cannot_leave_its_place_in_an_address() {
        let text = "Traceback:\n  File \"x\"\nValueError: Job with submission_id run-a already exists.\n.\n";
        assert_eq!(
            last_line(text),
            "ValueError: Job with submission_id run-a already exists."
        );
        assert_eq!(escaped("a/../b?c=d é"), "a%2F..%2Fb%3Fc%3Dd%20%C3%A9");
    }

    #[test]
    fn the_cluster_is_counted() {
        let node = |state: &str, gpus: u32| json!({"state": state, "resources_total": {"CPU": 8.0, "GPU": gpus}});
        let nodes = json!({"data": {"result": {"result": [node("ALIVE", 8), node("ALIVE", 0), node("DEAD", 8)]}}});
        let status = json!({"data": {"clusterStatus": {"loadMetricsReport": {"usage": {"CPU": [1.0, 16.0], "GPU": [3.0, 8.0]}}}}});
        let part = part(&nodes, &status);
        assert_eq!(
            (
                part.nodes,
                part.gpus,
                part.used_gpus,
                part.cpus,
                part.used_cpus
            ),
            (2, 8, 3, 16, 1)
        );
        assert_eq!(super::part(&json!(null), &json!({"odd": 1})).nodes, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_name_of_a_run_is_one_word_of_the_entrypoint(name in r#"[ '"\\$`!;&|<>(){}*?~#\[\]a-c%=]{1,24}"#) {
            let root = tempfile::tempdir().unwrap();
            let program = root.path().join("it's $(a) program");
            std::fs::write(&program, "#!/bin/sh\nprintf '%s|' \"$@\"\n").unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let run = root.path().join(&name);
            let line = entrypoint(&program, &run).unwrap();
            let output = Command::new("sh").arg("-c").arg(&line).output().unwrap();
            prop_assert_eq!(
                String::from_utf8(output.stdout).unwrap(),
                format!("{SUPERVISE_COMMAND}|{}|", run.display())
            );
        }
    }
}
