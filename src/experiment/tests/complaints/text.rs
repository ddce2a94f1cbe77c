//! What is wrong with the text itself: YAML, interpolations, overrides.

use super::said;

#[test]
fn broken_yaml_is_named_with_its_line() {
    golden!(said(&[
        ("empty", "", &[]),
        ("only a comment", "# nothing\n", &[]),
        ("a scalar", "hello\n", &[]),
        ("a list", "- a\n- b\n", &[]),
        ("a tab", "data:\n\ttrain_files: x\n", &[]),
        ("an open quote", "data:\n  train_files: \"x\n", &[]),
        (
            "an open list",
            "data:\n  train_files: [a, b\nmodel: 1\n",
            &[]
        ),
        ("two colons", "data:\n  train_files: a: b\n", &[]),
        (
            "indented too far",
            "data:\n  train_files: a\n    seed: 1\n",
            &[]
        ),
        (
            "indented too little",
            "data:\n    train_files: a\n  seed: 1\n",
            &[]
        ),
        ("two documents", "BASE\n---\ndata: {}\n", &[]),
        (
            "an anchor",
            "BASE\ncritic: &c\n  cliprange_value: 0.5\n",
            &[]
        ),
        ("an alias", "BASE\ncritic: *c\n", &[]),
        (
            "an anchor and its alias",
            "BASE\nactor: {optim: &o {lr: 1e-5}}\ncritic: {optim: *o}\n",
            &[]
        ),
        (
            "a merge key",
            "BASE\ncritic:\n  <<: {cliprange_value: 0.5}\n",
            &[]
        ),
        ("a tag", "BASE\nactor:\n  ppo_epochs: !!int \"1\"\n", &[]),
        (
            "a key twice",
            "BASE\ntrainer:\n  seed: 1\n  test_freq: -1\n  seed: 2\n",
            &[]
        ),
        ("a block twice", "BASE\ndata:\n  seed: 1\n", &[]),
        ("a list as key", "BASE\n? [a]\n: 1\n", &[]),
        ("a dotted key", "BASE\ntrainer.seed: 1\n", &[]),
        (
            "a control character",
            "BASE\ntrainer: {project_name: \"\u{1}\"}\n",
            &[]
        ),
        (
            "everything at once",
            "data:\n  train_fils: x\n  seed: -1\n  seed: 3\nactor: {ppo_epochs: 0, lr: 1}\n",
            &[]
        ),
    ]));
}

#[test]
fn an_interpolation_that_leads_nowhere_is_named() {
    golden!(said(&[
        ("no such key", "BASE\ntrainer:\n  seed: ${data.sed}\n", &[]),
        ("itself", "BASE\ntrainer:\n  seed: ${trainer.seed}\n", &[]),
        (
            "a circle",
            "BASE\ntrainer: {seed: \"${actor.data_loader_seed}\"}\nactor: {data_loader_seed: \"${rollout.seed}\"}\nrollout: {seed: \"${trainer.seed}\"}\n",
            &[]
        ),
        ("a block", "BASE\ntrainer:\n  seed: ${critic.optim}\n", &[]),
        (
            "an unknown resolver",
            "BASE\ntrainer:\n  seed: ${now:%Y}\n",
            &[]
        ),
        (
            "no closing brace",
            "BASE\ntrainer:\n  project_name: a${trainer.seed\n",
            &[]
        ),
        (
            "a missing variable",
            "BASE\ntrainer:\n  project_name: ${oc.env:LATHE_NO_SUCH_VARIABLE}\n",
            &[]
        ),
        (
            "the wrong type",
            "BASE\ntrainer:\n  seed: ${trainer.project_name}\n",
            &[]
        ),
        (
            "a mandatory value",
            "BASE\ntrainer:\n  project_name: ${reward.reward_model.rollout.name}\n",
            &[]
        ),
        (
            "a default that is not a value",
            "BASE\ntrainer:\n  seed: \"${oc.select:a.b,[}\"\n",
            &[]
        ),
    ]));
}

#[test]
fn overrides_are_read_in_hydras_grammar_and_faults_point_at_their_text() {
    golden!(said(&[
        ("no value", "BASE\n", &["trainer.seed"]),
        ("no key", "BASE\n", &["=3"]),
        ("nothing", "BASE\n", &[""]),
        ("a space in the key", "BASE\n", &["trainer seed=3"]),
        ("two dots", "BASE\n", &["trainer..seed=3"]),
        ("an open list", "BASE\n", &["trainer.logger=[console"]),
        (
            "a list that goes on",
            "BASE\n",
            &["trainer.logger=[console] x"]
        ),
        ("a sweep", "BASE\n", &["trainer.seed=1,2,3"]),
        ("a function", "BASE\n", &["trainer.seed=range(1,3)"]),
        ("an open quote", "BASE\n", &["trainer.project_name='a"]),
        ("an open mapping", "BASE\n", &["actor.optim={lr: 1"]),
        ("a mapping without colon", "BASE\n", &["actor.optim={lr}"]),
        (
            "a mapping with a key twice",
            "BASE\n",
            &["actor.optim={lr: 1e-5, lr: 2e-5}"]
        ),
        ("a stray bracket", "BASE\n", &["trainer.project_name=a]"]),
        (
            "an open interpolation",
            "BASE\n",
            &["trainer.seed=${data.seed"]
        ),
        (
            "+ on what is there",
            "BASE\n",
            &["+data.train_batch_size=512"]
        ),
        (
            "++ on what is there",
            "BASE\n",
            &["++data.train_batch_size=512"]
        ),
        (
            "+ on what has a default only",
            "BASE\n",
            &["+trainer.seed=5"]
        ),
        ("remove what is not there", "BASE\n", &["~trainer.seed"]),
        (
            "remove another value",
            "BASE\n",
            &["~data.train_batch_size=3"]
        ),
        (
            "remove what must be there",
            "BASE\n",
            &["~data.train_files"]
        ),
        ("remove a block", "BASE\n", &["~model"]),
        (
            "the same twice",
            "BASE\n",
            &[
                "trainer.seed=1",
                "trainer.seed=0",
                "actor.ppo_epochs=0",
                "actor.ppo_epochs=2"
            ]
        ),
        (
            "an error in the file that an override mends",
            "BASE\nactor: {ppo_epochs: 0}\n",
            &["actor.ppo_epochs=1"]
        ),
    ]));
}
