mod pure;

use std::path::{Path, PathBuf};

use dialogue::tokenizer::{Tokenizer, Trust};
use runlog::run_dir::RunDir;
use runlog::store::{self, RolloutRow};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::tui::testing::{Bench, STATES, do_everything, do_everything_in_turn, sample_run_in};

/// A tokenizer that lies in the repository.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dialogue/tests/data/models/tiny-qwen2-tied")
}

/// Rollouts of a step: three prompts of four samples; one prompt is the same at every step, one group is all equal.
fn rows(step: u64) -> Vec<RolloutRow> {
    let tokenizer = Tokenizer::load(&model()).unwrap();
    let ids = |text: &str| tokenizer.encode(text, Trust::Template, false).unwrap();
    let mut rows = Vec::new();
    for prompt in 0..3_u64 {
        let (a, b) = match prompt {
            0 => (96, 66),
            other => (10 * other + step, 7),
        };
        for sample in 0..4_u32 {
            let is_right = prompt != 1 && (sample + step as u32).is_multiple_of(2);
            let is_guess = sample == 3;
            let answer = if is_right { a * b + 16 } else { a * b };
            let question = format!("{a}*{b}+16=");
            let mut messages = vec![json!({"role": "user", "content": question})];
            let mut tools = Vec::new();
            if !is_guess {
                let call =
                    json!({"name": "calculator", "arguments": {"expression": format!("{a}*{b}")}});
                messages.push(json!({"role": "assistant", "content": "First the product.", "tool_calls": [call]}));
                let failed = sample == 2;
                let result = if failed {
                    "error: expected a digit".to_owned()
                } else {
                    (a * b).to_string()
                };
                messages.push(json!({"role": "tool", "content": result}));
                tools.push(json!({
                    "name": "calculator", "arguments": {"expression": format!("{a}*{b}")}, "result": result,
                    "failed": failed, "failure": failed.then_some("bad_arguments"), "reward": null,
                    "metrics": {}, "elapsed_ms": 0.31 + f64::from(sample)
                }));
            }
            messages
                .push(json!({"role": "assistant", "content": format!("The answer is {answer}.")}));
            let prompt_ids = ids(&question);
            let drawn = ids(&format!("The answer is {answer}."));
            let tool = if is_guess { Vec::new() } else { ids("6336\n") };
            let response_ids: Vec<u32> = tool.iter().chain(&drawn).copied().collect();
            let tokens = response_ids.len();
            let behavior: Vec<f32> = (0..tokens)
                .map(|token| {
                    if token < tool.len() {
                        0.0
                    } else {
                        -0.05 * (token as f32 + 1.0)
                    }
                })
                .collect();
            let score = (sample != 1 || prompt != 2).then_some(f64::from(u8::from(is_right)));
            rows.push(RolloutRow {
                uid: format!("train-{step}-{prompt}"),
                sample,
                step,
                data_source: "lathe/calc".to_owned(),
                row_index: 400 + prompt,
                messages: serde_json::to_string(&messages).unwrap(),
                prompt_ids,
                response_mask: (0..tokens).map(|token| token >= tool.len()).collect(),
                old_logprobs: Some(
                    behavior
                        .iter()
                        .enumerate()
                        .map(|(at, value)| value + 0.03 * (at as f32 - 8.0))
                        .collect(),
                ),
                behavior_logprobs: behavior,
                ref_logprobs: None,
                values: None,
                advantages: Some(vec![
                    match (prompt, is_right) {
                        (1, _) => 0.0,
                        (_, true) => 0.9,
                        (_, false) => -0.9,
                    };
                    tokens
                ]),
                policy_versions: vec![step - 1; tokens],
                score,
                score_parts: json!({"answer": f64::from(u8::from(is_right)), "format": 0.5})
                    .to_string(),
                tools: serde_json::to_string(&tools).unwrap(),
                finish: if is_guess { "length" } else { "stop" }.to_owned(),
                response_ids,
            });
        }
    }
    rows
}

