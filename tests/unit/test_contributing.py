"""The worked examples of CONTRIBUTING.md run as they are printed there."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from draftgate.datasets import DATASETS, load_prompts
from draftgate.engines import ENGINES
from draftgate.errors import SpecError
from draftgate.metrics import METRICS, compute_all
from draftgate.registry import Registry
from draftgate.specs import SLO, EngineSpec, SpeculativeConfig
from draftgate.speculation import METHODS, render
from tests.support.samples import make_run

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

REGISTRIES: tuple[Registry[Any], ...] = (DATASETS, ENGINES, METHODS, METRICS)


@pytest.fixture(autouse=True)
def registries_are_restored() -> Iterator[None]:
    """Take what an example registers out again."""
    for registry in REGISTRIES:
        registry.names()
    before = [(dict(registry._entries), dict(registry._origin)) for registry in REGISTRIES]
    yield
    for registry, (entries, origin) in zip(REGISTRIES, before, strict=True):
        registry._entries, registry._origin = entries, origin


def run_example(path: str) -> ModuleType:
    """Execute the code block that the guide prints for the file `path`."""
    blocks = re.findall(
        rf"^`{re.escape(path)}`:\n\n```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 1, f"{path}: expected one code block in the guide, got {len(blocks)}"
    module = ModuleType(path.removesuffix(".py").replace("/", "."))
    exec(compile(blocks[0], path, "exec"), module.__dict__)
    return module


def test_dataset_example_is_found_by_name() -> None:
    """The printed dataset registers and gives prompts in an order by seed."""
    run_example("draftgate/datasets/translation.py")

    prompts = load_prompts("translation", seed=1)
    assert sorted(prompt.prompt_id for prompt in prompts) == [
        "translation-001",
        "translation-002",
        "translation-003",
    ]


def test_method_example_renders_for_vllm_and_nothing_else() -> None:
    """The printed method becomes vLLM's setting; another engine is refused."""
    run_example("draftgate/speculation/mtp.py")
    config = SpeculativeConfig("mtp", 2)

    assert render(config, "vllm", str) == {"method": "mtp", "num_speculative_tokens": 2}
    with pytest.raises(SpecError, match="does not run on engine 'acme'"):
        render(config, "acme", str)


def test_engine_example_renders_and_parses(tmp_path: Path) -> None:
    """The printed adapter gives a start command and reads its metrics page."""
    run_example("draftgate/engines/acme.py")
    spec = EngineSpec("acme", str(tmp_path), args=("--fast",), env=(("ACME_LOG", "1"),))
    page = "\n".join(
        [
            "# TYPE acme_output_tokens counter",
            "acme_output_tokens_total 12",
            "# TYPE acme_input_tokens counter",
            "acme_input_tokens_total 34",
            "# TYPE acme_wait_seconds summary",
            "acme_wait_seconds_sum 0.5",
            "acme_wait_seconds_count 3",
            "",
        ]
    )

    adapter = ENGINES.get("acme")
    assert adapter.command(spec, 8123, print).render() == (
        f"ACME_LOG=1 acme-server --model {tmp_path} --name target --listen 127.0.0.1:8123 --fast"
    )
    counters = adapter.parse_counters(page)
    assert (counters.generation_tokens, counters.prompt_tokens) == (12, 34)
    assert (counters.queue_time_sum_s, counters.queue_time_count) == (0.5, 3)


def test_engine_example_refuses_speculation(tmp_path: Path) -> None:
    """The printed adapter honours the rule it states: no setting is ignored."""
    run_example("draftgate/engines/acme.py")
    spec = EngineSpec("acme", str(tmp_path), speculative=SpeculativeConfig("ngram", 3))

    with pytest.raises(SpecError, match="got method 'ngram'"):
        ENGINES.get("acme").command(spec, 8123, print)


def test_metric_example_is_computed_for_a_run() -> None:
    """The printed metric appears among all metrics and is no shorter than the p99."""
    run_example("draftgate/metrics/stalls.py")

    values = compute_all(make_run(step_s=0.03), SLO())
    assert values["step_gap_max_s"] >= values["step_gap_p99_s"] > 0


def test_layers_in_the_guide_are_those_enforced() -> None:
    """The guide shows the layers that import-linter checks."""
    block = re.search(r"<!-- layers -->\n```\n(.*?)\n```", GUIDE, re.DOTALL)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]

    assert block is not None
    assert block[1].split("\n") == next(c["layers"] for c in contracts if c["type"] == "layers")
