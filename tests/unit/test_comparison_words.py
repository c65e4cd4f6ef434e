"""Numbers and sentences of a comparison."""

import math
from dataclasses import replace

import pytest

from draftgate.compare.gates import title
from draftgate.compare.reasons import explain
from draftgate.compare.records import Cause, FactorLoss, Role, Scale, StageNumbers
from draftgate.report.comparison.answer import (
    effort_text,
    engines,
    extent,
    headline,
    in_reading_order,
    next_steps,
    notes,
    side_text,
    why,
)
from draftgate.report.comparison.words import (
    bounds_text,
    change_of,
    change_text,
    factor_text,
    minutes_text,
    needed_text,
    p_text,
    pairs_text,
    percent_number,
    plain,
    stand_in,
    unit,
)
from draftgate.report.format import MINUS, TIMES
from draftgate.report.summary import READING_ORDER
from draftgate.specs import CompareSpec
from draftgate.verdict import Outcome
from tests.support.comparisons import (
    BY_PROMPT,
    gate_of,
    not_started,
    only,
    stored_comparison,
    with_gates,
    without_baseline,
)

COMPARISON = stored_comparison()
REGRESSION = gate_of(COMPARISON, Outcome.REGRESSION)
NUMBERS = StageNumbers(8, 0.08, 0.06, 0.1, 0.001, (0.08,) * 8)


def _ascii(text: str) -> str:
    """Return the text with ASCII signs for minus and times, which are easier to type."""
    return text.translate({ord(MINUS): "-", ord(TIMES): "x"})


def _result(metric: str, scale: Scale = Scale.RATIO, **changes: object):  # type: ignore[no-untyped-def]
    gate = replace(REGRESSION.gate, metric=metric, scale=scale)
    return replace(REGRESSION, gate=gate, confirm=None, search=NUMBERS, **changes)


def test_builder_holds_every_outcome_that_pairs_can_give() -> None:
    """The invented comparison has gates of five outcomes, and pairs of both stages."""
    outcomes = {gate.outcome for gate in COMPARISON.result.gates}

    assert outcomes == set(Outcome) - {Outcome.NO_BASELINE}
    assert len({pair.stage for pair in COMPARISON.pairs}) == 2
    assert sum(1 for pair in COMPARISON.pairs if pair.invalid) == 1


@pytest.mark.parametrize(
    ("metric", "shown"),
    [("per_token_p50_s", "+8 % [6, 10]"), ("output_tokens_per_s", "-8 % [-10, -6]")],
)
def test_loss_is_shown_in_the_metric_s_own_direction(metric: str, shown: str) -> None:
    """A loss raises a time and lowers a rate, and the interval turns with it."""
    assert _ascii(change_text(_result(metric))) == shown


def test_difference_has_the_unit_of_its_metric() -> None:
    """A loss of acceptance by prompt is a fall in tokens, with two digits of its interval."""
    result = _result(BY_PROMPT, Scale.ABSOLUTE)

    assert _ascii(change_text(result)) == "-0.080 tokens [-0.100, -0.060]"
    assert _ascii(change_text(result, units=False)) == "-0.080 [-0.100, -0.060]"
    assert bounds_text(result.gate) == "0.01 / 0.05 tokens"
    assert (title(BY_PROMPT), unit(BY_PROMPT)) == ("tokens per step by prompt", "tokens")


def test_reasons_name_a_metric_as_reports_do() -> None:
    """The sentence under a verdict begins with the title that tables have."""
    result = _result(BY_PROMPT, Scale.ABSOLUTE)

    told = explain(result, CompareSpec(), suspect=False, trouble="").reason
    assert told.startswith(f"{title(BY_PROMPT)} -0.080 tokens [")


def test_second_stage_goes_before_the_first() -> None:
    """Numbers come from the fresh pairs where there are some."""
    second = replace(NUMBERS, pairs=24, loss=0.05, low=0.04, high=0.06)
    result = replace(_result("per_token_p50_s"), confirm=second)

    assert _ascii(change_text(result)) == "+5 % [4, 6]"
    assert pairs_text(result) == "8 + 24"


def test_gate_without_numbers_has_a_dash() -> None:
    """Nothing is shown as nothing, never as 0."""
    result = replace(_result("per_token_p50_s"), search=None)

    assert (change_text(result), pairs_text(result)) == ("—", "—")


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.08, "8"),
        (-0.0004, "0"),
        (0.0101, "1"),
        (0.0106, "1.1"),
        (-0.074, "-7.4"),
        (0.104, "10"),
        (math.inf, ">999"),
        (-math.inf, "<-999"),
        (1e12, ">999"),
        (math.nan, "—"),
    ],
)
def test_percent_is_short_and_honest(share: float, shown: str) -> None:
    """One decimal under 10, a proper minus sign, no long or missing number in disguise."""
    assert _ascii(percent_number(share)) == shown


