"""Record how many drafts of each prompt's answer are accepted, for drafts of several strengths.

    python -m benchmarks.watch.record [--out FILE]

The target (SmolLM2-135M-Instruct) answers every built-in prompt, greedily and sampled.
Each draft then reads the same texts once. A draft model that proposes its likeliest
token is accepted exactly where the text has that token (Leviathan, Kalman and Matias
2023, with a point mass as draft), so verify steps and accepted tokens of every answer
follow from where it does, for any K, without serving. Drafts of several strengths are
copies of the target with noise on their weights; n-gram lookup is worked out by rule.
A quarter of an hour on two cores, with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_
set to some GB: glibc otherwise gives memory back and asks for it again with every token.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from draftgate.datasets.builtin import KINDS, stored
from draftgate.targets import resolve_target, weakened_copy

HERE = Path(__file__).parent

TARGET = "smollm2-135m-instruct"
NOISES = (0.05, 0.1, 0.15)
"""Noise on the drafts' weights as a share of their standard deviation."""

K = 4
MAX_TOKENS = 64
BATCH = 36
TEMPERATURES = (0.0, 0.8)
LOOKUP = (2, 4)
"""Shortest and longest run of tokens that n-gram lookup looks for, as in the default profile."""

Text = tuple[list[int], list[int]]
"""Token ids of a prompt and of its answer."""


def main() -> None:
    """Record all drafts and write one JSON file."""
    parser = argparse.ArgumentParser(description="Record acceptance by request.")
    parser.add_argument("--out", type=Path, default=HERE / "recorded.json")
    options = parser.parse_args()
    source = Path(resolve_target(TARGET, log=print))
    texts = {
        (kind, temperature): answers(source, kind, temperature)
        for kind in KINDS
        for temperature in TEMPERATURES
    }
    rows = [
        row("ngram", key, [lookup_steps(text) for text in found]) for key, found in texts.items()
    ]
    for noise in NOISES:
        folder = weakened_copy(source, noise_ratio=noise, seed=1, log=print)
        model = load(folder)
        for key, found in texts.items():
            steps = [model_steps(model, text) for text in found]
            rows.append(row(f"draft-{noise:g}", key, steps))
        print(f"draft-{noise:g}", flush=True)
        document = {"target": TARGET, "k": K, "max_tokens": MAX_TOKENS, "arms": rows}
        options.out.write_text(json.dumps(document) + "\n", encoding="utf-8")


def row(arm: str, key: tuple[str, float], found: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the row of one draft on one kind of traffic."""
    drafted = [pair for pair in found if pair[0]]
    return {
        "arm": arm,
        "kind": key[0],
        "temperature": key[1],
        "prompts_without_drafts": len(found) - len(drafted),
        "steps": [steps for steps, _ in drafted],
        "accepted": [accepted for _, accepted in drafted],
    }


def load(folder: Path) -> Any:
    """Return a model in float32, which any processor computes fast."""
    import torch  # noqa: PLC0415 - slow to import
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def answers(source: Path, kind: str, temperature: float) -> list[Text]:
    """Return the prompts of a kind with the target's answers, which end where it ends them."""
    import torch  # noqa: PLC0415 - slow to import
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import

    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
    model = load(source)
    torch.manual_seed(1)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": role, "content": text} for role, text in prompt.messages],
            add_generation_prompt=True,
            tokenize=False,
        )
        for prompt in stored(kind)
    ]
    prompts.sort(key=len)  # batches of like lengths hold little padding
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0}
    found: list[Text] = []
    for at in range(0, len(prompts), BATCH):
        batch = tokenizer(prompts[at : at + BATCH], return_tensors="pt", padding=True)
        with torch.inference_mode():
            out = model.generate(
                **batch,
                max_new_tokens=MAX_TOKENS,
                pad_token_id=tokenizer.eos_token_id,
                **(sampling if temperature else {"do_sample": False}),
            )
        width = batch["input_ids"].shape[1]
        for mask, tokens in zip(batch["attention_mask"], out, strict=True):
            given = tokens[:width][mask.bool()].tolist()
            found.append((given, until_end(tokens[width:].tolist(), tokenizer.eos_token_id)))
    print(kind, temperature, sum(len(answer) for _, answer in found), flush=True)
    return found


def until_end(tokens: list[int], end: int) -> list[int]:
    """Return tokens up to the first end token, with it."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def model_steps(model: Any, text: Text) -> tuple[int, int]:
    """Return verify steps and accepted tokens of one answer under a draft model."""
    import torch  # noqa: PLC0415 - slow to import

    prompt, answer = text
    with torch.inference_mode():
        ids = torch.tensor([prompt + answer])
        logits = model(ids, logits_to_keep=len(answer) + 1).logits[0, :-1]
    right = (logits.argmax(-1) == torch.tensor(answer)).tolist()
    return steps_of(len(answer), lambda at: right[at : at + K])


def lookup_steps(text: Text) -> tuple[int, int]:
    """Return verify steps and accepted tokens of one answer under n-gram lookup."""
    prompt, answer = text

    def right(at: int) -> list[bool]:
        drafts = lookup([*prompt, *answer[:at]])
        return [a == b for a, b in zip(drafts, answer[at:], strict=False)]

    return steps_of(len(answer), right)


def lookup(tokens: list[int]) -> list[int]:
    """Return the K tokens after the first earlier place of the longest run that ends `tokens`."""
    for length in range(LOOKUP[1], LOOKUP[0] - 1, -1):
        run = tokens[-length:]
        for start in range(len(tokens) - length):
            if tokens[start : start + length] == run:
                return tokens[start + length : start + length + K]
    return []


def steps_of(count: int, right: Callable[[int], Sequence[bool]]) -> tuple[int, int]:
    """Return verify steps and accepted tokens of an answer of `count` tokens.

    The first token comes from the prompt's own pass. A step without drafts yields one
    token and counts as none.
    """
    at, steps, accepted = 1, 0, 0
    while at < count:
        flags = right(at)
        kept = next((i for i, flag in enumerate(flags) if not flag), len(flags))
        steps += bool(flags)
        accepted += kept
        at += kept + 1
    return steps, accepted


if __name__ == "__main__":
    main()
