"""The settings of sampling that a distribution check asks for, one e-process each.

A condition is a named set of parameters; the bound on false alarms is shared by
all of them. Knows no servers and no laws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftgate.errors import SpecError
from draftgate.laws.parameters import LawParameters
from draftgate.specs import SamplingParams

DEFAULT = ("T=0.8", "T=1", "T=1.5", "T=0.8,top_p=0.95", "T=1,top_k=16")
"""The settings of a check that names none: below, at and above the law itself, and the
two filters that every engine has. Filters amplify faults: a token outside of them is
evidence by itself. 16 lies within the 20 likeliest tokens that vLLM tells by default,
so that a server as reference knows where the filter cuts."""

_KEYS: dict[str, tuple[str, type[float] | type[int]]] = {
    "T": ("temperature", float),
    "top_p": ("top_p", float),
    "top_k": ("top_k", int),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One setting of sampling.

    Attributes:
        name: As `condition` reads it, for example `T=0.8,top_p=0.95`.
        parameters: What it asks for.
    """

    name: str
    parameters: LawParameters


def condition(text: str) -> Condition:
    """Return the condition that a text such as `T=0.8,top_p=0.95` names.

    Outputs run past EOS: a server that kept its EOS tokens back would otherwise
    choose which tokens are looked at.

    Raises:
        SpecError: If a key is unknown or given twice, a value is no number of its kind
            or out of range, or the temperature is absent or 0 (greedy text is another
            check's).
    """
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key not in _KEYS or _KEYS[key][0] in values:
            raise SpecError(
                f"condition {text!r}: got {part.strip()!r}, expected each of "
                f"{', '.join(_KEYS)} at most once. For example: T=0.8,top_p=0.95"
            )
        name, kind = _KEYS[key]
        values[name] = _number(text, value, kind)
    if not values.get("temperature", 0) > 0:
        raise SpecError(
            f"condition {text!r}: expected T above 0, got {values.get('temperature', 'none')}. "
            "Sampled text needs a temperature; greedy text is compared token by token instead."
        )
    return Condition(text.replace(" ", ""), LawParameters(ignore_eos=True, **values))


def conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return the named conditions in order.

    Raises:
        SpecError: As `condition`, or if there are none or two with the same meaning.
    """
    found = tuple(condition(text) for text in texts)
    if not found or len({entry.parameters for entry in found}) < len(found):
        raise SpecError(
            f"conditions: got {', '.join(texts) or 'none'}, expected at least one and none twice. "
            "Each is an experiment of its own that shares the bound on false alarms."
        )
    return found


def share(alpha: float, count: int) -> float:
    """Return the bound on false alarms of one condition out of `count`.

    Raises:
        SpecError: If alpha lies outside (0, 1).

    Source:
        Bonferroni's inequality: the chance of any alarm is at most the sum.
    """
    if not 0 < alpha < 1:
        raise SpecError(
            f"alpha: got {alpha:g}, expected a number between 0 and 1. For example 1e-4."
        )
    return alpha / count


def sampling(parameters: LawParameters, max_tokens: int, seed: int | None) -> SamplingParams:
    """Return the condition's parameters as the load generator's dialects take them."""
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        top_k=parameters.top_k,
        seed=seed,
        ignore_eos=parameters.ignore_eos,
    )


def _number(text: str, value: str, kind: type[float] | type[int]) -> float | int:
    try:
        number = kind(value)
    except ValueError as error:
        expected = "an integer" if kind is int else "a number"
        raise SpecError(
            f"condition {text!r}: got {value!r}, expected {expected}. For example: T=1,top_k=16"
        ) from error
    if not math.isfinite(number):
        raise SpecError(f"condition {text!r}: got {value!r}, expected a finite number.")
    return number
