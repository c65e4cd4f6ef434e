"""The answer in ten seconds: outcome in one sentence, best arm per concurrency.

Words only; takes the arranged run and returns short plain text for every form
of the report.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.metrics import definition
from draftgate.report.format import MISSING, TO, change, count, decimals_of, fixed, times
from draftgate.report.ratios import Ratio
from draftgate.report.summary import SPEED, Summary
from draftgate.specs import NO_SPECULATION
from draftgate.twins import twin_words
from draftgate.verdict import Outcome, Verdict

LABELS = {
    Outcome.PASS: "Pass",
    Outcome.IMPROVEMENT: "Improvement",
    Outcome.REGRESSION: "Regression",
    Outcome.INCONCLUSIVE: "Inconclusive",
    Outcome.NO_BASELINE: "No baseline",
    Outcome.INVALID_RUN: "Invalid run",
}
"""Outcome as a person reads it."""

SYMBOLS = {
    Outcome.PASS: "✓",
    Outcome.IMPROVEMENT: "▲",
    Outcome.REGRESSION: "✕",
    Outcome.INCONCLUSIVE: "?",
    Outcome.NO_BASELINE: "○",
    Outcome.INVALID_RUN: "!",
}
"""A second sign beside colour, so that no outcome is told by colour alone."""


@dataclass(frozen=True, slots=True)
class Best:
    """What speculation is worth at one concurrency.

    Attributes:
        concurrency: Streams c.
        arm: Fastest arm; `none` where no other is faster; None if unknown.
        value: Its speed-up as text, or that there is no gain.
        detail: Interval, or the arm that comes closest.
        tone: `good`, `bad` or empty.
    """

    concurrency: int
    arm: str | None
    value: str
    detail: str
    tone: str

    @property
    def words(self) -> str:
        """The arm and what it gains, or that none does."""
        return (
            self.value.lower() if self.arm in (None, NO_SPECULATION) else f"{self.arm} {self.value}"
        )


def label(outcome: Outcome | None) -> str:
    """Return the badge's text."""
    return "Not judged" if outcome is None else LABELS[outcome]


def sentence(summary: Summary) -> str:
    """Return the outcome as one plain sentence, and what a shape twin's numbers are."""
    twin = twin_words(summary.run.profile.arms)
    return f"{_outcome(summary)} {twin}".rstrip()


def _outcome(summary: Summary) -> str:
    outcome, verdicts = summary.outcome, summary.verdicts
    if outcome is None:
        return _unjudged(summary)
    total = count(len(verdicts), "gate")
    hits = [verdict for verdict in verdicts if verdict.outcome is outcome]
    share = f"{len(hits)} of {total}"
    if outcome is Outcome.INVALID_RUN:
        return f"{share} can't be judged because runs are unusable: {_bare(hits[0].reason)}."
    if outcome is Outcome.REGRESSION:
        return f"{share} regressed{_led_by(hits)}"
    if outcome is Outcome.INCONCLUSIVE:
        return (
            f"{share} could not be decided: what was measured neither rules out a loss beyond "
            "the margin nor shows one."
        )
    if outcome is Outcome.NO_BASELINE:
        return f"{share} could not be judged: there is nothing stored to compare with yet."
    if outcome is Outcome.IMPROVEMENT:
        return f"Nothing regressed; {share} improved{_led_by(hits)}"
    return f"All {total} passed." if len(verdicts) > 1 else "The one gate passed."


def interval(ratio: Ratio) -> str:
    """Return the interval as text, or why there is none."""
    if ratio.low is None or ratio.high is None:
        return "one run" if ratio.runs == 1 else "not paired"
    decimals = decimals_of(ratio.estimate)
    return f"{fixed(ratio.low, decimals)}{TO}{fixed(ratio.high, decimals)}"


def tone(ratio: Ratio | None, *, higher_is_better: bool) -> str:
    """Return `good` or `bad` where the interval leaves out no change, else empty."""
    if ratio is None or not ratio.clear:
        return ""
    return "good" if (ratio.estimate > 1.0) == higher_is_better else "bad"


def best_arms(summary: Summary) -> tuple[Best, ...]:
    """Return the fastest arm per concurrency."""
    return tuple(_best(summary, concurrency) for concurrency in summary.concurrencies)


def _best(summary: Summary, concurrency: int) -> Best:
    ratios = {arm: summary.ratio(arm, concurrency, SPEED) for arm in summary.arms}
    known = {arm: ratio for arm, ratio in ratios.items() if ratio is not None}
    if not known:
        return Best(concurrency, None, MISSING, "nothing to compare", "")
    arm = max(known, key=lambda name: known[name].estimate)
    ratio = known[arm]
    colour = tone(ratio, higher_is_better=True)
    if ratio.estimate <= 1.0:
        closest = f"closest: {arm} {times(ratio.estimate)}"
        return Best(concurrency, NO_SPECULATION, "No gain", closest, colour)
    unclear = "" if colour or ratio.low is None else ", may be no gain"
    return Best(concurrency, arm, times(ratio.estimate), interval(ratio) + unclear, colour)


def _unjudged(summary: Summary) -> str:
    if not summary.run.samples and not summary.run.traffic:
        return "Nothing was measured, so nothing was judged."
    if not summary.run.profile.gates and not summary.run.traffic:
        return "Measured, not judged: the profile has no gates."
    return "Measured, not judged: the run ended before its verdicts."


def _led_by(hits: Sequence[Verdict]) -> str:
    """Return `: arm at c, metric by x %.` for the largest change among `hits`."""
    compared = [verdict for verdict in hits if verdict.comparison is not None]
    if not compared:
        return f": {_bare(hits[0].reason)}."
    lead = max(compared, key=_size)
    assert lead.comparison is not None
    where = f"{lead.arm} at {count(lead.concurrency, 'stream')}"
    title = definition(lead.metric).title
    first = "most of all " if len(hits) > 1 else ""
    cause = f" ({', '.join(lead.causes)})" if lead.causes else ""
    moved = change(lead.comparison.estimate_ratio)
    return f", {first}{where}: {title} {moved}{cause}."


def _size(verdict: Verdict) -> float:
    assert verdict.comparison is not None
    ratio = verdict.comparison.estimate_ratio
    return max(ratio, 1.0 / ratio)


def _bare(reason: str) -> str:
    return reason.rstrip(". ")
