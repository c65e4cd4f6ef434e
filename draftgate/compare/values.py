"""From one raw run to the numbers that a comparison keeps of it."""

from collections.abc import Iterable

from draftgate.compare.records import CellValues
from draftgate.metrics import compute_all, selection
from draftgate.metrics.latency import e2e_values, per_token_values, step_gap_values, ttft_values
from draftgate.records import RequestRecord, RunSamples
from draftgate.specs import SLO
from draftgate.stats.tail import quantile_sd_log

_FAMILIES = {
    "ttft": ttft_values,
    "step_gap": step_gap_values,
    "per_token": per_token_values,
    "e2e": e2e_values,
}
_SPREAD_PERCENTS = (50, 95, 99)


def cell_values(run: RunSamples, slo: SLO, sample: str) -> CellValues:
    """Return what is kept of a run.

    Args:
        run: One run, valid or not.
        slo: Limits of a good request.
        sample: Where its raw records lie.
    """
    return CellValues(
        concurrency=run.concurrency,
        values=tuple(compute_all(run, slo).items()),
        requests=sum(1 for _ in selection.ended_inside(run)),
        prompts=tokens_per_step_by_prompt(run.records),
        spreads=() if run.invalid else tuple(_spreads(run)),
        sample=sample,
        invalid=run.invalid,
        unresolved=run.unresolved,
    )


def tokens_per_step_by_prompt(records: Iterable[RequestRecord]) -> tuple[tuple[str, float], ...]:
    """Return for each prompt the tokens of all chunks after a first one, per such chunk.

    Over all served requests of a prompt, also outside the window: acceptance does
    not depend on when a request ran, and so both sides hold the same prompts.

    Returns:
        Sorted by prompt id; prompts whose answers came in one chunk are left out.
    """
    tokens: dict[str, list[int]] = {}
    for record in records:
        if record.failure is None and len(record.chunks) > 1:
            later = [chunk.num_tokens for chunk in record.chunks[1:]]
            tokens.setdefault(record.prompt_id, []).extend(later)
    return tuple((name, sum(held) / len(held)) for name, held in sorted(tokens.items()))


def _spreads(run: RunSamples) -> Iterable[tuple[str, float]]:
    """Yield the sampling spread of each percentile that its own requests allow."""
    for family, values in _FAMILIES.items():
        held = values(run)
        if len(held) < 2 or min(held) <= 0.0:
            continue
        for percent in _SPREAD_PERCENTS:
            yield f"{family}_p{percent}_s", quantile_sd_log(held, percent / 100)
