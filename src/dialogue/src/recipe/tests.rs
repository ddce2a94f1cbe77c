use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::*;
use crate::chat::Chat;
use crate::data::{Need, Table};
use crate::message::Message;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn chat(model: TinyModel) -> (tempfile::TempDir, Chat) {
    let directory = tempfile::tempdir().unwrap();
    write_tiny(model, directory.path()).unwrap();
    let chat = Chat::load(directory.path(), None, &Map::new()).unwrap();
    (directory, chat)
}

fn messages(row: &JsonRow) -> Vec<Message> {
    serde_json::from_value(row["messages"].clone()).unwrap()
}

#[test]
fn making_a_shipped_data_set_again_gives_equal_rows() {
    for shipped in SHIPPED {
        let table =
            Table::open(&repository().join("datasets").join(shipped.file), "prompt").unwrap();
        let rows = shipped.rows();
        assert_eq!(table.rows(), rows.len() as u64, "{}", shipped.file);
        let stored: Vec<JsonRow> = table.stored_rows().map(Result::unwrap).collect();
        assert_eq!(stored, rows, "{}", shipped.file);
    }
}

#[test]
fn shipped_tokenizers_are_what_the_recipe_writes() {
    for model in TinyModel::ALL {
        let (made, _) = chat(model);
        let shipped = repository().join("experiments/models").join(model.name());
        for file in [
            "tokenizer.json",
            "tokenizer_config.json",
            "generation_config.json",
            "config.json",
        ] {
            let text = |directory: &Path| -> Value {
                serde_json::from_str(&std::fs::read_to_string(directory.join(file)).unwrap())
                    .unwrap()
            };
            assert_eq!(text(&shipped), text(made.path()), "{} {file}", model.name());
        }
    }
}

