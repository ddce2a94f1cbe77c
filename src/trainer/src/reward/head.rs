//! `lathe reward train` from a sentence encoder: everything is embedded once, then a linear head is learned to its optimum for each
//! strength of the penalty, which is a step of the run, and the best in cross-validation is kept.

use runlog::event::{EventKind, Lane, Phase};
use runlog::recorder::Recorder;
use tch::Tensor;

use super::examples::Examples;
use super::linear::{PENALTIES, Problem};
use super::train::{Learned, measure, values_of};
use crate::control::Control;
use crate::encoder::{Encoder, Head};
use crate::learner::metrics::StepValues;
use crate::stop::Stop;

/// Of a run: one a penalty.
pub(super) const STEPS: u64 = PENALTIES.len() as u64;

/// Embeddings of a set of examples.
enum Embedded {
    /// `[N, H]` each.
    Pairs {
        chosen: Tensor,
        rejected: Tensor,
    },
    Scores(Tensor),
}

impl Embedded {
    fn new(encoder: &Encoder, examples: &Examples) -> Self {
        match examples {
            Examples::Pairs(pairs) => {
                let whole = |tail: &dyn Fn(usize) -> Vec<u32>| -> Vec<Vec<u32>> {
                    (0..pairs.len())
                        .map(|at| [pairs[at].prompt.clone(), tail(at)].concat())
                        .collect()
                };
                Self::Pairs {
                    chosen: encoder.embed(&whole(&|at| pairs[at].chosen.clone())),
                    rejected: encoder.embed(&whole(&|at| pairs[at].rejected.clone())),
                }
            }
            Examples::Scored(scored) => {
                let ids: Vec<&[u32]> = scored.iter().map(|one| one.ids.as_slice()).collect();
                Self::Scores(encoder.embed(&ids))
            }
        }
    }

    /// As [`super::train::said`].
    fn said(&self, head: &Head) -> Vec<f64> {
        let weights = Tensor::from_slice(&head.weights);
        let numbers = |embeddings: &Tensor| -> Vec<f64> {
            let said = embeddings.mv(&weights) + head.bias;
            Vec::try_from(said).expect("a flat f64 tensor on the CPU")
        };
        match self {
            Self::Pairs { chosen, rejected } => numbers(chosen)
                .into_iter()
                .zip(numbers(rejected))
                .flat_map(|(chosen, rejected)| [chosen, rejected])
                .collect(),
            Self::Scores(embeddings) => numbers(embeddings),
        }
    }

    fn problem(&self, examples: &Examples) -> Problem {
        match (self, examples) {
            (Self::Pairs { chosen, rejected }, Examples::Pairs(pairs)) => {
                let margins: Vec<f64> = pairs.iter().map(|pair| pair.margin).collect();
                Problem::Pairs {
                    deltas: chosen - rejected,
                    margins: Tensor::from_slice(&margins),
                }
            }
            (Self::Scores(embeddings), Examples::Scored(scored)) => {
                let scores: Vec<f64> = scored.iter().map(|one| one.score).collect();
                Problem::Scores {
                    embeddings: embeddings.shallow_clone(),
                    scores: Tensor::from_slice(&scores),
                }
            }
            _ => unreachable!("they were embedded from these examples"),
        }
    }
}

/// What a head on an encoder says, as [`super::train::said`].
pub(super) fn says(encoder: &Encoder, head: &Head, examples: &Examples) -> Vec<f64> {
    Embedded::new(encoder, examples).said(head)
}

/// Learns, and gives the head back with the number of steps. Stops early, with the best so far, when asked.
pub(super) fn learn(
    encoder: Encoder,
    (train, held_out): (&Examples, &Examples),
    recorder: &Recorder,
    stop: &Stop,
    control: &mut Control,
) -> (Learned, u64) {
    recorder.record(EventKind::PhaseChanged { phase: Phase::Sft });
    let span = recorder.span(Lane::Ref, "embeddings", Some(1));
    let embedded = Embedded::new(&encoder, train);
    let unseen = Embedded::new(&encoder, held_out);
    span.end();
    let problem = embedded.problem(train);
    let groups: Vec<u64> = match train {
        Examples::Pairs(pairs) => pairs.iter().map(|pair| pair.prompt_number).collect(),
        Examples::Scored(scored) => scored.iter().map(|one| one.prompt_number).collect(),
    };
    let mut best: Option<(f64, Head)> = None;
    let mut trained = 0;
    for (step, penalty) in (1..).zip(PENALTIES) {
        if stop.is_asked() && best.is_some() {
            break;
        }
        control.trains(step);
        let started_ms = recorder.elapsed_ms();
        let span = recorder.span(Lane::ActorUpdate, "linear head", Some(step));
        let expected = problem.cross_validated(&groups, penalty);
        let head = problem.fit(penalty);
        span.end();
        let mut values = StepValues::default();
        values.set("train/loss", problem.loss(&head));
        values.set("train/penalty", penalty);
        values.set("train/cross_validated_loss", expected);
        values.set("training/global_step", step as f64);
        values.set("timing_s/step", (recorder.elapsed_ms() - started_ms) / 1e3);
        recorder.record(EventKind::StepEnded {
            step,
            policy_version: step,
            values: values.0,
        });
        if let Some(measured) = measure(&unseen.said(&head), held_out) {
            recorder.record(EventKind::EvalEnded {
                step,
                policy_version: step,
                samples: held_out.len() as u64,
                values: values_of(&measured).0,
            });
        }
        // Too few prompts to hold any out: the strongest penalty is the safest.
        if best.as_ref().is_none_or(|(least, _)| expected < *least) {
            best = Some((expected, head));
        }
        trained = step;
    }
    control.finish(trained, "this run trains no further step");
    let (_, head) = best.expect("a penalty was tried");
    (Learned::Head { encoder, head }, trained)
}
