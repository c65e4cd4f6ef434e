"""What NVML says of GPUs, by a stand-in: readings, a window, what makes a run unusable."""

import os
import sys
from pathlib import Path

import pytest

from draftgate.codec import decode, encode
from draftgate.gpus import REASONS, THROTTLING, faults, open_reader, summarise
from draftgate.records import GpuReading, GpuUse
from tests.support.fake_nvml import FakeCard, fake_nvml


def read(monkeypatch: pytest.MonkeyPatch, *cards: FakeCard) -> tuple[GpuReading, ...]:
    """Return one look at `cards`."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(cards))
    reader = open_reader()
    assert reader is not None
    return reader()


def window(monkeypatch: pytest.MonkeyPatch, *cards: FakeCard) -> GpuUse:
    """Return the use of one card that looked like each of `cards` in turn."""
    (use,) = summarise([read(monkeypatch, card) for card in cards], own={1})
    return use


def test_a_reading_has_units_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Percent become a ratio, milliwatts watts, bits words; clocks are told apart."""
    card = FakeCard(reason_bits=0x4 | 0x20, pids=(9, 3))
    (found,) = read(monkeypatch, card)

    assert found == GpuReading(
        index=0,
        name="NVIDIA H200",
        use_ratio=0.5,
        memory_used_bytes=1_000,
        memory_total_bytes=10_000,
        power_w=300.0,
        power_limit_w=700.0,
        temperature_c=60,
        sm_clock_mhz=1_980,
        memory_clock_mhz=3_201,
        reasons=("power cap", "thermal slowdown"),
        pids=(3, 9),
    )


def test_what_a_card_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused question gives None, not 0 and not an error; the others are answered."""
    card = FakeCard(use_percent=None, temperature_c=None, reason_bits=None, pids=None)
    (found,) = read(monkeypatch, card)

    assert (found.use_ratio, found.temperature_c, found.reasons, found.pids) == (None,) * 4
    assert found.power_w == 300.0


def test_an_older_binding_is_asked_by_the_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons come from the question that drivers before 535 know, if it is the only one."""
    module = fake_nvml((FakeCard(reason_bits=0x40),))
    module.nvmlDeviceGetCurrentClocksThrottleReasons = module.nvmlDeviceGetCurrentClocksEventReasons
    del module.nvmlDeviceGetCurrentClocksEventReasons
    monkeypatch.setitem(sys.modules, "pynvml", module)
    reader = open_reader()

    assert reader is not None
    assert reader()[0].reasons == ("hardware thermal slowdown",)


def test_a_window_keeps_its_extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowest clock, highest heat and power, and every reason that any look saw."""
    use = window(
        monkeypatch,
        FakeCard(sm_mhz=1_980, temperature_c=50, power_mw=100_000, reason_bits=0x1),
        FakeCard(sm_mhz=1_200, temperature_c=80, power_mw=690_000, reason_bits=0x4),
        FakeCard(sm_mhz=1_700, temperature_c=70, power_mw=400_000, reason_bits=0x0),
    )

    assert (use.first.temperature_c, use.last.temperature_c, use.readings) == (50, 70, 3)
    assert (use.sm_clock_min_mhz, use.temperature_max_c, use.power_max_w) == (1_200, 80, 690.0)
    assert use.reasons == ("idle", "power cap")
    assert decode(GpuUse, encode(use), "use") == use


@pytest.mark.parametrize("bit", REASONS)
def test_heat_and_lack_of_power_make_a_run_unusable(
    monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    """Of all reasons those of heat and power supply alone are faults."""
    use = window(monkeypatch, FakeCard(), FakeCard(reason_bits=bit), FakeCard())

    assert bool(faults([use])) is (REASONS[bit] in THROTTLING)


def test_another_tenant_makes_a_run_unusable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One with a GPU open that is not ours is named; one without, or not to be seen, is not."""
    stranger, gone = os.getpid(), 2**22 + 1
    device = tmp_path / "dev" / "nvidia0"
    device.parent.mkdir()
    alone = window(monkeypatch, FakeCard(pids=(1, stranger, gone)))
    with device.open("w"):
        shared = window(monkeypatch, FakeCard(pids=(1, stranger, gone)))

    assert faults([shared]) == (
        f"GPU 0 (NVIDIA H200) was shared with process {stranger}. End it, or take another GPU",
    )
    assert faults([alone]) == ()


def test_without_a_gpu_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """No binding and no card are no error."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(()))
    no_card = open_reader()
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert (no_card, open_reader()) == (None, None)
    assert summarise([], own=None) == ()