/// A run of `steps` steps of which some are recorded, on page Rollouts.
fn bench(steps: u64, recorded: &[u64]) -> (TempDir, Bench) {
    let folder = tempfile::tempdir().unwrap();
    let run = named(
        sample_run_in(folder.path(), steps),
        "20261129-100000-sample-ab120000",
    );
    record(&run, recorded);
    let mut bench = Bench::default();
    bench.open_run(run.to_str().unwrap(), steps);
    bench.press("4");
    bench.run_jobs();
    (folder, bench)
}

/// Screens show the names of runs: a random id would change them.
fn named(run: PathBuf, name: &str) -> PathBuf {
    let to = run.with_file_name(name);
    std::fs::rename(run, &to).unwrap();
    to
}

fn record(run: &Path, steps: &[u64]) {
    let run_dir = RunDir::open(run).unwrap();
    for &step in steps {
        store::write_rollouts(&store::rollouts_path(&run_dir, step), &rows(step)).unwrap();
    }
}

fn run_of(bench: &Bench) -> PathBuf {
    bench.app.shared.current.as_ref().unwrap().path().to_owned()
}

fn page(bench: &Bench) -> &Rollouts {
    &bench.app.pages.rollouts
}

#[test]
fn no_key_panics_wherever_something_is_missing() {
    for make in STATES {
        do_everything(PageId::Rollouts, make);
    }
    let unrecorded = || bench(3, &[]).1;
    for make in [STATES[0], STATES[2], STATES[4], unrecorded] {
        let mut bench = make();
        bench.press("4");
        bench.run_jobs();
        do_everything_in_turn(PageId::Rollouts, &mut bench);
    }
    let (_folder, mut whole) = bench(6, &[1, 2, 3, 5]);
    for _ in 0..2 {
        do_everything_in_turn(PageId::Rollouts, &mut whole);
        whole.press("G l l j");
        do_everything_in_turn(PageId::Rollouts, &mut whole);
    }
}

#[test]
fn the_newest_recorded_step_is_shown_until_one_is_picked() {
    let (_folder, mut bench) = bench(6, &[1, 2, 4]);
    assert!(
        bench
            .screen(120, 40)
            .contains("step 4: 12 samples, 3 prompts")
    );
    bench.press(",");
    bench.run_jobs();
    assert_eq!(bench.app.shared.step, Some(2));
    assert!(bench.screen(120, 40).contains("step 2:"));
    bench.press(".");
    bench.press(".");
    bench.run_jobs();
    assert_eq!(
        bench.app.shared.step, None,
        "past the last: the newest again"
    );
    bench.app.shared.step = Some(3);
    bench.press("4");
    let screen = bench.screen(80, 24);
    assert!(screen.contains("Step 3 is not recorded"), "{screen}");
    bench.press("L");
    bench.run_jobs();
    assert!(bench.screen(120, 40).contains("step 4:"));
}

/// A screen without the header, which is not this page's.
fn below_header(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().skip(1).collect();
    lines.join("\n")
}

