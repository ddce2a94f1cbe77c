"""Makes reward-heads.json: what transformers' sequence classifiers say of token ids with the bodies of tiny-qwen2-tied, tiny-qwen3 and
tiny-llama-rope3 and a random head. transformers 5.9.0, torch 2.13.0 (CPU, float32, eager attention, one thread)."""
import json, sys, torch
from transformers import AutoModelForSequenceClassification
here = sys.argv[1]
torch.set_num_threads(1)
out = {}
for name in ["tiny-qwen2-tied", "tiny-qwen3", "tiny-llama-rope3"]:
    torch.manual_seed(11)
    model = AutoModelForSequenceClassification.from_pretrained(f"{here}/{name}", num_labels=1, dtype=torch.float32, attn_implementation="eager").eval()
    head = torch.randn(model.config.hidden_size) * 0.2
    with torch.no_grad(): model.score.weight.copy_(head[None])
    g = torch.Generator().manual_seed(4)
    # No padding id: the classifier reads the last token that is none.
    pad = model.config.pad_token_id
    rows = []
    for n in [1, 2, 7, 33, 80]:
        ids = torch.randint(0, model.config.vocab_size, (1, n), generator=g)
        ids[ids == pad] = 3
        with torch.no_grad(): rows.append({"ids": ids[0].tolist(), "score": model(input_ids=ids).logits[0, 0].item()})
    out[name] = {"head": head.tolist(), "rows": rows}
json.dump(out, open(f"{here}/reward-heads.json", "w"))
