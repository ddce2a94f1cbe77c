use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::*;

fn new_run(name: &str) -> NewRun {
    NewRun {
        project_name: "lathe".to_owned(),
        experiment_name: name.to_owned(),
        seed: 42,
        parent: Some("20261128-120000-first-00000001".to_owned()),
        git: Some(Git {
            commit: "fea8fea".to_owned(),
            dirty: true,
        }),
        versions: [("lathe-trainer".to_owned(), "0.1.0".to_owned())].into(),
        command: vec!["lathe".to_owned(), "run".to_owned(), "a b.yaml".to_owned()],
        experiment_yaml: "trainer: # kept\n  seed: 42\n".to_owned(),
        ..NewRun::default()
    }
}

/// A run directory with a name of the test's choice.
fn named(root: &Path, name: &str) {
    let run = RunDir::create(root, &new_run("x")).unwrap();
    fs::rename(run.path(), root.join(name)).unwrap();
}

#[test]
fn a_new_run_directory_is_private_and_reads_back_as_it_was_made() {
    let root = tempfile::tempdir().unwrap();
    let run = RunDir::create(&root.path().join("runs"), &new_run("quick start/1")).unwrap();
    let mode = fs::metadata(run.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let name = run.path().file_name().unwrap().to_str().unwrap();
    let (time, rest) = name.split_at(15);
    assert!(
        time.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-'),
        "{name}"
    );
    assert_eq!(rest, format!("-quick_start_1-{}", run.info().id));
    let back = RunDir::open(run.path()).unwrap();
    assert_eq!(back, run);
    assert_eq!(back.info().pid, std::process::id());
    assert_eq!(
        fs::read_to_string(run.experiment_path()).unwrap(),
        new_run("").experiment_yaml
    );
    let files: BTreeSet<_> = fs::read_dir(run.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        files,
        ["experiment.yaml".to_owned(), "run.json".to_owned()].into()
    );
}

#[test]
fn a_run_of_a_newer_format_is_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let run = RunDir::create(root.path(), &new_run("x")).unwrap();
    fs::write(
        run.path().join("run.json"),
        r#"{"format_version": 9, "id": {"new": "shape"}}"#,
    )
    .unwrap();
    let error = RunDir::open(run.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{} was written in run format 9; this program reads up to 1: use a newer lathe",
            run.path().display()
        )
    );
}

#[test]
fn fields_of_a_newer_program_in_run_json_are_ignored() {
    let root = tempfile::tempdir().unwrap();
    let run = RunDir::create(root.path(), &new_run("x")).unwrap();
    let path = run.path().join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "{\"cluster\": \"a\",", 1)).unwrap();
    assert_eq!(RunDir::open(run.path()).unwrap(), run);
}

#[test]
fn the_list_is_newest_first_and_passes_over_what_is_no_run() {
    let root = tempfile::tempdir().unwrap();
    let first = RunDir::create(root.path(), &new_run("b")).unwrap();
    let second = RunDir::create(root.path(), &new_run("a")).unwrap();
    fs::create_dir(root.path().join("not-a-run")).unwrap();
    fs::write(root.path().join("notes.txt"), "").unwrap();
    let broken = RunDir::create(root.path(), &new_run("c")).unwrap();
    fs::write(broken.path().join("run.json"), "{").unwrap();
    let (runs, unreadable) = list(root.path()).unwrap();
    assert_eq!(runs, [second, first]);
    assert!(
        matches!(&unreadable[..], [RunDirError::Corrupt { path, .. }] if path == broken.path())
    );
    assert!(list(&root.path().join("missing")).unwrap().0.is_empty());
}

