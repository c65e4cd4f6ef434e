"""Laws by each engine's order of rules, against a literal version and against faults of order."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.errors import SpecError
from draftgate.laws.orders import ORDERS, VERIFYING, Law, Order, law, row, stated
from draftgate.laws.parameters import LawParameters, Structure
from draftgate.laws.tables import FILTERS, StepName, ignored, refused
from draftgate.stats.directions import directions
from draftgate.stats.eprocess import evidence
from draftgate.stats.scores import Scores, joined

PAGE = Path(__file__).parents[2] / "docs" / "sampling-order.md"
SIZE = 6
PROMPT = (0, 1, 1)
TABLES = [
    (f"{name}{suffix}", order)
    for suffix, table in (("", ORDERS), (" verifying", VERIFYING))
    for name, order in table.items()
]


@st.composite
def parameters(draw: Any) -> LawParameters:
    """A request with any mix of rules, those that forbid never forbidding all."""
    tokens = st.integers(0, SIZE - 1)
    return LawParameters(
        temperature=draw(st.sampled_from([0.0, 0.5, 1.0, 1.7])),
        top_k=draw(st.sampled_from([0, 1, 2, 4])),
        top_p=draw(st.sampled_from([1.0, 0.83, 0.47])),
        min_p=draw(st.sampled_from([0.0, 0.13, 0.41])),
        presence_penalty=draw(st.sampled_from([0.0, 0.7])),
        frequency_penalty=draw(st.sampled_from([0.0, -0.4])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        logit_bias=draw(st.sampled_from([(), ((2, 1.5), (4, -0.5))])),
        bad_words=draw(
            st.lists(st.lists(tokens, min_size=2, max_size=2).map(tuple), max_size=2).map(tuple)
        ),
        allowed_token_ids=draw(st.sampled_from([(), (1, 2, 3, 5)])),
        min_tokens=draw(st.sampled_from([0, 3])),
        stop_token_ids=(0,),
    )


class Literal:
    """The rules written out token by token over a dictionary of logits, slowly."""

    def __init__(self, order: Order, asked: LawParameters, output: Sequence[int]) -> None:
        """Keep what all rules look at."""
        self.order, self.asked, self.output = order, asked, list(output)

    def history(self, *, with_prompt: bool) -> list[int]:
        """What counts as having occurred."""
        return [*PROMPT, *self.output] if with_prompt else self.output

    def probs(self, logits: dict[int, float]) -> dict[int, float]:
        """The probabilities of the tokens that are left."""
        total = math.fsum(math.exp(x) for x in logits.values())
        return {t: math.exp(x) / total for t, x in logits.items()}

    def apply(self, step: str, logits: dict[int, float]) -> dict[int, float]:
        """The tokens that are left after a step, with their logits."""
        asked = self.asked
        match step:
            case "allowed_token_ids" if asked.allowed_token_ids:
                return {t: x for t, x in logits.items() if t in asked.allowed_token_ids}
            case "bad_words":
                text = self.history(with_prompt=self.order.bad_words_see_prompt)
                return {
                    t: x
                    for t, x in logits.items()
                    if not any([*text, t][-2:] == list(w) for w in asked.bad_words)
                }
            case "min_tokens" if len(self.output) < asked.min_tokens:
                return {t: x for t, x in logits.items() if t not in asked.stop_token_ids}
            case "logit_bias":
                return {t: x + dict(asked.logit_bias).get(t, 0) for t, x in logits.items()}
            case "repetition_penalty":
                seen = self.history(with_prompt=self.order.repetition_counts_prompt)
                by = asked.repetition_penalty
                return {
                    t: (x / by if x > 0 else x * by) if t in seen else x for t, x in logits.items()
                }
            case "occurrence_penalties":
                seen = self.history(with_prompt=self.order.occurrence_counts_prompt)
                return {
                    t: x
                    - asked.frequency_penalty * seen.count(t)
                    - asked.presence_penalty * (t in seen)
                    for t, x in logits.items()
                }
            case "temperature":
                return {t: x / asked.temperature for t, x in logits.items()}
            case _:
                return self.filtered(step, logits)

    def filtered(self, step: str, logits: dict[int, float]) -> dict[int, float]:
        """The tokens that a filter leaves."""
        asked, probs = self.asked, self.probs(logits)
        above = {t: [q for q in probs.values() if q > p] for t, p in probs.items()}
        in_k = {t for t in logits if not asked.top_k or len(above[t]) < asked.top_k}
        in_p = {t for t in logits if asked.top_p == 1 or math.fsum(above[t]) < asked.top_p}
        in_min_p = {t for t, p in probs.items() if p >= asked.min_p * max(probs.values())}
        if step == "top_k_and_top_p" and asked.min_p:
            for name in ("top_k", "top_p", "min_p"):
                logits = self.filtered(name, logits)
            return logits
        stay = {"top_k": in_k, "top_p": in_p, "min_p": in_min_p, "top_k_and_top_p": in_k & in_p}
        return {t: x for t, x in logits.items() if t in stay.get(step, logits)}


@pytest.mark.parametrize("order", [order for _, order in TABLES], ids=[name for name, _ in TABLES])
@settings(deadline=None, max_examples=25)
@given(
    asked=parameters(),
    output=st.lists(st.integers(0, SIZE - 1), max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_laws_are_those_of_the_literal_rules(
    order: Order, asked: LawParameters, output: list[int], seed: int
) -> None:
    """Each engine's law, filtered and not, is that of its steps written out token by token."""
    logits = np.random.default_rng(seed).normal(0, 2, SIZE)
    literal = Literal(order, asked, output)
    left = dict(enumerate(logits.tolist()))
    for step in order.steps:
        if step in FILTERS or (step == "temperature" and asked.greedy):
            continue
        left = literal.apply(step, left)
    unfiltered = literal.probs(left)
    for step in order.steps:
        if step in FILTERS and not asked.greedy:
            left = literal.apply(step, left)
    best = max(left, key=left.__getitem__)
    expected = {best: 1.0} if asked.greedy else literal.probs(left)
    found = law(logits, asked, PROMPT, output, order)

    for token in range(SIZE):
        assert math.exp(found.log_probs[token]) == pytest.approx(expected.get(token, 0))
        assert math.exp(found.unfiltered[token]) == pytest.approx(unfiltered.get(token, 0))


