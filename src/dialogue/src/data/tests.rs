use std::collections::HashSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::recipe::{JsonRow, Recipe, Split};

fn object(value: Value) -> JsonRow {
    serde_json::from_value(value).unwrap()
}

fn parquet(directory: &Path, name: &str, rows: &[JsonRow]) -> PathBuf {
    let path = directory.join(name);
    write_parquet(rows, &path).unwrap();
    path
}

/// `count` prompts in a file of several row groups.
fn prompts(directory: &Path, name: &str, count: usize) -> PathBuf {
    parquet(directory, name, &Recipe::Calc.rows(count, 1, Split::Train))
}

fn set(files: &[PathBuf], max_samples: Option<u64>, shuffle: bool) -> DataSet {
    DataSet::open(
        files,
        &Options {
            max_samples,
            shuffle,
            ..Options::default()
        },
    )
    .unwrap()
}

fn options(batch: usize, epochs: Option<u64>) -> SourceOptions {
    SourceOptions {
        batch,
        shuffle: true,
        seed: 42,
        epochs,
    }
}

fn one_row(row: Value) -> Result<Row, DataError> {
    let place = Place {
        path: Path::new("train.parquet").into(),
        row: 7,
    };
    Row::read(object(row), &place, "prompt", Need::Prompts)
}

#[test]
fn rows_read_by_number_equal_the_rows_of_a_scan() {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        prompts(directory.path(), "a.parquet", 2500),
        prompts(directory.path(), "b.parquet", 30),
    ];
    let data = set(&files, None, false);
    assert_eq!(data.rows(), 2530);
    let scanned: Vec<Row> = data.scan().unwrap().map(Result::unwrap).collect();
    let wanted = [2529, 0, 2499, 2500, 1023, 1024, 0];
    let read = data.read(&wanted).unwrap();
    for (row, index) in read.iter().zip(wanted) {
        assert_eq!(row, &scanned[index as usize]);
        assert_eq!(row.index, index);
    }
    assert_eq!(read[0].place.row, 29);
    assert!(read[0].place.path.ends_with("b.parquet"));
    let error = data.read(&[2530]).unwrap_err().to_string();
    assert!(error.contains("has no row 2530; it has 2530"), "{error}");
}

#[test]
fn json_lines_read_as_parquet_does() {
    let directory = tempfile::tempdir().unwrap();
    let rows = Recipe::CalcDemos.rows(50, 3, Split::Train);
    let binary = parquet(directory.path(), "a.parquet", &rows);
    let lines = directory.path().join("a.jsonl");
    let text: Vec<String> = rows.iter().map(|row| json!(row).to_string()).collect();
    std::fs::write(&lines, text.join("\n\n")).unwrap();
    let read = |path: &Path| -> Vec<Row> {
        let table = Table::open(path, "prompt").unwrap();
        let scanned: Vec<Row> = table
            .scan(Need::Demonstrations)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let by_number = table.read(&[49, 3], Need::Demonstrations).unwrap();
        assert_eq!(by_number, [scanned[49].clone(), scanned[3].clone()]);
        scanned
    };
    let words =
        |rows: Vec<Row>| -> Vec<Value> { rows.iter().map(|row| json!(row.messages)).collect() };
    let expected: Vec<Value> = rows.iter().map(|row| row["messages"].clone()).collect();
    let normal = words(read(&lines));
    assert_eq!(words(read(&binary)), normal);
    // Typed messages say what the JSON said.
    assert_eq!(normal, expected);
}

#[test]
fn padding_of_parquet_structs_is_absent() {
    let directory = tempfile::tempdir().unwrap();
    let base = |info: Value| {
        object(
            json!({"data_source": "s", "prompt": [{"role": "user", "content": "q"}],
            "reward_model": {"style": "rule", "ground_truth": 3}, "extra_info": info}),
        )
    };
    let rows = [
        base(json!({"tools_kwargs": {"a": {"create_kwargs": {"x": 1}}}, "tool_selection": ["a"]})),
        base(json!({"tools_kwargs": {"b": {"create_kwargs": {"y": "t"}}}})),
        base(json!({"index": 2})),
    ];
    let data = set(
        &[parquet(directory.path(), "a.parquet", &rows)],
        None,
        false,
    );
    let read = data.read(&[0, 1, 2]).unwrap();
    let tools: Vec<Vec<&String>> = read
        .iter()
        .map(|row| row.tools_kwargs.keys().collect())
        .collect();
    assert_eq!(tools, [vec!["a"], vec!["b"], vec![]]);
    assert_eq!(
        read[0].tools_kwargs["a"].create_kwargs,
        Some(object(json!({"x": 1})))
    );
    assert_eq!(read[0].tool_selection, Some(vec!["a".to_owned()]));
    assert_eq!(read[1].tool_selection, None);
    assert_eq!(
        read[2].reward_model.as_ref().unwrap().ground_truth,
        json!(3)
    );
    let schemas = [
        json!({"function": {"name": "a"}}),
        json!({"function": {"name": "b"}}),
    ];
    assert_eq!(read[0].tool_schemas(&schemas), schemas[..1]);
    assert_eq!(read[1].tool_schemas(&schemas), schemas);
}

