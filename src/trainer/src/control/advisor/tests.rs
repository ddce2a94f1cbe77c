use proptest::prelude::*;

use super::*;

fn times(generate_s: f64, train_s: f64) -> StepTimes {
    StepTimes {
        generate_s,
        train_s,
        whole_s: generate_s + train_s,
    }
}

/// The depth that a decision asks for.
fn wanted(decision: &Decision) -> u64 {
    match decision {
        Decision::Try(to, _)
        | Decision::Turn(to)
        | Decision::Keep(to, _)
        | Decision::Back(to, _) => *to,
    }
}

/// A run whose batches come out as deep as they were begun: after a turn those begun before come first.
struct World {
    advisor: Advisor,
    /// Of the batches begun, the next to be trained first.
    begun: std::collections::VecDeque<u64>,
    decisions: Vec<Decision>,
}

impl World {
    fn new(advisor: Advisor) -> Self {
        Self {
            advisor,
            begun: [0].into(),
            decisions: Vec::new(),
        }
    }

    /// Trains a batch; `step` says what a step takes at a depth.
    fn train(&mut self, step: impl Fn(u64) -> StepTimes) -> f64 {
        let depth = self.begun.pop_front().expect("one is always begun");
        let times = step(depth);
        let decided = self.advisor.trained(depth, times);
        self.decisions.extend(decided);
        let depth = self.decisions.last().map_or(0, wanted);
        while self.begun.len() <= depth as usize {
            self.begun.push_back(depth);
        }
        times.whole_s
    }
}

/// A world in which overlapping costs a factor on both sides; gives depth and seconds of the last step, and everything that the
/// advisor decided.
fn live(
    generate_s: &[f64],
    train_s: f64,
    contention: f64,
    steps: usize,
) -> (u64, f64, Vec<Decision>) {
    let mut world = World::new(Advisor::new(0, 4));
    let mut last = 0.0;
    for step in 0..steps {
        let generate_s = generate_s[step % generate_s.len()];
        last = world.train(|depth| {
            let slower = if depth == 0 { 1.0 } else { contention };
            let (generate_s, train_s) = (generate_s * slower, train_s * slower);
            let whole_s = if depth == 0 {
                generate_s + train_s
            } else {
                generate_s.max(train_s)
            };
            StepTimes {
                generate_s,
                train_s,
                whole_s,
            }
        });
    }
    let depth = world.decisions.last().map_or(0, wanted);
    (depth, last, world.decisions)
}

/// The depths of each turn, and how it ended.
fn course(decisions: &[Decision]) -> (Vec<u64>, Option<bool>) {
    let turns = decisions.iter().map(wanted).collect();
    let is_kept = decisions.last().and_then(|decision| match decision {
        Decision::Keep(..) => Some(true),
        Decision::Back(..) => Some(false),
        Decision::Try(..) | Decision::Turn(_) => None,
    });
    (turns, is_kept)
}

#[test]
fn with_a_processor_for_each_side_it_settles_one_version_deep() {
    let (depth, _, decisions) = live(&[1.0], 1.0, 1.0, 60);
    assert_eq!(depth, 1, "{decisions:?}");
    assert_eq!(
        course(&decisions),
        (vec![1, 0, 1, 0, 1], Some(true)),
        "back and forth: {decisions:?}"
    );
    let measured = Measured {
        before_s: 2.0,
        tried_s: 1.0,
    };
    assert_eq!(decisions[4], Decision::Keep(1, measured));
}

#[test]
fn where_both_sides_share_a_processor_it_goes_back_and_says_what_came() {
    let (depth, _, decisions) = live(&[1.0], 1.0, 2.0, 60);
    assert_eq!(depth, 0, "{decisions:?}");
    let measured = Measured {
        before_s: 2.0,
        tried_s: 2.0,
    };
    assert_eq!(decisions.last(), Some(&Decision::Back(0, measured)));
    assert_eq!(course(&decisions).0, [1, 0, 1, 0, 0]);
}

#[test]
fn what_is_clearly_slower_twice_is_not_tried_any_longer() {
    let (depth, _, decisions) = live(&[1.0], 1.0, 3.0, 40);
    assert_eq!(depth, 0, "{decisions:?}");
    assert_eq!(course(&decisions), (vec![1, 0, 0], Some(false)));
}

#[test]
fn where_nothing_is_to_be_gained_nothing_is_tried() {
    let (depth, _, decisions) = live(&[0.001], 1.0, 1.0, 200);
    assert_eq!((depth, decisions), (0, vec![]));
}

