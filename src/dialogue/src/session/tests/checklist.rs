//! The multi-turn errors seen in the wild, each as a test of ours.

use serde_json::json;

use super::super::scripted::{CharRenderer, END, Reply, calls, ids, says, stops};
use super::*;
use crate::rollout::Finish;

/// Two calls, then the answer; each turn by newer weights.
fn calc2(_: &TurnRequest, turn: u32) -> Reply {
    match turn {
        0 => calls("calculator", &json!({"expression": "63*48"})).version(3),
        1 => calls("calculator", &json!({"expression": "3024-34"})).version(4),
        _ => says("2990.").version(5),
    }
}

/// What the response must be: drawn and masked parts in turn.
fn expected(parts: &[(Vec<u32>, bool)]) -> (Vec<u32>, Vec<bool>) {
    let ids = parts.iter().flat_map(|(ids, _)| ids.clone()).collect();
    let mask = parts
        .iter()
        .flat_map(|(ids, drawn)| vec![*drawn; ids.len()])
        .collect();
    (ids, mask)
}

#[tokio::test]
async fn a_two_call_dialogue_is_recorded_token_by_token() {
    let rollout = Bench::new(calc2).one().await;
    let turns: Vec<Reply> = (0..3).map(|turn| calc2(&request(), turn)).collect();
    let (response_ids, mask) = expected(&[
        (turns[0].ids.clone(), true),
        (CharRenderer::delta(&["3024"]), false),
        (turns[1].ids.clone(), true),
        (CharRenderer::delta(&["2990"]), false),
        (turns[2].ids.clone(), true),
    ]);
    assert_eq!(rollout.response_ids, response_ids);
    assert_eq!(rollout.response_mask, mask);
    assert_eq!(rollout.finish, Finish::Stop);
    assert_eq!(rollout.error, None);
    assert_eq!(rollout.score, Some(1.0));
    assert_eq!(rollout.assistant_turns, 3);
    assert_eq!(rollout.version_range(), Some((3, 5)));
    let roles: Vec<&str> = rollout
        .messages
        .iter()
        .map(|message| message.role.as_str())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant"
        ]
    );
    assert_eq!(
        rollout.messages[1].tool_calls[0].function.name,
        "calculator"
    );
    assert_eq!(rollout.messages[2].text(), "3024");
    assert_eq!(rollout.uid, "train-1-0");
    // Masked tokens carry the version of the turn before them.
    let first = turns[0].ids.len();
    assert_eq!(rollout.policy_versions[first..first + 3], [3, 3, 3]);
}

fn request() -> TurnRequest {
    TurnRequest {
        session: crate::generate::SessionId(0),
        context_ids: Vec::new(),
        max_new_tokens: 1,
        sampling: Sampling::default(),
        seed: 0,
    }
}

/// (1) The scripted engine refuses a context that is not the last one plus what was drawn; here the drawn ids have no
/// text that would encode back to them.
#[tokio::test]
async fn drawn_ids_are_kept_and_text_is_never_tokenised_again() {
    let odd_ids = |text: &str| {
        let mut reply = says(text);
        reply
            .ids
            .splice(0..0, [END, super::super::scripted::START, END]);
        reply
    };
    let bench = Bench::new(move |_, turn| match turn {
        0 => odd_ids(
            "<tool_call>{\"name\": \"calculator\",   \"arguments\": {\"expression\": \"1+1\"}}</tool_call>",
        ),
        _ => odd_ids("2"),
    });
    let rollout = bench.one().await;
    assert_eq!(rollout.assistant_turns, 2);
    let requests = bench.generator.requests();
    let drawn: Vec<u32> = requests[1].context_ids[requests[0].context_ids.len()..].to_vec();
    assert_eq!(drawn[..3], [END, super::super::scripted::START, END]);
    assert_eq!(rollout.response_ids[..drawn.len()], drawn);
}

/// (2), (3) `check` asserts for every rollout of every test here that log-probs are 0 exactly where the mask is false.
#[tokio::test]
async fn tool_and_template_tokens_are_masked_whatever_they_say() {
    for text in ["42", "", "</tool_response><|im_end|>", "forges"] {
        let text = text.to_owned();
        let bench = Bench::new(move |_, turn| match turn {
            0 => calls("odd", &json!({ "how": text })),
            _ => says("7"),
        });
        let rollout = bench.one().await;
        let result = &rollout.tools[0].result;
        let (_, mask) = expected(&[
            (calls("odd", &rollout.tools[0].arguments).ids, true),
            (CharRenderer::delta(&[result]), false),
            (says("7").ids, true),
        ]);
        assert_eq!(rollout.response_mask, mask);
        assert_eq!(
            rollout.tools.len(),
            1,
            "a call in a tool's answer is nobody's call"
        );
    }
}

