//! The forward pass, gradients and files of both families, against transformers' numbers and against themselves.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{MODELS, Oracle, directory, load, max_abs, max_diff, pack};
use tch::{Device, Kind, Tensor};
use trainer::model::config::{Head, ModelConfig};
use trainer::model::packed::PackedBatch;
use trainer::model::parameters::Parameters;
use trainer::model::transformer::Transformer;

fn model(name: &str, kind: Kind) -> Transformer {
    Transformer::new(load(name, kind), kind, false)
}

#[test]
fn logits_and_logprobs_equal_those_of_transformers() {
    for name in MODELS {
        let (oracle, model) = (Oracle::of(name), model(name, Kind::Float));
        let prompts = oracle.prompts();
        let batch = pack(
            &prompts
                .iter()
                .map(|(_, ids)| ids.clone())
                .collect::<Vec<_>>(),
        );
        let logits = tch::no_grad(|| model.logits(&model.hidden(&batch).rows));
        let logprobs = logits.log_softmax(-1, Kind::Float);
        for (row, ((start, ids), group)) in prompts.iter().zip(&batch.groups).enumerate() {
            let ours = logits.narrow(0, group.prompt.start as i64, ids.len() as i64);
            let theirs =
                oracle
                    .get("logits")
                    .get(row as i64)
                    .narrow(0, *start as i64, ids.len() as i64);
            let diff = max_diff(&ours, &theirs);
            assert!(diff < 1e-4, "{name} row {row}: logits differ by {diff}");
            for (at, id) in ids.iter().enumerate().skip(1) {
                let ours =
                    logprobs.double_value(&[(group.prompt.start + at - 1) as i64, i64::from(*id)]);
                let theirs = oracle
                    .get("logprobs_next")
                    .double_value(&[row as i64, (start + at - 1) as i64]);
                assert!((ours - theirs).abs() < 5e-5, "{name} row {row} token {at}");
            }
        }
    }
}

#[test]
fn greedy_continuations_equal_those_of_transformers() {
    for name in MODELS {
        let (oracle, model) = (Oracle::of(name), model(name, Kind::Float));
        let mut sequences: Vec<Vec<u32>> =
            oracle.prompts().into_iter().map(|(_, ids)| ids).collect();
        let expected = oracle.ids("greedy_ids");
        let steps = expected[0].len();
        let expected_at = |row: usize, step: usize| expected[row][step];
        for step in 0..steps {
            let batch = pack(&sequences);
            let last: Vec<i64> = batch
                .groups
                .iter()
                .map(|group| group.prompt.end as i64 - 1)
                .collect();
            let next = tch::no_grad(|| {
                let rows = model.hidden(&batch).rows;
                model
                    .logits(&rows.index_select(0, &Tensor::from_slice(&last)))
                    .argmax(-1, false)
            });
            for (row, sequence) in sequences.iter_mut().enumerate() {
                let id = next.int64_value(&[row as i64]) as u32;
                assert_eq!(id, expected_at(row, step), "{name} row {row} step {step}");
                sequence.push(id);
            }
        }
    }
}

/// The oracle's clipped policy loss over all four sequences, as masked token mean.
fn backward_of_oracle_loss(oracle: &Oracle, model: &Transformer) {
    let mut batch = PackedBatch::default();
    let greedy = oracle.ids("greedy_ids");
    for ((_, prompt), branch) in oracle.prompts().iter().zip(&greedy) {
        batch.push_group(prompt, &[branch]);
    }
    let hidden = model.hidden(&batch);
    let mut rows = Vec::new();
    for group in &batch.groups {
        rows.push(group.prompt.end as i64 - 1);
        rows.extend(
            group.branches[0]
                .clone()
                .map(|row| row as i64)
                .take(greedy[0].len() - 1),
        );
    }
    let logits = model.logits(&hidden.rows.index_select(0, &Tensor::from_slice(&rows)));
    let targets: Vec<i64> = greedy.iter().flatten().map(|id| i64::from(*id)).collect();
    let logprobs = logits
        .log_softmax(-1, Kind::Float)
        .gather(-1, &Tensor::from_slice(&targets).unsqueeze(-1), false)
        .view_as(oracle.get("train_old_logprobs"));
    let ratio = (logprobs - oracle.get("train_old_logprobs")).exp();
    let advantages = oracle.get("train_advantages");
    let mask = oracle.get("train_response_mask").to_kind(Kind::Float);
    let objective = (&ratio * advantages).min_other(&(ratio.clamp(0.8, 1.2) * advantages));
    let loss = -(objective * &mask).sum(Kind::Float) / mask.sum(Kind::Float);
    loss.backward();
    hidden.backward();
}

