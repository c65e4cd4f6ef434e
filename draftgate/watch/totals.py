"""What happened between two readings of one series, whatever restarts lie between.

Counters only ever grow within one process. A fall of any of them, or another creation
time, means a new process: all of its totals then came after the reading before, and
what the old process counted after that reading is lost.
"""

from dataclasses import dataclass
from itertools import zip_longest

from draftgate.watch.page import Totals


@dataclass(frozen=True, slots=True)
class Growth:
    """What was added to the totals; attributes as in `Totals`, unknown ones are 0."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    requests: float = 0.0
    generated: float = 0.0
    by_position: tuple[float, ...] = ()

    def __add__(self, other: "Growth") -> "Growth":
        """Return both together."""
        pairs = zip_longest(self.by_position, other.by_position, fillvalue=0.0)
        return Growth(
            drafts=self.drafts + other.drafts,
            draft_tokens=self.draft_tokens + other.draft_tokens,
            accepted=self.accepted + other.accepted,
            requests=self.requests + other.requests,
            generated=self.generated + other.generated,
            by_position=tuple(a + b for a, b in pairs),
        )


_COUNTED = ("drafts", "draft_tokens", "accepted", "requests", "generated")


def restarted(before: Totals, after: Totals) -> bool:
    """Return whether the counters began anew between two readings.

    More tokens accepted than drafted in between gives away one that all counters have
    made up for. What else has been made up for, and has no creation time, is not seen.
    """
    if None not in (before.created_s, after.created_s) and before.created_s != after.created_s:
        return True
    pairs = [(getattr(before, name), getattr(after, name)) for name in _COUNTED]
    pairs += list(zip(before.by_position, after.by_position, strict=False))
    known = [new - old for old, new in pairs if old is not None and new is not None]
    return any(rise < 0 for rise in known) or _more_than_drafted(before, after)


def _more_than_drafted(before: Totals, after: Totals) -> bool:
    if after.accepted is None or after.draft_tokens is None:
        return False
    drafted = _rise(before.draft_tokens, after.draft_tokens)
    return _rise(before.accepted, after.accepted) > drafted


def growth(before: Totals, after: Totals) -> Growth:
    """Return what was counted since `before`, or since the restart in between.

    Accepted tokens that the engine does not count are what was generated, less one
    token a verify step and one a request; requests that are under way make that a
    little wrong, by as much in a reference as later.
    """
    start = Totals(0.0) if restarted(before, after) else before
    rises = {name: _rise(getattr(start, name), getattr(after, name)) for name in _COUNTED}
    if after.accepted is None:
        derived = rises["generated"] - rises["requests"] - rises["drafts"]
        rises["accepted"] = max(0.0, derived)
    pairs = zip_longest(start.by_position, after.by_position, fillvalue=0.0)
    return Growth(**rises, by_position=tuple(new - old for old, new in pairs))


def _rise(before: float | None, after: float | None) -> float:
    return 0.0 if after is None else after - (before or 0.0)
