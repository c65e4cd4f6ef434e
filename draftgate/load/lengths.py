"""How long prompts and outputs are: laws of lengths, and the draws they are fed.

A draw is a hash of seed, purpose and number, so any process can make any of
them without having made those before, on every machine and with every version
of numpy alike. Knows nothing of prompts, tokens or time.
"""

import hashlib
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from draftgate.errors import SpecError


def draw(seed: int, purpose: str, number: int) -> float:
    """Return a number in [0, 1), uniform over seeds, purposes and numbers."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{number}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53  # what a float holds exactly


class Lengths(Protocol):
    """A law of lengths, each at least 1."""

    def at(self, number: int, share: float) -> int:
        """Return the length of item `number`, whose draw is `share` in [0, 1)."""

    def describe(self) -> str:
        """Return a phrase for reports, without the unit."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every length is the same.

    Attributes:
        length: At least 1.
    """

    length: int

    def __post_init__(self) -> None:
        """Check the length.

        Raises:
            SpecError: If it is below 1.
        """
        _check_range(self.length, self.length)

    def describe(self) -> str:
        """Return a phrase for reports."""
        return str(self.length)

    def at(self, number: int, share: float) -> int:
        """Return the length."""
        del number, share
        return self.length


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole length from `low` to `high` is as likely, both included.

    Attributes:
        low: At least 1.
        high: At least `low`.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        """Check the range.

        Raises:
            SpecError: If it is empty or begins below 1.
        """
        _check_range(self.low, self.high)

    def describe(self) -> str:
        """Return a phrase for reports."""
        return f"{self.low} to {self.high}, all alike"

    def at(self, number: int, share: float) -> int:
        """Return the length at `share` of the law."""
        del number
        return self.low + int(share * (self.high - self.low + 1))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lengths whose logarithm is normal, rounded and held within limits.

    What falls outside the limits is put on them, so both occur more often
    than the law alone would have it, and the median stays as it is stated.

    Attributes:
        median: Within the limits.
        sigma: Standard deviation of the natural logarithm, >= 0.
        low: At least 1.
        high: At least `low`.
    """

    median: float
    sigma: float
    low: int
    high: int

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SpecError: If the limits are empty or begin below 1, the median is
                outside them, or sigma is negative or not finite.
        """
        _check_range(self.low, self.high)
        if not self.low <= self.median <= self.high:
            raise SpecError(
                f"lengths: median must be from low to high, {self.low} to {self.high}, "
                f"got {self.median:g}."
            )
        if not (math.isfinite(self.sigma) and self.sigma >= 0.0):
            raise SpecError(f"lengths: sigma must be a finite number >= 0, got {self.sigma}.")

    def describe(self) -> str:
        """Return a phrase for reports."""
        return (
            f"lognormal with median {self.median:g} and sigma {self.sigma:g}, "
            f"from {self.low} to {self.high}"
        )

    def at(self, number: int, share: float) -> int:
        """Return the length at `share` of the law."""
        del number
        # A share of 0 is minus infinity; half a draw's grain stands for it.
        normal = NormalDist().inv_cdf(max(share, 2.0**-54))
        log_length = math.log(self.median) + self.sigma * normal
        if log_length >= math.log(self.high):
            return self.high
        return max(round(math.exp(log_length)), self.low)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths taken from a list, such as those of a trace.

    Attributes:
        values: At least one, each at least 1.
        in_order: Whether item i has the i-th length, from the start again
            after the last, in place of one drawn at random.
    """

    values: tuple[int, ...]
    in_order: bool = False

    def __post_init__(self) -> None:
        """Check the list.

        Raises:
            SpecError: If it is empty or a length is below 1.
        """
        if not self.values:
            raise SpecError("lengths: got an empty list, expected at least one length.")
        _check_range(min(self.values), max(self.values))

    def describe(self) -> str:
        """Return a phrase for reports."""
        order = "in their order" if self.in_order else "drawn at random"
        return (
            f"{len(self.values)} listed ones from {min(self.values)} to {max(self.values)}, {order}"
        )

    def at(self, number: int, share: float) -> int:
        """Return the length at `share` of the list, or the one of item `number`."""
        size = len(self.values)
        return self.values[number % size if self.in_order else int(share * size)]


def _check_range(low: int, high: int) -> None:
    if not 1 <= low <= high:
        raise SpecError(f"lengths: expected 1 <= low <= high, got {low} to {high}.")
