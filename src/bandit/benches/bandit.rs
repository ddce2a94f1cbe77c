//! `just bench bandit [POLICY…]`: CPU time of one pull: choose among eight arms, learn an outcome, update every ten.
//!
//! User and system time of this process, so that a busy machine does not count; best of five rounds after one to warm up.
//! `linucb` has contexts of 384 numbers, as all-MiniLM-L6-v2 gives. `chances` is the integral behind `Bandit::chances`.

use std::hint::black_box;

use bandit::{Bandit, Context, Outcome, PolicyName, Posterior, Settings, table};

const ARMS: usize = 8;
const DIMENSIONS: usize = 384;
const ROUNDS: usize = 5;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench" && word != "bandit")
        .collect();
    let wants = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    println!("CPU time of a pull (choose, learn), {ARMS} arms, an update every 10:");
    for policy in table::POLICIES {
        if wants(policy.name) {
            measure(
                policy.name,
                Settings {
                    fixed_arm: Some("arm0".to_owned()),
                    ..Settings::of(policy.kind)
                },
            );
        }
    }
    if wants("thompson") {
        measure(
            "thompson, gaussian",
            Settings {
                posterior: Posterior::Gaussian,
                ..Settings::default()
            },
        );
    }
    if wants("linucb") {
        measure(
            "linucb, discount 0.99",
            Settings {
                discount: 0.99,
                ..Settings::of(PolicyName::Linucb)
            },
        );
    }
    if wants("chances") {
        let bandit = played(Settings::default(), 1000);
        let best = best_of(200, || {
            black_box(bandit.chances());
        });
        println!(
            "  {:24} {:>10.2} µs a call",
            "chances of thompson",
            best * 1e6
        );
    }
}

fn measure(name: &str, settings: Settings) {
    let is_linear = settings.policy == PolicyName::Linucb;
    let is_inverted = is_linear && settings.discount < 1.0;
    let pulls = match (is_linear, is_inverted) {
        (true, true) => 20,
        (true, false) => 300,
        _ => 50_000,
    };
    let mut bandit = played(settings, pulls);
    let contexts: Vec<Context> = (0..16).map(context).collect();
    let mut step = 0;
    let best = best_of(pulls, || {
        step += 1;
        pull(&mut bandit, &contexts[step % contexts.len()], step);
    });
    println!("  {name:24} {:>10.2} µs", best * 1e6);
}

/// A bandit that has seen `pulls` pulls.
fn played(settings: Settings, pulls: usize) -> Bandit {
    let names: Vec<String> = (0..ARMS).map(|arm| format!("arm{arm}")).collect();
    let mut bandit = Bandit::new(settings, &names, 1).expect("the settings are right");
    let first = context(0);
    for step in 0..pulls {
        pull(&mut bandit, &first, step);
    }
    bandit
}

fn pull(bandit: &mut Bandit, context: &Context, step: usize) {
    let pull = bandit.choose(Some(context)).expect("contexts are alike");
    let value = f64::from(u8::from(step.is_multiple_of(3)));
    black_box(bandit.learn(pull.number, Outcome::Value(value))).expect("the pull was made");
}

fn context(number: usize) -> Context {
    Context::unit(
        (0..DIMENSIONS)
            .map(|i| ((number * 31 + i * 17) as f64).sin())
            .collect(),
    )
    .expect("sines are finite")
}

/// Seconds of CPU time a call, the best of [`ROUNDS`].
fn best_of(calls: usize, mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let before = cpu_s();
        for _ in 0..calls {
            call();
        }
        best = best.min((cpu_s() - before) / calls as f64);
    }
    best
}

/// Nanoseconds that this thread has run, from the scheduler; /proc/self/stat counts in steps of 10 ms.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has /proc");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.expect("the first number is the time on a processor") / 1e9
}
