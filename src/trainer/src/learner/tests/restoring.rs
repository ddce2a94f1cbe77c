//! A learner that is captured beside its work, and one that is restored.

use super::*;

/// Every bit that training depends on: weights and optimizer state.
fn state_of(learner: &Learner, directory: &std::path::Path) -> Vec<Vec<u8>> {
    let place = directory.join("state");
    crate::save::trained(learner.actor(), &place, &place).expect("weights are written");
    let optimizer = place.join("optimizer.safetensors");
    learner
        .actor()
        .optimizer
        .save(&optimizer)
        .expect("state is written");
    [place.join("model.safetensors"), optimizer]
        .map(|path| std::fs::read(path).expect("just written"))
        .into()
}

#[test]
fn a_restored_learner_goes_on_as_if_it_had_never_left_and_a_broken_checkpoint_changes_nothing() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let (run_dir, recorder) = recorded(root.path());
    let change = |experiment: &mut Experiment| {
        experiment.actor_rollout_ref.actor.optim.lr = 1e-2;
        experiment.actor_rollout_ref.actor.entropy_coeff = 0.1;
    };
    let mut first = learner(change);
    let train = |learner: &mut Learner, step: u64| {
        learner
            .step(step, step - 1, rollouts(), &recorder)
            .expect("a step");
    };
    let fresh = state_of(&first, root.path());
    train(&mut first, 1);
    train(&mut first, 2);
    let counters = crate::save::RunCounters {
        kl_controller: *first.controller(),
        kl_loss_controller: Some(*first.loss_controller()),
        knobs: [("actor_rollout_ref.actor.entropy_coeff".to_owned(), 0.1)].into(),
        ..crate::save::RunCounters::at(2)
    };
    let fill = |directory: &std::path::Path| {
        first.capture().models().write(directory, directory)?;
        counters.write(directory)
    };
    let saved = runlog::checkpoints::write(&run_dir.checkpoints_dir(), 2, fill, || Ok(()))
        .expect("a checkpoint")
        .path;
    train(&mut first, 3);
    let uninterrupted = state_of(&first, root.path());

    let mut second = learner(change);
    assert_eq!(second.restore(&saved).expect("it is whole"), counters);
    assert_ne!(state_of(&second, root.path()), fresh);
    train(&mut second, 3);
    assert!(
        state_of(&second, root.path()) == uninterrupted,
        "the same bits after the third step"
    );

    // In the middle of a run: back to step 2, in place, and forward again.
    first.restore(&saved).expect("it is whole");
    train(&mut first, 3);
    assert!(state_of(&first, root.path()) == uninterrupted);

    let weights = saved.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("readable");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).expect("writable");
    let error = second.restore(&saved).expect_err("one bit differs");
    assert!(error.to_string().contains("model.safetensors"), "{error}");
    assert!(
        state_of(&second, root.path()) == uninterrupted,
        "a refused checkpoint changes nothing"
    );
}

/// The tensors of a model as they are now.
fn snapshot(models: &crate::checkpoint::Models) -> Vec<Tensor> {
    let model = &models.actor;
    let weights = model.parameters.iter().map(|(_, tensor)| tensor);
    let state = model.optimizer.iter().map(|(_, tensor)| tensor);
    weights
        .chain(state)
        .map(|tensor| tensor.detach().copy())
        .collect()
}

fn same(models: &crate::checkpoint::Models, before: &[Tensor]) -> bool {
    let now = snapshot(models);
    now.iter()
        .zip(before)
        .all(|(left, right)| left.equal(right))
}

fn steep(experiment: &mut Experiment) {
    experiment.actor_rollout_ref.actor.optim.lr = 1e-2;
}

#[test]
fn a_captured_learner_changes_nothing_before_the_capture_is_given_back() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    let mut learner = learner(steep);
    let capture = learner.capture();
    let before = snapshot(capture.models());
    let gate = capture.gates().actor;
    let stepped = std::thread::spawn(move || {
        let outcome = learner.step(1, 0, rollouts(), &recorder).expect("a step");
        (learner, outcome)
    });
    while !gate.is_waited_at() {
        std::thread::yield_now();
    }
    assert!(
        same(capture.models(), &before),
        "the step waits with its update"
    );
    drop(capture);
    let (mut learner, outcome) = stepped.join().expect("it goes on");
    assert!(
        !same(learner.capture().models(), &before),
        "and then makes it"
    );
    assert!(outcome.values.0["timing_s/save_checkpoint"].0 > 0.0);
}

#[test]
fn what_is_copied_beside_a_step_is_what_was_captured_before_it_in_the_memory_of_the_last_copy_too()
{
    let root = tempfile::tempdir().expect("a temporary directory");
    let recorder = recorder(root.path());
    let mut learner = learner(steep);
    let mut copy = None;
    for step in 1..=3 {
        let capture = learner.capture();
        let before = snapshot(capture.models());
        let gate = capture.gates().actor;
        let address = |models: &crate::checkpoint::Models| {
            let first = models.actor.parameters.iter().next();
            first.expect("a model has tensors").1.data_ptr() as usize
        };
        let lent = copy.as_ref().map(address);
        let copied = std::thread::scope(|scope| {
            let (learner, recorder) = (&mut learner, &recorder);
            // It comes to its update before anything is copied, and copies too.
            scope.spawn(move || {
                learner
                    .step(step, step - 1, rollouts(), recorder)
                    .expect("a step");
            });
            while !gate.is_waited_at() {
                std::thread::yield_now();
            }
            capture.copied(copy.take()).expect("all are copied")
        });
        assert!(same(&copied, &before), "step {step}");
        assert!(!same(learner.capture().models(), &before), "step {step}");
        if let Some(lent) = lent {
            assert_eq!(address(&copied), lent, "the memory is the same");
        }
        copy = Some(copied);
    }
}