#[test]
fn every_problem_names_file_row_and_column() {
    let good = json!({"data_source": "s", "prompt": [{"role": "user", "content": "q"}],
        "reward_model": {"style": "rule", "ground_truth": [1, "x"]}});
    assert!(one_row(good.clone()).is_ok());
    let with = |key: &str, value: Value| {
        let mut row = good.clone();
        row[key] = value;
        one_row(row).unwrap_err().to_string()
    };
    let start = "train.parquet: row 7: column ";
    for (key, value, message) in [
        (
            "prompt",
            Value::Null,
            "prompt is missing; expected a list of messages {role, content}",
        ),
        (
            "prompt",
            json!("q"),
            "prompt is \"q\"; expected a list of messages {role, content}",
        ),
        (
            "prompt",
            json!([{"role": "user"}]),
            "prompt[0].content is missing; expected text or a list of parts",
        ),
        (
            "prompt",
            json!([]),
            "prompt is an empty list; expected a list of messages {role, content}",
        ),
        (
            "prompt",
            json!([{"role": "user", "content": "a"}, {"content": "x"}]),
            "prompt[1].role is missing; expected text such as user or assistant",
        ),
        (
            "prompt",
            json!([{"role": "user", "content": 5}]),
            "prompt[0].content is 5; expected text or a list of parts",
        ),
        ("data_source", json!(3), "data_source is 3; expected text"),
        (
            "data_source",
            Value::Null,
            "data_source is missing; expected text that names the data's source",
        ),
        (
            "reward_model",
            Value::Null,
            "reward_model is missing; expected a struct {style, ground_truth}",
        ),
        (
            "reward_model",
            json!({"style": "rule"}),
            "reward_model.ground_truth is missing; expected what the scorer compares with",
        ),
        (
            "extra_info",
            json!({"tools_kwargs": [1]}),
            "extra_info.tools_kwargs is [1]; expected a struct",
        ),
        (
            "extra_info",
            json!({"tool_selection": "calculator"}),
            "extra_info.tool_selection is \"calculator\"; expected a list of tool names",
        ),
        (
            "tools",
            json!("[oops"),
            "tools is not JSON (expected value at line 1 column 2); expected a list of tool schemas, or JSON text of one",
        ),
    ] {
        assert_eq!(with(key, value), format!("{start}{message}"));
    }
}

#[test]
fn files_that_cannot_be_read_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let files = [directory.path().join(name)];
        DataSet::open(&files, &Options::default())
            .unwrap_err()
            .to_string()
    };
    assert!(open("none.parquet").contains("none.parquet: cannot be opened"));
    std::fs::write(directory.path().join("bad.parquet"), "PAR1 no").unwrap();
    assert!(open("bad.parquet").contains("bad.parquet: is not a Parquet file"));
    std::fs::write(directory.path().join("x.csv"), "a,b").unwrap();
    assert!(open("x.csv").contains("has extension \"csv\"; expected .parquet"));
    std::fs::write(directory.path().join("empty.jsonl"), "\n").unwrap();
    assert!(open("empty.jsonl").contains("the data set is empty"));
    let none: [&str; 0] = [];
    let error = DataSet::open(&none, &Options::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("no data files were given"), "{error}");
    std::fs::write(directory.path().join("b.jsonl"), "{\"a\": 1}\n[2]\n").unwrap();
    let table = Table::open(&directory.path().join("b.jsonl"), "prompt").unwrap();
    let error = table.read(&[1], Need::Anything).unwrap_err().to_string();
    assert!(
        error.contains("row 1 is not a JSON object: it is [2]"),
        "{error}"
    );
    // A file cut short in its middle still has a footer: the rows themselves are the problem.
    let whole = std::fs::read(prompts(directory.path(), "c.parquet", 300)).unwrap();
    let mut broken = whole.clone();
    broken[100..400].fill(0xff);
    std::fs::write(directory.path().join("c.parquet"), broken).unwrap();
    let table = Table::open(&directory.path().join("c.parquet"), "prompt").unwrap();
    let error = table.read(&[0], Need::Prompts).unwrap_err().to_string();
    assert!(
        error.contains("c.parquet: is not a Parquet file this program can read"),
        "{error}"
    );
}

