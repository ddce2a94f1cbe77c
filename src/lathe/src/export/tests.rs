use std::sync::Arc;

use arrow::array::{Float64Array, StringArray, UInt64Array};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use roxmltree::Document;
use runlog::number::Number;

use super::curves::{Shown, View, panel};
use super::*;
use crate::headless;
use crate::tui::testing::sample_run_in;
use crate::tui::theme;

/// A finished run of 30 steps; the KL of step 7 is NaN.
fn sample() -> (tempfile::TempDir, RunDir, RunState) {
    let root = tempfile::tempdir().unwrap();
    let run = RunDir::open(&sample_run_in(root.path(), 30)).unwrap();
    let (state, _) = headless::read(&run).unwrap();
    (root, run, state)
}

fn options(metrics: &[&str]) -> Options {
    Options {
        metrics: metrics.iter().map(|&metric| metric.to_owned()).collect(),
        axis: XAxis::Step,
        smoothing: 0.8,
        theme: theme::load("light", &[]).unwrap(),
        width: 1240,
        beside: Vec::new(),
    }
}

fn exported(format: Format, metrics: &[&str]) -> Vec<u8> {
    let (_root, run, state) = sample();
    let extras = Extras::read(&run, &state, 0, std::time::SystemTime::now());
    let mut out = Vec::new();
    export(&run, &state, &extras, format, &options(metrics), &mut out).unwrap();
    out
}

/// Name, step, elapsed milliseconds and the bits of the value, of every point.
fn points() -> Vec<(String, u64, f64, Number)> {
    let (_root, _run, state) = sample();
    state
        .series
        .iter()
        .flat_map(|(name, series)| {
            series
                .iter()
                .map(|point| (name.to_owned(), point.step, point.elapsed_ms, point.value))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_workbench_writes_a_whole_run_as_the_command_does() {
    let (_root, run, _state) = sample();
    for format in [Format::Json, Format::Parquet] {
        let written = crate::tui::export::whole(run.path(), format).unwrap();
        assert!(written == exported(format, &[]), "{format:?}");
    }
    let report = crate::tui::export::whole(run.path(), Format::Html).unwrap();
    assert!(String::from_utf8(report).unwrap().contains("</html>"));
}

#[test]
fn csv_json_and_parquet_hold_every_value_of_every_metric() {
    let wanted = points();
    assert!(wanted.iter().any(|(.., value)| value.0.is_nan()));

    let text = exported(Format::Csv, &[]);
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("name,step,elapsed_ms,value"));
    let read: Vec<_> = lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), 4, "{line}");
            let value: f64 = cells[3].parse().unwrap();
            (
                cells[0].to_owned(),
                cells[1].parse().unwrap(),
                cells[2].parse().unwrap(),
                Number(value),
            )
        })
        .collect();
    assert_eq!(read, wanted);

    let rows: Vec<serde_json::Value> =
        serde_json::from_slice(&exported(Format::Json, &[])).unwrap();
    let read: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let value: Number = serde_json::from_value(row["value"].clone()).unwrap();
            (
                row["name"].as_str().unwrap().to_owned(),
                row["step"].as_u64().unwrap(),
                row["elapsed_ms"].as_f64().unwrap(),
                value,
            )
        })
        .collect();
    assert_eq!(read, wanted);

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&exported(Format::Parquet, &[])).unwrap();
    let mut read = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap()
    {
        let batch = batch.unwrap();
        let column = |name: &str| Arc::clone(batch.column_by_name(name).unwrap());
        let (names, steps) = (column("name"), column("step"));
        let (times, values) = (column("elapsed_ms"), column("value"));
        let names = names.as_any().downcast_ref::<StringArray>().unwrap();
        let steps = steps.as_any().downcast_ref::<UInt64Array>().unwrap();
        let times = times.as_any().downcast_ref::<Float64Array>().unwrap();
        let values = values.as_any().downcast_ref::<Float64Array>().unwrap();
        for row in 0..batch.num_rows() {
            read.push((
                names.value(row).to_owned(),
                steps.value(row),
                times.value(row),
                Number(values.value(row)),
            ));
        }
    }
    assert_eq!(read, wanted);
}

#[test]
fn names_globs_and_words_choose_metrics_and_a_wrong_one_is_told() {
    let (_root, _run, state) = sample();
    let chosen_of = |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        chosen(&state, &patterns)
    };
    assert_eq!(
        chosen_of(&["kl", "actor/p*", "actor/lr"]).unwrap(),
        [
            "actor/ppo_kl",
            "actor/pg_clipfrac",
            "actor/pg_loss",
            "actor/lr"
        ]
    );
    let error = chosen_of(&["klx"]).unwrap_err().to_string();
    assert!(
        error.starts_with("no metric of this run fits `klx`; it has "),
        "{error}"
    );
}

