"""Laws of a real target and of a bad drafter at places of verify steps, kept in the cache.

    .venv/bin/python -m benchmarks.correctness.contexts     # minutes; once

Each prompt is continued by the target itself for a random number of tokens. From
there the drafter proposes a chain, and both models say their laws along it. The
files hold 16-bit log-probabilities; whoever reads them normalises them again, so
that what is simulated and what it is judged by are the same law. Knows no faults.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.datasets import load_prompts
from draftgate.targets import cache_root, resolve_target, weakened_copy

K = 4
"""Drafts of a verify step."""

KINDS = ("greedy", "sampled")
"""How the drafter picks a proposal: its most likely token, or one drawn from its law."""


KEPT_EVERY = 12
"""Contexts after which the files are written; the number of contexts is a multiple of it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the stored laws depend on.

    Attributes:
        target: Known target of `draftgate.targets`.
        temperature: Of the requests.
        noise_ratio: Noise on the drafter's weights, see `weakened_copy`.
        sharpness: The drafter's logits are multiplied by this: over-confident above 1.
        continuation: Longest continuation before a chain, tokens.
        contexts: Prompts that are used, one context each.
        seed: Of prompts, continuations and chains.
    """

    target: str = "smollm2-135m-instruct"
    temperature: float = 0.8
    noise_ratio: float = 0.06
    sharpness: float = 2.0
    continuation: int = 24
    contexts: int = 108
    seed: int = 5


@dataclass(frozen=True, slots=True)
class Stored:
    """Laws of all contexts of one kind of drafts.

    Attributes:
        target: Log-probabilities at the setting's temperature: the place before the
            chain, then places 0 to K; shape (contexts, K + 2, V), float16.
        stale: The same places 0 to K when the cache holds the drafter's token instead
            of the one that was emitted last; shape (contexts, K + 1, V).
        draft: The drafter's, places 0 to K; shape (contexts, K + 1, V).
        chain: Proposals; shape (contexts, K).
        prefix: Ids of prompt and continuation.
    """

    target: NDArray[np.float16]
    stale: NDArray[np.float16]
    draft: NDArray[np.float16]
    chain: NDArray[np.int64]
    prefix: tuple[tuple[int, ...], ...]


def folder(setting: Setting) -> Path:
    """Return where the laws of a setting are kept."""
    name = "-".join(f"{value}" for value in asdict(setting).values())
    return cache_root() / "correctness-benchmark" / name


def load(setting: Setting, kind: str) -> Stored:
    """Return the laws of one kind of drafts.

    Raises:
        FileNotFoundError: If they were not made yet; run this module.
    """
    place = folder(setting)
    rows = {name: np.load(place / f"{kind}-{name}.npy") for name in ("target", "stale", "draft")}
    known = json.loads((place / f"{kind}.json").read_text(encoding="utf-8"))
    return Stored(**rows, chain=np.array(known["chain"]), prefix=tuple(map(tuple, known["prefix"])))


def make(setting: Setting) -> None:
    """Compute and keep the laws of both kinds of drafts."""
    models = Models(setting)
    begun = []
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for prompt in models.prompts:
        start = models.begin(prompt)
        begun.append(start.prefix)
        for kind in KINDS:
            rows[kind].append(models.chain(start, kind))
        if len(begun) % KEPT_EVERY == 0:
            print(f"{len(begun)} of {len(models.prompts)} contexts", flush=True)
            for kind in KINDS:
                _keep(folder(setting), kind, rows[kind], begun)


@dataclass(frozen=True, slots=True)
class Start:
    """A prefix with what both models remember of it.

    Attributes:
        prefix: Ids of prompt and continuation.
        before: The target's logits that the last token was drawn from.
        target: Its cache, at least all tokens but the last.
        draft: The drafter's cache, at least all tokens.
        first: The drafter's logits after the prefix.
        instead: What the drafter would have proposed for the last token.
    """

    prefix: tuple[int, ...]
    before: Any
    target: Any
    draft: Any
    first: Any
    instead: int


class Models:
    """Target and drafter in process."""

    def __init__(self, setting: Setting) -> None:
        """Load both models in float32 and encode the prompts."""
        import torch  # noqa: PLC0415 - heavy, and only needed where laws are made
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - as above

        self.torch, self.setting = torch, setting
        source = Path(resolve_target(setting.target, log=print))
        weak = weakened_copy(source, noise_ratio=setting.noise_ratio, seed=setting.seed, log=print)
        self.target, self.draft = (
            AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
            for place in (source, weak)
        )
        tokenizer = AutoTokenizer.from_pretrained(source)
        self.prompts = [
            _encoded(tokenizer, p) for p in load_prompts("mixed", setting.seed)[: setting.contexts]
        ]
        self.rng = np.random.default_rng(setting.seed)

    def begin(self, prompt: list[int]) -> Start:
        """Return a prompt and what the target goes on with, drawn at the temperature."""
        tokens, unread, cache = list(prompt), list(prompt), None
        logits: Any = None
        for _ in range(int(self.rng.integers(2, self.setting.continuation + 1))):
            logits, cache = self._step(self.target, unread, cache, last=1)
            unread = [self._draw(logits[-1] / self.setting.temperature)]
            tokens += unread
        drafted, memory = self._step(self.draft, tokens, None, last=2)
        first, second = drafted[0].topk(2).indices.tolist()
        instead = second if first == tokens[-1] else first
        return Start(tuple(tokens), logits[-1], cache, memory, drafted[1], instead)

    def chain(self, start: Start, kind: str) -> dict[str, Any]:
        """Return proposals and laws after a prefix."""
        proposals, draft = self._drafted(start, kind)
        rows = [self._along(start, first, proposals) for first in (start.prefix[-1], start.instead)]
        cold = self.setting.temperature
        return {
            "target": self._law(self.torch.cat([start.before[None], rows[0]]) / cold),
            "stale": self._law(rows[1] / cold),
            "draft": self._law(draft * self.setting.sharpness / cold),
            "chain": proposals,
        }

    def _along(self, start: Start, last: int, proposals: list[int]) -> Any:
        _cut(start.target, len(start.prefix) - 1)
        logits, _ = self._step(self.target, [last, *proposals], start.target, last=K + 1)
        return logits

    def _drafted(self, start: Start, kind: str) -> tuple[list[int], Any]:
        _cut(start.draft, len(start.prefix))
        rows, proposals = [start.first], []
        while True:
            sharp = rows[-1] * self.setting.sharpness / self.setting.temperature
            if len(proposals) == K:
                return proposals, self.torch.stack(rows)
            proposals.append(int(sharp.argmax()) if kind == "greedy" else self._draw(sharp))
            logits, _ = self._step(self.draft, proposals[-1:], start.draft, last=1)
            rows.append(logits[-1])

    def _step(self, model: Any, tokens: list[int], cache: Any, last: int) -> tuple[Any, Any]:
        with self.torch.no_grad():
            out = model(
                self.torch.tensor([tokens]),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=last,
            )
        return out.logits[0], out.past_key_values

    def _draw(self, logits: Any) -> int:
        law = self.torch.softmax(logits.double(), -1).numpy()
        return int(np.searchsorted(np.cumsum(law), self.rng.random() * law.sum()))

    def _law(self, logits: Any) -> NDArray[np.float16]:
        rows: NDArray[np.float16] = self.torch.log_softmax(logits, -1).half().numpy()
        return rows


def _cut(cache: Any, length: int) -> None:
    """Let a model forget all tokens past a length."""
    surplus = cache.get_seq_length() - length
    if surplus > 0:
        cache.crop(-surplus)


def _encoded(tokenizer: Any, prompt: Any) -> list[int]:
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    return list(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    )


def _keep(
    place: Path, kind: str, rows: list[dict[str, Any]], prefixes: list[tuple[int, ...]]
) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name in ("target", "stale", "draft"):
        np.save(place / f"{kind}-{name}.npy", np.stack([row[name] for row in rows]))
    known = {"chain": [row["chain"] for row in rows], "prefix": prefixes}
    (place / f"{kind}.json").write_text(json.dumps(known), encoding="utf-8")


if __name__ == "__main__":
    make(Setting())
