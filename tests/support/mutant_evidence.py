"""Asks a served mutant for sampled text, and gathers the evidence that it gives itself away by.

Requests are not streamed: vLLM's per-request metrics say how many drafts each verify
step accepted, which chunks tell only if the client keeps up. Knows no mutants.
"""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from draftgate.checks.completions import PATH
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError
from draftgate.laws.answer import Answer
from draftgate.laws.forward import ForwardReference
from draftgate.laws.model import rows_of
from draftgate.laws.orders import law, stated
from draftgate.laws.parameters import LawParameters
from draftgate.laws.rows import Step, steps_of
from draftgate.stats.conformity import conformity
from draftgate.stats.conformity_family import family
from draftgate.stats.conformity_rows import Places, Steps, joined_places, places
from draftgate.stats.directions import FAMILIES, SCOPES, directions
from draftgate.stats.eprocess import evidence
from draftgate.stats.scores import Scores, joined

TOGETHER = 8
"""Requests of a round, open at once. Most mutants are found in one round of 256 tokens, and a
round costs more to score than to sample."""

PATIENCE_S = 600.0
"""Longest wait for one answer: other work on the machine may slow the server down a lot."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to make."""

    request: int
    prompt_id: str
    prompt: tuple[int, ...]
    parameters: LawParameters
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was gathered.

    Attributes:
        tokens: Tokens looked at.
        alarm_at: After how many of them the bound was reached; None if it never was.
        log_e: Largest log e-value.
        direction: What they look like.
    """

    tokens: int
    alarm_at: int | None
    log_e: float
    direction: str


def ask_all(engine: RunningEngine, requests: Sequence[Asked], k: int) -> tuple[Answer, ...]:
    """Return the answers in the order of the requests, all of them open together."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return tuple(pool.map(lambda asked: _ask(engine, asked, k), requests))


def _ask(engine: RunningEngine, asked: Asked, k: int) -> Answer:
    p = asked.parameters
    body: dict[str, Any] = {
        "model": engine.model,
        "prompt": list(asked.prompt),
        "max_tokens": asked.max_tokens,
        "temperature": p.temperature,
        "top_p": p.top_p,
        "top_k": p.top_k,
        "presence_penalty": p.presence_penalty,
        "frequency_penalty": p.frequency_penalty,
        "repetition_penalty": p.repetition_penalty,
        "ignore_eos": p.ignore_eos,
        "stop_token_ids": list(p.stop_token_ids),
        "return_token_ids": True,
    }
    document = engine.post(PATH, body, timeout_s=PATIENCE_S)
    choice = document["choices"][0]
    # Null where prefill drew all of it.
    accepted = document["metrics"]["speculative_decoding"].get("per_step_accepted") or []
    ids = tuple(choice["token_ids"])
    return Answer(
        request=asked.request,
        prompt_id=asked.prompt_id,
        prompt_token_ids=asked.prompt,
        token_ids=ids,
        chunks=chunks_of(len(ids), accepted, k),
        finish_reason=choice["finish_reason"],
        parameters=p,
        usage_tokens=document["usage"]["completion_tokens"],
    )


def chunks_of(tokens: int, accepted: Sequence[int], k: int) -> tuple[int, ...]:
    """Return tokens per step: one by prefill, then each step's accepted drafts and one more.

    Raises:
        EngineError: If the steps do not add up to the output; the last may be cut.
    """
    sizes, left = [1], tokens - 1
    for count in accepted:
        sizes.append(min(count + 1, left))
        left -= sizes[-1]
    if left or min(sizes) < 1 or max(accepted, default=0) > k:
        raise EngineError(
            f"{tokens} tokens, but the verify steps accepted {list(accepted)} drafts of {k}: "
            "these do not add up. Was a step without drafts among them?"
        )
    return tuple(sizes)


def law_verdict(parts: Sequence[Scores], vocabulary: int, special: int, alpha: float) -> Verdict:
    """Return what tokens say against the target's law, all rounds so far."""
    scores = joined(list(parts))
    ways = directions(vocabulary, special)
    found = evidence(scores, ways)
    way, scope = ways[found.best[0]], SCOPES[found.best[1]]
    assert way.family in FAMILIES
    return Verdict(
        len(scores), found.alarm_at(alpha), float(found.path.max()), f"{way.label}, {scope.label}"
    )


def joint_verdict(parts: Sequence[Places], vocabulary: int, alpha: float) -> Verdict:
    """Return what accept flags and tokens say against the rejection rule, all rounds so far."""
    rows, ways = joined_places(list(parts)), family(vocabulary)
    found = conformity(rows, ways)
    label = ways[found.evidence.best[0]].label
    if found.impossible:
        label = f"{found.impossible} impossible places"
    return Verdict(len(rows), found.alarm_at(alpha), float(found.evidence.path.max()), label)


def joint_rows(reference: ForwardReference, answers: Sequence[Answer], k: int) -> list[Places]:
    """Return the places of answers whose drafts were the draft model's most likely tokens."""
    assert reference._draft is not None
    drafts = dict(_in_order(reference._draft, answers))
    targets = dict(_in_order(reference._target, answers))
    found, start = [], 0
    for index, answer in enumerate(answers):
        steps = steps_of(answer, k)
        if not steps:
            continue
        rows = places(_steps(reference, answer, steps, targets[index], drafts[index]))
        found.append(replace(rows, step=rows.step + start))
        start += len(steps)
    return found


def _in_order(model: Any, answers: Sequence[Answer]) -> list[tuple[int, Any]]:
    return [(index, np.array(rows)) for index, rows in rows_of(model, answers)]


def _steps(
    reference: ForwardReference, answer: Answer, steps: Sequence[Step], target: Any, draft: Any
) -> Steps:
    k, count = steps[0].drafts, len(steps)
    proposals, emitted = np.zeros((count, k), int), np.full((count, k + 1), -1)
    laws = np.zeros((count, k + 1, reference.vocabulary))
    for row, step in enumerate(steps):
        at = np.arange(step.start, step.start + step.tokens)
        emitted[row, : step.tokens] = np.array(answer.token_ids)[at]
        # Proposals behind a rejected one are not known and not looked at: they stay 0.
        proposals[row, : len(at[:k])] = draft[at[:k]].argmax(axis=1)
        for place, index in enumerate(at):
            laws[row, place] = _law(reference, answer, target[index], int(index))
    last = np.arange(count) == count - 1
    return Steps(
        proposals=proposals,
        emitted=emitted,
        target=laws,
        ahead=False,
        draft=None,
        cut=last,
        request=np.full(count, answer.request),
        twin=np.full(count, -1),
    )


def _law(reference: ForwardReference, answer: Answer, logits: Any, index: int) -> Any:
    given = law(
        logits,
        answer.parameters,
        answer.prompt_token_ids,
        answer.token_ids[:index],
        reference.engine,
    )
    return np.exp(stated(given, reference.numerics))


def until_alarm(gather: Callable[[int], Verdict], budget: int) -> Verdict:
    """Return the verdict of the first round that alarms or spends the budget of tokens."""
    for number in itertools.count():
        verdict = gather(number)
        if verdict.alarm_at is not None or verdict.tokens >= budget:
            return verdict
    raise AssertionError("rounds have no end")
