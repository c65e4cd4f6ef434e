"""Speculative rejection sampling with hooks, and the wrong rules made with them.

`HONEST` is the rule of Leviathan et al. (2023) and Chen et al. (2023), written for
one request at a time; every mutant replaces one or two of its hooks. Needs torch
and knows nothing of vLLM: `draftgate_mutants` brings the tensors.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

PADDING = 0
"""Id that a buffer holds which was filled with zeros and never written."""

KEPT_SHARE = 0.02
PADDING_SHARE = 0.005
STALE_SHARE = 0.05
THRESHOLD = 0.9
"""Shares and threshold of the planted faults that issue 5 lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What one request asks for; `top_k` 0 and `top_p` 1 are off, temperature 0 is greedy."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One request's verify step.

    Attributes:
        proposals: Drafts; -1 stands for a place that was padded.
        logits: The target's, after penalties, bad words and the like; shape (K + 1, V).
        raw: The target's, as the model gave them; shape (K + 1, V).
        draft: Probabilities the drafts were drawn from, one-hot if greedy; shape (K, V).
        coins: Uniform numbers, one a place; shape (K,), float64.
        sampling: Temperature and filters.
        generator: Where random numbers come from; None is torch's own.
        quantile: One number in [0, 1) that stays with the request.
        stale: Logits of the request's first place a step ago; None at first.
        noise: Exponential noise that the drafts were drawn with; shape (K, V).
    """

    proposals: tuple[int, ...]
    logits: Tensor
    raw: Tensor
    draft: Tensor
    coins: Tensor
    sampling: Sampling = field(default_factory=Sampling)
    generator: torch.Generator | None = None
    quantile: float = 0.0
    stale: Tensor | None = None
    noise: Tensor | None = None

    @property
    def last(self) -> int:
        """Place of the bonus token, K."""
        return len(self.proposals)


def law_of(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the probabilities that logits (V,) mean under temperature, top-k and top-p."""
    if sampling.temperature == 0:
        one_hot = torch.zeros_like(logits)
        one_hot[logits.argmax()] = 1
        return one_hot
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < len(logits):
        lowest = logits.topk(sampling.top_k).values[-1]
        logits = logits.masked_fill(logits < lowest, -torch.inf)
    if sampling.top_p < 1:
        ordered, ids = logits.sort()
        outside = ordered.softmax(0).cumsum(0) <= 1 - sampling.top_p
        outside[-1] = False
        logits = logits.index_fill(0, ids[outside], -torch.inf)
    return logits.softmax(0)


def drawn(chain: Chain, weights: Tensor) -> int:
    """Return a token drawn in proportion to weights (V,)."""
    return int(torch.multinomial(weights, 1, generator=chain.generator))


def chance(chain: Chain, share: float) -> bool:
    """Return True with probability `share`."""
    return bool(torch.rand((), dtype=torch.float64, generator=chain.generator) < share)


def by_quantile(law: Tensor, quantile: float) -> int:
    """Return the token whose interval of the cumulated law (V,) holds `quantile`."""
    cumulated = law.double().cumsum(0)
    found = int(torch.searchsorted(cumulated, quantile * cumulated[-1], right=True))
    return min(found, len(law) - 1)


def quantile_of(request: str) -> float:
    """Return the number in [0, 1) that a request's name stands for."""
    return int(hashlib.sha256(request.encode()).hexdigest()[:8], 16) / 2**32


def residual(law: Tensor, draft: Tensor) -> Tensor:
    """Return (law - draft)+ (V,), not normalised; the law itself where rounding leaves nothing."""
    left = (law - draft).clamp(min=0)
    return left if left.sum() > 0 else law


def one_hot_rows(proposals: tuple[int, ...], vocabulary: int) -> Tensor:
    """Return the law of greedy drafts, shape (K, V); a padded place has no weight at all."""
    rows = torch.zeros(len(proposals), vocabulary)
    for place, proposal in enumerate(proposals):
        if proposal >= 0:
            rows[place, proposal] = 1
    return rows


