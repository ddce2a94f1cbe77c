//! The tree, its places, and edits that change one value's bytes.

#![expect(
    clippy::needless_pass_by_value,
    reason = "json!(..) at every call reads better without &"
)]
#![expect(
    clippy::manual_is_multiple_of,
    reason = "picks by remainder, some of them 0, one table of cases"
)]
#![expect(
    clippy::format_push_string,
    reason = "a text built line by line; speed does not matter"
)]

use experiment::yaml::{self, EditError, Node, Value, parse, remove_value, set_value};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

const FILE: &str = "\
# top
data:                    # what it learns from
  train_files: 'a.parquet'
  val_files:
    - b.parquet          # one
    - \"c d.parquet\"      # \"two\"
  seed: 42   # order

actor:
  optim: {lr: 1e-6, betas: [0.9, 0.999]}  # AdamW
  clip_ratio_low: 0.2
rollout:
  stop: []
  name:            # filled in later
  note: |
    two
    lines
trainer: {logger: [console], seed: 1,}
";

fn set(text: &str, path: &str, value: Json) -> String {
    let path: Vec<&str> = path.split('.').collect();
    set_value(text, &path, &value).unwrap()
}

/// The lines in which two texts differ, as `-old` and `+new`.
fn changed(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same_start = old
        .iter()
        .zip(&new)
        .take_while(|(left, right)| left == right)
        .count();
    let same_end = old[same_start..]
        .iter()
        .rev()
        .zip(new[same_start..].iter().rev())
        .take_while(|(left, right)| left == right)
        .count();
    let gone = old[same_start..old.len() - same_end]
        .iter()
        .map(|line| format!("-{line}"));
    gone.chain(
        new[same_start..new.len() - same_end]
            .iter()
            .map(|line| format!("+{line}")),
    )
    .collect()
}

fn edit(path: &str, value: Json) -> Vec<String> {
    changed(FILE, &set(FILE, path, value))
}

#[test]
fn a_changed_value_leaves_comments_order_and_quotes_as_they_were() {
    assert_eq!(
        edit("data.seed", json!(7)),
        ["-  seed: 42   # order", "+  seed: 7   # order"]
    );
    assert_eq!(
        edit("data.train_files", json!("x")),
        ["-  train_files: 'a.parquet'", "+  train_files: 'x'"]
    );
    assert_eq!(
        edit("data.train_files", json!("it's")),
        ["-  train_files: 'a.parquet'", "+  train_files: 'it''s'"]
    );
    assert_eq!(
        edit("actor.optim.lr", json!(0.0003)),
        [
            "-  optim: {lr: 1e-6, betas: [0.9, 0.999]}  # AdamW",
            "+  optim: {lr: 3e-4, betas: [0.9, 0.999]}  # AdamW"
        ]
    );
    assert_eq!(
        edit("actor.optim.betas", json!([0.8, 0.9])),
        [
            "-  optim: {lr: 1e-6, betas: [0.9, 0.999]}  # AdamW",
            "+  optim: {lr: 1e-6, betas: [0.8, 0.9]}  # AdamW"
        ]
    );
    assert_eq!(
        edit("rollout.stop", json!(["a", "b: c"])),
        ["-  stop: []", "+  stop: [a, \"b: c\"]"]
    );
    assert_eq!(
        edit("rollout.name", json!("vllm")),
        [
            "-  name:            # filled in later",
            "+  name: vllm            # filled in later"
        ]
    );
    assert_eq!(
        edit("rollout.note", json!("one")),
        ["-  note: |", "-    two", "-    lines", "+  note: one"]
    );
    assert_eq!(
        edit("data.val_files", json!(["x"])),
        [
            "-  val_files:",
            "-    - b.parquet          # one",
            "-    - \"c d.parquet\"      # \"two\"",
            "+  val_files: [x]"
        ]
    );
    assert_eq!(
        edit("data.seed", json!("null")),
        ["-  seed: 42   # order", "+  seed: \"null\"   # order"]
    );
    assert_eq!(
        edit("data.seed", json!("1e3")),
        ["-  seed: 42   # order", "+  seed: \"1e3\"   # order"]
    );
    assert_eq!(
        edit("data.seed", Json::Null),
        ["-  seed: 42   # order", "+  seed: null   # order"]
    );
}

