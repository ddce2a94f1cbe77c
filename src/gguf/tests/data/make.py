"""Makes the files of src/gguf/tests/data: blocks with what gguf-py makes of them, and a tiny llama file with what transformers
loads from it. gguf 0.19, transformers 5.9, torch 2.13 (CPU), numpy 2.4."""
import json, sys, numpy as np, gguf
from gguf.quants import dequantize, quantize
from gguf.constants import GGMLQuantizationType as Q
out = sys.argv[1]
rng = np.random.default_rng(7)
def half(x): return np.float16(x).tobytes()
cases = []
def case(kind, raw):
    values = dequantize(np.frombuffer(raw, dtype=np.uint8).reshape(1, -1), kind).astype(np.float32).reshape(-1)
    cases.append({"type": kind.name, "bytes": raw.hex(), "bits": [int(b) for b in values.view(np.uint32)]})
for kind, n in [(Q.Q4_0, 3), (Q.Q4_1, 3), (Q.Q8_0, 2)]:
    x = rng.normal(size=(1, 32 * n)).astype(np.float32)
    case(kind, quantize(x, kind).tobytes())
for _ in range(2):
    case(Q.Q4_K, half(rng.normal()) + half(rng.normal()) + rng.bytes(12 + 128))
    case(Q.Q6_K, rng.bytes(128 + 64 + 16) + half(rng.normal()))
x = rng.normal(size=(1, 8)).astype(np.float32)
case(Q.F16, x.astype(np.float16).tobytes())
case(Q.BF16, (x.view(np.uint32) >> 16).astype(np.uint16).tobytes())
case(Q.F32, x.tobytes())
json.dump({"origin": "gguf-py 0.19 dequantize; bits are those of f32", "cases": cases}, open(out + "/blocks.json", "w"))

# a tiny llama
from transformers import LlamaConfig, LlamaForCausalLM, AutoModelForCausalLM, AutoTokenizer
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers, decoders
torch.manual_seed(1)
tok = Tokenizer(models.BPE())
tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
tok.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=288, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tok.train_from_iterator(["the sum of 17 and 25 is 42", "the capital of the sea", "and the sum is the answer"], trainer)
data = json.loads(tok.to_str())
vocab = sorted(data["model"]["vocab"].items(), key=lambda kv: kv[1])
tokens = [t for t, _ in vocab]
H, heads, kv, L, F = 64, 4, 2, 2, 96
cfg = LlamaConfig(vocab_size=len(tokens), hidden_size=H, intermediate_size=F, num_hidden_layers=L, num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=512, rope_theta=1e5, rms_norm_eps=1e-5, tie_word_embeddings=True)
model = LlamaForCausalLM(cfg).float()
with torch.no_grad():
    for n, p in model.named_parameters():
        if "norm" in n: p.add_(0.1 * torch.randn_like(p))
def permute(w, n): return w.reshape(n, 2, w.shape[0] // n // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
w = gguf.GGUFWriter(out + "/tiny-llama.gguf", "llama")
w.add_name("tiny llama"); w.add_license("apache-2.0"); w.add_context_length(512); w.add_embedding_length(H); w.add_block_count(L); w.add_feed_forward_length(F)
w.add_head_count(heads); w.add_head_count_kv(kv); w.add_layer_norm_rms_eps(1e-5); w.add_rope_freq_base(1e5); w.add_rope_dimension_count(H // heads); w.add_vocab_size(len(tokens)); w.add_file_type(3)
w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("smollm"); w.add_token_list(tokens)
w.add_token_types([3 if t.startswith("<|") else 1 for t in tokens])
w.add_token_merges([" ".join(m) for m in data["model"]["merges"]])
w.add_bos_token_id(1); w.add_eos_token_id(2); w.add_pad_token_id(2); w.add_unk_token_id(0)
w.add_chat_template("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
kinds = {"attn_q": Q.Q4_1, "attn_k": Q.Q8_0, "attn_v": Q.Q4_0, "attn_output": Q.F16, "ffn_gate": Q.Q4_1, "ffn_up": Q.BF16, "ffn_down": Q.Q4_1}
def add(name, t, kind):
    t = t.detach().numpy().astype(np.float32)
    if kind == Q.F32: w.add_tensor(name, t); return
    raw = quantize(t, kind)
    w.add_tensor(name, raw, raw_dtype=kind)
add("token_embd.weight", model.model.embed_tokens.weight, Q.Q8_0)
for i, b in enumerate(model.model.layers):
    p = f"blk.{i}."
    add(p + "attn_norm.weight", b.input_layernorm.weight, Q.F32); add(p + "ffn_norm.weight", b.post_attention_layernorm.weight, Q.F32)
    add(p + "attn_q.weight", permute(b.self_attn.q_proj.weight, heads), kinds["attn_q"]); add(p + "attn_k.weight", permute(b.self_attn.k_proj.weight, kv), kinds["attn_k"])
    add(p + "attn_v.weight", b.self_attn.v_proj.weight, kinds["attn_v"]); add(p + "attn_output.weight", b.self_attn.o_proj.weight, kinds["attn_output"])
    add(p + "ffn_gate.weight", b.mlp.gate_proj.weight, kinds["ffn_gate"]); add(p + "ffn_up.weight", b.mlp.up_proj.weight, kinds["ffn_up"]); add(p + "ffn_down.weight", b.mlp.down_proj.weight, kinds["ffn_down"])
add("output_norm.weight", model.model.norm.weight, Q.F32)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
loaded = AutoModelForCausalLM.from_pretrained(out, gguf_file="tiny-llama.gguf", dtype=torch.float32)
print(loaded.config)
def fnv(raw):
    h = 0xcbf29ce484222325
    for byte in raw: h = ((h ^ byte) * 0x100000001b3) & (2**64 - 1)
    return f"{h:016x}"
state = {n: {"shape": list(t.shape), "fnv1a": fnv(t.contiguous().numpy().tobytes())} for n, t in loaded.state_dict().items() if n != "lm_head.weight"}
json.dump({"origin": "transformers 5.9 from tiny-llama.gguf; hashes of the f32 in the order of the tensor", "tensors": state}, open(out + "/tiny-llama-tensors.json", "w"), indent=1)
t = tok
texts = ["the sum of 17 and 25 is 42.", "<|im_start|>user\nthe sea<|im_end|>\n", "naïve  café\t\n123 45"]
json.dump({"origin": "tokenizers 0.22, the tokenizer that the file was made of", "texts": [{"text": x, "ids": t.encode(x).ids} for x in texts]}, open(out + "/tiny-llama-ids.json", "w"))