#[test]
fn golden_screens() {
    let (_folder, mut bench) = bench(6, &[1, 2, 4]);
    bench.press("j j");
    insta::assert_snapshot!("list_and_dialogue_80", below_header(&bench.screen(80, 24)));
    insta::assert_snapshot!(
        "list_and_dialogue_120",
        below_header(&bench.screen(120, 40))
    );
    insta::assert_snapshot!("list_and_dialogue_40", below_header(&bench.screen(40, 10)));
    insta::assert_snapshot!("wide_200", below_header(&bench.screen(200, 60)));
    bench.press("g g");
    insta::assert_snapshot!("group_80", below_header(&bench.screen(80, 24)));
    bench.press("j t l l");
    bench.run_jobs();
    insta::assert_snapshot!("tokens_80", below_header(&bench.screen(80, 24)));
    bench.press("m m");
    insta::assert_snapshot!("tokens_advantage_120", below_header(&bench.screen(120, 40)));
    bench.press("esc c");
    bench.run_jobs();
    insta::assert_snapshot!("beside_120", below_header(&bench.screen(120, 40)));
    bench.press("esc e");
    bench.press("/");
    bench.type_text("error");
    bench.press("enter");
    insta::assert_snapshot!("search_expanded_80", below_header(&bench.screen(80, 24)));
    bench.make_plain();
    bench.press("esc esc esc esc");
    insta::assert_snapshot!("plain_80", below_header(&bench.screen(80, 24)));
    bench.press("t m");
    bench.run_jobs();
    insta::assert_snapshot!("plain_tokens_120", below_header(&bench.screen(120, 40)));
}

#[test]
fn sorting_keeps_the_selected_sample_and_puts_missing_rewards_last() {
    let (_folder, mut bench) = bench(2, &[2]);
    bench.press("j");
    let before = page(&bench).sample().map(|(_, index)| index);
    bench.press("o f");
    assert_eq!(page(&bench).sample().map(|(_, index)| index), before);
    let rewards = |bench: &Bench| -> Vec<Option<f64>> {
        let batch = page(bench).batch().unwrap();
        page(bench)
            .rows
            .iter()
            .map(|row| match row {
                Row::Sample(index) => batch.samples[*index].row.score,
                Row::Group(_) => panic!("flat"),
            })
            .collect()
    };
    let down = rewards(&bench);
    assert_eq!(down.last(), Some(&None));
    assert!(
        down[..11].windows(2).all(|pair| pair[0] >= pair[1]),
        "{down:?}"
    );
    bench.press("O");
    let up = rewards(&bench);
    assert_eq!(up.last(), Some(&None));
    assert!(up[..11].windows(2).all(|pair| pair[0] <= pair[1]), "{up:?}");
}

#[test]
fn a_search_goes_from_dialogue_to_dialogue_and_says_when_there_is_none() {
    let (_folder, mut bench) = bench(2, &[2]);
    bench.press("/");
    bench.type_text("digit");
    bench.press("enter");
    let found = |bench: &Bench| {
        let (batch, index) = page(bench).sample().unwrap();
        (
            batch.samples[index].row.row_index,
            batch.samples[index].row.sample,
        )
    };
    assert_eq!(found(&bench), (400, 2));
    bench.press("n");
    assert_eq!(found(&bench), (401, 2));
    bench.press("N");
    assert_eq!(found(&bench), (400, 2));
    bench.press("/");
    bench.press("ctrl-u");
    bench.type_text("nobody said this");
    bench.press("enter");
    assert!(
        bench
            .screen(120, 40)
            .contains("no dialogue of this step has")
    );
}

