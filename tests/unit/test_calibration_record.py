"""What follows from a calibration: margins, carried loads, the worst stamp."""

from dataclasses import replace

import pytest
from rich.console import Console

from draftgate.calibration.record import Calibration
from draftgate.cli.calibrate_table import print_calibration
from tests.support.calibrations import make_calibration, make_cell


@pytest.mark.parametrize(
    ("late_us", "cpu_us", "tokens_per_s", "carried"),
    [
        (0, 9.0, 100_000.0, True),
        (99, 9.0, 100_000.0, True),
        (100, 9.0, 100_000.0, False),
        (0, 9.1, 100_000.0, False),
        (0, 9.1, 98_000.0, True),
    ],
)
def test_load_is_carried_in_time_and_with_cpu_to_spare(
    late_us: int, cpu_us: float, tokens_per_s: float, *, carried: bool
) -> None:
    """Below 0.1 ms of step-gap error and up to 90 % of a core."""
    cell = make_cell(late_us=late_us, cpu_us=cpu_us, tokens_per_s=tokens_per_s)

    assert cell.is_carried == carried


def test_smallest_margin_is_ten_times_the_error() -> None:
    """20 us of gap error ask for 0.2 ms of margin, 50 us on the way there for 0.5 ms."""
    cell = make_cell(late_us=20)

    assert cell.gap_margin_s == pytest.approx(200e-6)
    assert cell.ttft_margin_s == pytest.approx(500e-6)


def test_most_is_the_largest_load_that_was_carried() -> None:
    """A larger load with bad gaps does not count, but says that the limit was met."""
    good = make_cell(tokens_per_s=50_000.0)
    bad = make_cell(tokens_per_s=90_000.0, late_us=5_000)

    assert make_calibration(good, bad).most_tokens_per_s == 50_000.0
    assert make_calibration(good, bad).is_most_exceeded
    assert not make_calibration(bad, good).is_most_exceeded
    assert not make_calibration().is_most_exceeded


def test_nothing_carried_is_no_number() -> None:
    """Where even the smallest load was too much there is no largest."""
    bad = make_cell(late_us=5_000)

    assert replace(make_calibration(), cells=(bad,)).most_tokens_per_s is None


def test_stamp_error_is_that_of_the_worst_cell() -> None:
    """Probes do not count: they are meant to be too much."""
    calibration = make_calibration(make_cell(late_us=5_000))

    assert calibration.stamp_error_p99_s == pytest.approx(20e-6)


def _printed(calibration: Calibration, last: Calibration | None = None) -> str:
    console = Console(width=100, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        print_calibration(calibration, last, console)
    return capture.get()


def test_printed_calibration_says_what_gates_cannot_judge() -> None:
    """Margins, the largest load, and the load that was too much stand in plain sentences."""
    good, bad = make_cell(tokens_per_s=50_000.0), make_cell(tokens_per_s=90_000.0, late_us=5_000)
    text = _printed(make_calibration(good, bad))

    assert (
        "Margins of TTFT p99 below 0.500 ms at 1 stream and 0.500 ms at 8 streams can't be judged "
        "with this client here." in text
    )
    assert "step-gap p99 below 0 ms at 1 stream and 0.200 ms at 8 streams" in text
    assert "One process carried 50,000 tokens/s" in text
    assert "90,000 tokens/s were too many, twice: step-gap error p99 5.00 ms" in text
    assert "No larger load" not in text
    assert "busy" not in text
    assert "shared" not in text
    assert "since" not in text


def test_printed_calibration_says_what_to_mistrust() -> None:
    """A shared core, a busy machine and missing kernel stamps are told, and the change since."""
    calibration = replace(
        make_calibration(),
        cells=(replace(make_cell(cpu_us=12.0), kernel_stamps=False),),
        shared_core=True,
        load_average=3.0,
    )
    text = _printed(calibration, make_calibration())

    assert "shared the only core" in text
    assert "load average 3.0" in text
    assert "No larger load was tried." in text
    assert "Kernel receive stamps don't work here" in text
    assert "12.0 µs (was 10.0) at 8 streams" in text