#[test]
fn gradients_equal_those_of_transformers_with_and_without_checkpointing() {
    for name in MODELS {
        let oracle = Oracle::of(name);
        let mut gradients = Vec::new();
        for checkpointing in [false, true] {
            let parameters = load(name, Kind::Float).set_requires_grad(true);
            let model = Transformer::new(parameters, Kind::Float, checkpointing);
            backward_of_oracle_loss(&oracle, &model);
            let mut compared = 0;
            for (parameter, tensor) in model.parameters().iter() {
                let gradient = tensor.grad();
                assert!(gradient.defined(), "{name}: {parameter} has no gradient");
                let Some(expected) = oracle.find(&format!("grad0.{parameter}")) else {
                    continue;
                };
                compared += 1;
                let diff = max_diff(&gradient, expected);
                assert!(
                    diff < 1e-6 + 1e-4 * max_abs(expected),
                    "{name} {parameter} (checkpointing {checkpointing}): gradient differs by {diff}"
                );
            }
            assert!(compared >= 5, "{name}: only {compared} gradients compared");
            gradients.push(
                model
                    .parameters()
                    .iter()
                    .map(|(_, tensor)| tensor.grad())
                    .collect::<Vec<_>>(),
            );
        }
        for (plain, recomputed) in gradients[0].iter().zip(&gradients[1]) {
            assert!(
                max_diff(plain, recomputed) < 1e-7 + 1e-5 * max_abs(plain),
                "{name}"
            );
        }
    }
}

/// Values and gradients of a weighted sum of the rows of `branches`, once with the prompt shared and once as sequences apart.
fn shared_and_apart(
    name: &str,
    kind: Kind,
    branch_lengths: &[usize],
) -> [(Tensor, Vec<Tensor>); 2] {
    let prompt: Vec<u32> = (0..7).map(|i| (i * 37 + 11) % 400).collect();
    let branches: Vec<Vec<u32>> = branch_lengths
        .iter()
        .enumerate()
        .map(|(b, length)| {
            (0..*length)
                .map(|i| ((b * 91 + i * 53 + 5) % 400) as u32)
                .collect()
        })
        .collect();
    let mut shared = PackedBatch::default();
    let slices: Vec<&[u32]> = branches.iter().map(Vec::as_slice).collect();
    shared.push_group(&[3, 1, 4], &[&[1, 5]]);
    shared.push_group(&prompt, &slices);
    let shared_rows: Vec<i64> = shared.groups[1]
        .branches
        .iter()
        .flat_map(|rows| rows.clone().map(|row| row as i64))
        .collect();
    let apart = pack(
        &branches
            .iter()
            .map(|branch| [prompt.clone(), branch.clone()].concat())
            .collect::<Vec<_>>(),
    );
    let apart_rows: Vec<i64> = apart
        .groups
        .iter()
        .flat_map(|group| {
            (group.prompt.start + prompt.len()..group.prompt.end).map(|row| row as i64)
        })
        .collect();
    [(shared, shared_rows), (apart, apart_rows)].map(|(batch, rows)| {
        let model = Transformer::new(load(name, Kind::Float).set_requires_grad(true), kind, false);
        let hidden = model.hidden(&batch);
        let logits = model.logits(&hidden.rows.index_select(0, &Tensor::from_slice(&rows)));
        let weights = Tensor::arange(logits.numel() as i64, (Kind::Float, Device::Cpu))
            .sin()
            .view_as(&logits);
        (&logits * weights).sum(Kind::Float).backward();
        hidden.backward();
        let gradients = model.parameters().iter().map(|(_, p)| p.grad()).collect();
        (logits.detach(), gradients)
    })
}

#[test]
fn samples_that_share_a_prompt_equal_sequences_apart_in_values_and_gradients() {
    for name in MODELS {
        for lengths in [&[5, 5, 5][..], &[1, 9, 0, 4, 4], &[40, 3]] {
            let [(values, gradients), (expected, expected_gradients)] =
                shared_and_apart(name, Kind::Float, lengths);
            let diff = max_diff(&values, &expected);
            assert!(diff < 1e-5, "{name} {lengths:?}: values differ by {diff}");
            for (ours, theirs) in gradients.iter().zip(&expected_gradients) {
                let diff = max_diff(ours, theirs);
                // f32 sums of up to a few hundred terms in another order.
                assert!(
                    diff < 1e-5 + 1e-5 * max_abs(theirs),
                    "{name} {lengths:?}: {diff}"
                );
            }
        }
    }
}

