"""What a noise study says: one frozen record per gate, and the study around them.

`draftgate.codec` writes and reads them. Losses and spreads are natural logs of
ratios where a gate is RATIO, and in the metric's unit where it is ABSOLUTE.
Computes nothing but what follows from one record.
"""

from dataclasses import dataclass

from draftgate.compare.records import Gate
from draftgate.records import Environment
from draftgate.specs import CompareSpec
from draftgate.stats.paired import Interval

# History: 1 first version.
NOISE_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings that this noise allows, by normal theory; shares for RATIO, else the unit.

    Attributes:
        margin: Smallest margin under which unchanged builds rarely become suspect.
        limits: (pairs, smallest limit under which unchanged builds pass with 80 %
            by that number of pairs), for the first two looks.
        pairs_needed: Pairs of stage one that find a loss at the gate's limit with
            80 % power; None where no number does.
    """

    margin: float
    limits: tuple[tuple[int, float], ...]
    pairs_needed: int | None


@dataclass(frozen=True, slots=True)
class GateNoise:
    """What unchanged builds showed at one gate.

    Attributes:
        gate: The question, as it was when the study was taken.
        stand_in: Whether it was measured only because it can stand in for a p99.
        pairs: Pairs that had a value on both sides.
        value: Geometric mean of all starts; for ABSOLUTE the mean.
        requests: Requests per start (harmonic mean, to which the spread belongs).
        loss: Mean loss of a pair with its 95 % interval; 0 is expected.
        pair_sd: Standard deviation of a pair's loss, the order's effect taken out.
        first_effect: What the first place costs.
        between_sd: Between starts, once requests are infinitely many.
        within_sd: Of one start's value from its own requests; 0 where not known.
        within_known: Whether the runs said so; without it all noise is counted as
            between starts, and more requests are not known to help.
        drift_per_hour: Slope of both sides' level; None where time stood still.
        lag_one: Correlation of neighbouring values of the base.
        symmetry_p: Sign flips for "mean loss is 0", two-sided, Holm over all gates.
        serial_p: Sign flips for "neighbouring pairs are not alike", likewise.
        suspects: Share of redrawn comparisons at the edge of the null hypothesis
            that become suspect, with the interval of the draws alone; None with
            fewer pairs than the last look.
        advice: What this noise allows.
    """

    gate: Gate
    stand_in: bool
    pairs: int
    value: float
    requests: int
    loss: Interval
    pair_sd: Interval
    first_effect: Interval
    between_sd: float
    within_sd: float
    within_known: bool
    drift_per_hour: Interval | None
    lag_one: float
    symmetry_p: float
    serial_p: float
    suspects: Interval | None
    advice: Advice


@dataclass(frozen=True, slots=True)
class NoiseStudy:
    """Same-versus-same on one runner.

    Attributes:
        schema: NOISE_SCHEMA_VERSION.
        definitions: Version of the metrics' definitions.
        profile: Name of the profile.
        workload: `baselines.workload_digest` of it.
        environment: Where it was taken.
        started_at: Time of day of the first start, ISO 8601, UTC.
        run_id: Run folder with the pairs.
        plan: Looks, levels and margins as used.
        pairs: Pairs that were taken, valid or not.
        invalid: Share of them that could not be used, with its interval.
        gates: One per gate, stand-ins after all others.
        quarantine: Why verdicts of this runner cannot be believed; empty if they can.
        notes: What a reader has to know: gates without values, checks that so few
            pairs cannot fail.
    """

    schema: int
    definitions: int
    profile: str
    workload: str
    environment: Environment
    started_at: str
    run_id: str
    plan: CompareSpec
    pairs: int
    invalid: Interval
    gates: tuple[GateNoise, ...]
    quarantine: tuple[str, ...]
    notes: tuple[str, ...]

    def noise(self, arm: str, concurrency: int, metric: str) -> GateNoise | None:
        """Return what is known of one gate; None if it was not studied."""
        wanted = (arm, concurrency, metric)
        for held in self.gates:
            if (held.gate.arm, held.gate.concurrency, held.gate.metric) == wanted:
                return held
        return None
