"""What is read off a metrics page, by engine and label."""

from pathlib import Path

import pytest

from draftgate.errors import EngineError
from draftgate.watch.page import Group, looked_for, read_page
from tests.support.metrics_pages import MODEL, Counted, vllm_page

VLLM = (Path(__file__).parent / "data" / "vllm_metrics.txt").read_text(encoding="utf-8")

SGLANG = """
sglang:spec_verify_calls_total{model_name="m",engine_type="unified",tp_rank="0"} 400
sglang:generation_tokens_total{model_name="m",engine_type="unified",is_streaming="true"} 700
sglang:generation_tokens_total{model_name="m",engine_type="unified",is_streaming="false"} 310
sglang:num_requests_total{model_name="m",engine_type="unified"} 10
sglang:num_running_reqs{model_name="m",engine_type="unified",tp_rank="0"} 2
"""

TRTLLM = """
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="0"} 100
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="1"} 90
trtllm_spec_decode_accepted_tokens_total{model_name="m",token_position="0"} 70
trtllm_spec_decode_accepted_tokens_total{model_name="m",token_position="1"} 40
trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 110
trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 190
trtllm_request_success_total{model_name="m",finished_reason="stop"} 5
"""


def test_recorded_vllm_page_is_read_by_engine() -> None:
    """Both engines of a page that vLLM wrote are series of their own, with all their totals."""
    page = read_page(VLLM, "kind")

    assert sorted(page.series) == [(Group("target", ""), "0"), (Group("target", ""), "1")]
    first = page.series[Group("target", ""), "0"]
    assert (first.drafts, first.draft_tokens, first.requests) == (100.0, 300.0, 21.0)
    assert first.created_s is not None
    assert page.running == {Group("target", ""): 4.0}


def test_sglang_page_is_summed_over_labels() -> None:
    """Streams and ranks are added; accepted tokens are not counted there."""
    (totals,) = read_page(SGLANG, "kind").series.values()

    assert (totals.drafts, totals.generated, totals.requests) == (400.0, 1010.0, 10.0)
    assert totals.accepted is None


def test_trtllm_page_counts_steps_by_the_first_position() -> None:
    """Every verify step drafts at the first position."""
    (totals,) = read_page(TRTLLM, "kind").series.values()

    assert (totals.drafts, totals.accepted, totals.by_position) == (100.0, 110.0, (70.0, 40.0))


def test_kinds_are_groups_where_series_carry_the_label() -> None:
    """The label that was named tells kinds apart; without it they are one series."""
    text = vllm_page(
        {(*MODEL, ("traffic", kind)): Counted(drafts=count) for kind, count in (("a", 1), ("b", 2))}
    )

    by_kind = read_page(text, "traffic").series
    assert {group.kind: totals.drafts for (group, _), totals in by_kind.items()} == {"a": 1, "b": 2}
    (whole,) = read_page(text, "kind").series.values()
    assert whole.drafts == 3


@pytest.mark.parametrize("text", ["", "up 1\n", VLLM.replace("spec_decode_num_drafts", "other")])
def test_page_without_speculation_has_no_series(text: str) -> None:
    """No error: the metric may come back."""
    assert read_page(text, "kind").series == {}
    assert "vllm:spec_decode_num_drafts_total" in looked_for()


def test_total_that_is_no_number_is_refused() -> None:
    """NaN is an error that names the metric."""
    with pytest.raises(EngineError, match="num_drafts_total"):
        read_page('vllm:spec_decode_num_drafts_total{engine="0"} NaN\n', "kind")


def test_requests_that_were_scheduled_count_where_ended_ones_are_not_told() -> None:
    """The queue's histogram is the second choice."""
    text = vllm_page({MODEL: Counted(drafts=5, requests=7)})
    lines = [line for line in text.splitlines() if "request_success" not in line]
    lines.append('vllm:request_queue_time_seconds_count{model_name="m",engine="0"} 9')

    (totals,) = read_page("\n".join(lines) + "\n", "kind").series.values()
    assert totals.requests == 9
    (ended,) = read_page(text, "kind").series.values()
    assert ended.requests == 7