#[test]
fn someone_elses_change_is_followed_and_measured_anew() {
    let mut advisor = Advisor::new(0, 4);
    for _ in 0..4 {
        assert_eq!(advisor.trained(0, times(1.0, 1.0)), None);
    }
    let deep = StepTimes {
        whole_s: 1.0,
        ..times(1.0, 1.0)
    };
    for _ in 0..=MEASURED {
        assert_eq!(advisor.trained(3, deep), None);
    }
    let decided = advisor.trained(3, deep);
    assert!(
        matches!(decided, Some(Decision::Try(1, _))),
        "one version deep is as fast: {decided:?}"
    );
    // As fast, and its samples are younger.
    let mut depth = 1;
    for _ in 0..60 {
        if let Some(decision) = advisor.trained(depth, deep) {
            depth = wanted(&decision);
            if let Decision::Keep(at, _) = decision {
                assert_eq!(at, 1);
                return;
            }
        }
    }
    panic!("it was not kept");
}

#[test]
fn one_that_begins_to_decide_measures_first_and_one_that_ends_to_turns_nothing_more() {
    let mut advisor = Advisor::watching(0, 4);
    for _ in 0..20 {
        assert_eq!(advisor.trained(0, times(1.0, 1.0)), None);
    }
    advisor.may_decide(true, 4);
    for _ in 0..MEASURED {
        assert_eq!(advisor.trained(0, times(1.0, 1.0)), None);
    }
    let decided = advisor.trained(0, times(1.0, 1.0));
    assert!(matches!(decided, Some(Decision::Try(1, _))), "{decided:?}");
    advisor.may_decide(false, 4);
    for _ in 0..60 {
        assert_eq!(advisor.trained(1, times(1.0, 1.0)), None);
    }
    assert_eq!(advisor.advice().map(|advice| advice.depth), Some(1));
}

#[test]
fn someone_elses_change_in_the_middle_of_a_trial_ends_it() {
    let mut world = World::new(Advisor::new(0, 4));
    let step = |depth: u64| StepTimes {
        whole_s: if depth == 0 { 2.0 } else { 1.0 },
        ..times(1.0, 1.0)
    };
    while world.decisions.len() < 2 {
        world.train(step);
    }
    assert_eq!(course(&world.decisions).0, [1, 0]);
    for _ in 0..20 {
        let decided = world.advisor.trained(2, step(2));
        if let Some(decision) = decided {
            assert!(matches!(decision, Decision::Try(1, _)), "{decision:?}");
            return;
        }
    }
    panic!("it measures anew");
}

#[test]
fn uneven_batches_want_more_depth_than_even_ones() {
    let of = |generate: &[f64]| {
        let mut advisor = Advisor::new(0, 4);
        advisor.measured = generate
            .iter()
            .map(|seconds| times(*seconds, 1.0))
            .collect();
        advisor.advice().unwrap().best
    };
    assert_eq!(of(&[1.0; 6]), 1);
    assert!(of(&[0.2, 0.2, 2.6, 0.2, 0.2, 2.8]) > 1);
}

proptest! {
    #[test]
    fn more_depth_is_never_predicted_slower_and_nothing_beats_the_busier_side(
        steps in prop::collection::vec((0.0_f64..10.0, 0.01_f64..10.0), 3..20),
    ) {
        let steps: Vec<StepTimes> = steps.into_iter().map(|(g, t)| times(g, t)).collect();
        let whole: f64 = mean(steps.iter().map(|step| step.whole_s));
        prop_assert!((seconds_a_step(&steps, 0) - whole).abs() < 1e-9, "depth 0 is one after the other");
        let busier = mean(steps.iter().map(|step| step.generate_s)).max(mean(steps.iter().map(|step| step.train_s)));
        let mut before = f64::INFINITY;
        for depth in 1..=8 {
            let seconds = seconds_a_step(&steps, depth);
            prop_assert!(seconds <= before + 1e-9);
            prop_assert!(seconds >= busier * 0.98 - 10.0 / PREDICTED_STEPS as f64);
            before = seconds;
        }
    }

    /// The machine gets slower or faster by up to 2 % with every step, and three steps somewhere take up to three times as long:
    /// neither is taken for the depth's doing.
    #[test]
    fn load_that_drifts_or_bursts_decides_nothing(
        ratio in prop_oneof![0.4_f64..0.6, 1.6_f64..2.5],
        drift in -0.02_f64..0.02,
        burst in 8_usize..50,
        burst_steps in 0_usize..4,
        heavier in 1.0_f64..3.0,
    ) {
        let mut world = World::new(Advisor::new(0, 1));
        for step in 0..60 {
            let mut load = (drift * step as f64).exp();
            if (burst..burst + burst_steps).contains(&step) {
                load *= heavier;
            }
            world.train(|depth| StepTimes {
                generate_s: load,
                train_s: load,
                whole_s: 2.0 * load * if depth == 0 { 1.0 } else { ratio },
            });
            if let (_, Some(is_kept)) = course(&world.decisions) {
                prop_assert_eq!(is_kept, ratio < 1.0, "{:?}", world.decisions);
                return Ok(());
            }
        }
        prop_assert!(false, "it came to no end: {:?}", world.decisions);
    }
}