#[test]
fn an_epoch_hands_out_every_row_once_in_an_order_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let files = [prompts(directory.path(), "a.parquet", 64)];
    let mut source = PromptSource::new(set(&files, None, false), options(16, Some(2))).unwrap();
    assert_eq!(source.batches_per_epoch(), 4);
    let mut epochs = vec![Vec::new(), Vec::new()];
    while let Some(batch) = source.next_batch().unwrap() {
        assert_eq!(
            batch.rows.iter().map(|row| row.index).collect::<Vec<_>>(),
            batch.ticket.indices
        );
        epochs[batch.ticket.epoch as usize].extend(batch.ticket.indices.clone());
        source.consumed(&batch.ticket);
    }
    for epoch in &epochs {
        assert_eq!(epoch.iter().collect::<HashSet<_>>().len(), 64);
    }
    assert_ne!(epochs[0], epochs[1]);
    assert_eq!(source.cursor().epoch, 2);
    assert!(source.cursor().consumed.is_empty());
}

#[test]
fn the_order_of_a_seed_never_changes() {
    assert_eq!(
        source::permutation(10, 42, 0),
        [7, 6, 5, 1, 0, 4, 8, 9, 2, 3]
    );
}

#[test]
fn resuming_continues_with_exactly_the_batches_that_were_left() {
    let directory = tempfile::tempdir().unwrap();
    let files = [prompts(directory.path(), "a.parquet", 50)];
    let fresh = || PromptSource::new(set(&files, None, false), options(8, Some(3))).unwrap();
    let mut whole = Vec::new();
    let mut source = fresh();
    while let Some(batch) = source.next_batch().unwrap() {
        whole.push(batch.ticket.clone());
        source.consumed(&batch.ticket);
    }
    assert_eq!(whole.len(), 18);
    for stop in 0..=whole.len() {
        let mut source = fresh();
        for _ in 0..stop {
            let batch = source.next_batch().unwrap().unwrap();
            source.consumed(&batch.ticket);
        }
        // One more batch is out and not trained on when the run stops: it comes again.
        let unfinished = source.next_batch().unwrap();
        let saved = serde_json::to_string(source.cursor()).unwrap();
        let cursor: Cursor = serde_json::from_str(&saved).unwrap();
        let mut resumed =
            PromptSource::resume(set(&files, None, false), options(8, Some(3)), cursor).unwrap();
        let mut rest = Vec::new();
        while let Some(batch) = resumed.next_batch().unwrap() {
            rest.push(batch.ticket.clone());
            resumed.consumed(&batch.ticket);
        }
        assert_eq!(rest, whole[stop..], "{stop}: {saved}");
        assert_eq!(rest.first(), unfinished.map(|batch| batch.ticket).as_ref());
    }
}

#[test]
fn batches_consumed_out_of_order_are_not_lost_across_an_epochs_end() {
    let directory = tempfile::tempdir().unwrap();
    let files = [prompts(directory.path(), "a.parquet", 20)];
    let mut source = PromptSource::new(set(&files, None, false), options(10, None)).unwrap();
    let tickets: Vec<Ticket> = (0..3)
        .map(|_| source.next_batch().unwrap().unwrap().ticket)
        .collect();
    assert_eq!(
        tickets
            .iter()
            .map(|ticket| ticket.epoch)
            .collect::<Vec<_>>(),
        [0, 0, 1]
    );
    source.consumed(&tickets[2]);
    source.consumed(&tickets[0]);
    assert_eq!(source.cursor().epoch, 0);
    let cursor = source.cursor().clone();
    let mut resumed =
        PromptSource::resume(set(&files, None, false), options(10, None), cursor).unwrap();
    assert_eq!(resumed.next_batch().unwrap().unwrap().ticket, tickets[1]);
    let next = resumed.next_batch().unwrap().unwrap().ticket;
    assert_eq!(next.epoch, 1);
    assert!(
        next.indices
            .iter()
            .all(|row| !tickets[2].indices.contains(row))
    );
}

