"""What a null engine is to do: its pace, its steps and the requests it treats badly.

Frozen records and their reading from JSON, TOML or options. Knows neither
sockets nor clocks; `pace` turns a script into due times, `faults` into bad
answers. A script and a request's running number fix that request's answer.
"""

import json
import tomllib
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from draftgate import codec
from draftgate.errors import SpecError

MOST_STEP_TOKENS = 128
"""Most tokens in one step; far above any K in use, and what the prebuilt event tables cover."""
GAP_CYCLE = 10_000
"""Gaps after which the pattern of slow ones repeats; it makes shares exact to 0.01 %."""


class Alignment(Enum):
    """What sets the time of a step."""

    INDEPENDENT = "independent"
    """Each request by itself, counted from its arrival."""
    STEPS = "steps"
    """One grid for all, as the steps of one batched engine are."""


class IdStyle(Enum):
    """What the native SGLang route repeats in each event."""

    CUMULATIVE = "cumulative"
    """All text and ids so far: SGLang's default."""
    INCREMENTAL = "incremental"
    """Only what is new: SGLang with `--incremental-streaming-output`."""


class FaultKind(Enum):
    """One way in which an answer differs from a plain one."""

    STALL = "stall"
    """Nothing further comes, and the connection stays open."""
    IN_BAND_ERROR = "in_band_error"
    """An error event takes the place of the next step; the body then ends well."""
    EARLY_CLOSE = "early_close"
    """The connection is closed in the middle of the body."""
    RESET = "reset"
    """As `EARLY_CLOSE`, by a TCP reset."""
    BAD_CHUNK = "bad_chunk"
    """A chunk size that is no number, then the connection is closed."""
    MALFORMED = "malformed"
    """One more event that is no JSON; all tokens come."""
    HTTP_ERROR = "http_error"
    """Another status than 200, at once."""
    WRONG_LENGTH = "wrong_length"
    """One token fewer than asked for, in the usage too."""
    MISSING_USAGE = "missing_usage"
    """No usage event although it was asked for."""
    MISSING_DONE = "missing_done"
    """No `[DONE]`."""
    GZIP = "gzip"
    """The body is gzip although the request need not have allowed that."""
    SLOW_HEAD = "slow_head"
    """The head comes in two parts, with `head_pause_s` between them."""
    COALESCE = "coalesce"
    """`events_per_write` events share one write."""
    FRAGMENT = "fragment"
    """Each write is cut into parts of `fragment_bytes`, `fragment_pause_s` apart."""


@dataclass(frozen=True, slots=True)
class TokenCycle:
    """Tokens per step that repeat; every request begins with the first of them."""

    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenUniform:
    """Tokens per step drawn evenly from `low` to `high`, both included, by the script's seed."""

    low: int
    high: int


TokenPattern = TokenCycle | TokenUniform


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A fault and the requests that it hits: `first` to `last` of every `of`.

    Attributes:
        kind: What happens.
        first: Place of the first request hit, from 1.
        last: Place of the last request hit.
        of: Length of the round in which places are counted.
        after_tokens: The fault strikes once this many tokens are out; None
            for half of the answer. Faults of a whole answer ignore it.
    """

    kind: FaultKind
    first: int
    last: int
    of: int
    after_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SpecError: If the range is empty, outside the round or begins before 1.
        """
        if not 1 <= self.first <= self.last <= self.of:
            raise SpecError(
                f"fault {self.kind.value!r}: got requests {self.first}-{self.last} of {self.of}, "
                "expected 1 <= FIRST <= LAST <= OF. Write it as KIND=FIRST-LAST/OF."
            )
        if self.after_tokens is not None and self.after_tokens < 1:
            raise SpecError(
                f"fault {self.kind.value!r}: after_tokens must be >= 1, got {self.after_tokens}. "
                "Leave it out for half of the answer."
            )

    def hits(self, number: int) -> bool:
        """Return whether the request of this running number, from 1, is hit."""
        return self.first <= (number - 1) % self.of + 1 <= self.last