#[test]
fn the_picture_is_xml_with_a_panel_a_metric_and_the_same_each_time() {
    let text = String::from_utf8(exported(Format::Svg, &["reward", "kl"])).unwrap();
    let document = Document::parse(&text).unwrap();
    let texts: Vec<&str> = document
        .descendants()
        .filter_map(|node| node.text())
        .collect();
    for wanted in [
        "val-core/calc/reward/mean@1",
        "actor/ppo_kl",
        "[nats]",
        "step",
    ] {
        assert!(texts.contains(&wanted), "{wanted} in {texts:?}");
    }
    // The run's name is new each time; nothing else may be.
    let again = String::from_utf8(exported(Format::Svg, &["reward", "kl"])).unwrap();
    let unnamed = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("-sample-"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(unnamed(&text), unnamed(&again));
}

#[test]
fn the_pixels_decode_and_are_not_of_one_color() {
    let png = exported(Format::Png, &["reward", "kl"]);
    let (width, height, rgb) = decoded(&png);
    assert_eq!(width, 2480);
    assert_eq!(rgb.len(), width * height * 3);
    let mut colors: Vec<&[u8]> = rgb.chunks(3).collect();
    colors.sort_unstable();
    colors.dedup();
    assert!(
        colors.len() > 50,
        "background, letters, grid and two lines: {}",
        colors.len()
    );
    // The corner is the page; somewhere there is the raw line's and the smoothed line's colour.
    assert_eq!(&rgb[..3], [0xff, 0xff, 0xff]);
}

/// Width, height and pixels of a PNG such as ours: every chunk's checksum is checked, every row unfiltered.
fn decoded(png: &[u8]) -> (usize, usize, Vec<u8>) {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let mut at = 8;
    let mut chunks = Vec::new();
    while at < png.len() {
        let length = number(at);
        let body = &png[at + 4..at + 8 + length];
        assert_eq!(crc32fast::hash(body) as usize, number(at + 8 + length));
        chunks.push((&body[..4], &body[4..]));
        at += 12 + length;
    }
    let kinds: Vec<&[u8]> = chunks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [b"IHDR", b"IDAT", b"IEND"]);
    let (width, height) = (number(16), number(20));
    assert_eq!(&chunks[0].1[8..], [8, 2, 0, 0, 0]);
    let rows = miniz_oxide::inflate::decompress_to_vec_zlib(chunks[1].1).unwrap();
    let mut pixels: Vec<u8> = Vec::new();
    for row in rows.chunks(1 + 3 * width) {
        assert_eq!(row[0], 2);
        let above = pixels.len().saturating_sub(3 * width);
        for (column, byte) in row[1..].iter().enumerate() {
            let up = if pixels.len() < 3 * width {
                0
            } else {
                pixels[above + column]
            };
            pixels.push(byte.wrapping_add(up));
        }
    }
    (width, height, pixels)
}

