"""The planted rejection rules on a toy vocabulary, outside any server.

Text is a Markov chain, so its law after every token is a row of a matrix, and the
counts of token pairs have a chi-square law if the rule is honest. torch is
imported in the tests, as in `test_vllm_plugin`.
"""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from draftgate.errors import EngineError
from tests.planted.mutants import draftgate_mutants as plugin
from tests.support.mutant_evidence import chunks_of

V, K = 6, 3
RARE = 1e-6
"""Share of honest rules whose p-value lies below."""

MARGINAL = {
    "recovered_from_target": 800,
    "accept_if_argmax": 800,
    "accept_above_threshold": 800,
    "bonus_from_draft": 800,
    "temperature_ignored": 2500,
    "ratio_mismatch": 1500,
    "row_off_by_one": 800,
    "greedy_recovered": 800,
    "always_accept": 800,
    "penalties_not_on_verified_rows": 800,
}
"""Mutants that change which token follows which, and tokens enough to see it here."""


def rules() -> Any:
    """Return the module of rules."""
    from tests.planted.mutants import draftgate_mutant_rules

    return draftgate_mutant_rules


class Markov:
    """A toy target and its draft as logits by the last token.

    The draft is over-confident and often wrong; if `good`, the target at temperature 0.4.
    """

    def __init__(self, *, sampled: bool = True, good: bool = False, **sampling: float) -> None:
        import torch

        self.torch = torch
        self.generator = torch.Generator().manual_seed(1)
        self.target = torch.randn(V, V, generator=self.generator)
        noise = torch.randn(V, V, generator=self.generator)
        self.raw = self.target + noise
        drafting = self.target / 0.4 if good else 2 * (0.6 * self.target + 0.8 * noise)
        self.draft = drafting.softmax(1)
        self.sampled = sampled
        self.sampling = rules().Sampling(**({"temperature": 0.6} | sampling))

    def step(self, rule: Any, last: int, **extra: Any) -> tuple[int, ...]:
        """Return what one verify step after the token `last` emits."""
        torch = self.torch
        noise = torch.empty(K, V).exponential_(generator=self.generator)
        rows, proposals = [last], []
        for place in range(K):
            weights = self.draft[rows[-1]]
            weights = weights / noise[place] if self.sampled else weights
            proposals.append(int(weights.argmax()))
            rows.append(proposals[-1])
        hot = rules().one_hot_rows(tuple(proposals), V)
        chain = rules().Chain(
            proposals=tuple(proposals),
            logits=self.target[rows],
            raw=self.raw[rows],
            draft=self.draft[rows[:-1]] if self.sampled else hot,
            coins=torch.rand(K, dtype=torch.float64, generator=self.generator),
            sampling=self.sampling,
            noise=noise,
            **({"generator": self.generator} | extra),
        )
        return tuple(rules().verify(rule, chain))

    def text(self, rule: Any, tokens: int) -> list[int]:
        """Return at least so many tokens of text."""
        text = [0]
        while len(text) <= tokens:
            text += self.step(rule, text[-1])
        return text

    def p_value(self, text: list[int]) -> float:
        """Return the p-value of the pairs in a text under the target's law (chi-square)."""
        law = np.stack([rules().law_of(row, self.sampling).double().numpy() for row in self.target])
        seen = np.zeros((V, V))
        np.add.at(seen, (text[:-1], text[1:]), 1)
        expected = seen.sum(1, keepdims=True) * law
        if (seen[expected == 0] > 0).any():
            return 0.0
        used = expected > 0
        statistic = ((seen - expected)[used] ** 2 / expected[used]).sum()
        degrees = used.sum() - (seen.sum(1) > 0).sum()
        return float(chi2.sf(statistic, degrees))


@pytest.mark.parametrize("sampled", [True, False], ids=["sampled drafts", "greedy drafts"])
@pytest.mark.parametrize("top_k", [0, 4])
def test_honest_rule_emits_the_targets_law(
    sampled: bool,  # noqa: FBT001 - pytest passes it by name
    top_k: int,
) -> None:
    """The rule that all mutants start from passes (same-versus-same run)."""
    toy = Markov(sampled=sampled, top_k=top_k)

    assert toy.p_value(toy.text(rules().HONEST, 2000)) > 1e-3


