//! What a tool that takes time costs: tokens a second when every call takes 0, 50, 200, 1000 ms, drawn as a run in mode `async`
//! draws them, and by a plain batch loop, which waits for all answers of a turn before anybody goes on, and trains in between.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trainer::control::MAX_STALENESS;

use crate::overlap::{Drawing, Plan, draw};

const LATENCIES_MS: [u64; 4] = [0, 50, 200, 1000];
/// A step of the learner, without computing anything.
const TRAINS: Duration = Duration::from_millis(250);
const STALENESS: u64 = 2;
/// The most batches there may be in flight.
const DEEP: u64 = MAX_STALENESS;

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    latency_ms: u64,
    side_by_side: Drawing,
    deep: Drawing,
    plain: Drawing,
}

/// Wall time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tools(Vec<Row>);

impl fmt::Display for Tools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "tokens a second (wall) when every tool call takes so long: async with staleness {STALENESS} and {DEEP}, and a plain batch loop"
        )?;
        let Some(first) = self.0.first() else {
            return Ok(());
        };
        for row in &self.0 {
            let kept = |now: &Drawing, at_0: &Drawing| 100.0 * now.tokens_per_s / at_0.tokens_per_s;
            write!(
                formatter,
                "\n  {:>5} ms: {:>6.0} ({:>3.0} % of its 0 ms), {:>6.0} ({:>3.0} %), {:>6.0} ({:>3.0} %): {:.2}x and {:.2}x",
                row.latency_ms,
                row.side_by_side.tokens_per_s,
                kept(&row.side_by_side, &first.side_by_side),
                row.deep.tokens_per_s,
                kept(&row.deep, &first.deep),
                row.plain.tokens_per_s,
                kept(&row.plain, &first.plain),
                row.side_by_side.tokens_per_s / row.plain.tokens_per_s,
                row.deep.tokens_per_s / row.plain.tokens_per_s
            )?;
        }
        Ok(())
    }
}

pub fn measure() -> anyhow::Result<Tools> {
    tch::set_num_threads(1);
    let mut rows = Vec::new();
    for latency_ms in LATENCIES_MS {
        let plan = Plan {
            batches_at_once: MAX_STALENESS as usize + 1,
            staleness: STALENESS,
            lockstep: false,
            one_in: 1,
            slow: Duration::from_millis(latency_ms),
            trains: TRAINS,
            measured: 16,
        };
        rows.push(Row {
            latency_ms,
            side_by_side: draw(plan)?,
            deep: draw(Plan {
                staleness: DEEP,
                ..plan
            })?,
            plain: draw(Plan {
                batches_at_once: 1,
                staleness: 0,
                lockstep: true,
                ..plan
            })?,
        });
    }
    Ok(Tools(rows))
}
