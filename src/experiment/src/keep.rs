//! Which checkpoints a run keeps, as its experiment says it.

use crate::Experiment;
use crate::guards::{Action, Guard, Target, Watch};

/// What is kept; a checkpoint goes when nothing here wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The newest so many; None: all.
    pub last: Option<usize>,
    /// Those of steps that are a multiple of it.
    pub every: Option<u64>,
    /// So many of the best.
    pub best: usize,
    /// Steps between the evaluations that say which are best; None: every step says.
    pub scored_every: Option<u64>,
    pub guards: Option<GuardsKeep>,
}

/// How far back guards may want to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardsKeep {
    /// The first bad value that a trip is about lies at most so many steps back.
    pub steps: u64,
    /// They may go to the best checkpoint from before that.
    pub to_best: bool,
}

impl Experiment {
    pub fn keep(&self) -> Keep {
        let trainer = &self.trainer;
        let is_evaluated = trainer.ckpt_best_metric.starts_with("val-");
        Keep {
            last: trainer.max_actor_ckpt_to_keep.map(|last| last as usize),
            every: trainer.ckpt_keep_every.map(u64::from),
            best: trainer.ckpt_keep_best as usize,
            scored_every: u64::try_from(trainer.test_freq)
                .ok()
                .filter(|every| is_evaluated && *every > 0),
            guards: self.guards_keep(),
        }
    }

    fn guards_keep(&self) -> Option<GuardsKeep> {
        let rolling: Vec<&Guard> = self
            .trainer
            .guards
            .iter()
            .filter(|guard| guard.may_roll_back())
            .collect();
        let steps = rolling
            .iter()
            .map(|guard| u64::from(guard.consecutive) * self.steps_between(guard) + guard.cooldown)
            .max()?;
        let is_to_best = |action: &Action| *action == Action::RollBack { to: Target::Best };
        Some(GuardsKeep {
            steps,
            to_best: rolling.iter().any(|guard| {
                guard
                    .ladder
                    .iter()
                    .any(|rung| rung.0.iter().any(is_to_best))
            }),
        })
    }

    /// Steps between two values that the guard judges.
    fn steps_between(&self, guard: &Guard) -> u64 {
        let Watch::Metric { metrics, .. } = &guard.watch else {
            return 1;
        };
        let all = |start: &str| metrics.iter().all(|metric| metric.starts_with(start));
        if all("val-") {
            u64::try_from(self.trainer.test_freq).unwrap_or(1).max(1)
        } else if all("probe/") {
            u64::from(self.trainer.guard_probe_freq)
        } else {
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_text;

    fn keep(trainer: &str) -> Keep {
        let text = format!(
            "data: {{train_files: a.parquet, val_files: b.parquet}}\nactor_rollout_ref: {{model: {{path: m}}}}\ntrainer: {{{trainer}}}\n"
        );
        let loaded = from_text("e.yaml", &text, &[]);
        loaded.experiment.keep()
    }

    #[test]
    fn without_settings_every_checkpoint_is_kept() {
        let kept = keep("test_freq: 5");
        assert_eq!((kept.last, kept.every, kept.best), (None, None, 0));
        assert_eq!(kept.guards, None);
    }

    #[test]
    fn guards_want_what_lies_before_the_longest_streak_they_judge() {
        let kept = keep(
            "test_freq: 4, guards: [{name: a, metric: val-core/x/reward/mean@1, below: 0, for: 3, cooldown: 2, action: [roll_back best]}, {name: b, metric: actor/grad_norm, above: 9, for: 5, action: [alert]}]",
        );
        assert_eq!(
            kept.guards,
            Some(GuardsKeep {
                steps: 14,
                to_best: true
            }),
            "three evaluations four steps apart, and two steps of rest; the one that only tells wants nothing"
        );
        assert_eq!(kept.scored_every, Some(4));
    }
}
