"""Greedy text under every speculative arm against greedy text without, token by token."""

from collections.abc import Callable

import pytest

from draftgate.checks.ask import greedy_answer, in_parallel
from draftgate.checks.greedy import NEAR_TIE_LOGITS, GreedyAnswer, first_divergence
from draftgate.datasets import Prompt, load_prompts
from draftgate.engines.running import RunningEngine
from draftgate.specs import Arm, Profile
from tests.correctness.conftest import in_float32

pytestmark = pytest.mark.correctness

PROMPTS = 18
TOKENS = 48


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    """Six prompts of each kind."""
    return load_prompts("mixed", seed=7)[:PROMPTS]


@pytest.fixture(scope="module")
def expected(reference: RunningEngine, prompts: tuple[Prompt, ...]) -> list[GreedyAnswer]:
    """Greedy answers without speculation."""
    return answers(reference, prompts)


def answers(engine: RunningEngine, prompts: tuple[Prompt, ...]) -> list[GreedyAnswer]:
    """Return the server's greedy answers in the order of the prompts."""
    return in_parallel(lambda p: greedy_answer(engine.post, engine.model, p, TOKENS), prompts)


def test_greedy_text_is_unchanged(
    serve: Callable[[Arm], RunningEngine],
    profile: Profile,
    speculative_arm: str,
    prompts: tuple[Prompt, ...],
    expected: list[GreedyAnswer],
    record_property: Callable[[str, object], None],
) -> None:
    """Every token equals that without speculation, but for near ties, which are named."""
    engine = serve(in_float32(profile.arm(speculative_arm)))
    tolerance = NEAR_TIE_LOGITS[engine.spec.dtype]

    got = answers(engine, prompts)

    found = [
        divergence
        for want, have in zip(expected, got, strict=True)
        if (divergence := first_divergence(want, have.token_ids, tolerance)) is not None
    ]
    record_property("near_ties", [str(d) for d in found if d.near_tie])
    faults = [str(d) for d in found if not d.near_tie]
    assert not faults, "\n".join(faults)
    assert sum(len(answer.token_ids) for answer in got) > PROMPTS * TOKENS // 2


def test_reference_repeats_itself(
    reference: RunningEngine, prompts: tuple[Prompt, ...], expected: list[GreedyAnswer]
) -> None:
    """The server without speculation gives the same text twice (same-versus-same run)."""
    again = answers(reference, prompts)

    tolerance = NEAR_TIE_LOGITS[reference.spec.dtype]
    pairs = zip(expected, again, strict=True)
    faults = [first_divergence(want, have.token_ids, tolerance) for want, have in pairs]
    assert [str(d) for d in faults if d is not None and not d.near_tie] == []


def test_altered_token_is_found(expected: list[GreedyAnswer]) -> None:
    """One changed token in a real answer is reported at its place (planted fault)."""
    honest = expected[0]
    position = len(honest.token_ids) // 2
    altered = list(honest.token_ids)
    altered[position] = (altered[position] + 1) % 1000

    found = first_divergence(honest, tuple(altered), NEAR_TIE_LOGITS["float32"])

    assert found is not None
    assert (found.position, found.near_tie) == (position, False)
