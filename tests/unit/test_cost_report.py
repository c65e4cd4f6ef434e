"""The whole report: prices that fit, both sides, acceptance, and what is shown."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from draftgate.cli import Exit, main
from draftgate.cost import Assumptions, CostReport, cost_report, load_prices, read_measurement
from draftgate.cost.prices import Prices, parse_prices
from draftgate.cost.render import print_cost, render_markdown
from draftgate.errors import SpecError
from draftgate.specs import SLO
from tests.support.costs import (
    API,
    CPU_MACHINE,
    MACHINE,
    gpu_environment,
    make_summary,
    store_run,
    store_summary,
)
from tests.support.samples import make_cell, make_environment

PRICES = parse_prices("schema = 1\n" + MACHINE + API, "mine.toml")
LIMITS = SLO(ttft_s=0.5)


def report_of(
    path: Path, prices: Prices = PRICES, assumed: Assumptions | None = None
) -> CostReport:
    """Return the report of one run folder, or of one summary with one H200."""
    if assumed is None:
        assumed = Assumptions() if path.is_dir() else Assumptions(hardware="H200", gpus=1)
    return cost_report(read_measurement([path], LIMITS), prices, assumed)


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    """Give the file of a load test: 1000 tokens/s, requests of 300 and 100 tokens."""
    return store_summary(tmp_path / "load.json", make_summary())


def test_report_by_hand(summary: Path) -> None:
    """10 requests/s on 3.60 $ an hour, half the time; 0.0016 $ at the API."""
    report = report_of(summary)

    cost = report.comparisons[0].cost
    assert cost is not None
    assert report.requests_per_s == pytest.approx(10)
    assert report.offer.request_usd == pytest.approx(0.0002)
    assert report.offer.per_million_usd == pytest.approx(0.5)
    assert report.offer.per_million_output_usd == pytest.approx(2.0)
    assert cost.per_million_usd == pytest.approx(4.0)
    assert cost.self_to_api_ratio == pytest.approx(1 / 8)
    assert cost.break_even_utilisation == pytest.approx(1 / 16)
    assert cost.break_even_tokens_per_day == pytest.approx(21.6e6)
    assert cost.self_split.output_usd == pytest.approx(1.25)


def test_self_cost_is_the_bill_at_break_even(summary: Path) -> None:
    """With the break-even utilisation assumed, the report says that both cost the same."""
    first = report_of(summary).comparisons[0].cost
    assert first is not None
    even = Assumptions(first.break_even_utilisation, hardware="H200", gpus=1)

    again = report_of(summary, assumed=even).comparisons[0].cost

    assert again is not None
    assert again.self_to_api_ratio == pytest.approx(1)


def test_gpus_multiply_the_price(tmp_path: Path) -> None:
    """A run on two GPUs pays for two, unless told how many served."""
    path = store_run(tmp_path, environment=gpu_environment(2))

    assert report_of(path).offer.machine_usd_per_hour == pytest.approx(7.2)
    one = report_of(path, assumed=Assumptions(gpus=1))
    assert one.offer.machine_usd_per_hour == pytest.approx(3.6)


def test_cheapest_provider_is_chosen_unless_one_is_named(tmp_path: Path) -> None:
    """Every provider of the hardware has a row; the name decides without regard to case."""
    path = store_run(tmp_path)
    shipped = load_prices()

    cheapest = report_of(path, shipped)
    named = report_of(path, shipped, Assumptions(provider="coreweave"))

    assert [offer.price.hardware for offer in cheapest.offers] == ["H200"] * 5
    assert cheapest.offer is cheapest.offers[0]
    assert named.offer.price.provider == "CoreWeave"
    assert named.offer.request_usd > cheapest.offer.request_usd


def test_unknown_provider_is_refused(tmp_path: Path) -> None:
    """The error lists those that have the hardware; Azure has no H200 here."""
    path = store_run(tmp_path)

    for name, said in (("Nebuis", "Did you mean 'Nebius'"), ("Azure", "expected one of RunPod")):
        with pytest.raises(SpecError, match=said):
            report_of(path, load_prices(), Assumptions(provider=name))


def test_cheapest_offer_of_a_provider_is_shown_beside_the_dearest(summary: Path) -> None:
    """Costs are computed from the dearest offer."""
    prices = parse_prices("schema = 1\n" + MACHINE + "lowest_usd = 1.80\n", "mine.toml")

    offer = report_of(summary, prices).offer

    assert offer.request_usd == pytest.approx(0.0002)
    assert offer.lowest_request_usd == pytest.approx(0.0001)


def test_machine_without_a_price_names_the_key_to_add(tmp_path: Path) -> None:
    """A run on a CPU has no cost until its user says what the machine costs."""
    path = store_run(tmp_path, environment=make_environment())

    with pytest.raises(SpecError, match=r'\[\[machine\]\] with devices = \["cpu-example-2c"\]'):
        report_of(path, load_prices())


def test_machine_with_a_price_has_a_cost(tmp_path: Path) -> None:
    """A row for a CPU machine prices it whole."""
    path = store_run(tmp_path, environment=make_environment())
    prices = parse_prices("schema = 1\n" + CPU_MACHINE + API, "mine.toml")

    report = report_of(path, prices)

    assert report.offer.machine_usd_per_hour == 0.09
    assert report.gpus is None
    with pytest.raises(SpecError, match="priced as a whole"):
        report_of(path, prices, Assumptions(gpus=2))


def test_summary_needs_to_be_told_the_hardware(summary: Path) -> None:
    """A load test does not know what served it: nothing is guessed."""
    with pytest.raises(SpecError, match="--hardware got nothing, expected one of H200"):
        report_of(summary, assumed=Assumptions(gpus=1))
    with pytest.raises(SpecError, match=r"--hardware got 'H20'.*Did you mean 'H200'"):
        report_of(summary, assumed=Assumptions(hardware="H20", gpus=1))
    with pytest.raises(SpecError, match="--gpus got nothing"):
        report_of(summary, assumed=Assumptions(hardware="H200"))


def test_hardware_other_than_the_measured_is_refused(tmp_path: Path) -> None:
    """Throughput of one GPU at the price of another is a number that nobody measured."""
    with pytest.raises(SpecError, match="--hardware got 'H100 SXM', expected 'H200'"):
        report_of(store_run(tmp_path), load_prices(), Assumptions(hardware="H100 SXM"))


@pytest.mark.parametrize(
    ("assumed", "said"),
    [
        (Assumptions(utilisation=0.0), "--utilisation got 0"),
        (Assumptions(utilisation=1.5), "--utilisation got 1.5"),
        (Assumptions(gpus=0), "--gpus got 0"),
        (Assumptions(input_tokens=-1.0), "--input-tokens got -1"),
        (Assumptions(output_tokens=0.0), "--output-tokens got 0"),
        (Assumptions(output_tokens=float("inf")), "--output-tokens got inf"),
    ],
)
def test_assumption_out_of_range_is_refused(assumed: Assumptions, said: str, summary: Path) -> None:
    """Each option is checked and named."""
    with pytest.raises(SpecError, match=said):
        report_of(summary, assumed=assumed)


def test_given_lengths_are_marked(summary: Path) -> None:
    """Other lengths keep the measured tokens/s, and the report says that this is no measurement."""
    given = Assumptions(hardware="H200", gpus=1, input_tokens=0, output_tokens=200)
    report = report_of(summary, assumed=given)

    assert report.requests_per_s == pytest.approx(5)
    assert report.tokens.input_tokens == 0
    assert report.tokens_given
    assert any(limit.startswith("Lengths were given") for limit in report.limits)


def test_unknown_prompt_lengths_have_to_be_given(tmp_path: Path) -> None:
    """A server that tells no usage leaves the input length to the user."""
    path = store_summary(tmp_path / "load.json", make_summary(input_tokens=None))

    with pytest.raises(SpecError, match="Give --input-tokens"):
        report_of(path)


def test_claude_sonnet_47_is_shown_without_a_price_and_used_with_one(
    summary: Path, tmp_path: Path
) -> None:
    """The shipped row says "no public list price"; a user's row of that name is compared."""
    mine = tmp_path / "mine.toml"
    row = API.replace("Example 1", "Claude Sonnet 4.7").replace("2.0", "4.0")
    mine.write_text("schema = 1\n" + row, encoding="utf-8")

    without, filled = (report_of(summary, prices) for prices in (load_prices(), load_prices(mine)))

    def of(report: CostReport) -> object:
        return next(c.cost for c in report.comparisons if c.price.model == "Claude Sonnet 4.7")

    assert of(without) is None
    line = next(
        line for line in render_markdown(without).splitlines() if "Claude Sonnet 4.7 (" in line
    )
    assert "no public list price" in line
    assert line.count("—") == 5
    assert of(filled) is not None
    assert "no public list price" not in render_markdown(filled)


