"""What a calibration finds: one record, and what follows from it for gates.

Frozen and raw, as `draftgate.records`. Knows neither how it was measured nor
where it is stored.
"""

from dataclasses import dataclass

from draftgate.calibration.compare import ClientErrors
from draftgate.metrics.client_error import MARGIN_SHARE
from draftgate.records import Environment

# History: 1 first version.
CALIBRATION_SCHEMA_VERSION = 1

MOST_GAP_ERROR_S = 0.1e-3
"""Step-gap error p99 up to which a load counts as carried: a hundredth of a 10 ms step."""

MOST_CPU_RATIO = 0.9
"""Share of one core up to which a load counts as carried; the rest is for bursts."""

MOST_LOAD_AVERAGE = 0.5
"""Runnable processes from which a machine counts as busy: client and engine need a core each."""


@dataclass(frozen=True, slots=True)
class CalibrationCell:
    """One run of the client against the null engine.

    Attributes:
        streams: Closed-loop streams.
        tokens_per_s: Tokens received per second while all streams ran.
        cpu_per_token_s: CPU seconds of receiving per token.
        parse_cpu_per_token_s: CPU seconds of parsing afterwards per token.
        kernel_stamps: Whether arrivals carry the kernel's stamps.
        read_delay_p50_s: Median time from the kernel's stamp to the read; None
            without kernel stamps.
        read_delay_p99_s: Its 99th percentile; None likewise.
        lag_p99_s: 99th percentile of the client's event-loop lag.
        coalesced_ratio: Share of reads in which two or more chunks ended.
        engine_late_p99_s: 99th percentile of how late the null engine itself
            sent; no error of the client, because true times count.
        errors: What the client got wrong.
    """

    streams: int
    tokens_per_s: float
    cpu_per_token_s: float
    parse_cpu_per_token_s: float
    kernel_stamps: bool
    read_delay_p50_s: float | None
    read_delay_p99_s: float | None
    lag_p99_s: float
    coalesced_ratio: float
    engine_late_p99_s: float
    errors: ClientErrors

    @property
    def cpu_ratio(self) -> float:
        """Share of one core that receiving takes while all streams run."""
        return self.cpu_per_token_s * self.tokens_per_s

    @property
    def is_carried(self) -> bool:
        """Whether the client was up to this load: true to the gaps, with CPU to spare."""
        gap = self.errors.step_gap
        in_time = gap is not None and gap.p99_s < MOST_GAP_ERROR_S
        return in_time and self.cpu_ratio <= MOST_CPU_RATIO

    @property
    def ttft_margin_s(self) -> float | None:
        """Smallest margin of a TTFT gate that can be judged at this load, seconds."""
        return smallest_margin_s(None if self.errors.ttft is None else self.errors.ttft.p99_s)

    @property
    def gap_margin_s(self) -> float | None:
        """Smallest margin of a step-gap gate that can be judged at this load, seconds."""
        gap = self.errors.step_gap
        return smallest_margin_s(None if gap is None else gap.p99_s)


def smallest_margin_s(error_s: float | None) -> float | None:
    """Return the margin of which the client's error is the largest part allowed.

    Args:
        error_s: The client's error, seconds; None of none.

    Source:
        The rule by which `draftgate.metrics.client_error` throws a run out.
    """
    return None if error_s is None else error_s / MARGIN_SHARE


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the client is worth on one machine.

    Attributes:
        schema: Version of this record.
        draftgate: Version and, in a checkout, commit.
        taken_at: Time of day, ISO 8601, UTC.
        environment: The machine; its engine is the null engine.
        seconds: Time that was given to measuring, seconds.
        load_average: Runnable processes of the machine over the minute before.
        shared_core: Whether client and null engine had only one core together.
        cells: Fixed numbers of streams, rising.
        probes: Rising loads, each tried again if it was not carried, until one
            was not carried twice.
    """

    schema: int
    draftgate: str
    taken_at: str
    environment: Environment
    seconds: float
    load_average: float
    shared_core: bool
    cells: tuple[CalibrationCell, ...]
    probes: tuple[CalibrationCell, ...]

    @property
    def most_tokens_per_s(self) -> float | None:
        """Largest load that one process was seen to carry, tokens/s; None if it carried none."""
        carried = [cell.tokens_per_s for cell in (*self.cells, *self.probes) if cell.is_carried]
        return max(carried, default=None)

    @property
    def is_most_exceeded(self) -> bool:
        """Whether some load was too much; otherwise the largest is just the last that was tried."""
        return bool(self.probes) and not self.probes[-1].is_carried

    @property
    def was_busy(self) -> bool:
        """Whether so much else ran before that the client's errors may be others' doing."""
        return self.load_average > MOST_LOAD_AVERAGE

    @property
    def stamp_error_p99_s(self) -> float | None:
        """99th percentile of how far stamps lie from arrivals, in the worst cell, seconds."""
        errors = [cell.errors.arrival for cell in self.cells]
        return max((error.p99_s for error in errors if error is not None), default=None)

    @property
    def kernel_stamps(self) -> bool:
        """Whether the kernel's receive stamps work here."""
        return all(cell.kernel_stamps for cell in self.cells)
