//! `launch.engine: verl`: verl is told the experiment, started, followed and its end recorded; here a package that does what verl's
//! entry and its `file` logger do, and nothing else.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::fake_trainer::wait_until;
use super::harness::{Bench, EXPERIMENT};

/// As verl 0.9.1: `FileLogger` opens its file anew and writes a row a step; `LocalLogger` prints a line; arguments are Hydra's.
/// Loads the reward function as verl does. Files in FLAGS change what it does.
const MAIN_PPO: &str = r#"
import importlib.util, json, os, subprocess, sys, time

FLAGS = os.environ.get("FLAGS", ".")

def is_set(name):
    return os.path.exists(os.path.join(FLAGS, name))

def reward(arguments):
    path = arguments.get("reward.custom_reward_function.path")
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location("custom_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compute_score("x", "four", "four", None)

def workers():
    # As Ray's: in a session of its own, its parent gone.
    hidden = "import os, subprocess, sys; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL).pid)"
    out = subprocess.run([sys.executable, "-c", hidden], stdout=subprocess.PIPE, start_new_session=True).stdout
    with open(os.environ["VERL_FILE_LOGGER_PATH"] + ".worker", "wb") as file:
        file.write(out)

def main():
    arguments = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with open(os.environ["VERL_FILE_LOGGER_PATH"] + ".arguments", "w") as out:
        json.dump([sys.argv[1:], os.getcwd(), os.environ.get("SOME_VARIABLE"), os.getpid()], out)
    steps = int(arguments["trainer.total_training_steps"])
    print("Creating file logger")
    rows = open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0)
    for step in range(1, steps + 1):
        data = {"critic/score/mean": step / 10, "training/global_step": step, "timing_s/step": 0.5}
        if reward(arguments) is not None:
            data["reward/own"] = reward(arguments)
        if step == steps:
            data["val-core/x/reward/mean@1"] = 0.75
        rows.write(json.dumps({"step": step, "data": data}).encode() + b"\n")
        print(" - ".join([f"step:{step}"] + [f"{k}:{v}" for k, v in data.items()]), flush=True)
    if is_set("workers"):
        workers()
    if is_set("wait"):
        time.sleep(600)
    if is_set("fail"):
        raise ValueError("a tensor of the wrong shape")

main()
"#;

fn bench(launch: &str) -> Bench {
    let bench = Bench::new();
    install(&bench, launch);
    bench
}

/// A Python package of verl's name, and `verl.yaml`, which is told `launch` too.
pub fn install(bench: &Bench, launch: &str) {
    let package = bench.path("site/verl/trainer");
    fs::create_dir_all(&package).unwrap();
    for file in ["site/verl/__init__.py", "site/verl/trainer/__init__.py"] {
        fs::write(bench.path(file), "").unwrap();
    }
    fs::write(package.join("main_ppo.py"), MAIN_PPO).unwrap();
    let site = bench.path("site");
    let text = format!(
        "{EXPERIMENT}launch:\n  engine: verl\n  verl:\n    env: {{PYTHONPATH: \"{}\", SOME_VARIABLE: 7, FLAGS: \"{}\"}}\n{launch}",
        site.display(),
        bench.path("").display()
    );
    fs::write(bench.path("verl.yaml"), text).unwrap();
}

/// What the entry was called with: arguments, directory, `SOME_VARIABLE`.
pub fn told(run_dir: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(run_dir.join("metrics.jsonl.arguments")).unwrap()).unwrap()
}

