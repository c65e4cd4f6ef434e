"""The rule of acceptance, judged from chunks: steps with few drafts, without, and merged ones."""

import random

import pytest

from draftgate.checks.rule import RuleEvidence, is_one_step
from draftgate.engines.fake_law import Model, Sampling
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.laws.proposals import NgramDrafter
from tests.support.scripted_law import VOCABULARY, laws_of, plan

DRAFTER = NgramDrafter(k=3, shortest=1, longest=2)
PROMPT = tuple(range(12)) * 4


class CopyingModel(Model):
    """The known model with n-gram drafts: fewer than k of them, or none."""

    def drafts(self, text: object) -> tuple[int, ...]:
        """Return the proposals after a text."""
        return DRAFTER(tuple(text))  # type: ignore[arg-type] # a sequence of ids


def answers(model: Model, count: int) -> list[Answer]:
    """Return answers of the model at temperature .8."""
    found = []
    for number in range(count):
        steps = model.steps(PROMPT, 40, Sampling(temperature=0.8), random.Random(number))
        found.append(
            Answer(
                request=number,
                prompt_id="p",
                prompt_token_ids=PROMPT,
                token_ids=tuple(token for step in steps for token in step.tokens),
                chunks=tuple(len(step.tokens) for step in steps),
                finish_reason="length",
                parameters=LawParameters(temperature=0.8),
            )
        )
    return found


def judged_by_rule(model: Model, count: int) -> RuleEvidence:
    """Return the evidence of answers of a model."""
    found = RuleEvidence(
        plan("1", "T=0.8").conditions,
        1e-4,
        laws_of,
        drafter=DRAFTER,
        k=3,
        vocabulary=VOCABULARY,
    )
    found.add(0, answers(model, count))
    return found


def test_copied_drafts_by_the_rule_leave_no_evidence() -> None:
    """Steps with fewer than k drafts are held to the rule, and steps without any are left out."""
    (entry,) = judged_by_rule(CopyingModel(vocab_size=VOCABULARY, k=3), 60).entries()

    assert entry.alarm_at is None
    assert (entry.impossible, entry.unclear) == (0, 0)
    assert 500 < entry.places < 60 * 39


def test_rejected_copy_that_is_emitted_is_impossible() -> None:
    """A recovered token drawn from the target may be the draft again, which the rule excludes."""
    model = CopyingModel(vocab_size=VOCABULARY, k=3, fault="recovered_from_target")
    (entry,) = judged_by_rule(model, 60).entries()

    assert entry.alarm_at is not None
    assert entry.impossible > 0


def test_without_drafts_there_is_nothing_to_say() -> None:
    """No verify step, no entry: silence is no pass of the rule."""
    found = RuleEvidence(
        plan("1", "T=0.8").conditions,
        1e-4,
        laws_of,
        drafter=lambda _: (),
        k=3,
        vocabulary=VOCABULARY,
    )
    found.add(0, answers(Model(vocab_size=VOCABULARY), 2))

    assert found.entries() == ()


@pytest.mark.parametrize(
    ("emitted", "drafts", "one"),
    [
        ((5,), (), True),
        ((5,), (5, 6), True),
        ((5, 6, 9), (5, 6), True),
        ((5, 8), (5, 6), True),
        ((7, 8), (5, 6), False),
        ((5, 6, 9, 1), (5, 6), False),
        ((5, 6), (), False),
    ],
)
def test_chunks_of_two_steps_are_told(
    emitted: tuple[int, ...], drafts: tuple[int, ...], *, one: bool
) -> None:
    """All but a step's last token are its first proposals, and it has one token more at most."""
    assert is_one_step(emitted, drafts) is one
