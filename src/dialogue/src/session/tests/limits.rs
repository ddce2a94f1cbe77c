//! Every bound at its edge (checklist 9: no limit without a flag).

use serde_json::json;

use super::super::scripted::{CharRenderer, Reply, calls, ids, says, stops};
use super::*;
use crate::rollout::Finish;

fn one_call(_: &TurnRequest, turn: u32) -> Reply {
    match turn {
        0 => calls("calculator", &json!({"expression": "1+1"})),
        _ => says("2"),
    }
}

fn call_and_delta() -> (usize, usize) {
    let call = one_call(&request(), 0).ids.len();
    (call, CharRenderer::delta(&["2"]).len())
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

#[tokio::test]
async fn a_tool_result_that_leaves_no_room_for_an_answer_ends_the_dialogue_before_it_is_appended() {
    let (call, delta) = call_and_delta();
    let mut bench = Bench::new(one_call);
    bench.limits.max_response_length = call + delta;
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Length);
    assert_eq!(rollout.response_ids.len(), call);
    assert_eq!(rollout.messages.len(), 2);
    assert_eq!(rollout.tools[0].result, "2", "the call ran");
}

#[tokio::test]
async fn a_tool_result_that_leaves_room_for_one_token_is_appended_and_the_answer_is_cut() {
    let (call, delta) = call_and_delta();
    let mut bench = Bench::new(one_call);
    bench.limits.max_response_length = call + delta + 1;
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Length);
    assert_eq!(rollout.response_ids.len(), call + delta + 1);
    assert_eq!(rollout.response_ids.last(), Some(&u32::from('2')));
}

#[tokio::test]
async fn an_answer_that_just_fits_is_a_stop() {
    let (call, delta) = call_and_delta();
    let mut bench = Bench::new(one_call);
    bench.limits.max_response_length = call + delta + 2;
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Stop);
    assert_eq!(rollout.response_ids.len(), bench.limits.max_response_length);
}

#[tokio::test]
async fn the_context_limit_counts_the_prompt() {
    let (call, delta) = call_and_delta();
    let prompt_length = Bench::new(one_call).one().await.prompt_ids.len();
    let mut bench = Bench::new(one_call);
    for (room, finish, length) in [
        (call - 1, Finish::Length, call - 1),
        (call, Finish::Length, call),
        (call + delta, Finish::Length, call),
        (call + delta + 1, Finish::Length, call + delta + 1),
        (call + delta + 2, Finish::Stop, call + delta + 2),
    ] {
        bench.limits.max_model_len = prompt_length + room;
        let rollout = bench.one().await;
        assert_eq!(
            (rollout.finish, rollout.response_ids.len()),
            (finish, length)
        );
    }
    bench.limits.max_model_len = prompt_length;
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Error);
    assert!(
        rollout
            .error
            .expect("said")
            .contains("rollout.max_model_len")
    );
}

#[tokio::test]
async fn a_call_cut_by_the_limit_never_runs() {
    let (call, _) = call_and_delta();
    let mut bench = Bench::new(one_call);
    bench.limits.max_response_length = call;
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Length);
    assert!(rollout.tools.is_empty());
}

#[tokio::test]
async fn the_turn_limit_is_flagged_only_when_a_call_is_pending() {
    let mut bench = Bench::new(one_call);
    bench.limits.max_assistant_turns = Some(1);
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::TurnLimit);
    assert!(rollout.tools.is_empty());
    assert_eq!(rollout.score, Some(0.0), "judged by what it said");
    bench.limits.max_assistant_turns = Some(2);
    assert_eq!(bench.one().await.finish, Finish::Stop);
}

#[tokio::test]
async fn a_turn_cut_by_its_own_bound_goes_on_when_it_called_and_its_masks_are_exact() {
    let call = super::super::scripted::call_text("calculator", &json!({"expression": "1+1"}));
    let text = format!("{call} and then I ramble");
    let mut bench = Bench::new(move |_, turn| match turn {
        0 => says(&text),
        _ => says("2"),
    });
    bench.limits.max_turn_tokens = Some(call.len() + 5);
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Stop);
    let drawn = call.len() + 5;
    // The end token that the cut took away is put in under the mask.
    let masked = 1 + CharRenderer::delta(&["2"]).len();
    let mut mask = vec![true; drawn];
    mask.resize(drawn + masked, false);
    mask.resize(drawn + masked + 2, true);
    assert_eq!(rollout.response_mask, mask);
    bench.limits.max_turn_tokens = Some(call.len() - 1);
    let cut = bench.one().await;
    assert_eq!(
        cut.finish,
        Finish::Stop,
        "half a call is answered with an error, then the model goes on"
    );
    assert_eq!(
        cut.tools[0].failure,
        Some(crate::rollout::CallFailure::Malformed)
    );
}

#[tokio::test]
async fn a_single_turn_agent_has_no_tools_and_one_turn() {
    let mut bench = Bench::new(one_call);
    let mut row = prompt(0, "q");
    row.agent_name = Some("single_turn_agent".to_owned());
    let rollout = bench.run(vec![row]).await.remove(0);
    assert_eq!(rollout.finish, Finish::Stop);
    assert_eq!(rollout.assistant_turns, 1);
    assert!(rollout.tools.is_empty());
    assert!(rollout.messages[1].text().contains("<tool_call>"));
    bench.agent = AgentLoop::SingleTurnAgent;
    let mut row = prompt(0, "q");
    row.agent_name = Some("tool_agent".to_owned());
    assert_eq!(bench.run(vec![row]).await[0].assistant_turns, 2);
}

#[tokio::test]
async fn an_empty_turn_ends_the_dialogue() {
    let rollout = Bench::new(|_, turn| match turn {
        0 => calls("calculator", &json!({"expression": "1+1"})),
        _ => stops(""),
    })
    .one()
    .await;
    assert_eq!(rollout.finish, Finish::Stop);
    assert_eq!(rollout.assistant_turns, 1);
    assert_eq!(rollout.messages.len(), 2);
    let silent = Bench::new(|_, _| stops("")).one().await;
    assert_eq!((silent.score, silent.score_error), (None, None));
    assert!(silent.response_ids.is_empty());
    assert_eq!(ids(""), silent.response_ids);
}
