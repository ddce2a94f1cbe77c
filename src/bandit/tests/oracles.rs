//! Equal to what independent programs did in the same environments: see `oracles/README.md`.

use bandit::simulate::{Entry, Environment, Gives, Report, simulate};
use bandit::{Bandit, Choice, Context, Outcome, PolicyName, Settings, Uniforms};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

struct Oracle {
    json: Json,
    /// Per arm, per step.
    rewards: Vec<Vec<f64>>,
}

fn floats(text: &str) -> Vec<f64> {
    if text.bytes().all(|byte| byte == b'0' || byte == b'1') {
        return text.bytes().map(|byte| f64::from(byte - b'0')).collect();
    }
    let bytes = STANDARD.decode(text).unwrap();
    bytes
        .chunks_exact(8)
        .map(|cell| f64::from_le_bytes(cell.try_into().unwrap()))
        .collect()
}

fn columns(json: &Json) -> Vec<Vec<f64>> {
    json.as_array()
        .unwrap()
        .iter()
        .map(|column| floats(column.as_str().unwrap()))
        .collect()
}

impl Oracle {
    fn load(name: &str) -> Self {
        let path = format!("{}/tests/oracles/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let json: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let rewards = columns(&json["rewards"]);
        Self { json, rewards }
    }

    fn steps(&self) -> usize {
        self.rewards[0].len()
    }

    fn names(&self) -> Vec<String> {
        (0..self.rewards.len())
            .map(|arm| format!("arm{arm}"))
            .collect()
    }

    fn bandit(&self, settings: Settings) -> Bandit {
        Bandit::new(settings, &self.names(), 0).unwrap()
    }

    fn arms(&self, algorithm: &str) -> Vec<usize> {
        let text = self.json["arms"][algorithm].as_str().unwrap();
        text.bytes()
            .map(|digit| usize::from(digit - b'0'))
            .collect()
    }

    /// Means of the arms at a step.
    fn means(&self, step: usize) -> Vec<f64> {
        let later = &self.json["means_second_half"];
        let means = if later.is_array() && step >= self.steps() / 2 {
            later
        } else {
            &self.json["means"]
        };
        means
            .as_array()
            .unwrap()
            .iter()
            .map(|mean| mean.as_f64().unwrap())
            .collect()
    }

    /// Σ (best mean − mean played) at the recorded steps.
    fn regret(&self, played: &[usize], algorithm: &str) -> Vec<(f64, f64)> {
        let recorded = self.json["regret"][algorithm].as_object().unwrap();
        let (mut regret, mut pairs) = (0.0, Vec::new());
        for (step, arm) in played.iter().enumerate() {
            let means = self.means(step);
            regret += means.iter().copied().fold(f64::MIN, f64::max) - means[*arm];
            if let Some(theirs) = recorded.get(&(step + 1).to_string()) {
                pairs.push((regret, theirs.as_f64().unwrap()));
            }
        }
        assert!(pairs.len() > 20);
        pairs
    }

    /// Plays every step on the recorded rewards.
    fn play(
        &self,
        bandit: &mut Bandit,
        context: impl Fn(usize) -> Option<Context>,
        mut uniforms: impl FnMut(usize) -> Recorded,
    ) -> Vec<usize> {
        (0..self.steps())
            .map(|step| {
                let pull = bandit
                    .choose_with(context(step).as_ref(), &mut uniforms(step))
                    .unwrap();
                let Choice::One(arm) = pull.choice else {
                    panic!("one arm")
                };
                bandit
                    .learn(pull.number, Outcome::Value(self.rewards[arm][step]))
                    .unwrap();
                arm
            })
            .collect()
    }

    fn plain(&self, settings: Settings) -> Vec<usize> {
        self.play(
            &mut self.bandit(settings),
            |_| None,
            |_| Recorded(Vec::new()),
        )
    }
}

/// Numbers from a file.
struct Recorded(Vec<f64>);

impl Uniforms for Recorded {
    fn next(&mut self) -> f64 {
        self.0.remove(0)
    }
}

fn every(policy: PolicyName, update_every: u32) -> Settings {
    Settings {
        update_every,
        ..Settings::of(policy)
    }
}

const BERNOULLI: [&str; 3] = ["bern_k3_easy_s11", "bern_k3_close_s12", "bern_k6_s13"];

#[test]
fn ucb1_plays_the_recorded_arm_at_every_step_and_has_the_recorded_regret() {
    for name in [
        "bern_k3_easy_s11",
        "bern_k3_close_s12",
        "bern_k6_s13",
        "drift_k3_s15",
        "gauss_k3_s14",
    ] {
        let oracle = Oracle::load(name);
        let played = oracle.plain(every(PolicyName::Ucb1, 1));
        assert!(played == oracle.arms("ucb1"), "{name}");
        for (ours, theirs) in oracle.regret(&played, "ucb1") {
            // Theirs are rounded to 6 digits.
            assert!((ours - theirs).abs() < 1e-5, "{name}: {ours} {theirs}");
        }
    }
}

#[test]
fn ucb1_with_an_update_every_10_pulls_plays_the_recorded_arm_at_every_step() {
    for name in BERNOULLI {
        let oracle = Oracle::load(name);
        let played = oracle.plain(every(PolicyName::Ucb1, 10));
        assert!(played == oracle.arms("ucb1_batch10"), "{name}");
    }
}

#[test]
fn ucb1s_bounds_are_the_recorded_ones() {
    let oracle = Oracle::load("bern_k6_s13");
    let mut bandit = oracle.bandit(every(PolicyName::Ucb1, 1));
    let recorded = oracle.json["ucb1_indices_first60"].as_array().unwrap();
    let mut compared = 0;
    for step in 0..oracle.steps().min(66) {
        let pull = bandit.choose(None).unwrap();
        if let Some(row) = recorded.iter().find(|row| row[0] == json!(step)) {
            for (ours, theirs) in pull.scores.iter().zip(&row.as_array().unwrap()[1..]) {
                assert!((ours - theirs.as_f64().unwrap()).abs() < 1e-8);
                compared += 1;
            }
        }
        let arm = pull.choice.arm().unwrap();
        bandit
            .learn(pull.number, Outcome::Value(oracle.rewards[arm][step]))
            .unwrap();
    }
    assert_eq!(compared, 60 * 6);
}

#[test]
fn ucb1_with_a_discount_is_d_ucb_and_plays_its_recorded_arms() {
    let oracle = Oracle::load("drift_k3_s15");
    let played = oracle.plain(Settings {
        discount: 0.995,
        ucb_width: 0.6,
        ..every(PolicyName::Ucb1, 1)
    });
    assert!(played == oracle.arms("d_ucb_0995_B05_xi06"));
    for (ours, theirs) in oracle.regret(&played, "d_ucb") {
        assert!((ours - theirs).abs() < 1e-5);
    }
}

#[test]
fn kl_ucb_plays_the_recorded_arm_at_every_step_and_has_the_recorded_regret() {
    for name in BERNOULLI {
        let oracle = Oracle::load(name);
        let played = oracle.plain(every(PolicyName::KlUcb, 1));
        assert!(played == oracle.arms("klucb"), "{name}");
        for (ours, theirs) in oracle.regret(&played, "klucb") {
            assert!((ours - theirs).abs() < 1e-5, "{name}: {ours} {theirs}");
        }
    }
}

#[test]
fn epsilon_greedy_plays_the_recorded_arm_for_the_recorded_randomness() {
    for name in ["bern_k3_easy_s11", "bern_k6_s13"] {
        let oracle = Oracle::load(name);
        let uniforms: Vec<Vec<f64>> = oracle.json["uniforms"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| {
                let digits = text.as_str().unwrap().as_bytes();
                let number =
                    |cell: &[u8]| std::str::from_utf8(cell).unwrap().parse::<f64>().unwrap();
                digits
                    .chunks_exact(7)
                    .map(|cell| (number(cell) + 0.5) / 1e7)
                    .collect()
            })
            .collect();
        for (algorithm, update_every) in [("eps_greedy", 1), ("eps_greedy_batch10", 10)] {
            let mut bandit = oracle.bandit(Settings {
                epsilon_floor: 0.0,
                ..every(PolicyName::EpsilonGreedy, update_every)
            });
            let played = oracle.play(
                &mut bandit,
                |_| None,
                |step| Recorded(vec![uniforms[0][step], uniforms[1][step]]),
            );
            assert!(played == oracle.arms(algorithm), "{name} {algorithm}");
            let updates = oracle.steps() as i32 / update_every as i32;
            assert!((bandit.epsilon() - 0.2 * 0.99_f64.powi(updates)).abs() < 1e-12);
        }
    }
}

#[test]
fn linucb_plays_the_recorded_arm_at_every_step_plain_and_with_lasers_scale() {
    for (name, alpha) in [("linear_d4_k3_s21", 1.0), ("linear_d8_k4_s22", 0.5)] {
        let oracle = Oracle::load(name);
        let contexts = columns(&oracle.json["contexts"]);
        let context = |step: usize| {
            Some(Context::new(contexts.iter().map(|column| column[step]).collect()).unwrap())
        };
        let plain = Settings {
            alpha,
            quantiles: None,
            ..every(PolicyName::Linucb, 1)
        };
        let laser = every(PolicyName::Linucb, 1);
        assert_eq!((laser.alpha, laser.quantiles), (0.1, Some([0.2, 0.8])));
        for (settings, algorithm, theta) in [
            (plain, "linucb", "theta_hat"),
            (laser, "laser_linucb_a01_q2080", "laser_theta_hat"),
        ] {
            let mut bandit = oracle.bandit(settings);
            let played = oracle.play(&mut bandit, context, |_| Recorded(Vec::new()));
            assert!(played == oracle.arms(algorithm), "{name} {algorithm}");
            let Some(recorded) = oracle.json[theta].as_array() else {
                continue;
            };
            for (arm, recorded) in bandit.arms().iter().zip(recorded) {
                let ours = arm.linear.as_ref().unwrap().theta();
                for (ours, theirs) in ours.iter().zip(recorded.as_array().unwrap()) {
                    assert!((ours - theirs.as_f64().unwrap()).abs() < 1e-9);
                }
            }
        }
    }
}

/// Runs of our own on fresh values of a Bernoulli environment.
fn fresh(oracle: &Oracle, settings: Settings, runs: u64) -> Report {
    let means = oracle.means(0);
    let arms: Vec<Json> = means
        .iter()
        .enumerate()
        .map(|(arm, mean)| json!({"name": format!("arm{arm}"), "gives": Gives::Bernoulli(*mean)}))
        .collect();
    let mut environment = Environment::from_json(
        json!({"horizon": oracle.steps(), "runs": runs, "seed": 5, "arms": arms}),
    )
    .unwrap();
    let entry = Entry {
        label: "ours".to_owned(),
        settings,
    };
    environment.policies = vec![entry.clone()];
    simulate(&environment, &entry, 2, &|| {})
}

/// Within four standard errors of the difference.
fn near(ours: (f64, f64), theirs: (f64, f64), what: &str) {
    let error = (ours.1.powi(2) + theirs.1.powi(2)).sqrt();
    assert!(
        (ours.0 - theirs.0).abs() <= 4.0 * error,
        "{what}: {ours:?}, recorded {theirs:?}"
    );
}

#[test]
fn thompsons_regret_is_the_recorded_one_within_its_error_at_every_checkpoint() {
    for name in BERNOULLI {
        let oracle = Oracle::load(name);
        for (key, update_every) in [("thompson", 1), ("thompson_batch10", 10)] {
            let report = fresh(&oracle, every(PolicyName::Thompson, update_every), 150);
            let mut compared = 0;
            for point in &report.curve {
                if let Some(row) = oracle.json[key].get(point.step.to_string()) {
                    let theirs = (row[0].as_f64().unwrap(), row[1].as_f64().unwrap());
                    near(
                        (point.mean, point.se),
                        theirs,
                        &format!("{name} {key} at {}", point.step),
                    );
                    compared += 1;
                }
            }
            assert!(compared > 5, "{name}: {compared}");
        }
    }
}

#[test]
fn epsilon_greedys_mean_regret_is_the_recorded_one_within_its_error() {
    for name in ["bern_k3_easy_s11", "bern_k6_s13"] {
        let oracle = Oracle::load(name);
        for (key, update_every, floor) in [
            ("decay_each_pull", 1, 0.0),
            ("decay_each_update_of_10", 10, 0.0),
            ("decay_each_update_of_10_floor_002", 10, 0.02),
        ] {
            let settings = Settings {
                epsilon_floor: floor,
                ..every(PolicyName::EpsilonGreedy, update_every)
            };
            let report = fresh(&oracle, settings, 200);
            let row = &oracle.json["eps_greedy_mean"][key];
            let theirs = (row[0].as_f64().unwrap(), row[1].as_f64().unwrap());
            near(
                (report.last().mean, report.last().se),
                theirs,
                &format!("{name} {key}"),
            );
        }
    }
}

#[test]
fn the_posterior_after_200_recorded_pulls_is_the_recorded_one() {
    for name in BERNOULLI {
        let oracle = Oracle::load(name);
        let recorded = &oracle.json["thompson_posterior_on_ucb1_arms"];
        let mut bandit = oracle.bandit(every(PolicyName::Thompson, 1));
        for (step, arm) in oracle.arms("ucb1").into_iter().enumerate().take(200) {
            bandit.force(&format!("arm{arm}")).unwrap();
            let pull = bandit.choose(None).unwrap();
            bandit
                .learn(pull.number, Outcome::Value(oracle.rewards[arm][step]))
                .unwrap();
        }
        for (arm, belief) in bandit.beliefs(None).into_iter().enumerate() {
            let (alpha, beta) = (
                recorded["alpha"][arm].as_f64().unwrap(),
                recorded["beta"][arm].as_f64().unwrap(),
            );
            let total = alpha + beta;
            assert_eq!(belief.mean, Some(alpha / total));
            let variance = alpha * beta / (total * total * (total + 1.0));
            assert!((belief.sd.unwrap() - variance.sqrt()).abs() < 1e-12);
        }
    }
}
