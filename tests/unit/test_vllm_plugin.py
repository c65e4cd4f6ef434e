"""The sampling repair: the same as a literal loop, and inert until it is switched on.

torch is imported in the tests: two seconds and a heap that slows every garbage
collection of the load tests are not for every collection of the suite.
"""

import subprocess
import sys
import types
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.vllm_plugins import VARIABLE, cpu_sampling, enabled

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), min_size=1, max_size=9)


def literal(values: list[float], ends: list[int], old: float, new: float) -> list[float]:
    """Return each row's value at each of its positions, `old` replaced by `new`."""
    expected: list[float] = []
    for value, (start, end) in zip(values, pairwise([0, *ends]), strict=True):
        for _ in range(start, end):
            expected.append(new if value == old else value)  # noqa: PERF401 - literal on purpose
    return expected


@pytest.mark.parametrize("cumulative_type", ["int32", "int64"])
@pytest.mark.parametrize("value_type", ["float32", "int32", "int64"])
@given(rows=ROWS, spare=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_expand_is_the_literal_loop(
    value_type: str, cumulative_type: str, rows: list[tuple[int, int]], spare: int
) -> None:
    """Every position of every row is written, in the output's type; what is beyond stays."""
    import torch

    dtype, cumulative = getattr(torch, value_type), getattr(torch, cumulative_type)
    values = [value for value, _ in rows]
    ends = torch.tensor([count for _, count in rows]).cumsum(0).to(cumulative)
    size = int(ends[-1])
    output = torch.full((size + spare,), 77, dtype=dtype)

    cpu_sampling.expand(output, torch.tensor(values, dtype=dtype), ends, 0, 1, MAX_NUM_TOKENS=8)

    assert output.dtype == dtype
    assert output[:size].tolist() == literal(values, ends.tolist(), 0, 1)
    assert output[size:].tolist() == [77] * spare


def test_expand_keeps_fractions() -> None:
    """Temperatures are not rounded, and the greedy value 0 becomes the given one."""
    import torch

    output = torch.full((4,), float("nan"))

    cpu_sampling.expand(
        output, torch.tensor([0.7, 0.0]), torch.tensor([3, 4], dtype=torch.int32), 0.0, 1.0
    )

    assert output.tolist() == pytest.approx([0.7, 0.7, 0.7, 1.0])


@pytest.mark.parametrize(
    ("setting", "on"),
    [("cpu_sampling", True), ("a,cpu_sampling", True), ("", False), ("cpu_sampling_2", False)],
)
def test_plugin_is_on_only_where_its_name_is_listed(
    setting: str,
    on: bool,  # noqa: FBT001 - pytest passes it by name
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The variable holds whole names, separated by commas."""
    monkeypatch.setenv(VARIABLE, setting)

    assert enabled("cpu_sampling") is on


FILTERS = "vllm.v1.sample.ops.topk_topp_sampler"
FILTERS_PARENTS = ("vllm.v1", "vllm.v1.sample", "vllm.v1.sample.ops")


def unrepaired(logits: list[int], k: int) -> list[int]:
    """Stand for vLLM's top-k filter, which fails without rows."""
    return logits[: k // len(logits)]


def fallbacks(monkeypatch: pytest.MonkeyPatch, **functions: object) -> types.ModuleType:
    """Put stand-ins for vLLM's modules in place and return that of the CPU fall-backs."""
    for name in ("vllm", "vllm.utils", "vllm.utils.cpu_triton_utils", FILTERS, *FILTERS_PARENTS):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    parent, _, child = FILTERS.rpartition(".")
    monkeypatch.setattr(sys.modules[parent], child, sys.modules[FILTERS], raising=False)
    monkeypatch.setattr(sys.modules[FILTERS], "apply_top_k_only", unrepaired, raising=False)
    module = sys.modules["vllm.utils.cpu_triton_utils"]
    monkeypatch.setattr(sys.modules["vllm.utils"], "cpu_triton_utils", module, raising=False)
    monkeypatch.setattr(sys.modules["vllm"], "utils", sys.modules["vllm.utils"], raising=False)
    for name, function in functions.items():
        monkeypatch.setattr(module, name, function, raising=False)
    return module


def test_register_is_inert_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installed but not named, the plugin changes nothing and says nothing."""
    monkeypatch.delenv(VARIABLE, raising=False)
    original = object()
    module = fallbacks(monkeypatch, _expand_kernel_impl=original)

    cpu_sampling.register()

    assert vars(module)["_expand_kernel_impl"] is original
    assert capsys.readouterr() == ("", "")


def test_register_repairs_and_announces_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Switched on it replaces the one function and writes the line that the log is searched for."""
    monkeypatch.setenv(VARIABLE, "cpu_sampling")
    module = fallbacks(monkeypatch, _expand_kernel_impl=object())

    cpu_sampling.register()

    assert vars(module)["_expand_kernel_impl"] is cpu_sampling.expand
    assert vars(sys.modules[FILTERS])["apply_top_k_only"]([], 1) == []
    assert "draftgate vLLM plugin cpu_sampling is on" in capsys.readouterr().err


def test_register_refuses_a_vllm_without_that_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a server that runs unrepaired while its profile says otherwise."""
    monkeypatch.setenv(VARIABLE, "cpu_sampling")
    fallbacks(monkeypatch)

    with pytest.raises(AttributeError, match="no _expand_kernel_impl to repair"):
        cpu_sampling.register()


def test_register_repairs_what_a_wrapper_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to vLLM 0.30 a wrapper holds the function from its module's loading on."""
    monkeypatch.setenv(VARIABLE, "cpu_sampling")
    broken = object()
    wrapper = types.SimpleNamespace(func=broken)
    fallbacks(monkeypatch, _expand_kernel_impl=broken, expand_kernel=wrapper)

    cpu_sampling.register()

    assert wrapper.func is cpu_sampling.expand


def test_register_refuses_a_wrapper_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is held in an unknown way would stay as it is."""
    monkeypatch.setenv(VARIABLE, "cpu_sampling")
    fallbacks(monkeypatch, _expand_kernel_impl=object(), expand_kernel=object())

    with pytest.raises(AttributeError, match="no func to repair"):
        cpu_sampling.register()


def test_plugin_imports_next_to_nothing() -> None:
    """It runs in each of vLLM's processes, so importing it brings no torch."""
    code = (
        "import sys; import draftgate.vllm_plugins.cpu_sampling; "
        "print(sorted(m for m in sys.modules if m.startswith(('draftgate', 'torch', 'vllm'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(
        ["draftgate", "draftgate.vllm_plugins", "draftgate.vllm_plugins.cpu_sampling"]
    )


def test_top_k_of_no_rows() -> None:
    """The repaired filter lets logits without rows through and filters all others as before."""
    asked: list[int] = []

    def filtered(logits: list[int], k: int) -> list[int]:
        asked.append(k)
        return logits[:k]

    repaired = cpu_sampling.of_no_rows(filtered)

    assert repaired([], 3) == []
    assert repaired([5, 6, 7], 2) == [5, 6]
    assert asked == [2]
