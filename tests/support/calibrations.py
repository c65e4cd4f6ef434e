"""Calibrations with known numbers, made without measuring."""

from dataclasses import replace

from draftgate.calibration.compare import compare
from draftgate.calibration.record import (
    CALIBRATION_SCHEMA_VERSION,
    Calibration,
    CalibrationCell,
)
from tests.support.samples import make_environment
from tests.support.sent import Exchange


def make_cell(
    *, streams: int = 8, tokens_per_s: float = 1_000.0, cpu_us: float = 10.0, late_us: int = 0
) -> CalibrationCell:
    """Return a cell whose third chunk came `late_us` late, so that one gap is too long."""
    exchange = Exchange(arrived=50, chunks=(50_000, 60_000, 70_000 + late_us))
    return CalibrationCell(
        streams=streams,
        tokens_per_s=tokens_per_s,
        cpu_per_token_s=cpu_us / 1e6,
        parse_cpu_per_token_s=4e-6,
        kernel_stamps=True,
        read_delay_p50_s=30e-6,
        read_delay_p99_s=200e-6,
        lag_p99_s=100e-6,
        coalesced_ratio=0.0,
        engine_late_p99_s=20e-6,
        errors=compare([exchange.record()], [exchange.stream()]),
    )


def make_calibration(*probes: CalibrationCell, hardware: str = "cpu-test-2c") -> Calibration:
    """Return a calibration with two fixed cells and these probes."""
    return Calibration(
        schema=CALIBRATION_SCHEMA_VERSION,
        draftgate="0.1.0",
        taken_at="2026-01-01T00:00:00+00:00",
        environment=replace(make_environment(), hardware=hardware),
        seconds=32.0,
        load_average=0.1,
        shared_core=False,
        cells=(make_cell(streams=1), make_cell(streams=8, tokens_per_s=8_000.0, late_us=20)),
        probes=probes,
    )