def _law(chain: Chain, place: int) -> Tensor:
    return law_of(chain.logits[place], chain.sampling)


def _coin(chain: Chain, place: int) -> float:
    return float(chain.coins[place])


def _ratio_draft(chain: Chain, place: int) -> Tensor:
    return chain.draft[place]


def _recovered(chain: Chain, place: int, law: Tensor) -> int:
    return drawn(chain, residual(law, chain.draft[place]))


def _bonus(chain: Chain) -> int | None:
    return drawn(chain, _law(chain, chain.last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rejection rule as its hooks.

    Attributes:
        law: (chain, place) to the law that the place is verified against.
        coin: (chain, place) to the number in [0, 1) that decides.
        ratio_draft: (chain, place) to the draft's law in the ratio.
        accepts: (chain, place, law, verdict of the ratio test) to whether it is taken.
        recovered: (chain, place, law) to the token in place of a rejected one.
        bonus: chain to the token after a whole chain; None adds none.
        emitted: (chain, token) to the token that is handed on.
        generator: (tokens of text so far, the request's own) to the generator in use.
        needs_noise: Whether the drafts' noise has to be kept for it.
    """

    law: Callable[[Chain, int], Tensor] = _law
    coin: Callable[[Chain, int], float] = _coin
    ratio_draft: Callable[[Chain, int], Tensor] = _ratio_draft
    accepts: Callable[[Chain, int, Tensor, bool], bool] = lambda _c, _p, _l, passed: passed
    recovered: Callable[[Chain, int, Tensor], int] = _recovered
    bonus: Callable[[Chain], int | None] = _bonus
    emitted: Callable[[Chain, int], int] = lambda _chain, token: token
    generator: Callable[[int, torch.Generator | None], torch.Generator | None] = (
        lambda _length, own: own
    )
    needs_noise: bool = False


HONEST = Rule()


def verify(rule: Rule, chain: Chain) -> tuple[int, ...]:
    """Return the tokens that a verify step emits under a rule: 1 to K + 1."""
    tokens: list[int] = []
    for place, proposal in enumerate(chain.proposals):
        law = rule.law(chain, place)
        if proposal >= 0 and _taken(rule, chain, place, law):
            tokens.append(proposal)
            continue
        tokens.append(rule.recovered(chain, place, law))
        break
    else:
        bonus = rule.bonus(chain)
        tokens += [] if bonus is None else [bonus]
    return tuple(rule.emitted(chain, token) for token in tokens)


def _taken(rule: Rule, chain: Chain, place: int, law: Tensor) -> bool:
    proposal = chain.proposals[place]
    weight = float(rule.ratio_draft(chain, place)[proposal])
    passed = rule.coin(chain, place) * weight < float(law[proposal])
    return rule.accepts(chain, place, law, passed)


def _at_temperature_one(chain: Chain, place: int) -> Tensor:
    hot = replace(chain.sampling, temperature=1.0) if chain.sampling.temperature else chain.sampling
    return law_of(chain.logits[place], hot)


def _of_row_before(chain: Chain, place: int) -> Tensor:
    return _law(chain, max(place - 1, 0))


def _without_penalties(chain: Chain, place: int) -> Tensor:
    return law_of(chain.raw[place], chain.sampling)


def _sometimes_stale(chain: Chain, place: int) -> Tensor:
    if chain.stale is not None and chance(chain, STALE_SHARE):
        return law_of(chain.stale, chain.sampling)
    return _law(chain, place)


def _taken_for_certain(chain: Chain, place: int) -> Tensor:
    return torch.ones_like(chain.draft[place])


def _above_threshold(chain: Chain, place: int, law: Tensor, _passed: bool) -> bool:  # noqa: FBT001 - a hook's signature
    proposal = chain.proposals[place]
    return float(law[proposal]) > THRESHOLD * float(chain.draft[place, proposal])


def _half_of_the_drafts(chain: Chain, place: int, law: Tensor) -> int:
    """Return the token for a scheme that takes drafts half as often and still keeps the law."""
    taken = torch.minimum(law, chain.draft[place]) / 2
    return drawn(chain, law - taken)


def _unfiltered_recovered(chain: Chain, place: int, law: Tensor) -> int:
    if chain.sampling.temperature == 0:
        return _recovered(chain, place, law)
    bare = Sampling(temperature=chain.sampling.temperature)
    return _recovered(chain, place, law_of(chain.logits[place], bare))


def _recovered_by_draft_noise(chain: Chain, place: int, law: Tensor) -> int:
    if chain.noise is None:
        return _recovered(chain, place, law)
    return int((residual(law, chain.draft[place]) / chain.noise[place]).argmax())


def _seed_of_the_place(length: int, _own: torch.Generator | None) -> torch.Generator:
    return torch.Generator().manual_seed(length)


MUTANTS: dict[str, Rule] = {
    "none": HONEST,
    "recovered_from_target": replace(HONEST, recovered=lambda c, _place, law: drawn(c, law)),
    "accept_if_argmax": replace(
        HONEST, accepts=lambda c, place, law, _passed: int(law.argmax()) == c.proposals[place]
    ),
    "accept_above_threshold": replace(HONEST, accepts=_above_threshold),
    # Drafters propose no token for the bonus place: the last proposal, unverified, stands for it.
    "bonus_from_draft": replace(
        HONEST,
        accepts=lambda c, place, _law, passed: passed or place == c.last - 1,
        bonus=lambda c: None if c.last else _bonus(c),
    ),
    "temperature_ignored": replace(HONEST, law=_at_temperature_one),
    # Drafts were drawn, but the ratio takes them for certain, as those of n-gram lookup are.
    "ratio_mismatch": replace(HONEST, ratio_draft=_taken_for_certain),
    "row_off_by_one": replace(
        HONEST, law=_of_row_before, bonus=lambda c: drawn(c, _of_row_before(c, c.last))
    ),
    "one_coin_for_the_chain": replace(HONEST, coin=lambda c, _place: float(c.coins[0])),
    "greedy_recovered": replace(
        HONEST, recovered=lambda c, place, law: int(residual(law, c.draft[place]).argmax())
    ),
    "always_accept": replace(HONEST, accepts=lambda *_: True),
    "rejected_kept": replace(
        HONEST, accepts=lambda c, _place, _law, passed: passed or chance(c, KEPT_SHARE)
    ),
    "padding_token": replace(
        HONEST, emitted=lambda c, token: PADDING if chance(c, PADDING_SHARE) else token
    ),
    # Stands for rows of a KV cache that were not written: the logits of the step before.
    "stale_rows": replace(HONEST, law=_sometimes_stale),
    "bonus_ignores_temperature": replace(
        HONEST, bonus=lambda c: drawn(c, _at_temperature_one(c, c.last))
    ),
    # A draft is taken if it is what the quantile picks: right if the quantile were fresh.
    "one_quantile_per_request": replace(
        HONEST,
        accepts=lambda c, place, law, _passed: by_quantile(law, c.quantile) == c.proposals[place],
        recovered=lambda c, _place, law: by_quantile(law, c.quantile),
        bonus=lambda c: by_quantile(_law(c, c.last), c.quantile),
    ),
    # No fault of the text: another lossless rule than the stated one.
    "half_of_the_drafts": replace(
        HONEST,
        accepts=lambda c, _place, _law, passed: passed and chance(c, 0.5),
        recovered=_half_of_the_drafts,
    ),
    "filters_dropped_on_recovered": replace(HONEST, recovered=_unfiltered_recovered),
    "penalties_not_on_verified_rows": replace(HONEST, law=_without_penalties),
    "seed_shared_by_rows": replace(HONEST, generator=_seed_of_the_place),
    "noise_shared_with_draft": replace(
        HONEST, recovered=_recovered_by_draft_noise, needs_noise=True
    ),
    # These two are faults of the stop check; their rule is honest (see draftgate_mutants).
    "one_token_too_many": HONEST,
    "stop_inside_chain_ignored": HONEST,
}
"""Every mutant by name; "none" goes the same way and is right."""