#[test]
fn an_absent_key_goes_to_the_end_of_its_block() {
    assert_eq!(edit("actor.ppo_epochs", json!(2)), ["+  ppo_epochs: 2"]);
    assert_eq!(edit("data.shuffle", json!(false)), ["+  shuffle: false"]);
    assert_eq!(
        edit("critic.optim.lr", json!(1e-5)),
        ["+critic:", "+  optim:", "+    lr: 1e-5"]
    );
    assert_eq!(
        edit("actor.fsdp_config.dtype", json!("bfloat16")),
        ["+  fsdp_config:", "+    dtype: bfloat16"]
    );
    assert_eq!(
        edit("actor.optim.eps", json!(1e-8)),
        [
            "-  optim: {lr: 1e-6, betas: [0.9, 0.999]}  # AdamW",
            "+  optim: {lr: 1e-6, betas: [0.9, 0.999], eps: 1e-8}  # AdamW"
        ]
    );
    assert_eq!(
        edit("trainer.mode", json!("sync")),
        [
            "-trainer: {logger: [console], seed: 1,}",
            "+trainer: {logger: [console], seed: 1, mode: sync}"
        ]
    );
    assert_eq!(edit("rollout.name.x", json!(1)), ["+    x: 1"]);
    assert_eq!(set("", "a.b", json!(1)), "a:\n  b: 1\n");
    assert_eq!(set("# only\n", "a", json!(1)), "# only\na: 1\n");
    assert_eq!(set("a: 1", "b", json!(2)), "a: 1\nb: 2\n");
    assert_eq!(
        set("a: {}\n", "a.b", json!(2)),
        "a: { b: 2}\n".replace("{ ", "{")
    );
    assert_eq!(
        set("a:\n- 1\n- 2 # x\nb: 3\n", "a", json!([])),
        "a: []\nb: 3\n"
    );
    assert_eq!(set("a: {b}\n", "a.b", json!(2)), "a: {b: 2}\n");
    assert_eq!(
        set("é: ü # ö\nb: 1\n", "é", json!("ä")),
        "é: \"ä\" # ö\nb: 1\n"
    );
}

#[test]
fn a_removed_key_takes_its_own_lines_only() {
    let remove = |path: &str| {
        let path: Vec<&str> = path.split('.').collect();
        remove_value(FILE, &path).map(|text| changed(FILE, &text))
    };
    assert_eq!(remove("data.seed").unwrap(), ["-  seed: 42   # order"]);
    assert_eq!(
        remove("rollout.note").unwrap(),
        ["-  note: |", "-    two", "-    lines"]
    );
    assert_eq!(
        remove("actor.optim.lr").unwrap(),
        [
            "-  optim: {lr: 1e-6, betas: [0.9, 0.999]}  # AdamW",
            "+  optim: {betas: [0.9, 0.999]}  # AdamW"
        ]
    );
    assert_eq!(
        remove("actor.optim.betas").unwrap(),
        [
            "-  optim: {lr: 1e-6, betas: [0.9, 0.999]}  # AdamW",
            "+  optim: {lr: 1e-6}  # AdamW"
        ]
    );
    assert_eq!(
        remove("data.sed"),
        Err(EditError::Absent {
            key: "data.sed".to_owned()
        })
    );
}

