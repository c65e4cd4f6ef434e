"""Acceptance: how many draft tokens the target keeps, by the engine's own counters.

Only verify steps that carried drafts count, so these say how good the drafts
are, not how often there were any; tokens per step says both together.
"""

from draftgate.metrics.definition import Direction, metric
from draftgate.records import RunSamples, SpeculationCounters
from draftgate.specs import SLO

POSITIONS = 16
"""Draft positions that have a metric of their own; no method drafts more in the
profiles of this project, and the counters keep those beyond."""


@metric(
    "acceptance_ratio",
    "acceptance rate",
    "",
    Direction.HIGHER,
    formula="accepted draft tokens / draft tokens",
    cause="acceptance",
)
def acceptance_ratio(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the share of draft tokens that was kept."""
    counters = _speculation(run)
    if counters is None or not counters.num_draft_tokens:
        return None
    return counters.num_accepted_tokens / counters.num_draft_tokens


@metric(
    "mean_acceptance_length",
    "mean acceptance length",
    "tokens",
    Direction.HIGHER,
    formula="1 + accepted draft tokens / verify steps with drafts",
    cause="acceptance",
)
def mean_acceptance_length(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the tokens a step with drafts yields, bonus token included."""
    counters = _speculation(run)
    if counters is None or not counters.num_drafts:
        return None
    return 1.0 + counters.num_accepted_tokens / counters.num_drafts


def _speculation(run: RunSamples) -> SpeculationCounters | None:
    return None if run.counters is None else run.counters.speculation


def _register(position: int) -> None:
    @metric(
        f"acceptance_pos_{position}_ratio",
        f"acceptance at position {position}",
        "",
        Direction.HIGHER,
        formula=f"drafts whose token {position} was accepted / verify steps with drafts",
        cause="acceptance",
    )
    def compute(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
        counters = _speculation(run)
        if counters is None or not counters.num_drafts:
            return None
        if position >= len(counters.num_accepted_tokens_per_pos):
            return None
        return counters.num_accepted_tokens_per_pos[position] / counters.num_drafts


for _position in range(POSITIONS):
    _register(_position)