@pytest.mark.parametrize("order", [order for _, order in TABLES], ids=[name for name, _ in TABLES])
def test_tables_are_well_formed(order: Order) -> None:
    """Filters come last, no step comes twice, and what is refused or ignored are parameters."""
    cuts = [step in FILTERS for step in order.steps]
    names = {field.name for field in fields(LawParameters)}

    assert cuts == sorted(cuts)
    assert len(set(order.steps)) == len(order.steps)
    assert set(order.steps) <= set(get_args(StepName))
    assert {*order.refused, *order.ignored, *order.absent} <= names


@pytest.mark.parametrize(("name", "order"), TABLES, ids=[name for name, _ in TABLES])
def test_the_page_has_the_tables(name: str, order: Order) -> None:
    """docs/sampling-order.md lists the steps of each table in their order."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {name}\n")[1].split("\n#")[0]
    listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]

    assert tuple(listed) == order.steps


def test_vllm_raises_tiny_temperatures() -> None:
    """A temperature below .01 counts as .01 there, and as itself in SGLang."""
    logits = np.array([0.0, 0.001])
    tiny, least = LawParameters(temperature=0.001), LawParameters(temperature=0.01)
    by_vllm = law(logits, tiny, (), (), "vllm")

    assert by_vllm.log_probs.tolist() == law(logits, least, (), (), "vllm").log_probs.tolist()
    assert law(logits, tiny, (), (), "sglang").log_probs[0] < by_vllm.log_probs[0]


def test_engines_count_different_tokens() -> None:
    """Of a prompt's token repetition counts in two engines and presence in one."""
    logits = np.zeros(3)
    repeated = LawParameters(repetition_penalty=1.5)
    present = LawParameters(presence_penalty=1.0)
    lower = {
        engine: (
            law(logits + 1, repeated, (1,), (2,), engine).log_probs,
            law(logits, present, (1,), (2,), engine).log_probs,
        )
        for engine in ORDERS
    }
    prompt_token = {engine: (r[1] < r[0], p[1] < p[0]) for engine, (r, p) in lower.items()}

    assert prompt_token == {
        "vllm": (True, False),
        "sglang": (False, False),
        "tensorrt_llm": (True, True),
    }
    assert all(r[2] < r[0] and p[2] < p[0] for r, p in lower.values())


