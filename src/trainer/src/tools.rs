//! The tools' rows in each step's metrics.

use std::collections::BTreeMap;

use dialogue::rollout::{CallFailure, Rollout, ToolRecord};

use crate::arms::quantile;
use crate::learner::metrics::StepValues;

/// `tool/...` of a batch. A name that a model made up has no rows: there is no end of such names.
pub fn measure(rollouts: &[Rollout], values: &mut StepValues) {
    let mut by_name: BTreeMap<&str, Vec<&ToolRecord>> = BTreeMap::new();
    let (mut calls, mut failed) = (0u32, 0u32);
    let (mut unknown, mut malformed, mut not_run) = (0u32, 0u32, 0u32);
    for call in rollouts.iter().flat_map(|rollout| &rollout.tools) {
        calls += 1;
        failed += u32::from(call.failed);
        match call.failure {
            Some(CallFailure::UnknownTool) => unknown += 1,
            Some(CallFailure::Malformed) => malformed += 1,
            Some(CallFailure::NotRun) => not_run += 1,
            _ => by_name.entry(&call.name).or_default().push(call),
        }
    }
    values.set(
        "tool/failed_frac",
        f64::from(failed) / f64::from(calls.max(1)),
    );
    if calls > 0 {
        values.set("tool/unknown", f64::from(unknown));
        values.set("tool/malformed", f64::from(malformed));
        values.set("tool/not_run", f64::from(not_run));
    }
    for (name, calls) in by_name {
        let row = |what: &str| format!("tool/{name}/{what}");
        let count = |fits: &dyn Fn(&ToolRecord) -> bool| {
            calls.iter().filter(|call| fits(call)).count() as f64
        };
        values.set(&row("calls"), calls.len() as f64);
        values.set(&row("errors"), count(&|call| call.failed));
        values.set(
            &row("timeouts"),
            count(&|call| call.failure == Some(CallFailure::TimedOut)),
        );
        values.set(&row("cached"), count(&|call| call.cached));
        let ran =
            |call: &&&ToolRecord| !call.cached && call.failure != Some(CallFailure::BadArguments);
        let mut latencies: Vec<f64> = calls
            .iter()
            .filter(ran)
            .map(|call| call.elapsed_ms - call.wait_ms)
            .collect();
        if latencies.is_empty() {
            continue;
        }
        latencies.sort_by(f64::total_cmp);
        values.set(&row("latency_ms/p50"), quantile(&latencies, 0.5));
        values.set(&row("latency_ms/p99"), quantile(&latencies, 0.99));
        let waits = calls.iter().map(|call| call.wait_ms);
        values.set(&row("wait_ms/max"), waits.fold(0.0, f64::max));
    }
}

/// From so many failures on a tool that never worked is told.
const FEW_CALLS: usize = 8;

/// What to say of each tool whose every call in the batch failed by its own fault, or was late.
pub fn broken(rollouts: &[Rollout]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, Vec<&ToolRecord>> = BTreeMap::new();
    for call in rollouts.iter().flat_map(|rollout| &rollout.tools) {
        by_name.entry(&call.name).or_default().push(call);
    }
    let is_its_own = |call: &&ToolRecord| {
        matches!(
            call.failure,
            Some(CallFailure::Tool | CallFailure::TimedOut | CallFailure::Panicked)
        )
    };
    by_name
        .into_iter()
        .filter(|(_, calls)| calls.len() >= FEW_CALLS && calls.iter().all(is_its_own))
        .map(|(name, calls)| {
            let first: String = calls[0].result.chars().take(200).collect();
            format!(
                "all {} calls of tool {name} failed, the first with: {first}",
                calls.len()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, failure: Option<CallFailure>, elapsed_ms: f64) -> ToolRecord {
        serde_json::from_value(json!({
            "name": name, "arguments": {}, "result": "", "failed": failure.is_some(), "failure": failure,
            "reward": null, "metrics": {}, "elapsed_ms": elapsed_ms,
        }))
        .expect("a record, also one from before there were waits")
    }

    #[test]
    fn a_tool_all_of_whose_calls_failed_by_its_own_fault_is_told_and_one_that_worked_once_is_not() {
        let of = |failures: &[Option<CallFailure>]| {
            let mut rollout = crate::groups::tests::group("a", [None, None]).remove(0);
            rollout.tools = failures
                .iter()
                .map(|failure| call("shell", *failure, 1.0))
                .collect();
            broken(&[rollout])
        };
        let failed = [Some(CallFailure::Tool); 8];
        let [told] = &of(&failed)[..] else {
            panic!("one tool");
        };
        assert!(
            told.starts_with("all 8 calls of tool shell failed, the first with: "),
            "{told}"
        );
        assert!(of(&failed[1..]).is_empty(), "too few to say");
        let mut one_worked = failed;
        one_worked[3] = None;
        assert!(of(&one_worked).is_empty());
        // The model's fault says nothing about the tool.
        assert!(of(&[Some(CallFailure::BadArguments); 9]).is_empty());
    }

    #[test]
    fn calls_are_counted_by_tool_and_by_what_became_of_them() {
        let mut rollout = crate::groups::tests::group("a", [None; 2]).remove(0);
        let mut cached = call("search", None, 0.0);
        cached.cached = true;
        let mut waited = call("search", None, 50.0);
        waited.wait_ms = 30.0;
        rollout.tools = vec![
            call("search", None, 10.0),
            waited,
            cached,
            call("search", Some(CallFailure::TimedOut), 1000.0),
            call("search", Some(CallFailure::BadArguments), 0.0),
            call("calculator", Some(CallFailure::Tool), 1.0),
            call("no such", Some(CallFailure::UnknownTool), 0.0),
            call("", Some(CallFailure::Malformed), 0.0),
            call("search", Some(CallFailure::NotRun), 0.0),
        ];
        let mut values = StepValues::default();
        measure(&[rollout], &mut values);
        let expected = [
            ("tool/calculator/cached", 0.0),
            ("tool/calculator/calls", 1.0),
            ("tool/calculator/errors", 1.0),
            ("tool/calculator/latency_ms/p50", 1.0),
            ("tool/calculator/latency_ms/p99", 1.0),
            ("tool/calculator/timeouts", 0.0),
            ("tool/calculator/wait_ms/max", 0.0),
            ("tool/failed_frac", 6.0 / 9.0),
            ("tool/malformed", 1.0),
            ("tool/not_run", 1.0),
            ("tool/search/cached", 1.0),
            ("tool/search/calls", 5.0),
            ("tool/search/errors", 2.0),
            ("tool/search/latency_ms/p50", 20.0),
            ("tool/search/latency_ms/p99", 1000.0),
            ("tool/search/timeouts", 1.0),
            ("tool/search/wait_ms/max", 30.0),
            ("tool/unknown", 1.0),
        ];
        let written: Vec<(&str, f64)> = values
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), value.0))
            .collect();
        assert_eq!(written, expected);
    }
}
