"""What NVML says of each GPU, read and never set.

A reading is one `GpuReading` per GPU; what a card does not tell is None. Knows
no engine and no run; `draftgate.resources` reads over a window.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from draftgate.records import GpuReading, GpuUse

REASONS = {
    0x0000000000000001: "idle",
    0x0000000000000002: "application clocks",
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000010: "sync boost",
    0x0000000000000020: "thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "power brake",
    0x0000000000000100: "display clocks",
}
"""Why clocks are below their maximum, by bit of NVML's clocks event reasons (`nvml.h`)."""

THROTTLING = (
    "hardware slowdown",
    "thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
)
"""Reasons that make a run unusable: the card was too hot or short of power, which is the machine's
trouble and no engine's. A power cap is not among them: a card under full load runs at its rated
power, another engine on the same card would too; it is kept and told."""

_DEVICE = "/dev/nvidia"

Reader = Callable[[], tuple[GpuReading, ...]]


def open_reader() -> Reader | None:
    """Return a function that reads all GPUs; None without the binding, a driver or a GPU."""
    try:
        import pynvml  # noqa: PLC0415 - only where there may be a GPU
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None  # no driver: no GPU to read
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def read() -> tuple[GpuReading, ...]:
        return tuple(_reading(pynvml, index, handle) for index, handle in enumerate(handles))

    return read if handles else None


def summarise(
    readings: Sequence[Sequence[GpuReading]], own: Collection[int] | None
) -> tuple[GpuUse, ...]:
    """Return what each GPU did over a window.

    Args:
        readings: Of all GPUs, oldest first.
        own: Process ids of draftgate and all it started; others on a card are tenants.
            None where the server is not among them, so that nobody can be told apart.
    """
    return tuple(_use(one, own) for one in zip(*readings, strict=True))


def faults(uses: Sequence[GpuUse]) -> tuple[str, ...]:
    """Return why a run on these GPUs cannot be used: throttled, or not alone on a card."""
    found = []
    for use in uses:
        where = f"GPU {use.index} ({use.first.name})"
        slowed = [reason for reason in use.reasons if reason in THROTTLING]
        if slowed:
            found.append(
                f"{where} was throttled during the window: {', '.join(slowed)}; at most "
                f"{_shown(use.temperature_max_c, 'C')}, {_shown(use.power_max_w, 'W')}. Let it cool"
            )
        if use.tenants:
            pids = ", ".join(map(str, use.tenants))
            found.append(f"{where} was shared with process {pids}. End it, or take another GPU")
    return tuple(found)


def _reading(nvml: Any, index: int, handle: Any) -> GpuReading:
    ask = _asker(nvml)
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = ask(nvml.nvmlDeviceGetPowerUsage, handle)
    limit_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    bits = ask(_reasons_of(nvml), handle)
    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return GpuReading(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        use_ratio=None if rates is None else rates.gpu / 100,
        memory_used_bytes=None if memory is None else memory.used,
        memory_total_bytes=None if memory is None else memory.total,
        power_w=None if power_mw is None else power_mw / 1000,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        temperature_c=ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        reasons=None if bits is None else _named(bits),
        pids=None if processes is None else tuple(sorted(p.pid for p in processes)),
    )


def _asker(nvml: Any) -> Callable[..., Any]:
    def ask(question: Callable[..., Any], *args: Any) -> Any:
        try:
            return question(*args)
        except nvml.NVMLError:
            return None  # this card, driver or container does not tell

    return ask


def _reasons_of(nvml: Any) -> Callable[..., Any]:
    """Return the question by its name since driver 535, or the older one."""
    name = "nvmlDeviceGetCurrentClocksEventReasons"
    if not hasattr(nvml, name):
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
    question: Callable[..., Any] = getattr(nvml, name)
    return question


def _named(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in REASONS.items() if bits & bit)


def _use(readings: Sequence[GpuReading], own: Collection[int] | None) -> GpuUse:
    reasons = [reading.reasons for reading in readings if reading.reasons is not None]
    seen = [reading.pids for reading in readings if reading.pids is not None]
    others = {pid for pids in seen for pid in pids} - set(own or ())
    return GpuUse(
        index=readings[0].index,
        first=readings[0],
        last=readings[-1],
        sm_clock_min_mhz=_least(reading.sm_clock_mhz for reading in readings),
        temperature_max_c=_most(reading.temperature_c for reading in readings),
        power_max_w=_most(reading.power_w for reading in readings),
        reasons=tuple(name for name in REASONS.values() if any(name in held for held in reasons)),
        tenants=() if own is None else tuple(sorted(filter(_computes, others))),
        readings=len(readings),
    )


def _computes(pid: int) -> bool:
    """Return whether a process that can be seen from here has a GPU open.

    In a container NVML may tell ids of the host, where another process has the
    id of one of ours that uses no GPU.
    """
    try:
        return any(_DEVICE in _target(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False  # no such process here
    except PermissionError:
        return True  # somebody else's, whose files are not ours to see


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""  # closed between listing and asking


def _least(values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def _most(values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def _shown(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:.0f} {unit}"