#[test]
fn a_run_of_verl_is_followed_to_its_end_like_any_other() {
    let bench = bench("    extra_overrides: [\"+my.key=a b\"]\n");
    let ran = bench.run(["run", "verl.yaml", "--name", "it's", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (
            summary["status"].as_str(),
            summary["summary"]["steps"].as_u64()
        ),
        (Some("finished"), Some(4)),
        "{summary}"
    );
    let run_dir = bench.run_dir();
    let log = fs::read_to_string(run_dir.join("log.txt")).unwrap();
    assert!(
        log.contains("Creating file logger") && log.contains("step:4 - critic/score/mean:0.4"),
        "{log}"
    );

    let told = told(&run_dir);
    let arguments: Vec<&str> = told[0]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    for wanted in [
        "data.train_batch_size=2",
        "actor_rollout_ref.rollout.n=2",
        "algorithm.adv_estimator=grpo",
        "trainer.total_training_steps=4",
        "trainer.experiment_name=\"it's\"",
        "trainer.logger=[console,file]",
        "+my.key=a b",
    ] {
        assert!(arguments.contains(&wanted), "{wanted} in {arguments:?}");
    }
    assert!(
        !arguments
            .iter()
            .any(|argument| argument.starts_with("launch.")),
        "{arguments:?}"
    );
    assert_eq!(told[2], "7");
    let listed = bench.run(["runs", "--json"]).stdout;
    let listed: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!(
        (
            listed["mode"].as_str(),
            listed["status"].as_str(),
            listed["reward"].as_f64()
        ),
        (Some("verl"), Some("finished"), Some(0.75))
    );
}

#[test]
fn a_dry_run_prints_the_command_and_starts_nothing() {
    let bench = bench("");
    let ran = bench.run(["run", "verl.yaml", "--dry-run"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line = ran.stdout.trim();
    assert!(
        line.contains(" python3 -m verl.trainer.main_ppo "),
        "{line}"
    );
    assert!(
        line.contains("/runs/RUN/metrics.jsonl")
            && line.contains("'trainer.logger=[console,file]'"),
        "{line}"
    );
    assert!(!bench.path("runs").exists());
}

#[test]
fn an_error_of_verl_is_the_run_s() {
    let bench = bench("");
    fs::write(bench.path("fail"), "").unwrap();
    let ran = bench.run(["run", "verl.yaml", "--plain"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let events = fs::read_to_string(bench.run_dir().join("events.jsonl")).unwrap();
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(
        (last["event"].as_str(), last["status"].as_str()),
        (Some("run_ended"), Some("failed"))
    );
    assert_eq!(
        last["reason"],
        "verl ended with exit code 1: ValueError: a tensor of the wrong shape"
    );
    assert_eq!(last["steps"], 4);
}

#[test]
fn a_detached_run_of_verl_goes_on_and_is_stopped_by_name() {
    let bench = bench("");
    fs::write(bench.path("wait"), "").unwrap();
    let ran = bench.run(["run", "verl.yaml", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let run_dir = bench.run_dir();
    let events = || fs::read_to_string(run_dir.join("events.jsonl")).unwrap_or_default();
    wait_until("four steps", || {
        events().contains("\"step_ended\",\"step\":4,")
    });
    let stopped = bench.run(["stop", "latest"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    wait_until("its end", || events().contains("\"run_ended\""));
    let events = events();
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(
        (last["status"].as_str(), last["exit_code"].as_i64()),
        (Some("stopped"), Some(130))
    );
}

#[test]
fn what_verl_cannot_be_told_is_said_and_what_would_train_something_else_is_refused() {
    let bench = bench("");
    let text = fs::read_to_string(bench.path("verl.yaml")).unwrap();
    let guarded = text.replace("trainer:\n", "trainer:\n  threads: 2\n  guards:\n    - {name: kl, metric: actor/ppo_kl, above: 0.1, action: [stop]}\n");
    fs::write(bench.path("guarded.yaml"), guarded).unwrap();
    let ran = bench.run(["run", "guarded.yaml", "--dry-run"]);
    assert!(
        ran.stderr
            .contains("trainer.guards is not sent to verl: nothing watches a run of verl"),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("trainer.threads is not sent to verl"),
        "{ran:?}"
    );
    let ran = bench.run(["run", "verl.yaml", "reward.scorer=exact", "--dry-run"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(
        ran.stderr
            .contains("reward.scorer is not sent to verl: verl chooses its scorer by data_source"),
        "{ran:?}"
    );
    let ran = bench.run(["run", "verl.yaml", "launch.verl.python=/nowhere/python"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("cannot start /nowhere/python")
            && ran.stderr.contains("launch.verl.python"),
        "{ran:?}"
    );
    assert!(!bench.path("runs").exists(), "nothing was made");
}

/// A process that is there and not a zombie.
fn lives(pid: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A detached run of verl with a worker in a session of its own whose parent has ended: what watches, verl, the worker.
fn with_a_worker(bench: &Bench) -> (PathBuf, [i64; 3]) {
    for flag in ["wait", "workers"] {
        fs::write(bench.path(flag), "").unwrap();
    }
    let ran = bench.run(["run", "verl.yaml", "--detach", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let detached = ran.last_json();
    let run_dir = PathBuf::from(detached["run_dir"].as_str().unwrap());
    let worker = || {
        let text = fs::read_to_string(run_dir.join("metrics.jsonl.worker")).ok()?;
        text.trim().parse::<i64>().ok()
    };
    wait_until("verl has its worker", || worker().is_some());
    let verl = told(&run_dir)[3].as_i64().unwrap();
    let pids = [detached["pid"].as_i64().unwrap(), verl, worker().unwrap()];
    assert!(pids.iter().all(|pid| lives(*pid)), "{pids:?}");
    (run_dir, pids)
}

fn kill(pid: i64) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn verl_and_all_of_its_workers_end_with_what_watches_over_them() {
    let bench = bench("");
    let (_, [watcher, verl, worker]) = with_a_worker(&bench);
    kill(watcher);
    wait_until("nothing of it is left", || !lives(verl) && !lives(worker));
    wait_until("it is known to be dead", || {
        let listed = bench.run(["runs", "--json"]).stdout;
        let listed: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
        listed["status"] == "dead"
    });
}

#[test]
fn verl_and_all_of_its_workers_end_with_the_leash_that_holds_them() {
    let bench = bench("");
    let (run_dir, [_, verl, worker]) = with_a_worker(&bench);
    let stat = fs::read_to_string(format!("/proc/{verl}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let leash: i64 = rest.split_whitespace().nth(1).unwrap().parse().unwrap();
    kill(leash);
    wait_until("nothing of it is left", || !lives(verl) && !lives(worker));
    let events = || fs::read_to_string(run_dir.join("events.jsonl")).unwrap();
    wait_until("its end is told", || {
        events().contains("verl was killed (SIGKILL)")
    });
}

#[test]
fn a_run_that_is_stopped_leaves_no_worker_behind() {
    let bench = bench("");
    let (run_dir, [_, verl, worker]) = with_a_worker(&bench);
    let stopped = bench.run(["stop", "latest"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    wait_until("nothing of it is left", || !lives(verl) && !lives(worker));
    let events = || fs::read_to_string(run_dir.join("events.jsonl")).unwrap();
    wait_until("its end is told", || {
        events().contains("\"status\":\"stopped\"")
    });
}
