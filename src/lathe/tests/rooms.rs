//! Which room may use which: the manifests and `use` lines are read and held against the design.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A room and the rooms of ours that it may use.
const ARROWS: [(&str, &[&str]); 12] = [
    ("bandit", &[]),
    ("evaluation", &[]),
    ("sandbox", &[]),
    ("gguf", &[]),
    ("runlog", &[]),
    ("foreign", &["runlog"]),
    ("experiment", &["bandit"]),
    ("nccl-rs", &[]),
    ("dialogue", &["experiment", "sandbox"]),
    ("remote", &["experiment", "runlog"]),
    (
        "lathe",
        &[
            "bandit",
            "evaluation",
            "foreign",
            "gguf",
            "runlog",
            "experiment",
            "dialogue",
            "remote",
        ],
    ),
    (
        "trainer",
        &[
            "bandit",
            "evaluation",
            "runlog",
            "experiment",
            "dialogue",
            "nccl-rs",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("this crate lies two folders below the workspace")
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    assert!(
        output.status.success(),
        "cargo {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// Each room in `src/` with the rooms that its manifest names, for programs, tests and build scripts alike.
fn rooms() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let text = |value: &Value| value.as_str().expect("names and paths are text").to_owned();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages
        .iter()
        .filter(|package| {
            Path::new(&text(&package["manifest_path"])).starts_with(root().join("src"))
        })
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("a list");
            let ours = dependencies
                .iter()
                .filter(|dependency| !dependency["path"].is_null())
                .map(|dependency| text(&dependency["name"]));
            (text(&package["name"]), ours.collect())
        })
        .collect()
}

#[test]
fn no_room_uses_one_that_it_must_not_know() {
    let rooms = rooms();
    assert!(rooms.len() >= 5, "found only {rooms:?}");
    for (room, uses) in rooms {
        let (_, may) = ARROWS
            .iter()
            .find(|(known, _)| *known == room)
            .unwrap_or_else(|| panic!("src/ has a room {room} that this test does not know"));
        for used in uses {
            assert!(
                may.contains(&used.as_str()),
                "{room} uses {used}, but may use only {may:?}"
            );
        }
    }
}

#[test]
fn lathe_is_built_without_libtorch() {
    let tree = cargo(&["tree", "--package=lathe", "--prefix=none", "--offline"]);
    assert!(tree.starts_with("lathe "), "not a tree: {tree}");
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(
            !["tch", "torch-sys", "trainer"].contains(&name),
            "lathe depends on {line}"
        );
    }
}

/// `objective/` is tensor maths only: no threads, channels, files, clocks, events or settings.
#[test]
fn the_objectives_know_no_threads_files_or_events() {
    let folder = root().join("src/trainer/src/objective");
    let mut files = Vec::new();
    rust_files(&folder, &mut files);
    assert!(!files.is_empty(), "no objectives in {}", folder.display());
    let reads_cases = |file: &&PathBuf| {
        file.ends_with("objective/oracle.rs") || file.ends_with("objective/oracle/write.rs")
    };
    for file in files.iter().filter(|file| !reads_cases(file)) {
        let text = std::fs::read_to_string(file).expect("a Rust file is UTF-8");
        // Tests stand last, and read recorded numbers from files.
        let lines = text.lines().take_while(|line| *line != "mod tests {");
        for (number, line) in lines.enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for foreign in [
                "std::fs",
                "std::net",
                "std::sync",
                "std::thread",
                "std::time",
                "tokio",
                "runlog",
                "crate::learner",
                "crate::engine",
                "crate::sync",
                "crate::checkpoint",
            ] {
                assert!(
                    !code.contains(foreign),
                    "{}:{}: {foreign} in an objective",
                    file.display(),
                    number + 1
                );
            }
        }
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Package to its features, of everything that the workspace's programs (or, with "dev", also its tests) are built from.
fn features(edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let tree = cargo(&[
        "tree",
        "--workspace",
        "--offline",
        "--prefix=none",
        "--format={p}\t{f}",
        "--edges",
        edges,
    ]);
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree.lines() {
        let Some((package, list)) = line.trim_end_matches(" (*)").split_once('\t') else {
            continue;
        };
        // `default` is a name for other features, and changes nothing by itself.
        let list: Vec<&str> = list.split(',').filter(|name| *name != "default").collect();
        features
            .entry(package.to_owned())
            .or_default()
            .insert(list.join(","));
    }
    features
}

#[test]
fn programs_and_tests_are_built_from_the_same_dependencies() {
    let of_tests = features("normal,build,dev");
    for (package, of_programs) in features("normal,build") {
        assert_eq!(
            Some(&of_programs),
            of_tests.get(&package),
            "{package} has other features in tests, so that ./dev test after ./dev demo would compile it and all that \
             depends on it again: name the missing feature in a [dependencies] of src/runlog/Cargo.toml"
        );
    }
}