@dataclass(frozen=True, slots=True)
class Script:
    """All that a null engine does on purpose.

    Attributes:
        model: Name it lists; requests may name any model.
        ttft_s: Arrival of a request to its first token, seconds.
        gap_s: Time between two steps.
        slow_gap_share: Share of gaps that last `slow_gap_s`, spread evenly;
            from 0 to 1 in steps of 1 / `GAP_CYCLE`.
        slow_gap_s: Length of a slow gap.
        tokens_per_step: Tokens of each step after the first.
        first_tokens: Tokens of the first step; a prompt's pass gives one.
        burst_steps: Steps after the first that are held back to go out at
            once, when the last of them is due.
        align: What sets the time of a step.
        head_s: Arrival to the response's head, seconds; None sends it when
            the first token is due.
        head_pause_s: Pause inside a `SLOW_HEAD`.
        fragment_bytes: Length of a `FRAGMENT`.
        fragment_pause_s: Pause between two.
        events_per_write: Events in a write under `COALESCE`.
        http_status: Status of an `HTTP_ERROR`.
        sglang_ids: What events of `/generate` hold.
        seed: Seed of `TokenUniform`.
        faults: Whom to treat badly, and how.
    """

    model: str = "null"
    ttft_s: float = 0.05
    gap_s: float = 0.01
    slow_gap_share: float = 0.0
    slow_gap_s: float = 0.0
    tokens_per_step: TokenPattern = TokenCycle((1,))
    first_tokens: int = 1
    burst_steps: int = 1
    align: Alignment = Alignment.INDEPENDENT
    head_s: float | None = 0.0
    head_pause_s: float = 0.02
    fragment_bytes: int = 16
    fragment_pause_s: float = 0.0002
    events_per_write: int = 2
    http_status: int = 500
    sglang_ids: IdStyle = IdStyle.CUMULATIVE
    seed: int = 1
    faults: tuple[FaultRule, ...] = ()

    def __post_init__(self) -> None:
        """Check what one field can check by itself, and those that depend on another.

        Raises:
            SpecError: If a field is out of its range; the message says which.
        """
        for name, (low, high) in _RANGES.items():
            _check(name, getattr(self, name), low, high)
        pattern = self.tokens_per_step
        counts = pattern.counts if isinstance(pattern, TokenCycle) else (pattern.low, pattern.high)
        for count in counts:
            _check("tokens_per_step", count, 1, MOST_STEP_TOKENS)
        if not counts or (isinstance(pattern, TokenUniform) and pattern.low > pattern.high):
            raise SpecError(
                f"null engine: tokens_per_step got {counts}, expected at least one count, and in "
                'LOW-HIGH no LOW above HIGH. Examples: 1, "1,2,3,4", "1-4".'
            )
        if self.head_s is not None:
            _check("head_s", self.head_s, 0.0, self.ttft_s)
        slow_per_cycle = self.slow_gap_share * GAP_CYCLE
        if abs(slow_per_cycle - round(slow_per_cycle)) > 1e-6:
            raise SpecError(
                f"null engine: slow_gap_share must be a multiple of {1 / GAP_CYCLE}, got "
                f"{self.slow_gap_share}. Round it: the pattern repeats every {GAP_CYCLE} gaps."
            )
        if self.slow_gap_share > 0 and self.slow_gap_s < self.gap_s:
            raise SpecError(
                f"null engine: slow_gap_s must be >= gap_s = {self.gap_s}, got {self.slow_gap_s}. "
                "Set it, or set slow_gap_share to 0."
            )
        if self.align is Alignment.STEPS and self.gap_s <= 0:
            raise SpecError(
                f"null engine: gap_s must be > 0 where all streams share a grid, got {self.gap_s}. "
                'Set gap_s, or align = "independent".'
            )


_RANGES: dict[str, tuple[float, float]] = {
    "ttft_s": (0.0, 86_400.0),
    "gap_s": (0.0, 86_400.0),
    "slow_gap_share": (0.0, 1.0),
    "slow_gap_s": (0.0, 86_400.0),
    "first_tokens": (1, MOST_STEP_TOKENS),
    "burst_steps": (1, 10_000),
    "head_pause_s": (0.0, 86_400.0),
    "fragment_bytes": (1, 1 << 20),
    "fragment_pause_s": (0.0, 1.0),
    "events_per_write": (1, 1_000),
    "http_status": (400, 599),
    "seed": (0, 1 << 63),
}


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SpecError(
            f"null engine: {name} must be from {low:g} to {high:g}, got {value}. Change it in the "
            "script or in the options."
        )


