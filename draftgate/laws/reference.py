"""What every reference law offers: rows of numbers about answers, and what it cannot see.

References get the law of each token from different places: a forward pass in this
process (`forward`), a server that reads the answers (`teacher`), or the log-probabilities
that the checked server reports itself (`own`). Knows none of them.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from draftgate.errors import SpecError
from draftgate.laws.answer import Answer
from draftgate.stats.scores import Scores

FIRST_TOKENS = "the first token of each answer, which no draft proposes"
"""Blind spot of every reference: prefill draws that token, evidence leaves it out."""

RECENT = 5
"""Laws before a token's own that `Scores.recent` looks at."""


@runtime_checkable
class Reference(Protocol):
    """Where the law of each token comes from.

    Attributes:
        name: For reports.
        blind_to: Faults that it cannot see, one phrase each, for the text of a verdict.
    """

    name: str
    blind_to: tuple[str, ...]

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return one row for every token but the first of each answer, in order.

        Args:
            answers: In the order in which the evidence is gathered.
            k: Draft tokens proposed per verify step; None without speculation.
        """
        ...


def refuse_greedy(answers: Sequence[Answer]) -> None:
    """Refuse answers at temperature 0: nothing was drawn, so there is no law to hold them to.

    Raises:
        SpecError: Naming the first such request.
    """
    for answer in answers:
        if answer.parameters.greedy:
            raise SpecError(
                f"request {answer.request}: got temperature 0, expected a temperature above 0. "
                "Greedy answers are checked by draftgate.checks.regret."
            )