def test_minus_is_a_proper_one() -> None:
    """Numbers for people have the sign of subtraction, as everywhere in a report."""
    assert percent_number(-0.05) == f"{MINUS}5"


def test_infinite_end_of_a_difference_is_a_dash() -> None:
    """An end that nothing bounds is no number."""
    numbers = replace(NUMBERS, high=math.inf)
    result = replace(_result(BY_PROMPT, Scale.ABSOLUTE), search=numbers)

    assert _ascii(change_text(result)) == "-0.080 tokens [—, -0.060]"
    assert change_of(result.gate, numbers).low == -math.inf


@pytest.mark.parametrize(
    ("p_value", "shown"),
    [(None, "—"), (math.nan, "—"), (0.0, "<0.0001"), (0.00314, "0.0031"), (1.0, "1")],
)
def test_p_values_have_two_digits(p_value: float | None, shown: str) -> None:
    """No p-value is shown as 0."""
    assert p_text(p_value) == shown


def test_factor_in_seconds_is_shown_in_milliseconds() -> None:
    """A factor with a unit is a difference in it."""
    factor = FactorLoss("queueing", "queue_time_mean_s", 0.012, 0.010, 0.014, "s", 0.9, named=True)

    assert factor_text(factor) == "queueing +12.0 ms [10.0, 14.0]"


def test_factor_names_what_was_measured_unless_it_is_its_label() -> None:
    """A fall of the decode share must not read as a fall of queueing."""
    step, share = _factors()[0], _factors()[2]

    assert factor_text(step) == "step time +8.1 % [7.7, 8.5]"
    assert factor_text(replace(share, change=-0.05, low=-0.06, high=-0.04)) == (
        f"prefill or queueing (decode share {MINUS}5 % [{MINUS}6, {MINUS}4])"
    )


def test_counts_and_times_are_words() -> None:
    """Minutes become hours, and a hopeless number of pairs is not spelled out."""
    assert [minutes_text(m) for m in (0.0, 3.25, 95.4, 183.4)] == [
        "0 minutes",
        "3.2 minutes",
        "95 minutes",
        "3.1 hours",
    ]
    assert [needed_text(n) for n in (1, 24, 1_000_000)] == [
        "about 1 more pair",
        "about 24 more pairs",
        "more than 1,000 more pairs",
    ]


def test_plain_text_has_no_control_characters() -> None:
    """Terminal escapes, NUL and marks of direction are replaced, line ends become spaces."""
    assert plain("a\x1b[31m\x00b\n\tc\u202ed") == "a�[31m�b c�d"
    assert plain("x" * 20, 10) == "x" * 9 + "…"
    assert plain("x" * 10, 10) == "x" * 10


def test_stand_in_names_both_metrics_and_the_reason() -> None:
    """What could not be judged is named with what it would need."""
    gate = replace(REGRESSION.gate, metric="ttft_p90_s", instead_of="ttft_p99_s", note="too few")

    assert stand_in(gate) == (
        "time to first token, p90 stands instead of time to first token, p99: too few"
    )
    assert stand_in(replace(gate, instead_of=None)) == ""


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.PASS, "PASS: all 13 gates passed"),
        (
            Outcome.IMPROVEMENT,
            (
                "IMPROVEMENT: output tokens/s +6.2 % [5.3, 7.5] at 1 stream (arm draft_model); "
                "2 of 2 gates improved"
            ),
        ),
        (
            Outcome.REGRESSION,
            (
                "REGRESSION: acceptance (tokens per step -8 % [-8.1, -7.9]) at 8 streams "
                "(arm ngram); 5 of 5 gates regressed"
            ),
        ),
        (
            Outcome.INCONCLUSIVE,
            "INCONCLUSIVE: 1 of 1 gate not decided; about 24 more pairs would decide",
        ),
        (
            Outcome.INVALID_RUN,
            (
                "INVALID RUN: 1 of 1 gate can't be judged: ttft_p90_s is missing in 3 of 8 starts "
                "of the candidate (ngram at 1 stream, time to first token, p90)"
            ),
        ),
    ],
)
def test_headline_says_outcome_and_why(outcome: Outcome, said: str) -> None:
    """One line holds the answer, for each outcome."""
    assert _ascii(headline(only(COMPARISON, outcome))) == said