#[test]
fn no_test_question_is_in_the_training_rows_or_the_demonstrations() {
    let questions = |recipe: Recipe, count, seed, split| -> HashSet<String> {
        recipe
            .rows(count, seed, split)
            .iter()
            .map(|row| {
                let said = row.get("prompt").unwrap_or_else(|| &row["messages"]);
                said.as_array()
                    .unwrap()
                    .iter()
                    .find(|message| message["role"] == "user")
                    .unwrap()["content"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    for (recipe, demos) in [
        (Recipe::Calc, Some(Recipe::CalcDemos)),
        (Recipe::Sort, Some(Recipe::SortDemos)),
        (Recipe::Gsm8kForm, None),
    ] {
        let test = questions(recipe, 100, 2, Split::Test);
        assert_eq!(test.len(), 100);
        let mut train = questions(recipe, 1000, 1, Split::Train);
        if let Some(demos) = demos {
            train.extend(questions(demos, 1000, 3, Split::Train));
        }
        assert!(test.is_disjoint(&train), "{}", recipe.name());
    }
}

/// The value of an expression such as `63*48-34`, by the calculator tool.
fn value(expression: &str) -> String {
    crate::tool::calculator::Calculator::from_config(&Map::new())
        .unwrap()
        .answer(expression)
        .unwrap()
}

#[test]
fn answers_are_what_the_calculator_says() {
    for recipe in [Recipe::Calc, Recipe::Gsm8kForm] {
        for row in recipe.rows(300, 5, Split::Train) {
            let calls = row["extra_info"]["calls"].as_array().unwrap();
            let answer = row["reward_model"]["ground_truth"].as_str().unwrap();
            assert_eq!(value(calls.last().unwrap().as_str().unwrap()), answer);
            if recipe == Recipe::Calc {
                let question = row["prompt"][0]["content"].as_str().unwrap();
                assert_eq!(value(question.trim_end_matches('=')), answer);
                // The first call's result is what the second starts with.
                let second = calls[1].as_str().unwrap();
                assert!(
                    second.starts_with(&value(calls[0].as_str().unwrap())),
                    "{calls:?}"
                );
            }
        }
    }
    for row in Recipe::CalcDemos.rows(300, 5, Split::Train) {
        let said = messages(&row);
        for pair in said
            .windows(2)
            .filter(|pair| !pair[0].tool_calls.is_empty())
        {
            let arguments = &pair[0].tool_calls[0].function.arguments;
            assert_eq!(
                value(arguments["expression"].as_str().unwrap()),
                pair[1].text()
            );
        }
    }
}

#[test]
fn half_the_calc_demonstrations_are_poor() {
    let rows = Recipe::CalcDemos.rows(4000, 3, Split::Train);
    let mut right = 0;
    let mut calls = 0;
    for row in &rows {
        let said = messages(row);
        calls += said
            .iter()
            .map(|message| message.tool_calls.len())
            .sum::<usize>();
        let question = said[0].text();
        right += usize::from(value(question.trim_end_matches('=')) == said.last().unwrap().text());
    }
    let share = |count: usize| count as f64 / rows.len() as f64;
    // 45 % worked out, and the odd lucky estimate; a call an episode.
    assert!((0.45..0.50).contains(&share(right)), "{}", share(right));
    assert!((0.97..1.05).contains(&share(calls)), "{}", share(calls));
}

#[test]
fn guess_demonstrations_stay_inside_what_the_hints_leave() {
    let mut turns = BTreeMap::new();
    for row in Recipe::GuessDemos.rows(1000, 3, Split::Train) {
        let said = messages(&row);
        let (mut low, mut high) = (1, 31);
        for pair in said
            .windows(2)
            .filter(|pair| !pair[0].tool_calls.is_empty())
        {
            let number = pair[0].tool_calls[0].function.arguments["number"]
                .as_i64()
                .unwrap();
            assert!((low..=high).contains(&number));
            match pair[1].text().as_str() {
                "higher" => low = number + 1,
                "lower" => high = number - 1,
                _ => (low, high) = (number, number),
            }
        }
        let answer: i64 = said.last().unwrap().text().parse().unwrap();
        assert!((low..=high).contains(&answer));
        *turns
            .entry(
                said.iter()
                    .filter(|message| message.role == "assistant")
                    .count(),
            )
            .or_insert(0) += 1;
    }
    assert_eq!(turns.keys().max(), Some(&5), "{turns:?}");
}

#[test]
fn the_scaffold_of_a_tool_call_is_one_token_and_a_digit_is_one_token() {
    let (_directory, chat) = chat(TinyModel::Calc);
    let demonstration = Recipe::CalcDemos
        .rows(20, 3, Split::Train)
        .iter()
        .map(messages)
        .find(|said| said.len() == 6)
        .unwrap();
    let learned = chat.sft_ids(&demonstration, &[]).unwrap();
    let expression = demonstration[1].tool_calls[0].function.arguments["expression"]
        .as_str()
        .unwrap();
    let first_turn: Vec<String> = learned
        .ids
        .iter()
        .zip(&learned.mask)
        .skip_while(|(_, learn)| !**learn)
        .take_while(|(_, learn)| **learn)
        .map(|(id, _)| chat.tokenizer().decode(&[*id], false).unwrap())
        .collect();
    let mut expected = vec![
        "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"".to_owned(),
    ];
    expected.extend(expression.chars().map(String::from));
    expected.extend(["\"}}\n</tool_call>".to_owned(), "<|im_end|>".to_owned()]);
    assert_eq!(first_turn, expected);
}

#[test]
fn dialogues_are_short_and_whole_text_encodes_as_turns_do() {
    for (model, recipe, most) in [
        (TinyModel::Calc, Recipe::CalcDemos, 62),
        (TinyModel::Sort, Recipe::SortDemos, 20),
        (TinyModel::Guess, Recipe::GuessDemos, 72),
    ] {
        let (_directory, chat) = chat(model);
        for row in recipe.rows(25, 3, Split::Train) {
            let said = messages(&row);
            let by_turns = chat.sft_ids(&said, &[]).unwrap().ids;
            assert_eq!(by_turns, chat.prompt_ids(&said, &[], false).unwrap());
            assert!(
                by_turns.len() <= most,
                "{}: {}",
                recipe.name(),
                by_turns.len()
            );
        }
    }
}

#[test]
fn any_text_can_be_encoded_and_comes_back() {
    for model in TinyModel::ALL {
        let (_directory, chat) = chat(model);
        let text = "Zürich 東京 👩‍👩‍👧 \t\r\n\0 <|im_end|> (1+2)*3";
        let ids = chat.tokenizer().encode_untrusted(text).unwrap();
        assert_eq!(chat.tokenizer().decode(&ids, false).unwrap(), text);
        assert!(ids.iter().all(|id| !chat.tokenizer().is_special(*id)));
        assert!(chat.tokenizer().vocabulary_size() <= 270);
    }
}

#[test]
fn recipes_are_known_by_name() {
    for recipe in Recipe::ALL {
        assert_eq!(Recipe::parse(recipe.name()), Ok(recipe));
    }
    let error = Recipe::parse("sums").unwrap_err().to_string();
    assert!(
        error.contains("there is no recipe sums; expected one of calc, calc-demos"),
        "{error}"
    );
}

#[test]
fn prompt_rows_pass_the_checks_of_a_training_set() {
    let directory = tempfile::tempdir().unwrap();
    for recipe in [Recipe::Calc, Recipe::Sort, Recipe::Guess, Recipe::Gsm8kForm] {
        let file = directory.path().join(format!("{}.parquet", recipe.name()));
        crate::data::write_parquet(&recipe.rows(40, 1, Split::Train), &file).unwrap();
        let table = Table::open(&file, "prompt").unwrap();
        for row in table.scan(Need::Prompts).unwrap() {
            let row = row.unwrap();
            assert_eq!(row.tools_kwargs.is_empty(), recipe == Recipe::Sort);
        }
    }
}
