//! A run whose sessions wait for a tool: `lathe ctl RUN status` says for what, who, how long, and until when.

use super::*;

/// Every call waits until nobody holds the lock any more, then answers.
fn slow_calculator(folder: &Path) -> (fs::File, PathBuf) {
    let lock = folder.join("lock");
    let held = fs::File::create(&lock).expect("writable");
    held.lock().expect("nobody else has it");
    let tools = folder.join("slow.yaml");
    let yaml = format!(
        r#"tools:
  - class_name: command
    config:
      command: [sh, -c, "cat > /dev/null; flock --shared '{lock}' true; echo 42"]
      process: call
      timeout: 600s
      concurrency: 64
    tool_schema:
      type: function
      function:
        name: calculator
        description: Evaluates an arithmetic expression exactly.
        parameters:
          type: object
          properties:
            expression:
              type: string
              description: "Numbers with + - * / and parentheses, e.g. (63*48)-34."
          required: [expression]
"#,
        lock = lock.display()
    );
    fs::write(&tools, yaml).expect("writable");
    (held, tools)
}

/// Asks until the answer is as wanted, and gives it.
fn status_where(runs: &Path, more: &[&str], is_it: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        let output = lathe(runs, &[&["ctl", "latest", "status"], more].concat())
            .output()
            .expect("lathe starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if is_it(&text) {
            assert_eq!(output.status.code(), Some(0));
            return text;
        }
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "last: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_slow_tool_is_named_by_ctl_status_with_who_waits_how_long_and_until_when() {
    if trainer().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let runs = root.path().join("runs");
    let (held, tools) = slow_calculator(root.path());
    let tools = format!(
        "actor_rollout_ref.rollout.multi_turn.tool_config_path={}",
        tools.display()
    );
    let mut arguments = vec!["run", "experiments/quickstart.yaml", &tools];
    arguments.extend(SHORT);
    arguments.extend(["trainer.test_freq=-1", "trainer.val_before_train=false"]);
    let mut child = lathe(&runs, &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lathe starts");

    let wait = "waits for tool calculator: ";
    let text = status_where(&runs, &[], |text| text.contains(wait));
    let line = text
        .lines()
        .find(|line| line.contains(wait))
        .expect("just found");
    for part in [
        " session",
        "the oldest for ",
        " s (train-",
        "row ",
        "given up in ",
    ] {
        assert!(line.contains(part), "{line}");
    }
    let json = status_where(&runs, &["--json"], |text| text.contains("tool calculator"));
    let status: Value = serde_json::from_str(&json).expect("one JSON object");
    let wait = status["waits"]
        .as_array()
        .and_then(|waits| waits.iter().find(|wait| wait["name"] == "tool calculator"))
        .expect("it is among the waits");
    assert!(wait["sessions"].as_u64().expect("a count") >= 1, "{wait}");
    assert!(
        wait["dialogue"]
            .as_str()
            .expect("a name")
            .starts_with("train-"),
        "{wait}"
    );
    let left_s = wait["left_s"].as_f64().expect("it has a deadline");
    assert!(
        wait["age_s"].as_f64().is_some_and(|age_s| age_s >= 0.0),
        "{wait}"
    );
    assert!((0.0..=600.0).contains(&left_s), "{wait}");
    assert_eq!(status["step"], 0, "nothing can be trained meanwhile");

    // The tool answers: the run goes on, and nobody waits for it for long.
    held.unlock().expect("we hold it");
    let run = wait_for_a_step(&runs, &mut child);
    let stopped = lathe(&runs, &["ctl", "latest", "stop"])
        .output()
        .expect("lathe starts");
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    child.wait().expect("our child");
    assert!(run.join("checkpoints").is_dir());
}

#[test]
fn dialogues_that_wait_for_a_tool_take_no_place_from_the_next_batch() {
    if trainer().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let runs = root.path().join("runs");
    let (held, tools) = slow_calculator(root.path());
    let tools = format!(
        "actor_rollout_ref.rollout.multi_turn.tool_config_path={}",
        tools.display()
    );
    let mut arguments = vec!["run", "experiments/quickstart.yaml", &tools];
    arguments.extend(SHORT);
    arguments.extend([
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.mode=async",
        "trainer.max_staleness=2",
        "actor_rollout_ref.rollout.max_num_seqs=8",
    ]);
    let mut child = lathe(&runs, &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lathe starts");
    // A batch is 4 prompts of 8 samples each, and nobody answers the first: more wait than one batch has.
    let waiting = |text: &str| -> Option<u64> {
        let (_, rest) = text.split_once("waits for tool calculator: ")?;
        rest.split(' ').next()?.parse().ok()
    };
    let text = status_where(&runs, &[], |text| {
        waiting(text).is_some_and(|sessions| sessions > 32)
    });
    assert!(
        waiting(&text) <= Some(3 * 32),
        "staleness bounds them: {text}"
    );
    held.unlock().expect("we hold it");
    let stopped = lathe(&runs, &["ctl", "latest", "stop"])
        .output()
        .expect("lathe starts");
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    child.wait().expect("our child");
}