#[test]
fn a_cursor_of_other_data_is_refused_and_so_is_a_batch_larger_than_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let files = [prompts(directory.path(), "a.parquet", 20)];
    let cursor = Cursor {
        rows: 21,
        seed: 42,
        epoch: 0,
        consumed: std::collections::BTreeMap::new(),
    };
    let error =
        PromptSource::resume(set(&files, None, false), options(4, None), cursor).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the saved data cursor is of a data set with 21 rows")
    );
    let error = PromptSource::new(set(&files, None, false), options(21, None)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("20 usable rows, fewer than one batch of 21")
    );
}

#[test]
fn a_sample_limit_takes_the_first_rows_or_a_seeded_subset() {
    let directory = tempfile::tempdir().unwrap();
    let files = [prompts(directory.path(), "a.parquet", 100)];
    assert_eq!(set(&files, Some(3), false).indices(), [0, 1, 2]);
    let subset = set(&files, Some(10), true).indices();
    assert_eq!(subset.len(), 10);
    assert_ne!(subset, (0..10).collect::<Vec<u64>>());
    assert_eq!(subset, set(&files, Some(10), true).indices());
    let mut source = PromptSource::new(set(&files, Some(10), true), options(5, Some(1))).unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        seen.extend(batch.ticket.indices);
    }
    seen.sort_unstable();
    assert_eq!(seen, subset);
}

fn tiny_chat(directory: &Path) -> crate::chat::Chat {
    crate::recipe::write_tiny(crate::recipe::TinyModel::Calc, directory).unwrap();
    crate::chat::Chat::load(directory, None, &Map::new()).unwrap()
}