#[test]
fn an_edit_that_cannot_be_made_says_why() {
    let error = set_value(FILE, &["data", "seed", "x"], &json!(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "seed on line 7 is not a block, so it cannot hold data.seed.x"
    );
    let error = set_value("a: [1\n", &["a"], &json!(1)).unwrap_err();
    assert!(error.to_string().starts_with("line 2: not YAML"), "{error}");
    let error = set_value("- a\n", &["a"], &json!(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the document on line 1 is not a block, so it cannot hold a"
    );
}

#[test]
fn every_value_of_a_file_is_where_its_span_says() {
    fn check(text: &str, node: &Node) {
        let written = &text[node.span.start..node.span.end];
        let before = &text[..node.span.start];
        assert_eq!(
            node.span.line as usize,
            before.matches('\n').count() + 1,
            "{written:?}"
        );
        assert_eq!(
            node.span.column as usize,
            before.rsplit('\n').next().unwrap().chars().count() + 1,
            "{written:?}"
        );
        match &node.value {
            Value::List(items) => items.iter().for_each(|item| check(text, item)),
            Value::Map(entries) => {
                for entry in entries {
                    assert_eq!(&text[entry.key_span.start..entry.key_span.end], entry.key);
                    check(text, &entry.value);
                }
            }
            Value::Null => assert!(["", "~", "null"].contains(&written), "{written:?}"),
            _ if node.style == yaml::Style::BlockText => assert_eq!(written, "two\n    lines"),
            _ => assert_eq!(yaml_value(written), node.to_json()),
        }
    }
    check(FILE, &parse(FILE).root.unwrap());
    let other = "ü: \"ä\"\nö: [é, {ß: ~}] # ü\n";
    check(other, &parse(other).root.unwrap());
}

fn yaml_value(text: &str) -> Json {
    parse(text).root.map_or(Json::Null, |root| root.to_json())
}

/// Any document as a tree of plain values; keys are unique within a block.
fn tree() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        (-1e12..1e12_f64).prop_map(Json::from),
        "[ -~]{0,12}".prop_map(Json::from),
        "\\PC{0,6}".prop_map(Json::from),
        prop_oneof![
            Just("yes"),
            Just("~"),
            Just("1e3"),
            Just("0x1f"),
            Just("- a"),
            Just("a: b"),
            Just(" # x"),
            Just("---")
        ]
        .prop_map(Json::from),
    ];
    let node = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("[a-z_]{1,6}", inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-z_]{1,6}", node, 1..5)
        .prop_map(|map| Json::Object(map.into_iter().collect()))
}

/// A document in block style with comments, as a person might write it; lists and deep blocks in either style.
fn written(tree: &Json, indent: usize, seed: u64, text: &mut String) {
    let Json::Object(entries) = tree else { return };
    for (at, (key, value)) in entries.iter().enumerate() {
        let pad = " ".repeat(indent);
        let pick = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(at as u64 * 7 + indent as u64);
        let comment = if pick % 3 == 0 { "  # why: {[\"'" } else { "" };
        if pick % 5 == 0 {
            text.push_str(&format!("{pad}# before {key}\n\n"));
        }
        match value {
            Json::Object(inner) if !inner.is_empty() && pick % 4 != 0 => {
                text.push_str(&format!("{pad}{key}:{comment}\n"));
                written(value, indent + 2, seed / 3, text);
            }
            Json::Array(items) if !items.is_empty() && pick % 2 == 0 => {
                text.push_str(&format!("{pad}{key}:{comment}\n"));
                for item in items {
                    text.push_str(&format!("{pad}- {}\n", yaml::flow(item)));
                }
            }
            Json::String(value)
                if pick % 7 == 0 && value.chars().all(|c| c.is_ascii_graphic() || c == ' ') =>
            {
                text.push_str(&format!(
                    "{pad}{key}: '{}'{comment}\n",
                    value.replace('\'', "''")
                ));
            }
            Json::Null if pick % 2 == 0 => text.push_str(&format!("{pad}{key}:{comment}\n")),
            _ => text.push_str(&format!("{pad}{key}: {}{comment}\n", yaml::flow(value))),
        }
    }
}

fn paths(tree: &Json, prefix: &[String], into: &mut Vec<Vec<String>>) {
    if let Json::Object(entries) = tree {
        for (key, value) in entries {
            let path: Vec<String> = prefix.iter().cloned().chain([key.clone()]).collect();
            paths(value, &path, into);
            into.push(path);
        }
    }
}