def test_half_of_the_drafts_is_lossless() -> None:
    """Drafts taken half as often, with the residual to match, give the target's text."""
    toy = Markov()

    assert toy.p_value(toy.text(rules().MUTANTS["half_of_the_drafts"], 2000)) > 1e-3


@pytest.mark.parametrize(("name", "tokens"), MARGINAL.items())
def test_mutant_is_off_the_targets_law(name: str, tokens: int) -> None:
    """Which token follows which is no longer the target's."""
    toy = Markov()

    assert toy.p_value(toy.text(rules().MUTANTS[name], tokens)) < RARE


def test_bonus_that_ignores_temperature_is_off_the_targets_law() -> None:
    """Seen where the draft is good, so that every fourth token is a bonus."""
    toy = Markov(good=True, temperature=0.4)

    assert toy.p_value(toy.text(rules().MUTANTS["bonus_ignores_temperature"], 1500)) < RARE
    assert toy.p_value(toy.text(rules().HONEST, 1500)) > 1e-3


def test_recovered_token_comes_from_the_drafts_noise() -> None:
    """What the draft drew with decides once more; without noise kept the rule is honest."""
    torch = Markov().torch
    rule = rules().MUTANTS["noise_shared_with_draft"]
    law, draft = torch.tensor([0.1, 0.4, 0.5]), torch.tensor([[0.8, 0.1, 0.1]])
    noise = torch.tensor([[1.0, 0.3, 0.5]])
    chain = SimpleNamespace(draft=draft, noise=noise, generator=None)

    assert rule.recovered(chain, 0, law) == 1
    assert rule.needs_noise


def test_unfiltered_recovered_tokens_leave_the_filter() -> None:
    """With top-k dropped on the recovered token, tokens appear that the filter excludes."""
    toy = Markov(top_k=2)

    assert toy.p_value(toy.text(rules().MUTANTS["filters_dropped_on_recovered"], 100)) == 0.0
    assert toy.p_value(toy.text(rules().HONEST, 100)) > 0.0