#[test]
fn the_report_needs_nothing_from_elsewhere() {
    let text = String::from_utf8(exported(Format::Html, &[])).unwrap();
    for outside in ["<script", "src=", "href=", "@import", "url(", "<link"] {
        assert!(!text.contains(outside), "{outside}");
    }
    let links: Vec<&str> = text
        .match_indices("http")
        .map(|(at, _)| &text[at..at + 26])
        .collect();
    assert!(
        links
            .iter()
            .all(|link| link.starts_with("http://www.w3.org/2000/svg")),
        "{links:?}"
    );
    for wanted in [
        "30 of 30",
        "non-finite",
        "actor/ppo_kl",
        "experiment_name: sample",
        "</html>",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
}

#[test]
fn data_cannot_become_markup() {
    let root = tempfile::tempdir().unwrap();
    let run = RunDir::open(&sample_run_in(root.path(), 3)).unwrap();
    let (mut state, _) = headless::read(&run).unwrap();
    state.alarms.push_back(runlog::state::AlarmRecord {
        elapsed_ms: 0.0,
        name: "<script>alert(1)</script>".to_owned(),
        step: None,
        message: "\"&\u{1b}[2J".to_owned(),
    });
    let extras = Extras::read(&run, &state, 0, std::time::SystemTime::now());
    let text = report::html(&run, &state, &extras, None);
    assert!(!text.contains("<script") && !text.contains('\u{1b}'));
    assert!(text.contains("&lt;script&gt;"));
}

#[test]
fn no_extreme_is_lost_where_points_are_denser_than_pixels() {
    let mut state = RunState::default();
    for step in 0..20_000_u64 {
        let value = if step == 12_345 {
            9.0
        } else {
            (step as f64 * 0.01).sin()
        };
        state.apply(&runlog::Event {
            seq: step,
            elapsed_ms: step as f64,
            kind: runlog::EventKind::StepEnded {
                step,
                policy_version: step,
                values: [("actor/pg_loss".to_owned(), Number(value))].into(),
            },
        });
    }
    let shown = [Shown {
        name: "a",
        color: 0,
        state: &state,
    }];
    let sheet = curves::Sheet {
        title: "a".to_owned(),
        panels: vec![panel(&shown, "actor/pg_loss", &View::default()).unwrap()],
    };
    let text = picture::svg(&sheet, &theme::load("dark", &[]).unwrap(), 400);
    assert!(
        text.len() < 60_000,
        "{} bytes for 20,000 points",
        text.len()
    );
    // The spike is the top of the axis but for its air: the smallest y of the curve's path.
    let document = Document::parse(&text).unwrap();
    let least = document
        .descendants()
        .filter_map(|node| node.attribute("d"))
        .filter(|path| path.len() > 1000)
        .flat_map(|path| {
            path.split([' ', 'L', 'M'])
                .filter(|part| !part.is_empty())
                .skip(1)
                .step_by(2)
        })
        .map(|y| y.parse::<f64>().unwrap())
        .fold(f64::INFINITY, f64::min);
    let top = 40.0 + 26.0;
    let height = 240.0 - 26.0 - 36.0;
    assert!((least - (top + height * 0.05 / 1.1)).abs() < 0.2, "{least}");
}

#[test]
fn curves_as_they_stand_keep_zoom_and_smoothing_in_the_csv() {
    let (_root, _run, state) = sample();
    let shown = [Shown {
        name: "a, b",
        color: 0,
        state: &state,
    }];
    let view = View {
        smoothing: 0.5,
        x_range: Some((5.0, 9.0)),
        ..View::default()
    };
    let sheet = curves::Sheet {
        title: String::new(),
        panels: vec![panel(&shown, "actor/ppo_kl", &view).unwrap()],
    };
    let text = sheet.csv();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert_eq!(lines[0], "metric,run,step,value,smoothed");
    assert!(
        lines[1].starts_with("actor/ppo_kl,\"a, b\",5,0.001,"),
        "{text}"
    );
    assert!(
        lines[3].starts_with("actor/ppo_kl,\"a, b\",7,NaN,"),
        "{text}"
    );
    let (_, last) = lines[5].split_once(",9,").unwrap();
    let (raw, smooth) = last.split_once(',').unwrap();
    assert_ne!(raw, smooth);
}

#[test]
fn a_screen_becomes_letters_on_the_grid_and_shapes() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 2));
    buffer.set_string(0, 0, "ab <日> ⣿█─", Style::new().fg(Color::Rgb(1, 2, 3)));
    buffer.set_string(0, 1, "x", Style::new().add_modifier(Modifier::REVERSED));
    let text = cells::svg(&buffer, &theme::load("dark", &[]).unwrap());
    let document = Document::parse(&text).unwrap();
    let letters: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text())
        .collect();
    assert_eq!(letters, ["ab <日>", "x"]);
    let paths = document
        .descendants()
        .filter(|node| node.has_tag_name("path"))
        .count();
    assert_eq!(paths, 3, "dots, a block and a line");
    let reversed = document
        .descendants()
        .filter(|node| node.attribute("fill") == Some("#16181d"))
        .count();
    assert_eq!(reversed, 2, "the background, and the letter in its colour");
}

#[test]
fn a_failed_write_leaves_the_file_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(&path, "before").unwrap();
    let failed = write_whole(&path, |_| Err(ExportError::Empty));
    assert!(failed.is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let second = new_file(folder.path(), "a", "csv", b"x").unwrap();
    assert!(second.ends_with("a-2.csv"));
}

#[test]
fn metrics_of_one_panel_are_named_in_it_and_runs_once_for_the_sheet() {
    let (_root, _run, state) = sample();
    let sheet = |runs: &[&str]| {
        let mut joined: Option<curves::Panel> = None;
        for (color, name) in runs.iter().enumerate() {
            for (place, metric) in ["actor/ppo_kl", "actor/kl_loss"].into_iter().enumerate() {
                let shown = [Shown {
                    name,
                    color,
                    state: &state,
                }];
                let mut one = panel(&shown, metric, &View::default()).unwrap();
                metric.clone_into(&mut one.curves[0].label);
                one.curves[0].dash = place;
                match &mut joined {
                    None => joined = Some(one),
                    Some(joined) => joined.curves.append(&mut one.curves),
                }
            }
        }
        curves::Sheet {
            title: "sheet".to_owned(),
            panels: joined.into_iter().collect(),
        }
    };
    let theme = theme::load("dark", &[]).unwrap();
    let count = |text: &str, of: &str| text.matches(of).count();
    let one = picture::svg(&sheet(&["a-run"]), &theme, 400);
    assert_eq!(
        (count(&one, ">a-run<"), count(&one, ">actor/kl_loss<")),
        (0, 1)
    );
    let two = picture::svg(&sheet(&["a-run", "b-run"]), &theme, 400);
    assert_eq!((count(&two, ">a-run<"), count(&two, ">b-run<")), (1, 1));
    assert_eq!(count(&two, ">actor/kl_loss<"), 1);
    // The second metric of each run, and its sample, are dashed.
    assert_eq!(count(&two, "stroke-dasharray"), 3);
    let csv = sheet(&["a-run"]).csv();
    assert!(csv.contains("\nactor/kl_loss,a-run,"), "{csv}");
}