#[test]
fn a_run_is_found_by_path_name_unique_prefix_experiment_or_latest() {
    let root = tempfile::tempdir().unwrap();
    for name in [
        "20261129-100000-sort-ab120000",
        "20261129-110000-sort-ab340000",
        "20261129-120000-my-exp-cd000000",
    ] {
        named(root.path(), name);
    }
    let found = |argument: &str| resolve(root.path(), argument).map(|run| run.name().to_owned());
    for (argument, name) in [
        (
            "20261129-100000-sort-ab120000",
            "20261129-100000-sort-ab120000",
        ),
        ("ab12", "20261129-100000-sort-ab120000"),
        ("c", "20261129-120000-my-exp-cd000000"),
        ("20261129-11", "20261129-110000-sort-ab340000"),
        ("my-exp", "20261129-120000-my-exp-cd000000"),
        ("sort-ab120000", "20261129-100000-sort-ab120000"),
        ("sort-ab1", "20261129-100000-sort-ab120000"),
        ("my-exp-cd", "20261129-120000-my-exp-cd000000"),
        ("sort", "20261129-110000-sort-ab340000"),
        ("latest", "20261129-120000-my-exp-cd000000"),
    ] {
        assert_eq!(found(argument).unwrap(), name, "{argument}");
    }
    let path = root.path().join("20261129-110000-sort-ab340000");
    assert_eq!(
        found(path.to_str().unwrap()).unwrap(),
        "20261129-110000-sort-ab340000"
    );
    assert_eq!(
        found("ab").unwrap_err().to_string(),
        "`ab` fits 2 runs: 20261129-110000-sort-ab340000, 20261129-100000-sort-ab120000; give more of the id"
    );
    assert!(
        found("sort-ab")
            .unwrap_err()
            .to_string()
            .starts_with("`sort-ab` fits 2 runs")
    );
    assert!(matches!(found("sort-"), Err(RunDirError::NotFound { .. })));
    assert_eq!(
        found("ff").unwrap_err().to_string(),
        format!(
            "no run matches `ff` in {}; the newest is 20261129-120000-my-exp-cd000000",
            root.path().display()
        )
    );
    assert!(matches!(found(""), Err(RunDirError::NotFound { .. })));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        resolve(empty.path(), "latest"),
        Err(RunDirError::NoRuns { .. })
    ));
}

#[test]
fn the_option_beats_the_variable_beats_the_default() {
    let path = |text: &'static str| Some(Path::new(text));
    assert_eq!(root(path("/a"), Some(OsStr::new("/b"))), Path::new("/a"));
    assert_eq!(root(None, Some(OsStr::new("/b"))), Path::new("/b"));
    assert_eq!(root(None, Some(OsStr::new(""))), Path::new("runs"));
    assert_eq!(root(None, None), Path::new("runs"));
}

#[test]
fn taking_a_run_gives_it_this_process_and_dropping_frees_it() {
    let root = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(root.path(), &new_run("x")).unwrap();
    let path = run.path().join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace(&format!("\"pid\": {}", std::process::id()), "\"pid\": 1"),
    )
    .unwrap();
    assert_eq!(RunDir::open(run.path()).unwrap().info().pid, 1);
    let lock = run.take().unwrap();
    assert_eq!(
        RunDir::open(run.path()).unwrap().info().pid,
        std::process::id()
    );
    let mut other = RunDir::open(run.path()).unwrap();
    let message = other.take().unwrap_err().to_string();
    assert!(
        message.contains(&format!(
            "process {} on {}",
            std::process::id(),
            host_name()
        )),
        "{message}"
    );
    drop(lock);
    other.take().unwrap();
}

#[test]
fn a_run_is_free_when_its_writer_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(root.path(), &new_run("x")).unwrap();
    // Nobody has written it yet.
    run.wait_until_free().unwrap();
    let lock = run.take().unwrap();
    let other = RunDir::open(run.path()).unwrap();
    let (free, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || free.send(other.wait_until_free().is_ok()));
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
    drop(lock);
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
}

#[test]
fn the_commit_and_whether_the_tree_differs_from_it_are_seen() {
    let tree = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let status = std::process::Command::new("git")
            .args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@t",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(arguments)
            .current_dir(tree.path())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    fs::write(tree.path().join("file"), "1").unwrap();
    git(&["add", "file"]);
    git(&["commit", "-q", "-m", "first"]);
    let clean = git_state(tree.path()).unwrap();
    assert!(!clean.dirty && clean.commit.len() >= 40, "{clean:?}");
    fs::write(tree.path().join("file"), "2").unwrap();
    let dirty = git_state(tree.path()).unwrap();
    assert_eq!((dirty.dirty, dirty.commit), (true, clean.commit));
}
