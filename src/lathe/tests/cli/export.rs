//! `lathe export` in each format, opened again; `--plain`.

use std::fs;

use super::fake_trainer::{Act, learning, started, step};
use super::harness::Bench;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    bench
}

#[test]
fn each_format_is_written_where_it_is_wanted_and_opens_again() {
    let bench = bench();
    for format in ["csv", "json", "parquet", "svg", "png", "html"] {
        let file = format!("out.{format}");
        let ran = bench.run(["export", "latest", "-o", &file]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str()),
            ("", format!("wrote {file}\n").as_str())
        );
        let bytes = fs::read(bench.path(&file)).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match format {
            "csv" => {
                let rows = text
                    .lines()
                    .filter(|line| line.starts_with("critic/score/mean,"))
                    .count();
                assert_eq!(
                    (rows, text.lines().next()),
                    (4, Some("name,step,elapsed_ms,value"))
                );
            }
            "json" => {
                let rows: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
                assert!(
                    rows.iter()
                        .all(|row| row["name"].is_string() && row["step"].is_u64())
                );
            }
            "parquet" => {
                let file = fs::File::open(bench.path(&file)).unwrap();
                let reader =
                    parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)
                        .unwrap();
                let rows: usize = reader
                    .build()
                    .unwrap()
                    .map(|batch| batch.unwrap().num_rows())
                    .sum();
                assert!(rows > 4, "{rows}");
            }
            "svg" => {
                let document = roxmltree::Document::parse(&text).unwrap();
                assert!(
                    document
                        .descendants()
                        .any(|node| node.text() == Some("critic/score/mean"))
                );
            }
            "png" => {
                // The export's own tests read the pixels.
                assert!(
                    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
                        && bytes.ends_with(b"IEND\xae\x42\x60\x82")
                );
                assert_eq!(bytes[16..20], 2480_u32.to_be_bytes());
            }
            _ => {
                assert!(
                    text.starts_with("<!DOCTYPE html>") && text.contains("experiment_name: toy"),
                    "{text}"
                );
                let elsewhere = text
                    .replace("http://www.w3.org/2000/svg", "")
                    .contains("http");
                assert!(!elsewhere && !text.contains("<script"));
            }
        }
        let left: Vec<_> = fs::read_dir(bench.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().contains("partial"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn without_a_file_it_goes_to_standard_output_and_the_same_run_gives_the_same_bytes() {
    let bench = bench();
    let first = bench.run(["export", "latest", "--metrics", "reward", "--format", "svg"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.starts_with("<svg "));
    let second = bench.run(["export", "latest", "--metrics", "reward", "--format", "svg"]);
    assert_eq!(first.stdout, second.stdout);
    let csv = bench.run(["export", "latest", "--metrics", "critic/*"]);
    assert!(
        csv.stdout
            .starts_with("name,step,elapsed_ms,value\ncritic/"),
        "{}",
        csv.stdout
    );
}

#[test]
fn a_page_of_the_workbench_becomes_a_picture() {
    let bench = bench();
    let ran = bench.run(["export", "latest", "--screen", "runs", "--size", "100x20"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = roxmltree::Document::parse(&ran.stdout).unwrap();
    let texts: Vec<&str> = document
        .descendants()
        .filter_map(|node| node.text())
        .collect();
    assert!(
        texts.iter().any(|text| text.contains("finished")),
        "{texts:?}"
    );
}

#[test]
fn what_cannot_be_exported_is_said_with_its_exit_code() {
    let bench = bench();
    let ran = bench.run(["export", "latest", "--metrics", "klx"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("no metric of this run fits `klx`"),
        "{}",
        ran.stderr
    );
    let ran = bench.run(["export", "latest", "-o", "no/such/folder/a.csv"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("no/such/folder/a.csv"),
        "{}",
        ran.stderr
    );
    let ran = bench.run(["export", "latest", "--read-only", "-o", "a.csv"]);
    assert_eq!(ran.code, Some(2));
    assert!(!bench.path("a.csv").exists());
    assert_eq!(bench.run(["export", "nothing"]).code, Some(2));
    let ran = bench.run(["export", "latest", "-o", "a.foo"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("no format is called .foo"),
        "{}",
        ran.stderr
    );
    assert!(!bench.path("a.foo").exists());
}

#[test]
fn a_run_without_steps_has_a_report_and_no_picture() {
    let bench = Bench::new();
    bench.trainer(&[started(4), Act::Die]);
    assert_eq!(bench.run(["run", "toy.yaml", "--json"]).code, Some(4));
    let ran = bench.run(["export", "latest", "--format", "svg"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("no metrics yet"));
    let ran = bench.run(["export", "latest", "--format", "html"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("No metrics were recorded"));
}

#[test]
fn plain_prints_what_the_pages_show() {
    let bench = bench();
    bench.trainer(&[started(4), step(1, 0.1), Act::Die]);
    assert_eq!(bench.run(["run", "toy.yaml", "--json"]).code, Some(4));
    let list = bench.run(["--plain"]);
    assert_eq!(list.code, Some(0));
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert!(
        lines[0].starts_with("STATE") && lines[0].ends_with("RUN"),
        "{}",
        list.stdout
    );
    assert!(list.stdout.contains("left no end event"), "{}", list.stdout);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("finished") && line.contains("4/4"))
    );
    assert_eq!(
        bench.run(["--plain", "runs"]).stdout.lines().count(),
        lines.len()
    );
    let finished = bench.run(["runs", "--json"]).json_lines();
    let id = finished
        .iter()
        .find(|line| line["status"] == "finished")
        .unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let facts = bench.run(["--plain", "watch", &id]);
    assert_eq!(facts.code, Some(0), "{facts:?}");
    for wanted in ["4 of 4 steps", "ALARMS", "METRIC", "critic/score/mean"] {
        assert!(facts.stdout.contains(wanted), "{wanted}: {}", facts.stdout);
    }
    assert!(!facts.stdout.contains('\u{1b}'));
}

#[test]
fn the_curves_of_two_runs_stand_in_one_picture_with_a_legend() {
    let bench = bench();
    assert_eq!(
        bench.run(["run", "toy.yaml", "--name", "other"]).code,
        Some(0)
    );
    let names: Vec<String> = fs::read_dir(bench.path("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let both = ["export", "latest", "--with", &names[0], "--with", &names[1]];
    let drawn = |more: &[&str]| bench.run(both.iter().chain(more));
    let ran = drawn(&["--metrics", "critic/score/mean", "-o", "both.svg"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = fs::read_to_string(bench.path("both.svg")).unwrap();
    for name in &names {
        assert!(text.contains(name.as_str()), "the legend names {name}");
    }
    let ran = drawn(&["-o", "both.csv"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("--with is for curves in svg and png"),
        "{}",
        ran.stderr
    );
    let ran = bench.run(["export", "latest", "--with", "nowhere", "-o", "both.svg"]);
    assert_eq!(ran.code, Some(2));
}
