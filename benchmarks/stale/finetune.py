"""Make the target's next version: a short fine-tune on one domain, kept as a low-rank delta.

    python -m benchmarks.stale.finetune --data train.jsonl --delta DIR --merged DIR

The domain is worded arithmetic: GSM8K's training problems with the answers that
people wrote (JSONL with `question` and `answer`; the calculator notes are taken
out). LoRA on all linear layers (Hu et al., arXiv:2106.09685) through PEFT; needs a
GPU to take a minute. The delta is what is kept; `merged` is the next version
itself.
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from draftgate.targets import resolve_target

RANK = 8
EPOCHS = 3
RATE = 1e-3
BATCH = 32
SEED = 5
TARGET = "smollm2-135m-instruct"


def conversations(path: Path) -> list[list[dict[str, str]]]:
    """Return question and answer of each line as a conversation, calculator notes removed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    held = [json.loads(line) for line in lines if line.strip()]
    return [
        [
            {"role": "user", "content": one["question"]},
            {"role": "assistant", "content": re.sub(r"<<.*?>>", "", one["answer"])},
        ]
        for one in held
    ]


def samples(tokenizer: Any, path: Path) -> list[tuple[list[int], int]]:
    """Return (tokens, where the answer begins) of each conversation."""
    found = []
    for talk in conversations(path):
        prompt = tokenizer.apply_chat_template(talk[:1], tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(talk, tokenize=False).rstrip("\n")
        first = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        found.append((tokenizer(whole, add_special_tokens=False)["input_ids"], len(first)))
    return found


def fine_tune(folder: Path, data: Path, delta: Path, merged: Path) -> None:
    """Train the delta, write it, and write the model with the delta merged in."""
    import torch  # noqa: PLC0415 - on a GPU machine alone
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - on a GPU machine alone
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    rows = samples(tokenizer, data)
    base = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).cuda()
    config = LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = get_peft_model(base, config)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0)
    steps = EPOCHS * math.ceil(len(rows) / BATCH)
    rng, step = np.random.default_rng(SEED), 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(rows))
        for begin in range(0, len(rows), BATCH):
            for group in optimiser.param_groups:
                group["lr"] = RATE * (1 - step / steps)
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(**_batch([rows[at] for at in order[begin : begin + BATCH]])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            step += 1
            if step % 50 == 0:
                print(f"finetune: step {step} of {steps}, loss {loss.item():.3f}", flush=True)
    model.to(torch.bfloat16).save_pretrained(str(delta))
    whole = model.merge_and_unload()
    whole.save_pretrained(str(merged))
    tokenizer.save_pretrained(str(merged))


def _batch(rows: list[tuple[list[int], int]]) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - on a GPU machine alone

    longest = max(len(ids) for ids, _ in rows)
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    labels = np.full_like(ids, -100)
    for at, (tokens, first) in enumerate(rows):
        ids[at, : len(tokens)] = tokens
        mask[at, : len(tokens)] = 1
        labels[at, first : len(tokens)] = tokens[first:]
    named = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: torch.from_numpy(value).cuda() for name, value in named.items()}


def main() -> int:
    """Make delta and merged model; return 0, or 2 if the target is no folder here."""
    parser = argparse.ArgumentParser(description="Make the target's next version.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--delta", type=Path, required=True)
    parser.add_argument("--merged", type=Path, required=True)
    args = parser.parse_args()
    folder = resolve_target(TARGET, log=print)
    if not isinstance(folder, Path):
        print(f"finetune: {TARGET} is no folder here", file=sys.stderr)
        return 2
    fine_tune(folder, args.data, args.delta, args.merged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
