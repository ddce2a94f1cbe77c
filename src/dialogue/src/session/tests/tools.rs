//! Calls that go wrong cost themselves and nothing else.

use serde_json::json;

use super::super::Counts;
use super::super::scripted::{call_text, calls, says};
use super::*;
use crate::rollout::{CallFailure, Finish};

#[tokio::test(start_paused = true)]
async fn every_way_a_call_can_fail_is_an_answer_in_words_and_counted() {
    for (text, failure, answer) in [
        (
            call_text("search", &json!({})),
            CallFailure::UnknownTool,
            "error: there is no tool \"search\"; the tools are: calculator, guess, odd",
        ),
        (
            "<tool_call>{\"name\": </tool_call>".to_owned(),
            CallFailure::Malformed,
            "error: the tool call is not valid JSON: expected value at line 1 column 10",
        ),
        (
            "<tool_call>{\"name\": \"odd\"}".to_owned(),
            CallFailure::Malformed,
            "error: the tool call has no </tool_call>",
        ),
        (
            call_text("calculator", &json!({"expr": "1"})),
            CallFailure::BadArguments,
            "error: parameter \"expression\" is missing",
        ),
        (
            call_text("calculator", &json!({"expression": "1/0"})),
            CallFailure::Tool,
            "error: division by zero",
        ),
        (
            call_text("odd", &json!({"how": "refuses"})),
            CallFailure::Tool,
            "error: not today",
        ),
        (
            call_text("odd", &json!({"how": "panics"})),
            CallFailure::Panicked,
            "error: the tool crashed: boom",
        ),
        (
            call_text("odd", &json!({"how": "hangs"})),
            CallFailure::TimedOut,
            "error: no answer within 60 s",
        ),
    ] {
        let said = text.clone();
        let rollout = Bench::new(move |_, turn| match turn {
            0 => says(&said),
            _ => says("2990"),
        })
        .one()
        .await;
        assert_eq!(rollout.finish, Finish::Stop, "{text}");
        assert_eq!(
            rollout.score,
            Some(1.0),
            "the dialogue went on after {text}"
        );
        assert_eq!(rollout.tools[0].failure, Some(failure), "{text}");
        assert_eq!(rollout.messages[2].text(), answer);
        let counts = Counts::of(&[rollout]);
        assert_eq!(counts.failed_calls, BTreeMap::from([(failure, 1)]));
        assert_eq!(counts.tool_calls, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_turn_run_side_by_side_and_the_surplus_is_answered_with_a_note() {
    let heard = Arc::new(Heard::default());
    let mut bench = Bench::new(|_, turn| match turn {
        0 => says(
            &[
                call_text("odd", &json!({"how": "3 s"})),
                call_text("odd", &json!({"how": "2 s"})),
                call_text("odd", &json!({"how": "panics"})),
                call_text("calculator", &json!({"expression": "1"})),
            ]
            .concat(),
        ),
        _ => says("2990"),
    });
    bench.limits.calls.max_parallel_calls = 3;
    bench.observer = heard.clone();
    let rollout = bench.one().await;
    let results: Vec<&str> = rollout
        .tools
        .iter()
        .map(|tool| tool.result.as_str())
        .collect();
    assert_eq!(
        results,
        [
            "done",
            "done",
            "error: the tool crashed: boom",
            "error: not run; at most 3 tool calls a turn"
        ]
    );
    assert_eq!(rollout.tools[3].failure, Some(CallFailure::NotRun));
    assert_eq!(rollout.tool_ms.round(), 3000.0);
    assert_eq!(rollout.tools[1].elapsed_ms.round(), 2000.0);
    let spans = heard.all();
    assert_eq!(
        spans
            .iter()
            .filter(|(what, ..)| what == "train-1-0 odd")
            .count(),
        3
    );
}

#[tokio::test]
async fn a_tool_keeps_its_state_through_a_dialogue_and_apart_from_others() {
    let mut bench = Bench::new(|request, turn| match (request.session.0, turn) {
        (0, 0) => calls("guess", &json!({"number": 16})),
        (_, 0) => calls("guess", &json!({"number": 24})),
        (0, 1) => calls("guess", &json!({"number": 17})),
        _ => says("17"),
    });
    bench.samples = 2;
    let mut row = prompt(0, "guess");
    row.data_source = "lathe/guess".to_owned();
    row.ground_truth = json!(17);
    let rollouts = bench.run(vec![row]).await;
    let answers: Vec<Vec<&str>> = rollouts
        .iter()
        .map(|rollout| {
            rollout
                .tools
                .iter()
                .map(|tool| tool.result.as_str())
                .collect()
        })
        .collect();
    assert_eq!(answers, [vec!["higher", "correct"], vec!["lower"]]);
    assert_eq!(rollouts[0].tools[1].metrics["guesses"], 2.0);
    assert_eq!(rollouts[0].score_parts["tool_reward/guess"], 1.0);
    assert_eq!(rollouts[1].score_parts["tool_reward/guess"], 0.0);
    assert_eq!(
        rollouts[1].score,
        Some(1.0),
        "a tool's reward is not the score"
    );
}

#[tokio::test]
async fn a_long_answer_reaches_the_model_cut() {
    let mut bench = Bench::new(|_, turn| match turn {
        0 => calls("calculator", &json!({"expression": "2^200"})),
        _ => says("2990"),
    });
    bench.limits.calls.max_response_characters = 10;
    let rollout = bench.one().await;
    assert_eq!(rollout.messages[2].text(), "16069...(truncated)...01376");
}

#[tokio::test]
async fn a_release_that_panics_hurts_nobody() {
    let mut bench = Bench::new(|_, turn| match turn {
        0 => calls("odd", &json!({"how": "x"})),
        _ => says("2990"),
    });
    bench.label = "release-panics".to_owned();
    let rollout = bench.one().await;
    assert_eq!(rollout.score, Some(1.0));
}

#[tokio::test]
async fn a_row_sees_only_the_tools_it_selects() {
    let bench = Bench::new(|_, turn| match turn {
        0 => calls("calculator", &json!({"expression": "1"})),
        _ => says("2990"),
    });
    let mut row = prompt(0, "q");
    row.tool_selection = Some(vec!["guess".to_owned()]);
    let rollout = bench.run(vec![row]).await.remove(0);
    assert_eq!(rollout.tools[0].failure, Some(CallFailure::UnknownTool));
    assert_eq!(
        rollout.tools[0].result,
        "error: there is no tool \"calculator\"; the tools are: guess"
    );
}
