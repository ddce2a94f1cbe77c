"""Makes tiny-qwen3.gguf and tiny-qwen3-tensors.json: the weights of the trainer's tiny-qwen3 as a GGUF file of one mixture of types, and what
transformers loads from it. gguf 0.19, transformers 5.9, torch 2.13 (CPU)."""
import json, sys, numpy as np, gguf, torch
from gguf.quants import quantize
from gguf.constants import GGMLQuantizationType as Q
from transformers import AutoModelForCausalLM
base, out = sys.argv[1], sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
c = model.config
data = json.load(open(base + "/tokenizer.json"))
vocab = {t: i for t, i in data["model"]["vocab"].items()}
vocab.update({t["content"]: t["id"] for t in data["added_tokens"]})
tokens = [f"<unused{i}>" for i in range(c.vocab_size)]
for t, i in vocab.items(): tokens[i] = t
special = {t["id"] for t in data["added_tokens"]}
w = gguf.GGUFWriter(out + "/tiny-qwen3.gguf", "qwen3")
w.add_name("tiny qwen3"); w.add_context_length(c.max_position_embeddings); w.add_embedding_length(c.hidden_size); w.add_block_count(c.num_hidden_layers)
w.add_feed_forward_length(c.intermediate_size); w.add_head_count(c.num_attention_heads); w.add_head_count_kv(c.num_key_value_heads)
w.add_key_length(c.head_dim); w.add_value_length(c.head_dim); w.add_layer_norm_rms_eps(c.rms_norm_eps)
w.add_rope_freq_base((getattr(c, "rope_theta", None) or c.rope_parameters["rope_theta"])); w.add_vocab_size(c.vocab_size); w.add_file_type(7)
w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("qwen2"); w.add_token_list(tokens)
w.add_token_types([3 if i in special else 5 if t.startswith("<unused") else 1 for i, t in enumerate(tokens)])
w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]])
w.add_eos_token_id(511); w.add_pad_token_id(509)
w.add_chat_template("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
def add(name, t, kind):
    t = t.detach().numpy().astype(np.float32)
    if kind == Q.F32: w.add_tensor(name, t)
    else: w.add_tensor(name, quantize(t, kind), raw_dtype=kind)
add("token_embd.weight", model.model.embed_tokens.weight, Q.Q8_0)
for i, b in enumerate(model.model.layers):
    p, a = f"blk.{i}.", b.self_attn
    add(p + "attn_norm.weight", b.input_layernorm.weight, Q.F32); add(p + "ffn_norm.weight", b.post_attention_layernorm.weight, Q.F32)
    add(p + "attn_q_norm.weight", a.q_norm.weight, Q.F32); add(p + "attn_k_norm.weight", a.k_norm.weight, Q.F32)
    add(p + "attn_q.weight", a.q_proj.weight, Q.Q8_0); add(p + "attn_k.weight", a.k_proj.weight, Q.Q4_0)
    add(p + "attn_v.weight", a.v_proj.weight, Q.F16); add(p + "attn_output.weight", a.o_proj.weight, Q.Q4_1)
    add(p + "ffn_gate.weight", b.mlp.gate_proj.weight, Q.Q8_0); add(p + "ffn_up.weight", b.mlp.up_proj.weight, Q.BF16); add(p + "ffn_down.weight", b.mlp.down_proj.weight, Q.Q4_0)
add("output_norm.weight", model.model.norm.weight, Q.F32)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
loaded = AutoModelForCausalLM.from_pretrained(out, gguf_file="tiny-qwen3.gguf", config=c, dtype=torch.float32)  # its own reader passes key_length over
def fnv(raw):
    h = 0xcbf29ce484222325
    for byte in raw: h = ((h ^ byte) * 0x100000001b3) & (2**64 - 1)
    return f"{h:016x}"
state = {n: {"shape": list(t.shape), "fnv1a": fnv(t.contiguous().numpy().tobytes())} for n, t in loaded.state_dict().items() if n != "lm_head.weight"}
d = loaded.config
json.dump({"origin": "transformers 5.9 from tiny-qwen3.gguf; hashes of the f32 in the order of the tensor",
  "config": {k: getattr(d, k) for k in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"]},
  "rope_theta": d.rope_parameters["rope_theta"], "tensors": state}, open(out + "/tiny-qwen3-tensors.json", "w"), indent=1)
print(loaded.config)
