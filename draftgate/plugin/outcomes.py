"""From verdicts and errors to what pytest reports: one rule for every kind of test.

Knows pytest's outcomes and ours; knows no server and no file.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from draftgate.compare.records import GateResult
from draftgate.errors import DraftgateError
from draftgate.plugin.asked import Options
from draftgate.plugin.session import FailedEarlierError
from draftgate.verdict import Outcome, Verdict, worst

T = TypeVar("T")


def settle(verdicts: Sequence[Verdict], options: Options) -> None:
    """Pass, skip or fail the running test by the worst of its verdicts.

    REGRESSION and INVALID_RUN fail. NO_BASELINE fails under
    `--require-baseline` and INCONCLUSIVE under `--require-verdict`; without
    the option they skip aloud, for they are no pass either.
    """
    _settle(worst(verdicts), _told(verdicts), options)


def settle_gate(result: GateResult, options: Options) -> None:
    """Pass, skip or fail the running test by one verdict of a paired comparison, as `settle`."""
    cause = result.cause.text if result.cause else ""
    why = " ".join(filter(None, (result.reason, cause, result.next_step)))
    _settle(result.outcome, f"{result.outcome.name}: {why}", options)


def _settle(outcome: Outcome, told: str, options: Options) -> None:
    if outcome.green:
        return
    skipped = {
        Outcome.NO_BASELINE: not options.require_baseline,
        Outcome.INCONCLUSIVE: not options.require_verdict,
    }
    if skipped.get(outcome, False):
        pytest.skip(told)
    pytest.fail(told, pytrace=False)


def told_once(action: Callable[[], T]) -> T:
    """Return what `action` returns; trouble fails the test in one message.

    What the same trouble would fail afterwards is skipped with a short reason.
    """
    try:
        return action()
    except FailedEarlierError as error:
        skipped, told = True, str(error)
    except DraftgateError as error:
        skipped, told = False, str(error)
    # Outside of the handler, so that pytest shows the message alone.
    if skipped:
        pytest.skip(told)
    pytest.fail(told, pytrace=False)


def _told(verdicts: Sequence[Verdict]) -> str:
    """Return each reason for not being green once, with the metrics that it holds for."""
    metrics: dict[str, list[str]] = {}
    for v in verdicts:
        if not v.outcome.green:
            why = " ".join(filter(None, (v.reason, v.cause, v.next_step)))
            metrics.setdefault(f"{v.outcome.name} {{}}: {why}", []).append(v.metric)
    return "\n".join(line.replace("{}", ", ".join(names), 1) for line, names in metrics.items())
