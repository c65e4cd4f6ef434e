"""What one metrics page says about drafts: running totals per series.

Knows how vLLM, SGLang and TensorRT-LLM name them, and nothing of what was on the page
before. Totals may fall or be gone at any time; that is for `draftgate.watch.totals`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from draftgate.engines.counters import Sample, parse_samples
from draftgate.errors import EngineError


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """What is judged by itself: one model, one kind of traffic.

    Attributes:
        model: Name by the engine's label; "" without one.
        kind: Kind of traffic; "" where the series carry no such label.
    """

    model: str
    kind: str

    @property
    def name(self) -> str:
        """Return how lines call it."""
        return "/".join(part for part in (self.model, self.kind) if part) or "server"


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals of one series since its process started.

    Attributes:
        drafts: Verify steps with drafts.
        draft_tokens: Tokens proposed; None where the engine does not count them.
        accepted: Tokens accepted; None where the engine does not count them and they
            follow from what was generated.
        requests: Requests ended; None where the series does not count them.
        generated: Output tokens; None likewise.
        by_position: Accepted at draft position 0, 1, ...; empty where not counted.
        created_s: When the counters began, seconds since 1970; None where not told.
    """

    drafts: float
    draft_tokens: float | None = None
    accepted: float | None = None
    requests: float | None = None
    generated: float | None = None
    by_position: tuple[float, ...] = ()
    created_s: float | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One reading.

    Attributes:
        series: (group, rank) with its totals; the rank is that of an engine beside others.
        running: Requests that run now, by group; of the whole model where kinds are not told.
    """

    series: Mapping[tuple[Group, str], Totals]
    running: Mapping[Group, float]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine names what is read; "" where it has no such metric.

    Attributes:
        engine: Its name.
        drafts: Verify steps with drafts.
        accepted: Accepted draft tokens.
        draft_tokens: Proposed tokens.
        requests: Requests, best counter first: ended ones, else those that were scheduled.
        generated: Output tokens.
        running: Gauge of running requests.
        by_position: Accepted by draft position, or what was drafted there.
        position_label: Label of that position.
        rank_label: Label that tells engines of one page apart.
        drafts_by_position: Whether `drafts` is by position; the first one counts steps.
    """

    engine: str
    drafts: str
    accepted: str
    draft_tokens: str
    requests: tuple[str, ...]
    generated: str
    running: str
    by_position: str = ""
    position_label: str = ""
    rank_label: str = ""
    drafts_by_position: bool = False


DIALECTS = (
    Dialect(
        "vllm",
        drafts="vllm:spec_decode_num_drafts_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        draft_tokens="vllm:spec_decode_num_draft_tokens_total",
        requests=("vllm:request_success_total", "vllm:request_queue_time_seconds_count"),
        generated="vllm:generation_tokens_total",
        running="vllm:num_requests_running",
        by_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
        position_label="position",
        rank_label="engine",
    ),
    Dialect(
        "sglang",
        drafts="sglang:spec_verify_calls_total",
        accepted="",
        draft_tokens="",
        requests=("sglang:num_requests_total",),
        generated="sglang:generation_tokens_total",
        running="sglang:num_running_reqs",
    ),
    Dialect(
        "trtllm",
        drafts="trtllm_spec_decode_drafted_tokens_total",
        accepted="trtllm_spec_decode_num_accepted_tokens_total",
        draft_tokens="trtllm_spec_decode_num_draft_tokens_total",
        requests=("trtllm_request_success_total",),
        generated="trtllm_generation_tokens_total",
        running="trtllm_num_requests_running",
        by_position="trtllm_spec_decode_accepted_tokens_total",
        position_label="token_position",
        drafts_by_position=True,
    ),
)
"""vLLM 0.26 to 0.33, SGLang 0.5.23, TensorRT-LLM 1.3. SGLang counts no accepted tokens: a
verify step yields its accepted tokens and one more, a request's first token comes before."""

Samples = Mapping[str, list[Sample]]

At = tuple[Group, str]
"""A series: its group and the rank of its engine."""


def read_page(text: str, kind_label: str) -> Page:
    """Return the totals of a metrics page; no series if it has none of speculation.

    Args:
        text: Prometheus text.
        kind_label: Label that holds the kind of traffic, where series carry it.

    Raises:
        EngineError: If the text cannot be parsed, or a total is no finite number.
    """
    samples = parse_samples(text)
    for dialect in DIALECTS:
        if dialect.drafts in samples:
            reader = _Reader(samples, dialect, kind_label)
            return Page(reader.series(), reader.running())
    return Page({}, {})


def looked_for() -> str:
    """Return the names that tell a page with speculation, for messages."""
    return ", ".join(dialect.drafts for dialect in DIALECTS)


@dataclass(frozen=True, slots=True)
class _Reader:
    """One page in one engine's names."""

    samples: Samples
    dialect: Dialect
    kind_label: str

    def series(self) -> dict[At, Totals]:
        """Return the totals of every series."""
        keys = {self._at(labels) for labels, _ in self.samples[self.dialect.drafts]}
        return {at: self._totals(at) for at in sorted(keys)}

    def running(self) -> dict[Group, float]:
        """Return running requests by group."""
        found: dict[Group, float] = {}
        for labels, value in self.samples.get(self.dialect.running, []):
            group, _ = self._at(labels)
            found[group] = found.get(group, 0.0) + value
        return found

    def _at(self, labels: Mapping[str, str]) -> At:
        group = Group(labels.get("model_name", ""), labels.get(self.kind_label, ""))
        return group, labels.get(self.dialect.rank_label, "") if self.dialect.rank_label else ""

    def _totals(self, at: At) -> Totals:
        names = self.dialect
        requests = (self._summed(name, at) for name in names.requests)
        if names.drafts_by_position:
            drafts = next(iter(self._by_position(names.drafts, at)), 0.0)
        else:
            drafts = self._summed(names.drafts, at) or 0.0
        return Totals(
            drafts=drafts,
            draft_tokens=self._summed(names.draft_tokens, at),
            accepted=self._summed(names.accepted, at),
            requests=next((found for found in requests if found is not None), None),
            generated=self._summed(names.generated, at),
            by_position=self._by_position(names.by_position, at),
            created_s=self._summed(names.drafts.removesuffix("_total") + "_created", at),
        )

    def _summed(self, name: str, at: At) -> float | None:
        found = [value for labels, value in self.samples.get(name, []) if self._at(labels) == at]
        return _finite(name, sum(found)) if found else None

    def _by_position(self, name: str, at: At) -> tuple[float, ...]:
        found: dict[int, float] = {}
        for labels, value in self.samples.get(name, []):
            place = labels.get(self.dialect.position_label, "")
            if self._at(labels) == at and place.isdecimal():
                found[int(place)] = found.get(int(place), 0.0) + _finite(name, value)
        return tuple(value for _, value in sorted(found.items()))


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise EngineError(
            f"the metrics page gives {value} for {name!r}, expected a finite total. Look at the "
            "page: a proxy or exporter in between may spoil it."
        )
    return value