def test_headline_without_a_baseline_gives_the_reason() -> None:
    """NO_BASELINE says what is missing on the other side."""
    found = with_gates(COMPARISON, [without_baseline(REGRESSION)])

    assert headline(found) == (
        "NO BASELINE: 1 of 1 gate can't be judged: the base has no arm 'none' "
        "(none at 8 streams, output tokens/s)"
    )


def test_headline_counts_gains_among_passes() -> None:
    """A pass with gains says how many; one without gates says that nothing was judged."""
    both = only(COMPARISON, Outcome.PASS, Outcome.IMPROVEMENT)

    assert headline(both) == "PASS: all 15 gates passed, 2 of them improved"
    assert headline(with_gates(COMPARISON, [])) == "INCONCLUSIVE: no gate was judged"


def test_regression_without_a_named_cause_leads_with_its_metric() -> None:
    """Where no factor stands out, the metric itself is the headline."""
    cause = Cause("no factor stands out", tuple(replace(f, named=False) for f in _factors()))
    found = with_gates(COMPARISON, [replace(REGRESSION, cause=cause)])

    assert _ascii(headline(found)) == (
        "REGRESSION: output tokens/s -7.4 % [-7.7, -7.3] at 8 streams (arm none); "
        "1 of 1 gate regressed"
    )


def test_reading_order_puts_what_is_not_green_first() -> None:
    """Gates are sorted by outcome and keep the header's order within one."""
    found = in_reading_order(COMPARISON)

    places = [READING_ORDER.index(gate.outcome) for gate in found]
    assert places == sorted(places)
    assert set(found) == set(COMPARISON.result.gates)
    passed = [gate for gate in COMPARISON.result.gates if gate.outcome is Outcome.PASS]
    assert list(found[-len(passed) :]) == passed


def test_facts_name_sides_engines_pairs_time_and_error_rate() -> None:
    """Labels stand beside what the servers reported; lost pairs are counted apart."""
    assert side_text(COMPARISON, Role.BASE) == "vllm:0.31.0 (vllm 0.31.0)"
    assert engines(COMPARISON, Role.CANDIDATE) == ("vllm 0.32.0",)
    assert effort_text(COMPARISON) == (
        "84 pairs of server starts (1 more left out) in 3.1 hours; at most 0.2 % false REGRESSION "
        "over all 22 gates."
    )


def test_servers_that_were_not_started_are_not_called_starts() -> None:
    """Pairs of live servers are pairs of runs."""
    header = COMPARISON.header
    live = replace(header, candidate=replace(header.candidate, restarts=False))

    assert effort_text(replace(COMPARISON, header=live)).startswith("84 pairs of runs ")


def test_unfinished_comparison_says_so() -> None:
    """Before the first pair nothing is known of the engines, and the end is named."""
    found = not_started(COMPARISON)

    assert side_text(found, Role.BASE) == "vllm:0.31.0 (engine not known yet)"
    assert extent(found) == ("It was interrupted and can be resumed.",)
    assert extent(COMPARISON) == ()


def test_confirmation_names_its_first_stage() -> None:
    """A run that only confirms says which run it confirms."""
    header = replace(COMPARISON.header, confirms="run-1")

    assert extent(replace(COMPARISON, header=header)) == ("It confirms the suspects of run-1.",)


def test_next_steps_are_said_once() -> None:
    """Gates with the same next step share a line; from the fourth on they are counted."""
    first, second, third = map(_ascii, next_steps(COMPARISON))

    assert first == (
        "none x 8, output tokens/s; none x 8, time per token, p50; ngram x 8, output tokens/s; "
        "and 2 more: Find the cause in the candidate, or accept the loss."
    )
    assert second.startswith("ngram x 1, time to first token, p90: Look ")
    assert third.endswith("resume with a larger --max-minutes.")


def test_notes_hold_each_stand_in_once() -> None:
    """Six gates that stand in for the same metric give one note."""
    assert len(notes(COMPARISON)) == len(COMPARISON.result.notes) + 1


def test_open_suspect_is_explained_by_its_reason() -> None:
    """A cause explains a change that was found; what is open is explained by why it is."""
    suspect = replace(REGRESSION, outcome=Outcome.INCONCLUSIVE, reason="24 pairs to go")

    assert why(suspect) == "24 pairs to go"
    assert why(REGRESSION).startswith("step time +8.1 %")


def _factors() -> tuple[FactorLoss, ...]:
    assert REGRESSION.cause is not None
    return REGRESSION.cause.factors