def test_one_coin_decides_the_whole_chain() -> None:
    """What a place draws for itself is not looked at."""
    toy = Markov()
    chain = SimpleNamespace(coins=toy.torch.tensor([0.2, 0.9], dtype=toy.torch.float64))

    assert rules().MUTANTS["one_coin_for_the_chain"].coin(chain, 1) == pytest.approx(0.2)
    assert rules().HONEST.coin(chain, 1) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("name", "share"), [("rejected_kept", "KEPT_SHARE"), ("padding_token", "PADDING_SHARE")]
)
def test_rare_faults_keep_their_share(
    name: str, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a share of one the fault is on every token, at zero on none."""
    toy, rule = Markov(), rules().MUTANTS[name]

    monkeypatch.setattr(rules(), share, 0.0)
    never = toy.text(rule, 1500)
    monkeypatch.setattr(rules(), share, 1.0)
    always = toy.text(rule, 300)

    assert toy.p_value(never) > 1e-3
    assert toy.p_value(always) < RARE


def test_stale_rows_come_from_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a share of one every place is verified against the old logits."""
    toy = Markov()
    monkeypatch.setattr(rules(), "STALE_SHARE", 1.0)
    old = toy.torch.full((V,), -50.0).index_fill(0, toy.torch.tensor([4]), 0.0)

    first = [toy.step(rules().MUTANTS["stale_rows"], 0, stale=old)[0] for _ in range(30)]

    assert first == [4] * 30


def test_one_quantile_gives_equal_text_each_time() -> None:
    """The text of a request follows from its quantile alone."""
    toy, rule = Markov(), rules().MUTANTS["one_quantile_per_request"]

    texts = {toy.step(rule, 0, quantile=0.7)[0] for _ in range(20)}

    assert len(texts) == 1


def test_quantile_picks_the_interval_that_holds_it() -> None:
    """Tokens cover [0, 1) in the order of their ids, empty ones not at all."""
    law = Markov().torch.tensor([0.25, 0.0, 0.5, 0.25])

    picked = [rules().by_quantile(law, at) for at in (0.0, 0.24, 0.25, 0.74, 0.76, 1 - 1e-12)]

    assert picked == [0, 0, 2, 2, 3, 3]


def test_shared_seed_makes_rows_at_one_place_equal() -> None:
    """The generator follows from the place in the text; the honest rule keeps the request's own."""
    toy = Markov()
    make = rules().MUTANTS["seed_shared_by_rows"].generator

    same = [float(toy.torch.rand((), generator=make(7, None))) for _ in range(2)]

    assert same[0] == same[1] != float(toy.torch.rand((), generator=make(8, None)))
    assert rules().HONEST.generator(7, toy.generator) is toy.generator


@pytest.mark.parametrize("name", ["none", "row_off_by_one", "greedy_recovered"])
def test_greedy_requests_get_the_most_likely_token(name: str) -> None:
    """At temperature 0 the honest rule emits argmaxes only, off by one does not."""
    toy = Markov(temperature=0.0, good=True)

    best = toy.target.argmax(1).tolist()
    texts = [(last, *toy.step(rules().MUTANTS[name], last)) for last in range(V)]

    greedy = all(best[text[at]] == text[at + 1] for text in texts for at in range(len(text) - 1))
    assert greedy is (name != "row_off_by_one")


def test_padded_place_is_never_accepted() -> None:
    """A draft of -1 is rejected by every rule and its place drawn from the whole law."""
    toy = Markov()
    chain = rules().Chain(
        proposals=(-1,),
        logits=toy.target[:2],
        raw=toy.raw[:2],
        draft=rules().one_hot_rows((-1,), V),
        coins=toy.torch.zeros(1, dtype=toy.torch.float64),
    )

    for rule in rules().MUTANTS.values():
        tokens = rules().verify(rule, chain)
        assert len(tokens) == 1
        assert 0 <= tokens[0] < V


def test_at_least_twenty_mutants_beside_the_neutral_one() -> None:
    """The issue's list is here, and each but the stop check's two differs from the honest rule."""
    table = rules().MUTANTS

    same = {name for name, rule in table.items() if rule == rules().HONEST}

    assert len(table) == 23
    assert same == {"none", plugin.TOO_MANY, plugin.DEAF}


def test_sampled_drafts_taken_for_certain_ones_keep_the_targets_law() -> None:
    """Dropping the draft's probabilities costs acceptance alone: no black box can see it."""
    toy, rule = Markov(), rules().HONEST

    def certain(chain: Any, place: int) -> Any:
        return rules().one_hot_rows(chain.proposals, V)[place]

    def recovered(chain: Any, place: int, law: Any) -> int:
        return int(rules().drawn(chain, rules().residual(law, certain(chain, place))))

    forgetful = replace(rule, ratio_draft=certain, recovered=recovered)

    assert toy.p_value(toy.text(forgetful, 2000)) > 1e-3


def test_steps_are_rebuilt_from_accepted_drafts() -> None:
    """A step yields its accepted drafts and one more; the last is cut at the output's end."""
    assert chunks_of(9, [2, 0, 4], 4) == (1, 3, 1, 4)
    assert chunks_of(1, [], 4) == (1,)
    for tokens, accepted in ((9, [2]), (3, [1, 0]), (9, [5, 4])):
        with pytest.raises(EngineError, match="do not add up"):
            chunks_of(tokens, accepted, 4)


def test_setting_is_read_again_when_the_file_changes(tmp_path: Path) -> None:
    """A running server switches without a start; the name counts until there is a file."""
    path = tmp_path / "mutant"
    control = plugin.Control("always_accept", path)

    before = control.now()
    path.write_text("none greedy\n", encoding="utf-8")
    first = control.now()
    path.write_text("padding_token\n", encoding="utf-8")
    os.utime(path, ns=(1, 1))

    assert before == plugin.Setting("always_accept")
    assert first == plugin.Setting("none", greedy_drafts=True)
    assert control.now() == plugin.Setting("padding_token")


def test_unknown_words_in_the_setting_are_refused() -> None:
    """A typo never runs something else."""
    with pytest.raises(ValueError, match="expected nothing or 'greedy'"):
        plugin.parse("none gredy")


def test_plugin_is_inert_unasked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the path but not named, it swaps nothing and says nothing."""
    monkeypatch.delenv(plugin.NAME, raising=False)
    monkeypatch.delenv(plugin.FILE, raising=False)

    plugin.register()

    assert capsys.readouterr() == ("", "")
