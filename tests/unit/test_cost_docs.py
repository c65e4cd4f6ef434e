"""What docs/cost.md states is what the code does and what was measured."""

import argparse
import json
import re
from pathlib import Path

from draftgate.cli.cost import _add_options
from draftgate.cost.arithmetic import TokensPerRequest, per_million_output, self_cost_per_request
from draftgate.cost.prices import load_prices, parse_prices

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
MEASURED = ROOT / "benchmarks" / "loadgen" / "engines-h200.json"


def test_example_of_a_price_file_is_one() -> None:
    """The TOML of the page is accepted as it stands."""
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    prices = parse_prices(example, "docs/cost.md")

    assert prices.apis[0].model in {row.model for row in load_prices().apis}
    assert prices.machines[0].unit == "machine-hour"


def test_every_option_is_described() -> None:
    """The page names each option of the command and no other."""
    parser = argparse.ArgumentParser()
    _add_options(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    table = PAGE.split("| option |")[1].split("\n\n")[0]

    assert set(re.findall(r"--[a-z][a-z0-9-]+", table)) == known - {"-h", "--help"}


def test_h200_table_is_worked_out_from_the_stored_runs() -> None:
    """Each row is a stored run that found a steady window, at the shipped price."""
    stored = json.loads(MEASURED.read_text(encoding="utf-8"))["runs"]
    runs = {(run["engine"], run["api"], run["streams"]): run for run in stored}
    (price,) = (
        row for row in load_prices().machines if (row.provider, row.hardware) == ("RunPod", "H200")
    )
    tokens = TokensPerRequest(0, 256)
    rows = re.findall(r"^\| (\S.*?) \| `([\w-]+)` \| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)

    assert len(rows) == 8
    for engine, api, streams, numbers in rows:
        run = runs[engine, api, int(streams)]
        speed = run["output_tokens_per_s"]
        full, half = (
            per_million_output(self_cost_per_request(price.usd, speed / 256, share), tokens)
            for share in (1.0, 0.5)
        )
        assert run["steady"]
        assert numbers.split(" | ") == [
            f"{speed:,.0f}",
            f"{1e3 * run['ttft_p50_s']:.0f}",
            f"{1e3 * run['step_gap_p99_s']:.1f}",
            f"{full:.3f}",
            f"{half:.3f}",
        ]
