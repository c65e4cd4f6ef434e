"""A small model whose law is known, for the scripted server: tests of tests of sampling.

The law of a token is a function of the two before it, so that every part of a check
(filters, drafts, chunks, teacher forcing) has something to read and an exact answer to
be held against. Drafts are verified by the stated rule, or by one with a planted
fault. Pure: the server hands in what was asked and where chance comes from.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

FAULTS = ("greedy", "hot", "recovered_from_target", "early_end", "shared_seed")
"""What can be planted:

greedy: a token is the most likely one instead of drawn.
hot: a token is drawn at 1.5 times the temperature.
recovered_from_target: after a rejection the token is drawn from the target's law, the
    rejected draft included.
early_end: a step ends after an accepted draft, though more were proposed. The tokens
    still follow the law; the rule of acceptance is broken.
shared_seed: answers to equal prompts are drawn with the same random numbers. Planted by
    the server, since one answer alone is as it should be.
"""

HOT = 1.5
"""Factor of the temperature under the fault `hot`."""

SPREAD = 2.0
"""Standard deviation of logits: the likeliest of 50 tokens then has about a third."""

Law = tuple[float, ...]
"""Probabilities of all tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What a request says of its tokens' law; temperature 0 is greedy."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One chunk: its tokens, and how many of them were accepted drafts."""

    tokens: tuple[int, ...]
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model and the rule by which its drafts are verified.

    Attributes:
        vocab_size: Token ids are in [0, vocab_size).
        k: Drafts per step; 0 for no speculation.
        fault: One of FAULTS; None for none.
        fault_share: Share of tokens (steps, for `early_end`) that it hits.
    """

    vocab_size: int
    k: int = 0
    fault: str | None = None
    fault_share: float = 1.0

    def steps(
        self, prompt: Sequence[int], count: int, sampling: Sampling, rng: random.Random
    ) -> tuple[Step, ...]:
        """Return an answer of `count` tokens, the first from the prompt's own pass."""
        first = draw(law(prompt, self.vocab_size, sampling), rng)
        steps, text, left = [Step((first,), 0)], [*prompt, first], count - 1
        while left > 0:
            step = self._step(text, sampling, rng)
            shown = step.tokens[:left]
            steps.append(Step(shown, step.accepted))
            text += shown
            left -= len(shown)
        return tuple(steps)

    def drafts(self, text: Sequence[int]) -> tuple[int, ...]:
        """Return the k proposals after a text: each the draft model's likeliest token."""
        found: list[int] = []
        for _ in range(self.k):
            found.append(likeliest_draft((*text[-2:], *found), self.vocab_size))
        return tuple(found)

    def _step(self, text: Sequence[int], sampling: Sampling, rng: random.Random) -> Step:
        """Return what one step yields: accepted drafts, then a recovered or bonus token.

        Source:
            Leviathan et al. 2023, algorithm 1, with a draft law of one token.
        """
        tokens: list[int] = []
        for draft in self.drafts(text):
            here = self._law((*text, *tokens), sampling, rng)
            if rng.random() >= here[draft]:
                tokens.append(self._recovered(here, draft, rng))
                return Step(tuple(tokens), len(tokens) - 1)
            tokens.append(draft)
            if self._hits("early_end", rng):
                return Step(tuple(tokens), len(tokens))
        tokens.append(draw(self._law((*text, *tokens), sampling, rng), rng))
        return Step(tuple(tokens), len(tokens) - 1)

    def _law(self, text: Sequence[int], sampling: Sampling, rng: random.Random) -> Law:
        """Return the law that a step goes by, which a fault may have changed."""
        if self._hits("hot", rng):
            hot = Sampling(
                temperature=HOT * sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p
            )
            return law(text, self.vocab_size, hot)
        if self._hits("greedy", rng):
            return law(text, self.vocab_size, Sampling(temperature=0))
        return law(text, self.vocab_size, sampling)

    def _recovered(self, here: Law, draft: int, rng: random.Random) -> int:
        if self._hits("recovered_from_target", rng):
            return draw(here, rng)
        return draw((*here[:draft], 0.0, *here[draft + 1 :]), rng)

    def _hits(self, fault: str, rng: random.Random) -> bool:
        return self.fault == fault and rng.random() < self.fault_share


def law(text: Sequence[int], vocab_size: int, sampling: Sampling) -> Law:
    """Return the law of the token after a text: softmax, then top-k, then top-p.

    Top-p keeps the fewest of the likeliest tokens that together reach its mass.

    Args:
        text: Prompt and output so far; its last two tokens count.
        vocab_size: Number of tokens V.
        sampling: Temperature and filters.

    Returns:
        Probabilities, shape (V,), summing to 1.
    """
    return _law(_last_two(text), vocab_size, sampling)


def log_law(text: Sequence[int], vocab_size: int) -> tuple[float, ...]:
    """Return log-probabilities at temperature 1 without filters, shape (V,)."""
    return tuple(math.log(p) for p in law(text, vocab_size, Sampling()))


def draw(weights: Sequence[float], rng: random.Random) -> int:
    """Return a token drawn by weights that need not add up to 1."""
    return rng.choices(range(len(weights)), weights=weights)[0]


@lru_cache(maxsize=16_384)
def logits(last: tuple[int, int], vocab_size: int) -> tuple[float, ...]:
    """Return the target's logits after two tokens, shape (V,)."""
    rng = random.Random(f"target {last}")
    return tuple(rng.gauss(0, SPREAD) for _ in range(vocab_size))


def likeliest_draft(text: Sequence[int], vocab_size: int) -> int:
    """Return the token that the draft model finds likeliest after a text."""
    return _draft(_last_two(text), vocab_size)


@lru_cache(maxsize=16_384)
def _draft(last: tuple[int, int], vocab_size: int) -> int:
    """Return the likeliest token by the target's logits with half as much noise: often wrong."""
    rng = random.Random(f"draft {last}")
    scores = [target + rng.gauss(0, SPREAD / 2) for target in logits(last, vocab_size)]
    return scores.index(max(scores))


def token_of(word: str, vocab_size: int) -> int:
    """Return the token of a word: 7 for "w7", some fixed one for any other word."""
    if word.startswith("w") and word[1:].isdigit() and int(word[1:]) < vocab_size:
        return int(word[1:])
    return random.Random(f"word {word}").randrange(vocab_size)


def _last_two(text: Sequence[int]) -> tuple[int, int]:
    return (text[-2] if len(text) > 1 else 0, text[-1])


@lru_cache(maxsize=65_536)
def _law(last: tuple[int, int], vocab_size: int, sampling: Sampling) -> Law:
    scores = logits(last, vocab_size)
    order = sorted(range(vocab_size), key=lambda token: -scores[token])
    if sampling.temperature == 0:
        return tuple(float(token == order[0]) for token in range(vocab_size))
    kept = order[: sampling.top_k] if sampling.top_k > 0 else order
    weights = {
        token: math.exp((scores[token] - scores[order[0]]) / sampling.temperature) for token in kept
    }
    target, mass, inside = sampling.top_p * sum(weights.values()), 0.0, dict[int, float]()
    for token in kept:
        if mass >= target and sampling.top_p < 1:
            break
        inside[token] = weights[token]
        mass += weights[token]
    return tuple(inside.get(token, 0.0) / mass for token in range(vocab_size))
