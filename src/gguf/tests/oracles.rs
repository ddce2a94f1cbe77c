//! What gguf-py and transformers make of the same files: see tests/data/README.md.

use std::fs;
use std::path::{Path, PathBuf};

use gguf::{GgmlType, GgufError, GgufFile, Options, convert, dequantize};
use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::Value as Json;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn json(name: &str) -> Json {
    serde_json::from_slice(&fs::read(data(name)).unwrap()).unwrap()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn fnv1a(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn blocks_are_the_numbers_that_gguf_py_makes_of_them_bit_for_bit() {
    let stored = json("blocks.json");
    let cases = stored["cases"].as_array().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for case in cases {
        let name = case["type"].as_str().unwrap();
        let kind = GgmlType::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.unwrap_or_else(|| panic!("{name}"));
        let mut found = Vec::new();
        dequantize(kind, &bytes_of(case["bytes"].as_str().unwrap()), &mut found);
        let wanted = case["bits"].as_array().unwrap();
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            let wanted = f32::from_bits(u32::try_from(wanted.as_u64().unwrap()).unwrap());
            assert_eq!(
                found.to_bits(),
                wanted.to_bits(),
                "{name} {at}: {found} {wanted}"
            );
        }
        seen.insert(kind);
    }
    assert_eq!(seen.len(), GgmlType::ALL.len());
}

/// Whether the converted weights are those that transformers loads from the same file.
fn has_the_tensors_of(into: &Path, stored: &Json) {
    let bytes = fs::read(into.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let wanted = stored["tensors"].as_object().unwrap();
    assert_eq!(tensors.len(), wanted.len());
    for (name, wanted) in wanted {
        let tensor = tensors.tensor(name).unwrap();
        let shape: Vec<u64> = tensor.shape().iter().map(|size| *size as u64).collect();
        assert_eq!(serde_json::json!(shape), wanted["shape"], "{name}");
        assert_eq!(
            fnv1a(tensor.data()),
            wanted["fnv1a"].as_str().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn a_converted_model_has_the_tensors_that_transformers_loads_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("model");
    let written = convert(&data("tiny-llama.gguf"), &into, Options { is_f32: true }).unwrap();
    assert_eq!(
        (written.architecture, written.name.as_deref()),
        ("llama", Some("tiny llama"))
    );
    assert_eq!(written.license.as_deref(), Some("apache-2.0"));
    let bytes = fs::metadata(into.join("model.safetensors")).unwrap().len();
    assert_eq!(written.bytes, bytes);
    has_the_tensors_of(&into, &json("tiny-llama-tensors.json"));
    let config: Json =
        serde_json::from_slice(&fs::read(into.join("config.json")).unwrap()).unwrap();
    for (key, value) in [
        ("model_type", serde_json::json!("llama")),
        ("rms_norm_eps", serde_json::json!(1e-5)),
        ("rope_theta", serde_json::json!(1e5)),
        ("tie_word_embeddings", serde_json::json!(true)),
        ("num_key_value_heads", serde_json::json!(2)),
        ("eos_token_id", serde_json::json!(2)),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    assert!(!folder.path().join("model.partial").exists());
}

#[test]
fn a_qwen3_has_them_too_with_heads_of_a_size_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("model");
    let written = convert(&data("tiny-qwen3.gguf"), &into, Options { is_f32: true }).unwrap();
    assert_eq!(written.architecture, "qwen3");
    let stored = json("tiny-qwen3-tensors.json");
    has_the_tensors_of(&into, &stored);
    let config: Json =
        serde_json::from_slice(&fs::read(into.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "Qwen3ForCausalLM");
    assert_eq!(config["rope_theta"], stored["rope_theta"]);
    for (key, value) in stored["config"].as_object().unwrap() {
        let near = |one: &Json, other: &Json| {
            // A file keeps its numbers as f32.
            one.as_f64()
                .zip(other.as_f64())
                .is_some_and(|(one, other)| (one - other).abs() <= 1e-6 * other.abs())
        };
        assert!(
            config[key] == *value || near(&config[key], value),
            "{key}: {} {value}",
            config[key]
        );
    }
}

#[test]
fn half_the_bytes_are_the_nearest_bfloat16_of_each_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let from = data("tiny-llama.gguf");
    convert(&from, &path("wide"), Options { is_f32: true }).unwrap();
    convert(&from, &path("narrow"), Options { is_f32: false }).unwrap();
    let read = |name: &str| fs::read(path(name).join("model.safetensors")).unwrap();
    let (wide, narrow) = (read("wide"), read("narrow"));
    let (wide, narrow) = (
        SafeTensors::deserialize(&wide).unwrap(),
        SafeTensors::deserialize(&narrow).unwrap(),
    );
    for (name, tensor) in wide.tensors() {
        let narrow = narrow.tensor(&name).unwrap();
        let wide = tensor.data().chunks_exact(4);
        for (wide, narrow) in wide.zip(narrow.data().chunks_exact(2)) {
            let wide = f32::from_le_bytes(wide.try_into().unwrap());
            let narrow = half::bf16::from_le_bytes(narrow.try_into().unwrap());
            assert_eq!(half::bf16::from_f32(wide), narrow, "{name}");
        }
    }
}

#[test]
fn the_tokenizer_cuts_texts_as_the_one_it_was_made_of() {
    let folder = tempfile::tempdir().unwrap();
    convert(&data("tiny-llama.gguf"), folder.path(), Options::default()).unwrap();
    let tokenizer = tokenizers::Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap();
    for case in json("tiny-llama-ids.json")["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let encoding = tokenizer.encode(text, false).unwrap();
        assert_eq!(
            serde_json::json!(encoding.get_ids()),
            case["ids"],
            "{text:?}"
        );
        assert_eq!(tokenizer.decode(encoding.get_ids(), false).unwrap(), text);
    }
    let config = fs::read(folder.path().join("tokenizer_config.json")).unwrap();
    let config: Json = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["eos_token"], "<|im_end|>");
    assert!(
        config["chat_template"]
            .as_str()
            .unwrap()
            .contains("im_start")
    );
}

#[test]
fn a_file_that_ends_early_is_an_error_that_names_it_wherever_it_ends() {
    let whole = fs::read(data("tiny-llama.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.gguf");
    let header = whole.len() - 90_000;
    for length in (0..header)
        .step_by(7)
        .chain((header..whole.len()).step_by(4999))
    {
        fs::write(&path, &whole[..length]).unwrap();
        let error = GgufFile::open(&path).expect_err("a part of a file");
        assert!(error.to_string().contains("cut.gguf"), "{error}");
    }
}

#[test]
fn what_is_no_gguf_or_cannot_be_read_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, b"PK\x03\x04 a zip").unwrap();
    let error = GgufFile::open(&path).unwrap_err();
    assert!(matches!(error, GgufError::NotGguf { .. }), "{error}");
    fs::write(&path, b"GGUF\x01\0\0\0").unwrap();
    let error = GgufFile::open(&path).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("is GGUF version 1; 2 and 3 are read"),
        "{error}"
    );
    // A type that is not read is named.
    let mut whole = fs::read(data("tiny-llama.gguf")).unwrap();
    let name = b"blk.0.ffn_up.weight";
    let at = whole
        .windows(name.len())
        .position(|part| part == name)
        .unwrap();
    // After the name: the number of dimensions, two of them, the type.
    let kind = at + name.len() + 4 + 16;
    whole[kind] = 13;
    fs::write(&path, &whole).unwrap();
    let error = GgufFile::open(&path).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("blk.0.ffn_up.weight is of type Q5_K"),
        "{error}"
    );
    let into = folder.path().join("into");
    assert!(convert(&path, &into, Options::default()).is_err());
    assert!(!into.exists(), "nothing is left behind");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_changed_header_never_panics(at in 0_usize..6000, byte in any::<u8>()) {
        let mut whole = fs::read(data("tiny-llama.gguf")).unwrap();
        whole[at] = byte;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changed.gguf");
        fs::write(&path, &whole).unwrap();
        let _ = convert(&path, &folder.path().join("model"), Options::default());
    }
}