def parse_script(given: object) -> Script:
    """Return the script that a JSON or TOML document holds.

    Keys are the attributes of `Script`. `tokens_per_step` is a count, a list
    of counts, or text as in `parse_tokens`; a member of `faults` is text as in
    `parse_fault` or an object with the attributes of `FaultRule`.

    Raises:
        SpecError: If a key is unknown or a value is wrong; the message names it.
    """
    known = [field.name for field in fields(Script)]
    if not isinstance(given, dict) or not given.keys() <= set(known):
        got = sorted(given.keys() - set(known)) if isinstance(given, dict) else repr(given)
        raise SpecError(
            f"null engine: a script is an object with known keys, got {got}. Known: "
            f"{', '.join(known)}."
        )
    values: dict[str, Any] = dict(given)
    if "tokens_per_step" in values:
        values["tokens_per_step"] = codec.encode(parse_tokens(values["tokens_per_step"]))
    if isinstance(values.get("faults"), list):
        values["faults"] = [_fault_document(fault) for fault in values["faults"]]
    try:
        return codec.decode(Script, values, "script")
    except ValueError as error:
        raise SpecError(
            f"null engine: {error}. Look up the key in `draftgate.null_engine.script.Script`."
        ) from error


def load_script(given: str) -> Script:
    """Return the script that `given` names: a JSON object, or `@FILE` with JSON or TOML in it.

    Raises:
        SpecError: If the file cannot be read, or holds no script.
    """
    try:
        if not given.startswith("@"):
            return parse_script(json.loads(given))
        path = Path(given[1:])
        text = path.read_text(encoding="utf-8")
        return parse_script(tomllib.loads(text) if path.suffix == ".toml" else json.loads(text))
    except (OSError, ValueError) as error:  # both decoders raise kinds of ValueError
        raise SpecError(
            f"null engine: script {given!r} cannot be read: {error}. Expected a JSON object, or "
            "@FILE that ends in .json or .toml."
        ) from error


def parse_tokens(given: object) -> TokenPattern:
    """Return tokens per step from 2, [1, 2, 3], "2", "1,2,3" (a cycle) or "1-4" (drawn).

    Raises:
        SpecError: If `given` has none of these forms.
    """
    text = ",".join(map(str, given)) if isinstance(given, (list, tuple)) else str(given)
    low, dash, high = text.partition("-")
    try:
        if dash:
            return TokenUniform(int(low), int(high))
        return TokenCycle(tuple(int(count) for count in text.split(",")))
    except ValueError as error:
        raise SpecError(
            f"null engine: tokens_per_step got {given!r}, expected a count, a list of counts or "
            'LOW-HIGH. Examples: 1, "1,2,3,4", "1-4".'
        ) from error


def parse_fault(text: str) -> FaultRule:
    """Return the rule that KIND=FIRST-LAST/OF[@TOKENS] stands for; KIND alone hits every request.

    "in_band_error=1-16/64@8" is an error after 8 tokens in 16 of every 64.

    Raises:
        SpecError: If the text has another form, or the kind is unknown.
    """
    name, _, where = text.partition("=")
    places, _, after = (where or "1-1/1").partition("@")
    span, _, of = places.partition("/")
    first, _, last = span.partition("-")
    try:
        kind = FaultKind(name)
        strikes = int(after) if after else None
        numbers = (int(first), int(last or first), int(of))
    except ValueError as error:
        kinds = ", ".join(kind.value for kind in FaultKind)
        raise SpecError(
            f"null engine: fault {text!r} is not KIND=FIRST-LAST/OF[@TOKENS] ({error}). Kinds: "
            f"{kinds}. Example: in_band_error=1-16/64@8."
        ) from error
    return FaultRule(kind, *numbers, strikes)


def _fault_document(given: object) -> object:
    return codec.encode(parse_fault(given)) if isinstance(given, str) else given
