"""Makes tiny-qwen3: a random Qwen3 with the tokenizer and prompts of tiny-qwen2-tied, and what transformers 5.9 computes with it."""
import json, os, shutil, sys, torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM
base, out = sys.argv[1], sys.argv[2]
torch.set_num_threads(1); torch.manual_seed(3)
os.makedirs(out, exist_ok=True)
for f in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]: shutil.copy(f"{base}/{f}", out)
old = load_file(f"{base}/oracle.safetensors")
ids, mask = old["input_ids"].long(), old["attention_mask"].long()
cfg = Qwen3Config(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=24,
    max_position_embeddings=256, rope_theta=1e4, rms_norm_eps=1e-6, tie_word_embeddings=True, eos_token_id=511, pad_token_id=509, bos_token_id=None, attn_implementation="eager")
model = Qwen3ForCausalLM(cfg).float().eval()
with torch.no_grad():
    for n, p in model.named_parameters():
        p.copy_(1 + 0.3 * torch.randn_like(p) if "norm" in n else 0.12 * torch.randn_like(p))
model.save_pretrained(out)
pos = (mask.cumsum(1) - 1).clamp(min=0)
def lp(logits, nxt): return logits.float().log_softmax(-1).gather(-1, nxt.unsqueeze(-1)).squeeze(-1) if logits.dtype != torch.float64 else logits.log_softmax(-1).gather(-1, nxt.unsqueeze(-1)).squeeze(-1)
t = {"input_ids": ids.int(), "attention_mask": mask.to(torch.uint8)}
with torch.no_grad():
    logits = model(input_ids=ids, attention_mask=mask, position_ids=pos).logits
    t["logits"] = logits; t["logprobs_next"] = lp(logits[:, :-1], ids[:, 1:])
    p = logits.softmax(-1); t["entropy"] = -(p * logits.log_softmax(-1)).sum(-1)
    cur, m, greedy, margin = ids, mask, [], 1e9
    for _ in range(32):
        l = model(input_ids=cur, attention_mask=m, position_ids=(m.cumsum(1) - 1).clamp(min=0)).logits[:, -1]
        top = l.topk(2, -1).values; margin = min(margin, (top[:, 0] - top[:, 1]).min().item())
        n = l.argmax(-1); greedy.append(n); cur = torch.cat([cur, n[:, None]], 1); m = torch.cat([m, torch.ones_like(n)[:, None]], 1)
    greedy = torch.stack(greedy, 1); t["greedy_ids"] = greedy.int()
full_pos = (m.cumsum(1) - 1).clamp(min=0)
def response(model): return lp(model(input_ids=cur, attention_mask=m, position_ids=full_pos).logits[:, ids.shape[1] - 1:-1], greedy)
with torch.no_grad():
    t["full_logprobs"] = response(model)
t["greedy_logprobs"] = t["full_logprobs"].clone()
g = torch.Generator().manual_seed(5)
adv = torch.randn(4, 32, generator=g); rm = (torch.rand(4, 32, generator=g) < 0.8).float(); oldlp = t["full_logprobs"] + 0.1 * torch.randn(4, 32, generator=g)
t["train_advantages"], t["train_response_mask"], t["train_old_logprobs"] = adv, rm.to(torch.uint8), oldlp
def train(model, dtype):
    model = model.to(dtype); opt = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01); steps = []; grads = {}
    for k in range(4):
        opt.zero_grad(); r = (response(model) - oldlp.to(dtype)).exp(); a = adv.to(dtype); w = rm.to(dtype)
        loss = (-torch.min(r * a, r.clamp(0.8, 1.2) * a) * w).sum() / w.sum(); loss.backward()
        if k == 0: grads = {n: p.grad.clone() for n, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); steps.append((loss.item(), norm.item())); opt.step()
    with torch.no_grad(): after = response(model)
    return steps, grads, after
s32, g32, a32 = train(model, torch.float32)
for n, gr in g32.items():
    if "norm" in n: t[f"grad0.{n}"] = gr
t["train_logprobs_after"] = a32
save_file({k: v.contiguous() for k, v in t.items()}, f"{out}/oracle.safetensors")
json.dump({"made_by": "transformers 5.9, torch 2.13, CPU, float32, eager attention, one thread", "greedy_min_margin": margin,
  "train": {"optimizer": "AdamW lr=2e-4 betas=0.9,0.999 eps=1e-8 weight_decay=0.01 (decoupled, on every parameter)", "max_grad_norm": 1.0, "clip": [0.2, 0.2],
    "loss": "-min(r*A, clip(r)*A) masked token mean", "steps": [{"loss": a[0], "grad_norm_before_clip": a[1]} for a in s32]}}, open(f"{out}/oracle.json", "w"), indent=1)
print(margin, s32)
