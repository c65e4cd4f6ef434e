"""Which conditions a check can judge if laws under filters are not known.

In bfloat16 rounding moves tokens over the edge of top-k or top-p, and a server that tells
the likeliest tokens alone does not show which (`draftgate.laws.partial`). Knows no servers.
"""

from collections.abc import Callable

from draftgate.checks.conditions import DEFAULT, Condition, conditions
from draftgate.errors import SpecError

_ADVICE = "Give --reference MODEL, or run the servers in float32 and say --dtype float32"


def with_known_law(
    asked: tuple[Condition, ...], dtype: str, tell: Callable[[str], None]
) -> tuple[Condition, ...]:
    """Return the conditions without filters; of the default ones others are left out.

    Args:
        asked: Settings of sampling.
        dtype: What the servers compute in.
        tell: Is told what is left out.

    Raises:
        SpecError: If somebody named one with a filter.
    """
    filtered = tuple(entry for entry in asked if entry.parameters.filtered)
    if not filtered:
        return asked
    names = ", ".join(f"'{entry.name}'" for entry in filtered)
    why = f"got {dtype} and no model as reference: rounding moves tokens over a filter's edge"
    if asked != conditions(DEFAULT):
        raise SpecError(
            f"conditions {names}: {why}, expected conditions without filters. {_ADVICE}, or leave "
            "them out."
        )
    tell(f"conditions {names} are left out: {why}. {_ADVICE}, to check them too.")
    return tuple(entry for entry in asked if entry not in filtered)
