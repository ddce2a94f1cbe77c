//! `lathe reward train` from a sentence encoder: everything is embedded once, then a linear head is learned to its optimum for each
//! strength of the penalty, which is a step of the run, and the best in cross-validation is kept.

use runlog::event::{EventKind, Lane, Phase};
use runlog::recorder::Recorder;
use tch::Tensor;

use super::examples::Examples;
use super::linear::{CrossValidated, PENALTIES, Problem};
use super::report::{Judged, PairReport};
use super::train::{Learned, measure, values_of};
use crate::control::Control;
use crate::encoder::{Encoder, Head};
use crate::learner::metrics::StepValues;
use crate::stop::Stop;

/// Of a run: one a penalty, and the one that is kept.
pub(super) const STEPS: u64 = PENALTIES.len() as u64 + 1;

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
                let margins: Vec<f64> =
                    (pairs.iter().map(|pair| pair.margin - pair.beside)).collect();
                Problem::Pairs {
                    deltas: chosen - rejected,
                    margins: Tensor::from_slice(&margins),
                }
            }
            (Self::Scores(embeddings), Examples::Scored(scored)) => {
                let scores: Vec<f64> = (scored.iter().map(|one| one.score - one.beside)).collect();
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
    encoder: Box<Encoder>,
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
    let mut best: Option<Tried> = None;
    let mut trained = 0;
    for (step, penalty) in (1..).zip(PENALTIES) {
        if stop.is_asked() && best.is_some() {
            break;
        }
        control.trains(step);
        let started_ms = recorder.elapsed_ms();
        let span = recorder.span(Lane::ActorUpdate, "linear head", Some(step));
        let tried = Tried {
            penalty,
            loss: 0.0,
            unseen: problem.cross_validated(&groups, penalty),
            head: problem.fit(penalty),
        };
        let tried = Tried {
            loss: problem.loss(&tried.head),
            ..tried
        };
        span.end();
        tried.record(step, recorder.elapsed_ms() - started_ms, recorder);
        told(step, recorder, &unseen.said(&tried.head), held_out);
        // Too few prompts to hold any out: the strongest penalty is the safest.
        if best
            .as_ref()
            .is_none_or(|best| tried.expected() < best.expected())
        {
            best = Some(tried);
        }
        trained = step;
    }
    let best = best.expect("a penalty was tried");
    // The last step is the head that is kept.
    trained += 1;
    best.record(trained, 0.0, recorder);
    told(trained, recorder, &unseen.said(&best.head), held_out);
    control.finish(trained, "this run trains no further step");
    let cross_validated = match (train, &best.unseen) {
        (Examples::Pairs(pairs), Some(unseen)) => {
            let judged = pairs.iter().zip(&unseen.said).map(|(pair, delta)| Judged {
                delta: delta + pair.beside,
                margin: pair.margin,
                lengths: pair.lengths,
                prompt_number: pair.prompt_number,
            });
            PairReport::of(&judged.collect::<Vec<_>>())
        }
        _ => None,
    };
    let learned = Learned::Head {
        encoder,
        head: best.head,
        cross_validated,
    };
    (learned, trained)
}

/// A penalty that was tried.
struct Tried {
    penalty: f64,
    head: Head,
    /// Of what was learned from.
    loss: f64,
    unseen: Option<CrossValidated>,
}

impl Tried {
    /// Of rows that were not learned from.
    fn expected(&self) -> f64 {
        self.unseen.as_ref().map_or(f64::NAN, |unseen| unseen.loss)
    }

    fn record(&self, step: u64, took_ms: f64, recorder: &Recorder) {
        let mut values = StepValues::default();
        values.set("train/loss", self.loss);
        values.set("train/penalty", self.penalty);
        values.set("train/cross_validated_loss", self.expected());
        values.set("training/global_step", step as f64);
        values.set("timing_s/step", took_ms / 1e3);
        recorder.record(EventKind::StepEnded {
            step,
            policy_version: step,
            values: values.0,
        });
    }
}

/// How good a head is on what is held out.
fn told(step: u64, recorder: &Recorder, said: &[f64], held_out: &Examples) {
    if let Some(measured) = measure(said, held_out) {
        recorder.record(EventKind::EvalEnded {
            step,
            policy_version: step,
            samples: held_out.len() as u64,
            values: values_of(&measured).0,
        });
    }
}