def test_structures_and_masks_go_together() -> None:
    """A structure without its mask or a mask without one is refused; with both the mask holds."""
    form = LawParameters(structure=Structure(kind="json_object"))
    mask = np.array([True, False, True])

    assert np.isneginf(law(np.zeros(3), form, (), (), "vllm", mask=mask).log_probs[1])
    with pytest.raises(SpecError, match="a structure without a mask"):
        law(np.zeros(3), form, (), (), "vllm")
    with pytest.raises(SpecError, match="a mask without a structure"):
        law(np.zeros(3), LawParameters(), (), (), "vllm", mask=mask)


def test_complete_forms_may_end_early() -> None:
    """Where a form leaves stop tokens only, min_tokens gives way; elsewhere it does not."""
    form = LawParameters(structure=Structure(kind="json_object"), min_tokens=9, stop_token_ids=(2,))
    ended = law(np.zeros(3), form, (), (), "vllm", mask=np.array([False, False, True]))
    running = law(np.zeros(3), form, (), (), "vllm", mask=np.array([False, True, True]))

    assert ended.log_probs[2] == 0
    assert np.isneginf(running.log_probs[2])


def test_unknown_engines_are_refused() -> None:
    """The message lists the engines that are known."""
    with pytest.raises(SpecError, match="'mlx', expected one of vllm, sglang, tensorrt_llm"):
        law(np.zeros(2), LawParameters(), (), (), "mlx")


def test_what_engines_cannot_do_is_known() -> None:
    """Under speculation vLLM refuses min-p and bias, SGLang leaves min-p out; others are fine."""
    asked = LawParameters(min_p=0.1, logit_bias=((1, 2.0),), top_p=0.9)

    assert refused(asked, VERIFYING["vllm"]) == ("min_p", "logit_bias")
    assert ignored(asked, VERIFYING["vllm"]) == ()
    assert ignored(asked, VERIFYING["sglang"]) == ("min_p",)
    assert refused(asked, ORDERS["vllm"]) == ()
    assert refused(LawParameters(top_p=0.9), VERIFYING["tensorrt_llm"]) == ()


LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.1]))


@pytest.mark.parametrize(("numerics", "weight"), [("float32", 1e-4), ("bfloat16", 1e-3)])
def test_the_stated_law_is_the_filtered_one_times_a_constant(numerics: str, weight: float) -> None:
    """It costs -log(1 - e + e U(S)) on kept tokens and is e times the unfiltered law outside."""
    logits = np.log(np.array([0.6, 0.38, 0.015, 0.005]))
    found = law(logits, LawParameters(top_k=2), (), (), "vllm")
    soft = stated(found, numerics)
    loss = found.log_probs[:2] - soft[:2]

    assert np.exp(soft).sum() == pytest.approx(1)
    assert loss == pytest.approx(-math.log(1 - weight + weight * 0.98))
    assert np.exp(soft[2:]) == pytest.approx(weight * np.array([0.015, 0.005]))


def test_bans_are_not_softened() -> None:
    """What is forbidden for other reasons than a filter keeps probability 0."""
    asked = LawParameters(top_p=0.5, bad_words=((2,),))
    soft = stated(law(LOGITS, asked, (), (), "vllm"), "bfloat16")

    assert np.isfinite(soft).tolist() == [True, True, False, True]


def test_laws_without_filters_are_stated_as_they_are() -> None:
    """Nothing is mixed in where no filter cuts."""
    found = law(LOGITS, LawParameters(temperature=0.7), (), (), "vllm")

    assert stated(found, "bfloat16") is found.log_probs


def test_unknown_numerics_are_refused() -> None:
    """The message lists the numerics that are known."""
    with pytest.raises(SpecError, match="got 'int8', expected one of float32, bfloat16"):
        stated(law(LOGITS, LawParameters(), (), (), "vllm"), "int8")


