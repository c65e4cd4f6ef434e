"""How long a check may go on: a number of tokens, or a time.

Knows no clocks; the loop says what was spent.
"""

import math
import re
from dataclasses import dataclass

from draftgate.errors import SpecError

_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """Tokens of the server under test that are looked at, at most a round more."""

    tokens: int

    def spent(self, tokens: int, seconds: float) -> bool:
        """Return whether nothing is left."""
        del seconds
        return tokens >= self.tokens

    def __str__(self) -> str:
        """Return it as it is given on the command line."""
        return str(self.tokens)


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Seconds from the first request, both arms and scoring included; rounds are ended."""

    seconds: float

    def spent(self, tokens: int, seconds: float) -> bool:
        """Return whether nothing is left."""
        del tokens
        return seconds >= self.seconds

    def __str__(self) -> str:
        """Return it as it is given on the command line."""
        return f"{self.seconds:g}s"


Budget = TokenBudget | TimeBudget


def parse_budget(text: str) -> Budget:
    """Return the budget that a text such as `60s`, `5m` or `12000` names.

    Raises:
        SpecError: If it names none, or nothing can be done with it.
    """
    time = _TIME.fullmatch(text)
    if time and 0 < (seconds := float(time[1]) * _SECONDS[time[2]]) < math.inf:
        return TimeBudget(seconds)
    if text.isascii() and text.isdigit() and int(text) > 0:
        return TokenBudget(int(text))
    raise SpecError(
        f"budget: got {text!r}, expected a time such as 60s or 5m, or a number of tokens such as "
        "12000."
    )
