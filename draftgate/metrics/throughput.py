"""Throughput: tokens, requests and good requests per second of the window."""

from draftgate.metrics import selection
from draftgate.metrics.decomposition import FACTORS
from draftgate.metrics.definition import Direction, metric
from draftgate.records import RequestRecord, RunSamples
from draftgate.specs import SLO


@metric(
    "output_tokens_per_s",
    "output tokens/s",
    "tokens/s",
    Direction.HIGHER,
    formula="tokens whose chunk arrived in the window / window length",
    cause=FACTORS,
)
def output_tokens_per_s(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the output rate of all streams together; failed requests give nothing."""
    tokens = sum(chunk.num_tokens for chunk in selection.chunks_inside(run))
    return _per_second(run, tokens)


@metric(
    "requests_per_s",
    "requests/s",
    "requests/s",
    Direction.HIGHER,
    formula="requests that ended in the window / window length",
    cause=FACTORS,
)
def requests_per_s(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the rate at which requests end well."""
    return _per_second(run, sum(1 for _ in selection.ended_inside(run)))


@metric(
    "goodput_per_s",
    "goodput",
    "requests/s",
    Direction.HIGHER,
    formula="requests that ended in the window and keep every SLO limit / window length",
    cause=FACTORS,
)
def goodput_per_s(run: RunSamples, slo: SLO) -> float | None:
    """Return the rate of good requests; absent where no limit is set."""
    if slo == SLO():
        return None
    return _per_second(run, sum(keeps(record, slo) for record in selection.ended_inside(run)))


def keeps(record: RequestRecord, slo: SLO) -> bool:
    """Whether a served request keeps every limit that is set.

    A request whose output came in one chunk has no per-token time and cannot
    break that limit; one without any chunk has no first token and breaks that one.
    """
    ttft_s, per_token_s = selection.ttft_s(record), selection.per_token_s(record)
    if slo.ttft_s is not None and (ttft_s is None or ttft_s > slo.ttft_s):
        return False
    if slo.per_token_s is not None and per_token_s is not None and per_token_s > slo.per_token_s:
        return False
    return slo.e2e_s is None or selection.e2e_s(record) <= slo.e2e_s


def _per_second(run: RunSamples, count: int) -> float | None:
    if run.window is None or run.window.length_s <= 0:
        return None
    return count / run.window.length_s
