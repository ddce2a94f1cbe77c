use serde_json::{Value, json};

use super::*;

struct Run {
    state: &'static str,
    metrics: Vec<(&'static str, f64)>,
    config: Value,
}

impl RunFacts for Run {
    fn name(&self) -> &'static str {
        "20261129-100000-sort-long-ab120000"
    }
    fn state(&self) -> &str {
        self.state
    }
    fn host(&self) -> &'static str {
        "gpu1.cluster"
    }
    fn mode(&self) -> &'static str {
        "one_step_off"
    }
    fn note(&self) -> &'static str {
        "learning rate too high"
    }
    fn has_tag(&self, tag: &str) -> bool {
        tag == "paper"
    }
    fn step(&self) -> u64 {
        120
    }
    fn age_s(&self) -> f64 {
        5400.0
    }
    fn config(&self) -> &Value {
        &self.config
    }
    fn metric_names(&self) -> Vec<&str> {
        self.metrics.iter().map(|(name, _)| *name).collect()
    }
    /// The reduction shows in the number: min is less by 1, max more by 1, first 0, mean(k) k.
    fn metric(&self, name: &str, reduce: Reduce) -> Option<f64> {
        let last = self.metrics.iter().find(|(known, _)| *known == name)?.1;
        Some(match reduce {
            Reduce::Last => last,
            Reduce::First => 0.0,
            Reduce::Min => last - 1.0,
            Reduce::Max => last + 1.0,
            Reduce::Mean(count) => count as f64,
            Reduce::Best => panic!("it is resolved before"),
        })
    }
}

fn run() -> Run {
    Run {
        state: "running",
        metrics: vec![
            ("actor/ppo_kl", 0.03),
            ("actor/entropy", f64::NAN),
            ("critic/score/mean", 0.5),
            ("critic/score/max", 1.0),
            ("critic/rewards/max", 1.0),
            ("response_length/mean", 80.0),
        ],
        config: json!({
            "actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}},
            "critic": {"optim": {"lr": 1e-5}},
            "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": false},
            "trainer": {"logger": ["console", "wandb"]}
        }),
    }
}

#[test]
fn a_paused_run_is_found_as_paused_and_as_running() {
    let paused = Run {
        state: "paused",
        ..run()
    };
    for (expression, is_found) in [
        ("state:paused", true),
        ("state:running", true),
        ("state=running", true),
        ("-state:paused", false),
        ("state:finished", false),
    ] {
        let filter = Filter::parse(expression).unwrap();
        assert_eq!(filter.matches(&paused), is_found, "{expression}");
    }
    assert!(!matches("state:paused"));
}

fn matches(expression: &str) -> bool {
    Filter::parse(expression).unwrap().matches(&run())
}

#[test]
fn each_kind_of_term_tells_runs_apart() {
    for expression in [
        "",
        "  ",
        "sort",
        "srtlg",
        "SORT ab12",
        "state:running",
        "state:run",
        "state=running",
        "state:failed,running",
        "-state:dead",
        "name:sort-long",
        "host:gpu1",
        "tag:paper",
        "-tag:other",
        "note:\"too high\"",
        "mode:one",
        "step>=120",
        "step!=3",
        "age<2h",
        "age>=90m",
        "kl>0.02",
        "ppo_kl<=0.03",
        "actor/ppo_kl>0.02",
        "kl<5%",
        "reward.last>=0.5",
        "reward.max>1.4",
        "best(reward)>1.4",
        "score/mean.first=0",
        "mean(kl,20)=20",
        "kl.mean7=7",
        "kl.mean=10",
        "entropy:nan",
        "-kl:nan",
        "cfg.actor.optim.lr<1e-5",
        "config.critic.optim.lr=1e-5",
        "cfg.adv_estimator=grpo",
        "cfg.adv_estimator:gr,gae",
        "cfg.use_kl_in_reward=false",
        "cfg.logger:wandb",
        "state:running kl>0.02 tag:paper cfg.actor.optim.lr<1e-5 name:sort -state:dead",
    ] {
        assert!(matches(expression), "{expression}");
    }
    for expression in [
        "calc",
        "gnol",
        "-sort",
        "state:dead",
        "state=run",
        "tag:pap",
        "host=gpu1",
        "step>120",
        "age>2h",
        "kl>0.03",
        "-kl>0.02",
        "entropy>0",
        "entropy<=0",
        "no_such_metric>0",
        "-no_such_metric>0",
        "cfg.optim.lr<1",
        "cfg.adv_estimator=gr",
        "state:running kl>1",
    ] {
        assert!(!matches(expression), "{expression}");
    }
}