def test_acceptance_scales_the_throughput_of_the_arm_that_drafts(tmp_path: Path) -> None:
    """Ten percent less acceptance length costs what it takes off the tokens per step."""
    cell = make_cell(
        arm="draft_model", method="draft_model", k=3, concurrency=8, tokens_per_step=2.5
    )
    report = report_of(store_run(tmp_path, cell))

    load = report.acceptance_of
    assert load is not None
    assert load.tokens_per_step is not None
    assert load.acceptance_length == pytest.approx(load.tokens_per_step, rel=0.02)
    by_factor = {cost.factor: cost for cost in report.acceptance}
    assert list(by_factor) == [0.8, 0.9, 1.0, 1.1, 1.2]
    assert by_factor[1.0].per_million_usd == pytest.approx(report.offer.per_million_usd)
    costs = [cost.per_million_usd or 0 for cost in report.acceptance]
    assert costs == sorted(costs, reverse=True)
    less = by_factor[0.9]
    assert less.per_million_usd == pytest.approx(report.offer.per_million_usd / 0.9, rel=0.01)


def test_acceptance_beyond_k_cannot_be_had(tmp_path: Path) -> None:
    """A step with K drafts gives at most K + 1 tokens."""
    cell = make_cell(
        arm="draft_model", method="draft_model", k=3, concurrency=8, tokens_per_step=4.0
    )
    report = report_of(store_run(tmp_path, cell))

    assert [cost.impossible for cost in report.acceptance] == [
        "",
        "",
        "",
        "above K + 1 = 4",
        "above K + 1 = 4",
    ]
    assert report.acceptance[-1].per_million_usd is None


