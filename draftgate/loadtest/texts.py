"""Lengths and prompts as a command line writes them.

Text in, a record of `draftgate.load` out; every fault is a `SpecError` that says
what would have been right. What the records mean is told where they are.
"""

from draftgate.errors import SpecError
from draftgate.load.lengths import Empirical, Fixed, Lengths, Lognormal, Uniform
from draftgate.load.prompts import (
    Filler,
    Prompts,
    SharedPrefix,
    Synthetic,
    TokenIds,
    Words,
    find_prompts,
)
from draftgate.load.trace import Trace

SYNTHETIC = "synthetic"
"""What stands before the lengths of prompts that are made up."""

_FROM_TRACE = "trace"
_LOGNORMAL = "lognormal"


def parse_lengths(text: str, listed: tuple[int, ...] = ()) -> Lengths:
    """Return the law of lengths that a text stands for.

    `128` is always that, `100-400` any of these alike,
    `lognormal:median=200,sigma=0.8,low=1,high=2000` what it says, and `trace`
    the lengths of a trace in their order.

    Args:
        text: Any of these.
        listed: Lengths of the trace; empty if it has none.

    Raises:
        SpecError: If it has another form, or a number is out of range.
    """
    kind, _, rest = text.partition(":")
    if kind == _FROM_TRACE:
        if not listed:
            raise SpecError(
                "lengths 'trace': got no trace with such a column. Give --trace FILE with lengths, "
                "or a number."
            )
        return Empirical(listed, in_order=True)
    try:
        if kind == _LOGNORMAL:
            return _lognormal(rest)
        low, dash, high = text.partition("-")
        return Uniform(int(low), int(high)) if dash else Fixed(int(low))
    except (ValueError, TypeError, KeyError) as error:
        raise SpecError(
            f"lengths: got {text!r}, expected NUMBER, LOW-HIGH, trace or "
            f"{_LOGNORMAL}:median=M,sigma=S,low=L,high=H."
        ) from error


def _lognormal(text: str) -> Lognormal:
    given = dict(setting.split("=") for setting in text.split(","))
    median, sigma = float(given.pop("median")), float(given.pop("sigma"))
    return Lognormal(median, sigma, **{name: int(value) for name, value in given.items()})


def parse_prompts(
    text: str,
    seed: int,
    *,
    trace: Trace | None = None,
    token_ids: str | None = None,
    shared_prefix: str | None = None,
) -> Prompts:
    """Return the source of prompts that a text stands for.

    Args:
        text: Path of a JSONL file, name of a dataset, or `synthetic:LENGTHS`
            with lengths as in `parse_lengths`.
        seed: Decides a dataset's order.
        trace: Where `synthetic:trace` has its lengths from; None for nowhere.
        token_ids: LOW-HIGH, to make synthetic prompts of token ids of this
            range; None for words.
        shared_prefix: COUNTxLENGTH or COUNTxLENGTH@SHARE, beginnings that
            synthetic prompts have in common; None for none.

    Raises:
        SpecError: If there is no such source, or a setting has another form or
            belongs to synthetic prompts alone.
    """
    kind, colon, lengths = text.partition(":")
    if kind == SYNTHETIC and colon:
        filler: Filler = Words() if token_ids is None else _token_ids(token_ids)
        shared = None if shared_prefix is None else _shared_prefix(shared_prefix)
        listed = trace.prompt_tokens if trace is not None else ()
        return Synthetic(parse_lengths(lengths, listed), filler, shared)
    if token_ids is not None or shared_prefix is not None:
        raise SpecError(
            f"prompts {text!r}: token ids and shared prefixes can be made for synthetic prompts "
            f"alone. Write {SYNTHETIC}:LENGTH, or drop these options."
        )
    return find_prompts(text, seed)


def _token_ids(text: str) -> TokenIds:
    low, _, high = text.partition("-")
    try:
        return TokenIds(int(low), int(high))
    except ValueError:
        raise SpecError(
            f"prompt token ids: got {text!r}, expected LOW-HIGH, for example 1000-30000."
        ) from None


def _shared_prefix(text: str) -> SharedPrefix:
    what, at, share = text.partition("@")
    count, _, length = what.partition("x")
    try:
        return SharedPrefix(int(count), int(length), float(share) if at else 1.0)
    except ValueError:
        raise SpecError(
            f"shared prefix: got {text!r}, expected COUNTxLENGTH or COUNTxLENGTH@SHARE, for "
            "example 4x512@0.8."
        ) from None