fn comments(text: &str) -> usize {
    text.matches("# why: {[\"'").count() + text.matches("# before ").count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_written_reads_back_and_serde_yaml_reads_the_same(tree in tree(), seed in any::<u64>()) {
        let mut text = String::new();
        written(&tree, 0, seed, &mut text);
        let parsed = parse(&text);
        prop_assert_eq!(&parsed.faults, &[]);
        let ours = parsed.root.map_or(json!({}), |root| root.to_json());
        let theirs: Json = serde_yaml::from_str(&text).unwrap();
        prop_assert_eq!(&ours, &theirs, "{}", text);
        prop_assert_eq!(&ours, &tree, "{}", text);
    }

    #[test]
    fn a_set_value_is_there_and_every_other_byte_and_value_stays(
        tree in tree(), seed in any::<u64>(), pick in any::<prop::sample::Index>(), new in tree(), leaf in any::<i32>(), whole in any::<bool>()
    ) {
        let mut text = String::new();
        written(&tree, 0, seed, &mut text);
        let mut all = Vec::new();
        paths(&tree, &[], &mut all);
        let path = &all[pick.index(all.len())];
        let steps: Vec<&str> = path.iter().map(String::as_str).collect();
        let value = if whole { new["a"].clone() } else { json!(leaf) };
        let edited = set_value(&text, &steps, &value).unwrap();
        let root = parse(&edited).root.unwrap();
        prop_assert_eq!(root.at(&steps).unwrap().to_json(), value.clone());
        // Bytes before the key and from the end of the value's last line on are the same.
        let before = parse(&text).root.unwrap();
        let parent = before.at(&steps[..steps.len() - 1]).unwrap();
        let entry = parent.entry(steps[steps.len() - 1]).unwrap();
        prop_assert_eq!(&text[..entry.key_span.end], &edited[..entry.key_span.end]);
        let end = entry.value.span.end.max(entry.key_span.end);
        let rest = text[end..].find('\n').map_or("", |at| &text[end + at..]);
        prop_assert!(edited.ends_with(rest), "{}\n=>\n{}", text, edited);
        // A scalar's edit changes nothing but its bytes.
        if !matches!(entry.value.value, Value::List(_) | Value::Map(_)) && entry.value.span.end > entry.value.span.start {
            prop_assert_eq!(&text[..entry.value.span.start], &edited[..entry.value.span.start]);
            prop_assert!(edited.ends_with(&text[entry.value.span.end..]));
            prop_assert_eq!(comments(&text), comments(&edited));
        }
    }

    #[test]
    fn a_new_key_is_added_without_touching_a_byte_of_the_rest(
        tree in tree(), seed in any::<u64>(), pick in any::<prop::sample::Index>(), value in any::<i32>()
    ) {
        let mut text = String::new();
        written(&tree, 0, seed, &mut text);
        let mut all = vec![Vec::new()];
        paths(&tree, &[], &mut all);
        let mut path = all[pick.index(all.len())].clone();
        let at: Vec<&str> = path.iter().map(String::as_str).collect();
        let root = parse(&text).root.unwrap();
        prop_assume!(matches!(root.at(&at).unwrap().value, Value::Map(_)));
        path.extend(["NEW".to_owned(), "KEY".to_owned()]);
        let steps: Vec<&str> = path.iter().map(String::as_str).collect();
        let edited = set_value(&text, &steps, &json!(value)).unwrap();
        let back = remove_value(&edited, &steps[..steps.len() - 1]).unwrap();
        let squeeze = |text: &str| text.replace("{ ", "{").replace(" }", "}");
        prop_assert_eq!(squeeze(&back), squeeze(&text));
    }

    #[test]
    fn no_text_makes_the_parser_or_the_editor_panic(text in "[a-c:\\- \n\t\\[\\]{},\"'|>&*!%#?~0-9é]{0,60}", value in tree()) {
        let parsed = parse(&text);
        for fault in &parsed.faults {
            prop_assert!(fault.line as usize <= text.lines().count() + 1);
        }
        let _ = set_value(&text, &["a", "b"], &value);
        let _ = set_value(&text, &["a"], &json!(1));
        let _ = remove_value(&text, &["a"]);
    }
}

#[test]
fn a_hostile_depth_is_a_fault_and_not_a_crash() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        format!("a: {}", "[".repeat(60)),
    ] {
        let parsed = parse(&text);
        assert_eq!(parsed.root, None);
        assert_eq!(parsed.faults.len(), 1, "{:?}", parsed.faults);
    }
}