#[test]
fn a_mistake_is_told_with_its_column() {
    for (expression, message) in [
        ("sort kl>", "column 6: nothing stands after `>`"),
        (">3", "column 1: nothing stands before `>`"),
        (
            "kl>abc",
            "column 4: `abc` is no number; as in kl>0.02, kl<1e-5, age<2h",
        ),
        (
            "state:asleep",
            "column 7: `asleep` is no state; there are running, paused, finished, stopped, failed, dead",
        ),
        (
            "tag>3",
            "column 1: tag is text: use `tag:word`, or `-tag:word` for those without",
        ),
        ("note:\"a b", "column 6: this quote is not closed"),
        (
            "best(kl>1",
            "column 1: the bracket after `best` is not closed",
        ),
        (
            "median(kl)>1",
            "column 1: `median` with `kl` is unknown; there are last, first, min, max, best and mean(metric,20)",
        ),
        ("best()>1", "column 1: a metric is missing in `best()`"),
        (
            "cfg.<3",
            "column 1: a configuration key is missing after the dot",
        ),
    ] {
        assert_eq!(
            Filter::parse(expression).unwrap_err().to_string(),
            message,
            "{expression}"
        );
    }
}

#[test]
fn a_name_that_fits_nothing_or_too_much_is_told_when_the_runs_are_known() {
    let run = run();
    let complaints = |expression: &str| -> Vec<String> {
        let runs = [&run as &dyn RunFacts];
        let found = Filter::parse(expression).unwrap().check(runs);
        found.iter().map(ToString::to_string).collect()
    };
    assert!(complaints("kl>1 cfg.critic.optim.lr<1 sort state:run best(reward)>1").is_empty());
    assert_eq!(
        complaints("sort klx>1"),
        ["column 6: no run has a metric `klx`, and none ends in it"]
    );
    assert_eq!(
        complaints("max>1"),
        ["column 1: `max` could be critic/rewards/max, critic/score/max; give more of it"]
    );
    assert_eq!(
        complaints("cfg.optim.lr<1"),
        [
            "column 1: `optim.lr` could be actor_rollout_ref.actor.optim.lr, critic.optim.lr; give more of it"
        ]
    );
    assert_eq!(
        complaints("best(kl)<1"),
        [
            "column 1: actor/ppo_kl has no better way; ask for max(kl) or min(kl) instead of the best"
        ]
    );
    assert!(
        Filter::parse("klx>1").unwrap().check([]).is_empty(),
        "nothing is known yet"
    );
}

#[test]
fn the_test_reward_comes_before_the_training_reward() {
    let names = ["critic/score/mean", "val-core/a/reward/mean@4"];
    assert_eq!(
        resolve("reward", names),
        Resolved::One("val-core/a/reward/mean@4")
    );
    assert_eq!(
        resolve("reward", names[..1].iter().copied()),
        Resolved::One("critic/score/mean")
    );
    let two = ["val-core/a/reward/mean@4", "val-core/b/reward/mean@4"];
    assert_eq!(resolve("reward", two), Resolved::Many(two.to_vec()));
}

#[test]
fn every_alias_stands_for_metrics_that_are_declared() {
    for (alias, patterns) in ALIASES {
        for pattern in *patterns {
            let name = pattern.replacen('*', "source", 1).replace('*', "4");
            assert!(crate::metrics::lookup(&name).is_some(), "{alias}: {name}");
        }
    }
}

#[test]
fn each_reduction_of_a_series_is_the_number_it_names() {
    use crate::series::{RowHead, SeriesSet, Source};
    let mut set = SeriesSet::default();
    for value in [3.0, 1.0, f64::NAN, 5.0, 4.0] {
        let names = ["critic/score/mean", "actor/entropy", "weight_sync/total_ms"];
        set.push_row(
            Source::Steps,
            RowHead::default(),
            names.map(|name| (name, value)),
        );
    }
    let of = |name: &str, reduce: Reduce| reduce.of(name, set.get(name).unwrap());
    for (reduce, number) in [
        (Reduce::Last, 4.0),
        (Reduce::First, 3.0),
        (Reduce::Min, 1.0),
        (Reduce::Max, 5.0),
        (Reduce::Mean(2), 4.5),
        (Reduce::Mean(3), 10.0 / 3.0),
        (Reduce::Mean(100), 13.0 / 4.0),
    ] {
        assert_eq!(of("actor/entropy", reduce), Some(number), "{reduce:?}");
    }
    assert_eq!(of("critic/score/mean", Reduce::Best), Some(5.0));
    assert_eq!(of("weight_sync/total_ms", Reduce::Best), Some(1.0));
    assert_eq!(of("actor/entropy", Reduce::Best), None);
}

#[test]
fn words_are_given_for_ranking() {
    let filter = Filter::parse("sort -calc state:run \"a b\"").unwrap();
    assert_eq!(filter.words().collect::<Vec<_>>(), ["sort", "a b"]);
}

proptest::proptest! {
    #[test]
    fn no_expression_panics(expression in ".{0,40}") {
        if let Ok(filter) = Filter::parse(&expression) {
            filter.matches(&run());
            filter.check([&run() as &dyn RunFacts]);
        }
    }

    #[test]
    fn no_expression_of_our_own_signs_panics(
        parts in proptest::collection::vec(
            proptest::sample::select(vec!["kl", "-", "<", ">=", ":", "\"", "(", ")", "best", ".", "mean", ",", "1e-5", "%", " ", "cfg.", "é"]), 0..12)
    ) {
        if let Ok(filter) = Filter::parse(&parts.concat()) {
            filter.matches(&run());
        }
    }
}
