"""The one place that says how often drift verdicts may err, all of them together.

Knows no measurement: a family is a number of questions and a level.
"""

from dataclasses import dataclass

DRIFT_FAMILY_LEVEL = 0.001
"""Most sessions of unchanged servers that may show any false REGRESSION or IMPROVEMENT, over all
arms and kinds: one night in three years (docs/decisions/0013-drift-verdicts.md)."""


@dataclass(frozen=True, slots=True)
class Family:
    """Questions that are judged together.

    The level is split evenly (Bonferroni), not stepwise, so that a verdict is
    final when its cell is measured and does not wait for the others.

    Attributes:
        questions: How many can alarm, >= 1.
        of: What they are, for messages.
        level: Largest chance of any false alarm.
    """

    questions: int = 1
    of: str = "verdicts by arm and kind"
    level: float = DRIFT_FAMILY_LEVEL

    @property
    def each(self) -> float:
        """Two-sided level of one question."""
        return self.level / self.questions

    @property
    def text(self) -> str:
        """The level in words."""
        if self.questions == 1:
            return f"false alarms at most {self.level * 100:g} %"
        return (
            f"false alarms at most {self.level * 100:g} % over {self.questions} {self.of}, "
            f"so p <= {self.each:.2g} each (Bonferroni)"
        )
