"""What a comparison on this runner can show: the rows behind `draftgate power`.

A study and a question in, rows out, by the normal theory of `stats.power`.
Power is that of a lone true loss at Holm's first step. Decides nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftgate.compare.losses import on_gate_scale, on_loss_scale
from draftgate.compare.records import Gate, Scale
from draftgate.compare.stages import tail_requests
from draftgate.errors import SpecError
from draftgate.noise.advice import pairs_for
from draftgate.noise.gates import design_of, noise_of, stand_in_of, with_stand_ins
from draftgate.noise.records import GateNoise, NoiseStudy
from draftgate.specs import CompareSpec
from draftgate.stats.power import gate_power, requests_needed, smallest_loss


@dataclass(frozen=True, slots=True)
class PowerRow:
    """What one gate can show; losses are shares for RATIO, else in the metric's unit.

    Attributes:
        gate: The question.
        pairs: Pairs of stage one.
        loss: Loss that is asked about.
        pair_sd: Spread of a pair's loss, on the scale of losses (logs for RATIO).
        smallest_loss: Smallest loss found with 80 % power; None if none is.
        power: Chance that `loss` is found, where a verdict is `possible`.
        pairs_needed: Pairs that find `loss` with 80 %; None if no number does.
        requests: Per start in the study.
        within_known: Whether it is known how the spread falls with more requests.
        requests_needed: Per start to find `loss` with `pairs` and 80 %; None where
            only more pairs help, or where not `within_known`.
        tail_requests: Requests that each side needs in total before this
            percentile can be judged at all; 0 for what is no tail.
        instead: What the p95 shows where this is a p99; None otherwise or unstudied.
    """

    gate: Gate
    pairs: int
    loss: float
    pair_sd: float
    smallest_loss: float | None
    power: float
    pairs_needed: int | None
    requests: int
    within_known: bool
    requests_needed: int | None
    tail_requests: int
    instead: "PowerRow | None" = None

    @property
    def requests_total(self) -> int:
        """Requests of one side over all pairs."""
        return self.pairs * self.requests

    @property
    def possible(self) -> bool:
        """Whether the percentile can be judged at all with these requests."""
        return self.requests_total >= self.tail_requests


@dataclass(frozen=True, slots=True)
class Question:
    """What `power_row` asks of a gate.

    Attributes:
        pairs: Of stage one, >= 2.
        loss: A share in (0, 1), or None for each gate's limit.
        plan: Pairs of stage two and level of the family.
        gates: Gates of a comparison.
    """

    pairs: int
    loss: float | None
    plan: CompareSpec
    gates: int


def power_table(
    study: NoiseStudy,
    *,
    pairs: int | None = None,
    loss: float | None = None,
    gates: int | None = None,
) -> tuple[PowerRow, ...]:
    """Return one row per gate of a study, stand-ins inside the row they stand in for.

    Args:
        study: Noise, margins and plan.
        pairs: Of stage one; None for the plan's last look.
        loss: Share in (0, 1) that is asked about, 0.05 for 5 % (of the mean for
            tokens per step); None for each gate's limit.
        gates: Gates of a comparison, also those without a noise; None for as
            many as the study holds.

    Raises:
        SpecError: If a number is out of range.
    """
    pairs = study.plan.looks[-1] if pairs is None else pairs
    if pairs < 2:
        raise SpecError(f"power: got {pairs} pairs, expected 2 or more: --pairs 20")
    if loss is not None and not 0.0 < loss < 1.0:
        raise SpecError(f"power: got a loss of {loss:g}, expected a share such as 5 %: --loss 5%")
    asked = [held for held in study.gates if not held.stand_in]
    question = Question(pairs, loss, study.plan, len(asked) if gates is None else gates)
    return tuple(_with_instead(power_row(held, question), study, question) for held in asked)


def power_row(held: GateNoise, question: Question) -> PowerRow:
    """Return what one gate can show."""
    loss = _loss(held, question.loss)
    smallest, power, requests = _shown(held, loss, question)
    tail = tail_requests(held.gate)
    if requests is not None:
        requests = max(requests, math.ceil(tail / question.pairs))
    return PowerRow(
        gate=held.gate,
        pairs=question.pairs,
        loss=loss,
        pair_sd=held.pair_sd.estimate,
        smallest_loss=smallest,
        power=power,
        pairs_needed=pairs_for(
            held, loss=loss, plan=question.plan, gates=question.gates, requests=held.requests
        ),
        requests=held.requests,
        within_known=held.within_known,
        requests_needed=requests if held.within_known else None,
        tail_requests=tail,
    )


def _shown(
    held: GateNoise, loss: float, question: Question
) -> tuple[float | None, float, int | None]:
    """Return the smallest loss, the power at `loss` and the requests it needs."""
    noise, gate = noise_of(held), held.gate
    if noise is None:
        return gate.margin, float(loss > gate.margin), 1 if loss > gate.margin else None
    design = design_of(question.plan, gates=question.gates, pairs=question.pairs)
    margin_log, loss_log = on_loss_scale(gate, gate.margin), on_loss_scale(gate, loss)
    found = smallest_loss(noise, margin_log=margin_log, requests=held.requests, design=design)
    power = gate_power(
        noise, loss_log=loss_log, margin_log=margin_log, requests=held.requests, design=design
    )
    requests = requests_needed(noise, loss_log=loss_log, margin_log=margin_log, design=design)
    return None if found is None else on_gate_scale(gate, found), power, requests


def _loss(held: GateNoise, loss: float | None) -> float:
    if loss is None:
        return held.gate.limit
    return loss * held.value if held.gate.scale is Scale.ABSOLUTE else loss


def _with_instead(row: PowerRow, study: NoiseStudy, question: Question) -> PowerRow:
    metric = stand_in_of(row.gate.metric)
    if metric is None:
        return row
    lower = study.noise(row.gate.arm, row.gate.concurrency, metric)
    return row if lower is None else replace(row, instead=power_row(lower, question))


def with_gates(study: NoiseStudy, gates: Sequence[Gate], plan: CompareSpec) -> NoiseStudy:
    """Return the part of a study that concerns these gates, with their margins and plan.

    For a profile whose margins were changed after the study was taken: noise
    does not depend on them.

    Args:
        study: The noise.
        gates: Every question of a comparison, as asked now.
        plan: Looks and levels now.
    """
    held = []
    for number, gate in enumerate((*gates, *with_stand_ins(gates))):
        found = study.noise(gate.arm, gate.concurrency, gate.metric)
        if found is not None:
            held.append(replace(found, gate=gate, stand_in=number >= len(gates)))
    return replace(study, gates=tuple(held), plan=plan)
