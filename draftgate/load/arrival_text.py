"""Arrival processes as a command line or profile writes them.

Text in, an `Arrivals` record out; every fault is a `SpecError`. What the
kinds mean is told in `draftgate.load.arrivals`.
"""

from draftgate.errors import SpecError
from draftgate.load.arrivals import Arrivals, Constant, Gamma, Poisson, Ramp, Replay, Steps
from draftgate.load.settings_text import Settings

KINDS = ("constant", "poisson", "gamma", "ramp", "steps", "replay")
"""What `parse_arrivals` knows."""


def parse_arrivals(
    text: str, rate: float | None, trace: tuple[float, ...] | None = None
) -> Arrivals:
    """Return the arrival process that a command line asks for.

    `text` is a kind, or a kind and its settings: `constant`, `poisson`,
    `gamma:shape=0.5`, `ramp:to=100,over=30`, `steps:10x30,50x60` (rate x
    seconds), `replay` or `replay:scale=0.5`. A ramp starts at `rate`; ramp and
    steps take `spacing=even` in place of `spacing=poisson`.

    Args:
        text: Kind, then optionally a colon and settings between commas.
        rate: Requests per second; None where the kind has rates of its own.
        trace: Offsets in seconds for `replay`, from `read_trace`.

    Raises:
        SpecError: If the kind or a setting is unknown, missing or no number
            in range, or the kind needs a rate or trace, or knows none.
    """
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise SpecError(f"unknown arrivals {kind!r}. Known: {', '.join(KINDS)}.")
    if (trace is not None) != (kind == "replay"):
        got = "no trace file" if trace is None else "a trace file"
        raise SpecError(
            f"arrivals {kind!r}: got {got}. A trace file and arrivals 'replay' go together."
        )
    if (rate is not None) != (kind not in ("replay", "steps")):
        raise SpecError(
            f"arrivals {kind!r}: got no rate, expected requests per second. Give a rate."
            if rate is None
            else f"arrivals {kind!r}: got rate {rate:g}, but has rates of its own. Drop the rate."
        )
    settings = Settings("arrivals", kind, rest)
    arrivals = _built(settings, rate or 0.0, trace or ())
    settings.check_all_used()
    return arrivals


def _built(settings: Settings, rate: float, trace: tuple[float, ...]) -> Arrivals:
    match settings.kind:
        case "constant":
            return Constant(rate)
        case "poisson":
            return Poisson(rate)
        case "gamma":
            return Gamma(rate, settings.number("shape"))
        case "ramp":
            to_per_s, over_s = settings.number("to"), settings.number("over")
            return Ramp(rate, to_per_s, over_s, _poisson(settings))
        case "steps":
            return Steps(_steps(settings), _poisson(settings))
        case _:
            return Replay(trace, settings.number("scale", default=1.0))


def _poisson(settings: Settings) -> bool:
    """Return whether arrivals are to be independent, as they are unless said otherwise."""
    return settings.choice("spacing", ("poisson", "even")) == "poisson"


def _steps(settings: Settings) -> tuple[tuple[float, float], ...]:
    pairs = [entry.split("x") for entry in settings.unnamed("RATExSECONDS")]
    if any(len(pair) != 2 for pair in pairs):
        raise SpecError(
            "arrivals 'steps': expected steps as RATExSECONDS, for example 10x30,50x60."
        )
    return tuple(
        (settings.as_number("rate", rate), settings.as_number("seconds", seconds))
        for rate, seconds in pairs
    )