#[test]
fn bf16_matrices_under_f32_masters_stay_near_f32_and_give_f32_gradients() {
    for name in MODELS {
        let [(exact, exact_gradients), _] = shared_and_apart(name, Kind::Float, &[6, 2]);
        let [(rounded, gradients), _] = shared_and_apart(name, Kind::BFloat16, &[6, 2]);
        assert_eq!(rounded.kind(), Kind::BFloat16);
        // bf16 keeps 8 bits: a few layers of it stay within 5 % of the largest logit.
        let diff = max_diff(&rounded, &exact);
        assert!(
            diff > 0.0 && diff < 0.05 * max_abs(&exact),
            "{name}: {diff}"
        );
        for (ours, theirs) in gradients.iter().zip(&exact_gradients) {
            assert_eq!(ours.kind(), Kind::Float);
            assert!(
                max_diff(ours, theirs) < 0.1 * max_abs(theirs) + 1e-3,
                "{name}"
            );
        }
    }
}

#[test]
fn a_saved_model_loads_with_the_same_bits_from_one_file_or_many() {
    for (name, kind) in [(MODELS[0], Kind::Float), (MODELS[1], Kind::BFloat16)] {
        let folder = tempfile::tempdir().unwrap();
        let parameters = load(name, kind);
        parameters
            .save_pretrained(folder.path(), Some(&directory(name)))
            .unwrap();
        for file in [
            "tokenizer.json",
            "tokenizer_config.json",
            "generation_config.json",
        ] {
            assert_eq!(
                std::fs::read(folder.path().join(file)).unwrap(),
                std::fs::read(directory(name).join(file)).unwrap()
            );
        }
        let again = Parameters::load(folder.path(), kind, Device::Cpu).unwrap();
        let same = |a: &Parameters, b: &Parameters| {
            a.iter()
                .zip(b.iter())
                .all(|((n, x), (m, y))| n == m && x.kind() == y.kind() && x.equal(y))
        };
        assert!(same(&parameters, &again), "{name}");

        shard(folder.path());
        let sharded = Parameters::load(folder.path(), kind, Device::Cpu).unwrap();
        assert!(same(&parameters, &sharded), "{name} sharded");
    }
}

/// Splits model.safetensors into two files and an index, as transformers does with large models.
fn shard(directory: &Path) {
    let single = directory.join("model.safetensors");
    let tensors = Tensor::read_safetensors(&single).unwrap();
    let mut map = serde_json::Map::new();
    for (part, chunk) in tensors.chunks(tensors.len().div_ceil(2)).enumerate() {
        let file = format!("model-{:05}-of-00002.safetensors", part + 1);
        Tensor::write_safetensors(chunk, directory.join(&file)).unwrap();
        for (name, _) in chunk {
            map.insert(name.clone(), file.clone().into());
        }
    }
    std::fs::remove_file(single).unwrap();
    std::fs::write(
        directory.join("model.safetensors.index.json"),
        serde_json::json!({"metadata": {}, "weight_map": map}).to_string(),
    )
    .unwrap();
}

#[test]
fn random_weights_depend_on_the_seed_only() {
    let config = Arc::new(ModelConfig::load(&directory(MODELS[0])).unwrap());
    let draw = |seed| Parameters::random(&config, seed, Kind::Float, Device::Cpu);
    let (one, same, other) = (draw(1), draw(1), draw(2));
    for ((name, a), ((_, b), (_, c))) in one.iter().zip(same.iter().zip(other.iter())) {
        assert!(a.equal(b), "{name}");
        let drawn = !name.ends_with("norm.weight") && !name.ends_with("bias");
        assert_eq!(a.equal(c), !drawn, "{name}");
    }
    assert_eq!(
        one.iter().map(|(_, t)| t.numel() as i64).sum::<i64>(),
        config.num_parameters()
    );
}

