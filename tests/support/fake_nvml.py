"""A stand-in for NVML's binding with cards that say what a test wants."""

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class NVMLError(Exception):
    """What NVML raises for a question that a card does not answer."""


@dataclass(frozen=True, slots=True)
class FakeCard:
    """What one card answers; None is refused with `NVMLError`."""

    name: str = "NVIDIA H200"
    use_percent: int | None = 50
    power_mw: int | None = 300_000
    limit_mw: int | None = 700_000
    memory_used: int = 1_000
    memory_total: int = 10_000
    temperature_c: int | None = 60
    sm_mhz: int | None = 1_980
    memory_mhz: int | None = 3_201
    reason_bits: int | None = 0
    pids: tuple[int, ...] | None = ()


def fake_nvml(cards: Sequence[FakeCard]) -> types.SimpleNamespace:
    """Return a module that answers for `cards`; handles are their numbers."""

    def told(value: Any) -> Any:
        if value is None:
            raise NVMLError
        return value

    def memory(index: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(used=cards[index].memory_used, total=cards[index].memory_total)

    def processes(index: int) -> list[types.SimpleNamespace]:
        return [types.SimpleNamespace(pid=pid) for pid in told(cards[index].pids)]

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "580.1",
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda i: cards[i].name,
        nvmlDeviceGetUtilizationRates=lambda i: types.SimpleNamespace(
            gpu=told(cards[i].use_percent)
        ),
        nvmlDeviceGetPowerUsage=lambda i: told(cards[i].power_mw),
        nvmlDeviceGetEnforcedPowerLimit=lambda i: told(cards[i].limit_mw),
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetTemperature=lambda i, _sensor: told(cards[i].temperature_c),
        nvmlDeviceGetClockInfo=lambda i, kind: told(
            cards[i].sm_mhz if kind == 1 else cards[i].memory_mhz
        ),
        nvmlDeviceGetCurrentClocksEventReasons=lambda i: told(cards[i].reason_bits),
        nvmlDeviceGetComputeRunningProcesses=processes,
    )