def test_rows_hold_the_stated_law() -> None:
    """A token from outside the filter has its small probability and its unfiltered one."""
    found = row(law(LOGITS, LawParameters(top_k=2), (), (), "vllm"), 3, "float32", position=2)

    assert found.logp[0] == pytest.approx(math.log(1e-5))
    assert found.unfiltered[0] == pytest.approx(math.log(0.1))
    assert found.position[0] == 2


def _largest(rows: list[Scores], vocabulary: int) -> float:
    """The largest log e-value on the way."""
    return float(evidence(joined(rows), directions(vocabulary, 1)).path.max())


def _evidence(true: Law, held: Law, tokens: int, seed: int) -> float:
    """The evidence of tokens drawn from one law and held against another."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(true.log_probs), size=tokens, p=np.exp(true.log_probs))
    each = {token: row(held, token, "float32") for token in set(drawn.tolist())}
    return _largest([each[token] for token in drawn.tolist()], len(true.log_probs))


@pytest.mark.parametrize("engine", list(ORDERS))
@pytest.mark.parametrize("seed", range(3))
def test_a_faithful_engine_raises_no_alarm(engine: str, seed: int) -> None:
    """2,000 tokens of a law with both filters, held against itself, stay below 1e4."""
    same = law(LOGITS, LawParameters(top_k=3, top_p=0.8), (), (), engine)

    assert _evidence(same, same, 2_000, seed) < math.log(1e4)


@pytest.mark.parametrize(
    ("engine", "asked"),
    [
        ("sglang", LawParameters(top_k=2, top_p=0.5)),
        ("sglang", LawParameters(min_p=0.4)),
    ],
    ids=["top-p after top-k", "min-p without effect"],
)
def test_known_differences_under_speculation_are_found(engine: str, asked: LawParameters) -> None:
    """What SGLang's verify step does otherwise than its sampler is found within 2,000 tokens."""
    promised = law(LOGITS, asked, (), (), engine)
    drawn = law(LOGITS, asked, (), (), VERIFYING[engine])

    assert _evidence(drawn, promised, 2_000, 1) > math.log(1e4)


def test_a_wrong_order_is_found() -> None:
    """Penalties applied after the temperature are found within 2,000 tokens."""
    asked = LawParameters(temperature=0.5, presence_penalty=1.0)
    steps = [s for s in ORDERS["vllm"].steps if s != "temperature"]
    steps.insert(steps.index("occurrence_penalties"), "temperature")
    wrong = replace(ORDERS["vllm"], steps=tuple(steps))
    promised = law(LOGITS, asked, (), (0,), "vllm")

    assert _evidence(law(LOGITS, asked, (), (0,), wrong), promised, 2_000, 1) > math.log(1e4)


ROUNDED = 1_000
"""Tokens of an engine that rounds; one that is held against exact edges alarms by then."""


def _rounding(engine: str, asked: LawParameters, held_as: str, seed: int) -> float:
    """The evidence against an engine whose logits err by .08, each token in another context."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(ROUNDED):
        logits = rng.normal(0, 2.5, 60)
        true = law(logits + rng.normal(0, 0.08, 60), asked, (), (), engine)
        token = int(rng.choice(60, p=np.exp(true.log_probs)))
        rows.append(row(law(logits, asked, (), (), engine), token, held_as))
    return _largest(rows, 60)


CUTS = [
    LawParameters(top_p=0.8),
    LawParameters(top_k=10),
    LawParameters(top_k=10, top_p=0.9),
    LawParameters(temperature=0),
]


@pytest.mark.parametrize(
    ("engine", "asked"),
    [*(("vllm", asked) for asked in CUTS), ("sglang", CUTS[2])],
    ids=["top-p", "top-k", "top-p after top-k", "greedy", "top-p with top-k"],
)
def test_rounding_at_the_edges_raises_no_alarm(engine: str, asked: LawParameters) -> None:
    """Held against the law as stated for bfloat16, errors of the logits stay below 1e4."""
    assert _rounding(engine, asked, "bfloat16", 1) < math.log(1e4)


def test_rounding_would_alarm_with_exact_edges() -> None:
    """Planted: the same engine held against the law as stated for float32 alarms."""
    assert _rounding("vllm", CUTS[0], "float32", 1) > math.log(1e4)