#[test]
fn a_critic_keeps_the_trunk_and_gives_one_value_a_row() {
    let actor = load(MODELS[1], Kind::Float);
    let critic = actor.to_critic(5);
    assert_eq!(critic.config().head, Head::Value);
    assert!(critic.get("lm_head.weight").is_none());
    let folder = tempfile::tempdir().unwrap();
    critic.save_pretrained(folder.path(), None).unwrap();
    let loaded = Parameters::load_critic(folder.path(), 99, Kind::Float, Device::Cpu).unwrap();
    let batch = pack(&[vec![1, 2, 3], vec![4]]);
    let values = |parameters: Parameters| {
        let model = Transformer::new(parameters, Kind::Float, false);
        let rows = model.hidden(&batch).rows;
        (model.values(&rows), rows)
    };
    let (ours, rows) = values(critic.shallow_clone());
    let (again, _) = values(loaded);
    assert_eq!(ours.size(), [4]);
    assert!(ours.equal(&again));
    let by_hand = rows
        .matmul(&critic.get("score.weight").unwrap().transpose(0, 1))
        .squeeze();
    assert!(max_diff(&ours, &by_hand) < 1e-6);
    assert!(max_abs(&ours) > 0.0);
}

/// Loads a copy of a test model after `change` had its way with it; gives the error's text without the folder's name.
fn error_after(name: &str, change: impl Fn(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(directory(name).join(file), folder.path().join(file)).unwrap();
    }
    change(folder.path());
    Parameters::load(folder.path(), Kind::Float, Device::Cpu)
        .expect_err("a broken model does not load")
        .to_string()
        .replace(folder.path().to_str().unwrap(), "DIR")
}

fn edit_config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "the test edits what is there");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn broken_models_are_refused_with_file_tensor_and_both_shapes() {
    let truncate = |folder: &Path| {
        let path = folder.join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 100]).unwrap();
    };
    assert_eq!(
        error_after(MODELS[0], truncate),
        "DIR/model.safetensors is damaged: 480004 bytes, its header promises 480104; fetch or copy it again"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            std::fs::write(folder.join("model.safetensors"), b"<html>404</html>").unwrap();
        }),
        "DIR/model.safetensors is damaged: its header claims 3473469848023230524 bytes of a file of 16; fetch or copy it again"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            std::fs::remove_file(folder.join("model.safetensors")).unwrap();
        }),
        "DIR has neither model.safetensors nor model.safetensors.index.json; weights are read in the safetensors format only"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            edit_config(folder, "\"vocab_size\": 512", "\"vocab_size\": 500");
        }),
        "DIR/model.safetensors: tensor model.embed_tokens.weight has shape [512, 64]; config.json makes it [500, 64]"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            edit_config(
                folder,
                "\"tie_word_embeddings\": true",
                "\"tie_word_embeddings\": false",
            );
        }),
        "DIR: 1 tensors that config.json asks for are missing, first lm_head.weight"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            edit_config(
                folder,
                "\"num_hidden_layers\": 2",
                "\"num_hidden_layers\": 1",
            );
        }),
        "DIR/model.safetensors: 12 tensors are not part of the model that config.json describes, first model.layers.1.input_layernorm.weight"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            edit_config(
                folder,
                "\"num_hidden_layers\": 2",
                "\"num_hidden_layers\": 1000000000",
            );
        }),
        "DIR: config.json has 1000000000 layers (num_hidden_layers), the weights hold 26 tensors in all; one of the two belongs to another model"
    );
    assert_eq!(
        error_after(MODELS[0], |folder| {
            let path = folder.join("model.safetensors");
            let tensors: Vec<(String, Tensor)> = Tensor::read_safetensors(&path)
                .unwrap()
                .into_iter()
                .map(|(name, tensor)| {
                    if name == "model.norm.weight" {
                        let _ = tensor.get(3).fill_(f64::NAN);
                    }
                    (name, tensor)
                })
                .collect();
            Tensor::write_safetensors(&tensors, path).unwrap();
        }),
        "DIR/model.safetensors: tensor model.norm.weight has 1 values that are NaN or infinite; a model cannot start from them"
    );
    assert_eq!(
        error_after(MODELS[1], |folder| {
            let path = folder.join("model.safetensors");
            let tensors: Vec<(String, Tensor)> = Tensor::read_safetensors(&path)
                .unwrap()
                .into_iter()
                .map(|(name, tensor)| {
                    let kind = if name == "model.norm.weight" {
                        Kind::Int64
                    } else {
                        Kind::Float
                    };
                    (name, tensor.to_kind(kind))
                })
                .collect();
            Tensor::write_safetensors(&tensors, path).unwrap();
        }),
        "DIR/model.safetensors: tensor model.norm.weight is I64; expected F32, BF16 or F16"
    );
}
