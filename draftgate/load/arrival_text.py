"""Arrival processes as a command line or profile writes them.

Text in, an `Arrivals` record out; every fault is a `SpecError`. What the
kinds mean is told in `draftgate.load.arrivals`.
"""

from draftgate.errors import SpecError
from draftgate.load.arrivals import Arrivals, Constant, Gamma, Poisson, Ramp, Replay, Steps

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
    settings = _Settings(kind, rest)
    arrivals = _built(settings, rate or 0.0, trace or ())
    settings.check_all_used()
    return arrivals


def _built(settings: "_Settings", rate: float, trace: tuple[float, ...]) -> Arrivals:
    match settings.kind:
        case "constant":
            return Constant(rate)
        case "poisson":
            return Poisson(rate)
        case "gamma":
            return Gamma(rate, settings.number("shape"))
        case "ramp":
            to_per_s, over_s = settings.number("to"), settings.number("over")
            return Ramp(rate, to_per_s, over_s, settings.poisson())
        case "steps":
            return Steps(settings.steps(), settings.poisson())
        case _:
            return Replay(trace, settings.number("scale", default=1.0))


class _Settings:
    """The settings behind a kind; each is taken once, and none may be left over."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        entries = [entry.partition("=") for entry in text.split(",")] if text else []
        self._named = {name: value for name, equals, value in entries if equals}
        self._bare = [name for name, equals, _ in entries if not equals]
        self._known: list[str] = []
        if len(self._named) + len(self._bare) < len(entries):
            raise SpecError(f"arrivals {kind!r}: a setting is given twice in {text!r}. Drop one.")

    def number(self, name: str, *, default: float | None = None) -> float:
        """Return the number called `name`."""
        self._known.append(name)
        text = self._named.pop(name, None)
        if text is not None:
            return self._number(name, text)
        if default is None:
            raise SpecError(
                f"arrivals {self.kind!r}: got no {name}, expected a number. Write "
                f"{self.kind}:{name}=NUMBER."
            )
        return default

    def poisson(self) -> bool:
        """Return whether arrivals are to be independent, as they are unless said otherwise."""
        self._known.append("spacing")
        spacing = self._named.pop("spacing", "poisson")
        if spacing not in ("poisson", "even"):
            raise SpecError(
                f"arrivals {self.kind!r}: spacing must be 'poisson' or 'even', got {spacing!r}."
            )
        return spacing == "poisson"

    def steps(self) -> tuple[tuple[float, float], ...]:
        """Return the steps, which have no names."""
        self._known.append("RATExSECONDS")
        pairs, self._bare = [entry.split("x") for entry in self._bare], []
        if any(len(pair) != 2 for pair in pairs):
            raise SpecError(
                f"arrivals {self.kind!r}: expected steps as RATExSECONDS, for example 10x30,50x60."
            )
        return tuple(
            (self._number("rate", rate), self._number("seconds", seconds))
            for rate, seconds in pairs
        )

    def check_all_used(self) -> None:
        """Refuse settings that nobody took."""
        for name in (*self._named, *self._bare):
            known = ", ".join(self._known) or "none"
            raise SpecError(f"arrivals {self.kind!r}: unknown setting {name!r}. Known: {known}.")

    def _number(self, name: str, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise SpecError(
                f"arrivals {self.kind!r}: {name} must be a number, got {text!r}."
            ) from None