def test_nothing_drafted_has_no_sensitivity(tmp_path: Path) -> None:
    """Without drafts there is no acceptance to vary."""
    report = report_of(store_run(tmp_path, make_cell(arm="none", concurrency=8)))

    assert report.acceptance_of is None
    assert report.acceptance == ()


def test_limits_say_what_the_numbers_rest_on(summary: Path) -> None:
    """Tokenizer, quality, assumed utilisation, number of runs and second-hand prices are told."""
    text = " ".join(report_of(summary, load_prices()).limits)

    for part in ("tokenizer", "Quality is not compared", "assumed", "1 run of", "second-hand"):
        assert part in text


def test_terminal_and_markdown_say_the_same(tmp_path: Path) -> None:
    """Tables, providers and sentences of one stand in the other."""
    report = report_of(store_run(tmp_path), load_prices())
    terminal = io.StringIO()
    print_cost(report, Console(file=terminal, width=200, highlight=False))
    shown, page = terminal.getvalue(), render_markdown(report)

    for offer in report.offers:
        assert offer.price.provider in shown
        assert offer.price.provider in page
    for head in ("Measured loads", "Against list prices", "Sensitivity to acceptance"):
        assert head in shown
        assert head in page
    assert "a model, not measured" in page
    assert "draft\\_model at 8 streams (chosen)" in page


def test_command_prints_and_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 0, the answer last, and all numbers in the file."""
    path, out = store_run(tmp_path / "runs"), tmp_path / "cost.json"

    code = main(["cost", str(path), "--provider", "Nebius", "--json", str(out)])

    stored = json.loads(out.read_text(encoding="utf-8"))
    assert code == Exit.OK
    assert stored["schema_version"] == 1
    assert stored["offer"]["price"]["provider"] == "Nebius"
    assert stored["chosen"]["name"] == "draft_model at 8 streams"
    answer = capsys.readouterr().out.rpartition("\n\n")[2]
    assert "Self cost at 50 % utilisation: $" in answer


def test_command_prints_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --markdown the page goes to standard output."""
    assert main(["cost", str(store_run(tmp_path)), "--markdown"]) == Exit.OK

    assert capsys.readouterr().out.startswith("### Cost\n")


def test_command_refuses_what_it_cannot_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No load within the SLO is an unusable run; a wrong option is the user's."""
    path = str(store_run(tmp_path))

    assert main(["cost", path, "--slo-ttft", "0.001"]) == Exit.UNUSABLE_RUN
    assert main(["cost", path, "--slo-ttft", "-1"]) == Exit.BAD_SPEC
    assert main(["cost", path, "--prices", str(tmp_path / "none.toml")]) == Exit.BAD_SPEC
    assert "Measure fewer streams" in capsys.readouterr().err


def test_faster_run_costs_less(tmp_path: Path) -> None:
    """At the same price and lengths the cost is inverse to the measured rate."""
    slow, fast = (
        report_of(
            store_summary(tmp_path / f"{speed:.0f}.json", make_summary(output_tokens_per_s=speed))
        )
        for speed in (500.0, 2000.0)
    )

    assert slow.offer.request_usd == pytest.approx(4 * fast.offer.request_usd)
    assert slow.tokens == fast.tokens


def test_every_load_within_the_slo_has_its_own_cost(tmp_path: Path) -> None:
    """A load at half the rate costs twice as much; one beyond the SLO has no cost."""
    files = [
        store_summary(tmp_path / f"{name}.json", make_summary(output_tokens_per_s=speed, **late))
        for name, speed, late in (
            ("half", 500.0, {}),
            ("best", 1000.0, {}),
            ("late", 2000.0, {"ttft_p99_s": 0.6}),
        )
    ]
    assumed = Assumptions(hardware="H200", gpus=1)
    report = cost_report(read_measurement(files, LIMITS), PRICES, assumed)

    half, best, late = report.loads
    assert best.per_million_usd == pytest.approx(report.offer.per_million_usd)
    assert half.per_million_usd == pytest.approx(2 * report.offer.per_million_usd)
    assert late.per_million_usd is None


def test_break_even_above_full_load_is_shown_as_never(tmp_path: Path, summary: Path) -> None:
    """A machine that is too slow to pay at any utilisation says so; one that pays does not."""
    slow = store_summary(tmp_path / "slow.json", make_summary(output_tokens_per_s=10.0))

    assert "(never)" in render_markdown(report_of(slow))
    assert "(never)" not in render_markdown(report_of(summary))