#[test]
fn overlong_prompts_are_left_out_or_named() {
    let directory = tempfile::tempdir().unwrap();
    let chat = tiny_chat(&directory.path().join("model"));
    let mut rows = Recipe::Calc.rows(6, 1, Split::Train);
    for row in [1, 4] {
        rows[row]["prompt"][0]["content"] = "1+".repeat(40).into();
    }
    let files = [parquet(directory.path(), "a.parquet", &rows)];
    let mut data = set(&files, None, false);
    let screened = screen_prompts(&mut data, &chat, &[], 20, Overlong::Drop).unwrap();
    assert_eq!((screened.kept, screened.dropped), (4, 2));
    assert_eq!(data.indices(), [0, 2, 3, 5]);
    let lengths: Vec<usize> = data
        .scan()
        .unwrap()
        .map(|row| {
            chat.prompt_ids(&row.unwrap().prompt, &[], true)
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(lengths.iter().max(), Some(&screened.longest));
    assert_eq!(lengths.iter().sum::<usize>() as u64, screened.total_tokens);
    let mut data = set(&files, None, false);
    let error = screen_prompts(&mut data, &chat, &[], 20, Overlong::Refuse)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a.parquet: row 1: the prompt has 85 tokens with its tools; data.max_prompt_length is 20. Raise it"),
        "{error}"
    );
    let error = screen_prompts(&mut data, &chat, &[], 5, Overlong::Drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("all 6 rows") && error.contains("the shortest has"),
        "{error}"
    );
}

#[test]
fn tool_schemas_count_in_the_prompts_length() {
    let directory = tempfile::tempdir().unwrap();
    let files = [prompts(directory.path(), "a.parquet", 3)];
    let tokenizer = tiny_chat(&directory.path().join("model"))
        .tokenizer()
        .clone();
    let source = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";
    let template = crate::chat::ChatTemplate::new(source, "t").unwrap();
    let chat = crate::chat::Chat::new(tokenizer, template, &Map::new());
    let tool = json!({"type": "function", "function": {"name": "calculator"}});
    let longest = |registry: &[Value]| {
        let mut data = set(&files, None, false);
        screen_prompts(&mut data, &chat, registry, 1000, Overlong::Refuse)
            .unwrap()
            .longest
    };
    let schema = r#"{"type": "function", "function": {"name": "calculator"}}"#;
    assert_eq!(longest(&[tool]), longest(&[]) + schema.len());
}

#[test]
fn short_json_lines_convert_to_verls_schema() {
    let directory = tempfile::tempdir().unwrap();
    let lines = directory.path().join("sums.jsonl");
    std::fs::write(&lines, "{\"question\": \"1+1\", \"answer\": 2, \"note\": null}\n{\"prompt\": \"2+2\", \"answer\": \"4\"}\n").unwrap();
    let output = directory.path().join("out/sums.parquet");
    let converted = convert(&lines, &output).unwrap();
    assert_eq!(converted.rows, 2);
    assert_eq!(
        converted.columns,
        ["data_source", "prompt", "reward_model", "extra_info"]
    );
    let rows = set(&[output], None, false).read(&[0, 1]).unwrap();
    assert_eq!(
        rows[0].prompt,
        [crate::message::Message::new("user", "1+1")]
    );
    assert_eq!(rows[1].reward_model.as_ref().unwrap().ground_truth, "4");
    assert_eq!(rows[0].data_source, "sums");
    std::fs::write(
        &lines,
        "{\"prompt\": \"1+1\", \"label\": 2}\n{\"prompt\": \"2\", \"label\": \"x\"}\n",
    )
    .unwrap();
    let error = convert(&lines, &directory.path().join("b.parquet"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(
            "sums.jsonl: row 1: column label is \"x\"; expected a whole number, as in earlier rows"
        ),
        "{error}"
    );
    assert!(!directory.path().join("b.parquet").exists());
}

#[test]
fn preferences_read_as_messages() {
    let row = json!({"prompt": [{"role": "user", "content": "q"}], "chosen": "good", "rejected": [{"role": "assistant", "content": "bad"}]});
    let place = Place {
        path: Path::new("p.parquet").into(),
        row: 0,
    };
    let row = Row::read(object(row), &place, "prompt", Need::Preferences).unwrap();
    assert_eq!(row.chosen.unwrap()[0].text(), "good");
    assert_eq!(row.rejected.unwrap()[0].text(), "bad");
    let row = json!({"prompt": [{"role": "user", "content": "q"}], "chosen": "good"});
    let error = Row::read(object(row), &place, "prompt", Need::Preferences)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("expected chosen and rejected answers, or a label"),
        "{error}"
    );
}

#[test]
fn arguments_as_json_text_become_objects() {
    let row = json!({"messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]});
    let place = Place {
        path: Path::new("p.parquet").into(),
        row: 0,
    };
    let row = Row::read(object(row), &place, "prompt", Need::Demonstrations).unwrap();
    assert_eq!(
        row.messages[1].tool_calls[0].function.arguments,
        json!({"x": 1})
    );
}

#[test]
fn a_file_is_shown_with_counts_lengths_and_rendered_samples() {
    let directory = tempfile::tempdir().unwrap();
    let chat = tiny_chat(&directory.path().join("model"));
    let file = prompts(directory.path(), "a.parquet", 40);
    let shown = show(&file, "prompt", Some(&chat), &[], 2).unwrap();
    assert_eq!(shown.rows, 40);
    assert_eq!(shown.data_sources["lathe/calc"], 40);
    assert_eq!(
        shown.schema[1],
        (
            "prompt".to_owned(),
            "list<struct<role: text, content: text>>".to_owned()
        )
    );
    let (characters, tokens) = (shown.characters.unwrap(), shown.tokens.unwrap());
    assert_eq!(characters.count, 40);
    assert_eq!(
        characters.bins.iter().map(|(_, count)| count).sum::<u64>(),
        40
    );
    // <|im_start|>, `user\n`, <|im_end|>, <|im_start|>, `assistant\n` around the characters.
    assert_eq!(
        (tokens.min, tokens.max),
        (characters.min + 5, characters.max + 5)
    );
    assert_eq!(shown.samples.len(), 2);
    assert!(
        shown.samples[0]
            .text
            .ends_with("=<|im_end|><|im_start|>assistant\n")
    );
    assert!(shown.samples[0].ground_truth.is_some());
}

#[test]
fn quantiles_of_a_histogram_are_the_nearest_ranks() {
    let histogram = Histogram::of((1..=100).collect()).unwrap();
    assert_eq!((histogram.median, histogram.p95), (50, 95));
    assert_eq!(histogram.bins.len(), 10);
    assert!(histogram.bins.iter().all(|(_, count)| *count == 10));
    assert_eq!(Histogram::of(vec![7]).unwrap().bins, [(7, 1)]);
    assert_eq!(Histogram::of(Vec::new()), None);
}

proptest! {
    #[test]
    fn row_ranges_are_the_set_of_what_was_put_in(rows in prop::collection::vec(0_u64..60, 0..80)) {
        let mut ranges = RowRanges::default();
        for row in &rows {
            ranges.insert(*row);
        }
        let set: std::collections::BTreeSet<u64> = rows.iter().copied().collect();
        prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(ranges.len(), set.len() as u64);
        for row in 0..60 {
            prop_assert_eq!(ranges.contains(row), set.contains(&row));
        }
        prop_assert_eq!(rows.into_iter().collect::<RowRanges>(), ranges);
    }
}
