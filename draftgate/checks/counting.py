"""What must hold of an engine's counters exactly, by themselves and beside the answers.

Pure functions over counters; each returns what it found wrong. Counters are those of a
scrape (totals since the start) or of a span between two scrapes, taken while nothing
runs. Knows no servers and no metric names.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

from draftgate.checks.exact import Finding, Findings
from draftgate.laws.answer import Answer
from draftgate.records import EngineCounters, SpeculationCounters


def counter_findings(counters: SpeculationCounters, k: int) -> Findings:
    """Return everything that counters of speculation contradict of themselves.

    Args:
        counters: Totals of any span.
        k: Draft tokens per verify step at most.
    """
    c, per_position = counters, counters.num_accepted_tokens_per_pos
    upper = [
        ("accepted tokens", c.num_accepted_tokens, "draft tokens", c.num_draft_tokens),
        ("draft tokens", c.num_draft_tokens, f"K = {k} per draft", k * c.num_drafts),
        *(
            (f"accepted at position {i + 1}", later, f"those at position {i}", sooner)
            for i, (sooner, later) in enumerate(pairwise(per_position))
        ),
        *(("accepted at position 0", first, "drafts", c.num_drafts) for first in per_position[:1]),
        ("positions", len(per_position), "K", k),
    ]
    found = [
        Finding(what="never negative", where=name, got=str(value), expected=">= 0")
        for name, value in _named(counters)
        if value < 0
    ]
    found += [
        Finding(what=f"at most {bound}", where=name, got=str(value), expected=f"<= {limit}")
        for name, value, bound, limit in upper
        if value > limit
    ]
    return (*found, *_sum_findings(counters))


def fall_findings(before: SpeculationCounters, after: SpeculationCounters) -> Findings:
    """Return the counters that fell between two scrapes of one server."""
    old, new = dict(_named(before)), dict(_named(after))
    pairs = [(name, old.get(name, 0), new.get(name, 0)) for name in {**old, **new}]
    return tuple(
        Finding(what="never falls", where=name, got=f"{now}", expected=f">= {then}, as before")
        for name, then, now in pairs
        if now < then
    )


def total_findings(answers: Sequence[Answer], counters: EngineCounters) -> Findings:
    """Return whether the engine counted other tokens than came out.

    Args:
        answers: All that ran between the two scrapes, and nothing else did.
        counters: The span's.
    """
    pairs = (
        ("generation tokens", counters.generation_tokens, [len(a.token_ids) for a in answers]),
        ("prompt tokens", counters.prompt_tokens, [len(a.prompt_token_ids) for a in answers]),
    )
    return tuple(
        Finding(
            what=f"equals the ids of {len(answers)} answers",
            where=f"counted {name}",
            got=str(counted),
            expected=str(sum(lengths)),
        )
        for name, counted, lengths in pairs
        if counted != sum(lengths)
    )


def step_findings(
    answers: Sequence[Answer],
    counters: SpeculationCounters,
    k: int,
    *,
    drafts_in_every_step: bool = False,
) -> Findings:
    """Return whether the steps that were counted cannot have yielded what came out.

    A verify step emits its accepted drafts and one more token, so drafts + accepted tokens
    is at most the tokens after the first ones. Only the last step of a request may hold
    tokens that the output's end cuts off, at most K of them. Where every step carries
    drafts the sum is no smaller either.

    Args:
        answers: All that ran between the two scrapes, and nothing else did.
        counters: The span's.
        k: Draft tokens per verify step.
        drafts_in_every_step: Whether the method always proposes (a draft model or head
            does, ngram does not).
    """
    verified = counters.num_drafts + counters.num_accepted_tokens
    after_first = sum(max(len(a.token_ids) - 1, 0) for a in answers)
    least = after_first if drafts_in_every_step else 0
    most = after_first + k * len(answers)
    if least <= verified <= most:
        return ()
    return (
        Finding(
            what=f"fits {after_first} tokens after the first ones of {len(answers)} answers",
            where="drafts + accepted tokens",
            got=str(verified),
            expected=f"{least} to {most}",
        ),
    )


def _named(counters: SpeculationCounters) -> list[tuple[str, int]]:
    totals = [f.name for f in fields(counters) if f.name != "num_accepted_tokens_per_pos"]
    return [
        *((name, getattr(counters, name)) for name in totals),
        *(
            (f"accepted at position {i}", value)
            for i, value in enumerate(counters.num_accepted_tokens_per_pos)
        ),
    ]


def _sum_findings(counters: SpeculationCounters) -> Findings:
    per_position, total = counters.num_accepted_tokens_per_pos, counters.num_accepted_tokens
    if not per_position or sum(per_position) == total:
        return ()
    return (
        Finding(
            what="equals the total of accepted tokens",
            where="accepted over all positions",
            got=str(sum(per_position)),
            expected=str(total),
        ),
    )