/// (4) Also when the dialogue is cut while its last tool result is unanswered.
#[tokio::test(start_paused = true)]
async fn the_last_token_is_the_models_so_that_no_reward_is_masked() {
    let mut bench = Bench::new(|_, turn| match turn {
        0 => calls("calculator", &json!({"expression": "1+1"})),
        _ => says("2").after(100),
    });
    bench.limits.session_timeout = Some(Duration::from_secs(10));
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Deadline);
    assert_eq!(
        rollout.response_ids,
        calls("calculator", &json!({"expression": "1+1"})).ids
    );
    assert_eq!(rollout.messages.last().expect("messages").role, "assistant");
    assert_eq!(rollout.tools.len(), 1);
}

/// (6)
#[tokio::test]
async fn tool_output_never_earns_the_reward() {
    let mut bench = Bench::new(|_, turn| match turn {
        0 => calls("calculator", &json!({"expression": "2990"})),
        _ => says("I will not say."),
    });
    for scorer in [ScorerName::Numeric, ScorerName::Gsm8k, ScorerName::Exact] {
        bench.scorers = Scorers::new(scorer);
        let rollout = bench.one().await;
        assert_eq!(rollout.tools[0].result, "2990");
        assert_eq!(rollout.score, Some(0.0), "{scorer:?}");
    }
}

/// (7), (8)
#[tokio::test]
async fn the_generation_prompt_is_masked_and_the_drawn_end_token_is_not() {
    let rollout = Bench::new(calc2).one().await;
    for (at, id) in rollout.response_ids.iter().enumerate() {
        let ends_drawn_turn = *id == END && rollout.response_mask[at];
        if ends_drawn_turn && at + 1 < rollout.response_ids.len() {
            assert!(
                !rollout.response_mask[at + 1],
                "after a turn comes the template"
            );
        }
    }
    let drawn_ends = rollout
        .response_ids
        .iter()
        .zip(&rollout.response_mask)
        .filter(|(id, drawn)| **id == END && **drawn)
        .count();
    assert_eq!(drawn_ends, 3, "each turn's own end token is trained");
    let prompt = CharRenderer::generation_prompt();
    let windows = rollout.response_ids.windows(prompt.len()).enumerate();
    let prompts: Vec<usize> = windows
        .filter(|(_, window)| *window == prompt)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(prompts.len(), 2);
    for at in prompts {
        assert!(
            rollout.response_mask[at..at + prompt.len()]
                .iter()
                .all(|drawn| !drawn)
        );
    }
}

/// (8) A turn ended by a stop string lacks its end token: the template's is put in, masked.
#[tokio::test]
async fn a_missing_end_token_is_added_under_the_mask() {
    let text =
        "<tool_call>{\"name\":\"calculator\",\"arguments\":{\"expression\":\"1+1\"}}</tool_call>";
    let rollout = Bench::new(move |_, turn| match turn {
        0 => stops(text),
        _ => stops("2"),
    })
    .one()
    .await;
    let (response_ids, mask) = expected(&[
        (ids(text), true),
        (vec![END], false),
        (CharRenderer::delta(&["2"]), false),
        (ids("2"), true),
    ]);
    assert_eq!(rollout.response_ids, response_ids);
    assert_eq!(rollout.response_mask, mask);
}

/// (10)
#[tokio::test]
async fn the_prompt_length_counts_the_tool_schemas() {
    let mut bench = Bench::new(|_, _| says("2990"));
    bench.agent = AgentLoop::SingleTurnAgent;
    let without = bench.one().await.prompt_ids.len();
    bench.agent = AgentLoop::ToolAgent;
    let with = bench.one().await.prompt_ids.len();
    assert!(with > without);
    bench.limits.max_prompt_length = with - 1;
    let error = bench.one().await.error.expect("too long");
    assert_eq!(
        error,
        format!(
            "row 0: the prompt has {with} tokens, more than data.max_prompt_length = {}; raise it, or set data.filter_overlong_prompts",
            with - 1
        )
    );
}

/// (11)
#[tokio::test]
async fn a_group_keeps_its_size_when_samples_fail() {
    let mut bench = Bench::new(|request, _| {
        let mut reply = says("2990");
        if request.session.0 == 1 {
            reply.logprobs = Some(vec![]);
        }
        reply
    });
    bench.samples = 4;
    let rollouts = bench.run(vec![prompt(0, "a"), prompt(1, "b")]).await;
    let order: Vec<(u64, u32)> = rollouts
        .iter()
        .map(|rollout| (rollout.row_index, rollout.sample))
        .collect();
    assert_eq!(
        order,
        [
            (0, 0),
            (0, 1),
            (0, 2),
            (0, 3),
            (1, 0),
            (1, 1),
            (1, 2),
            (1, 3)
        ]
    );
    assert_eq!(
        rollouts[1].error.as_deref(),
        Some("the generation engine returned 5 ids, 0 log-probs and 5 policy versions")
    );
    assert_eq!(rollouts[1].score, None);
    assert_eq!(
        rollouts
            .iter()
            .filter(|rollout| rollout.score == Some(1.0))
            .count(),
        7
    );
}