#[test]
fn a_torn_file_is_said_and_can_be_read_again() {
    let (_folder, mut bench) = bench(3, &[1, 2]);
    let run = run_of(&bench);
    let path = run.join("rollouts/step-000002.parquet");
    let whole = std::fs::read(&path).unwrap();
    for torn in [&whole[..whole.len() / 2], &[0_u8; 64][..], b""] {
        std::fs::write(&path, torn).unwrap();
        bench.press("r");
        bench.run_jobs();
        let screen = bench.screen(80, 24);
        assert!(
            screen.contains("rollouts of step 2 cannot be read"),
            "{screen}"
        );
        assert!(screen.contains("step-000002.parquet"), "{screen}");
    }
    insta::assert_snapshot!(
        "torn_80",
        bench
            .screen(80, 24)
            .replace(run.to_str().unwrap(), "RUN")
            .lines()
            .filter(|line| !line.contains("step-000002") && !line.contains("sample-"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    // A bit flipped in the middle of the file: an error or other numbers, never a panic.
    for at in (0..whole.len()).step_by(97) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x5a;
        std::fs::write(&path, flipped).unwrap();
        bench.press("r");
        bench.run_jobs();
        bench.screen(80, 24);
    }
    std::fs::write(&path, whole).unwrap();
    bench.press("r");
    bench.run_jobs();
    assert!(bench.screen(120, 40).contains("step 2: 12 samples"));
}

#[test]
fn a_run_that_is_deleted_while_open_is_said() {
    let (folder, mut bench) = bench(3, &[1, 2]);
    drop(folder);
    bench.press("r");
    bench.run_jobs();
    let screen = bench.screen(80, 24);
    assert!(screen.contains("cannot be listed"), "{screen}");
    do_everything_in_turn(PageId::Rollouts, &mut bench);
}

#[test]
fn why_nothing_is_recorded_is_said() {
    let (_folder, mut bench) = bench(3, &[]);
    assert!(
        bench
            .screen(80, 24)
            .contains("This run has no recorded rollouts")
    );
    let experiment = run_of(&bench).join("experiment.yaml");
    std::fs::write(experiment, "trainer:\n  record_rollouts: false\n").unwrap();
    bench.press("r");
    bench.run_jobs();
    let screen = bench.screen(80, 24);
    assert!(screen.contains("does not record its rollouts"), "{screen}");
    let screen = Bench::default().screen(80, 24);
    assert!(!screen.is_empty());
}

#[test]
fn answers_to_old_questions_are_ignored() {
    let (_folder, mut bench) = bench(3, &[1, 2]);
    bench.press("j c");
    let asked = std::mem::take(&mut bench.effects);
    bench.press("j c");
    assert_eq!(
        page(&bench).beside.as_ref().map(Beside::is_done),
        None,
        "the second c closed it"
    );
    bench.press("c");
    bench.effects.splice(0..0, asked);
    let request = page(&bench).beside.as_ref().unwrap().request;
    bench.run_jobs();
    let beside = page(&bench).beside.as_ref().unwrap();
    assert_eq!(beside.request, request);
    assert_eq!(
        beside.place().map(|(_, step)| *step),
        Some(1),
        "the prompt that is in both steps"
    );
}

#[test]
fn the_same_prompt_is_found_in_marked_runs_first() {
    let (folder, mut bench) = bench(3, &[2, 3]);
    let here = bench.app.shared.current.clone().unwrap();
    let other = sample_run_in(folder.path(), 3);
    record(&other, &[1, 2, 3]);
    let other = bench.open_run(other.to_str().unwrap(), 3);
    bench.app.shared.marked = vec![other.clone()];
    let effects = bench.app.show_run(here.clone());
    bench.effects.extend(effects);
    bench.press("4");
    bench.run_jobs();
    bench.press("j c");
    bench.run_jobs();
    let beside = page(&bench).beside.as_ref().unwrap();
    assert!(beside.is_done());
    assert_eq!(
        beside.places(),
        [
            (other.clone(), 3),
            (other.clone(), 2),
            (here.clone(), 2),
            (other, 1),
            (here, 3)
        ]
    );
    let (batch, index) = page(&bench).beside_sample().unwrap();
    assert_eq!(batch.samples[index].asked(), "96*66+16=");
    bench.press("C C C C");
    bench.run_jobs();
    let (_, mine) = page(&bench).sample().unwrap();
    let (_, beside) = page(&bench).beside_sample().unwrap();
    assert_ne!(
        mine, beside,
        "beside itself stands another sample of the group"
    );
}

#[test]
fn a_prompt_is_looked_for_in_every_step_some_at_a_time_until_it_is_given_up() {
    let steps: Vec<u64> = (1..=70).collect();
    let (_folder, mut bench) = bench(70, &steps);
    let next_job = |bench: &mut Bench| {
        std::mem::take(&mut bench.effects)
            .into_iter()
            .find_map(|effect| match effect {
                Effect::Job { name, work } if name == "find prompt" => Some(work()),
                _ => None,
            })
    };
    bench.press("j c");
    let first = next_job(&mut bench).unwrap();
    bench.act(action::Action::Message(first));
    let beside = page(&bench).beside.as_ref().unwrap();
    assert!(!beside.is_done());
    assert_eq!(beside.progress(), "5 steps are still looked through");
    assert!(beside.counted().ends_with('+'));
    let second = next_job(&mut bench).expect("it goes on by itself");
    // Given up: the answer on its way is passed over, and no further job is asked for.
    bench.press("c");
    bench.act(action::Action::Message(second));
    assert!(page(&bench).beside.is_none());
    assert!(next_job(&mut bench).is_none());
    bench.press("c");
    bench.run_jobs();
    let beside = page(&bench).beside.as_ref().unwrap();
    assert!(beside.is_done());
    assert_eq!(
        beside.places().len(),
        70,
        "every step has it, this one last"
    );
}

#[test]
fn tokens_are_read_out_exactly_with_and_without_a_tokenizer() {
    let (_folder, mut bench) = bench(2, &[2]);
    bench.press("G t");
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    assert!(screen.contains("neither a checkpoint nor"), "{screen}");
    let (batch, index) = page(&bench).sample().unwrap();
    let row = &batch.samples[index].row;
    assert!(
        screen.contains(&format!("id {}", row.response_ids[0])),
        "{screen}"
    );
    let checkpoint = run_of(&bench).join("checkpoints/step-000002");
    std::fs::create_dir_all(&checkpoint).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(model().join(file), checkpoint.join(file)).unwrap();
    }
    bench.press("r");
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    assert!(!screen.contains("neither a checkpoint"), "{screen}");
    assert!(
        screen.contains("log-prob behaviour -0.050000, old -0.290000"),
        "{screen}"
    );
    assert!(screen.contains("ratio 0.786628"), "{screen}");
    assert!(screen.contains("weights v1"), "{screen}");
    insta::assert_snapshot!("tokens_text_120", below_header(&screen));
}

#[test]
fn a_replay_shows_no_step_that_has_not_ended() {
    let (_folder, mut bench) = bench(6, &[1, 2, 4]);
    let key = bench.app.shared.current.clone().unwrap();
    bench.app.start_replay(key.clone(), 0.0, 1.0);
    bench.act(action::Action::Message(action::Message::Events {
        key,
        events: crate::tui::testing::sample_events(6)
            .into_iter()
            .filter(|event| event.elapsed_ms <= 6_600.0)
            .collect(),
    }));
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    assert!(screen.contains("step 2: 12 samples"), "{screen}");
    bench.app.shared.step = Some(4);
    bench.press("j");
    assert!(
        bench
            .screen(80, 24)
            .contains("has not ended at this moment")
    );
}

#[test]
fn timeline_and_rollouts_show_the_same_step() {
    let (_folder, mut bench) = bench(6, &[1, 2, 4]);
    bench.press(", w");
    assert_eq!(bench.app.page, PageId::Timeline);
    assert_eq!(bench.app.shared.step, Some(2));
    assert!(bench.screen(80, 24).contains("step 2"));
    bench.press(". . enter");
    bench.run_jobs();
    assert_eq!(bench.app.page, PageId::Rollouts);
    assert!(bench.screen(120, 40).contains("step 4: 12 samples"));
}

#[test]
fn a_step_stays_on_the_screen_until_the_next_one_was_read() {
    let (_folder, mut bench) = bench(9, &[1, 2, 3, 4, 5, 6, 7, 8]);
    bench.press(", , , , , ,");
    let screen = bench.screen(120, 40);
    assert!(screen.contains("step 8: 12 samples"), "{screen}");
    let reads = bench
        .effects
        .iter()
        .filter(|effect| format!("{effect:?}").contains("read rollouts"))
        .count();
    assert!(reads <= 3, "{reads} steps are read at once");
    bench.run_jobs();
    assert!(bench.screen(120, 40).contains("step 2: 12 samples"));
}

#[test]
fn a_broken_row_is_shown_as_it_is() {
    let (_folder, mut bench) = bench(2, &[]);
    let run = RunDir::open(&run_of(&bench)).unwrap();
    let row = RolloutRow {
        uid: "a\x1b[31m".to_owned(),
        step: 2,
        messages: "{no json".to_owned(),
        score_parts: "[]".to_owned(),
        tools: "x".to_owned(),
        score: Some(f64::NAN),
        finish: "a_newer_reason".to_owned(),
        advantages: Some(vec![f32::NAN]),
        behavior_logprobs: vec![f32::NAN],
        response_ids: vec![7],
        response_mask: vec![true],
        policy_versions: vec![1],
        ..RolloutRow::default()
    };
    store::write_rollouts(&store::rollouts_path(&run, 2), &[row]).unwrap();
    bench.press("r");
    bench.run_jobs();
    bench.press("j");
    let screen = bench.screen(120, 40);
    assert!(screen.contains("the messages are no JSON"), "{screen}");
    assert!(screen.contains("{no json"), "{screen}");
    assert!(screen.contains("NaN"), "{screen}");
    assert!(!screen.contains('\x1b'));
    for _ in 0..2 {
        do_everything_in_turn(PageId::Rollouts, &mut bench);
    }
}

#[test]
fn in_a_long_dialogue_the_next_match_is_further_down() {
    let (_folder, mut bench) = bench(2, &[]);
    let run = RunDir::open(&run_of(&bench)).unwrap();
    let filler = "nothing here\n".repeat(60);
    let said = format!("a needle\n{filler}another needle\n{filler}the last needle");
    let long = RolloutRow {
        uid: "long".to_owned(),
        messages: json!([{"role": "user", "content": said}]).to_string(),
        ..RolloutRow::default()
    };
    let mut short = long.clone();
    short.sample = 1;
    short.messages = json!([{"role": "user", "content": "one needle"}]).to_string();
    store::write_rollouts(&store::rollouts_path(&run, 2), &[long, short]).unwrap();
    bench.press("r");
    bench.run_jobs();
    bench.press("/");
    bench.type_text("needle");
    bench.press("enter");
    let seen = |bench: &mut Bench, text: &str| bench.screen(100, 24).contains(text);
    assert!(seen(&mut bench, "a needle"));
    bench.press("n");
    assert!(seen(&mut bench, "another needle"));
    bench.press("n");
    assert!(seen(&mut bench, "the last needle"));
    bench.press("N");
    assert!(seen(&mut bench, "another needle"));
    bench.press("n n");
    assert!(seen(&mut bench, "one needle"));
    bench.press("n");
    assert!(seen(&mut bench, "a needle"));
}

#[test]
fn a_click_puts_the_cursor_onto_a_token() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let (_folder, mut bench) = bench(2, &[2]);
    bench.press("j t");
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    let row = screen.lines().nth(2).unwrap();
    let digits: Vec<(usize, char)> = row.chars().enumerate().skip(56).collect();
    let (column, _) = *digits.iter().find(|(_, c)| *c == '9').unwrap();
    let click = |bench: &mut Bench, row: u16| {
        bench.act(action::Action::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column: column as u16,
            row,
            modifiers: KeyModifiers::NONE,
        }));
    };
    for row in [2, 3] {
        bench.press("l");
        click(&mut bench, row);
        let index = page(&bench).tokens.as_ref().unwrap().cursor;
        let (batch, sample) = page(&bench).sample().unwrap();
        let id = tokens::token(&batch.samples[sample].row, index).unwrap().id;
        assert_eq!(id, 9, "the token whose id is written there: {screen}");
    }
    click(&mut bench, 30);
}
