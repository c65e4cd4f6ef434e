"""Does a server honour the parameters it accepts? Requests whose answer is forced if it does.

Each probe sets one parameter so that it decides the output whatever the model says, and
so that a server which drops it in silence is found out. A clean refusal is as good as
obedience. Takes a function that posts JSON and gives status and document; opens nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Any

from draftgate.checks.exact import Finding
from draftgate.checks.greedy import GreedyAnswer, first_divergence

HOT = 2.0
"""Temperature of free draws, the highest that vLLM and OpenAI's API take.

Measured on SmolLM2-135M over 553 contexts of six chats: the most likely token has a
probability of .21 in the mean there. That a free draw is not greedy by chance is asked of
the server each time, see `run_probe`.
"""

PROBE_TOKENS = 12
"""Tokens of a probe's answer: enough verify steps of K <= 7, few enough to be cheap."""


PENALTY = 2.0
"""Largest presence and frequency penalty that OpenAI's API knows."""

PENALTY_SLACK_LOGITS = 0.1
"""By how much more than its lead a token must lose: ten times the float32 near tie."""


NEEDED = frozenset({"stop_token_ids"})
"""Fields that a probe of another one needs: `min_tokens` holds off a stop token."""


class Behaviour(Enum):
    """What a server did with a parameter.

    UNTOLD: the answer keeps the rule, but without the parameter it does so too.
    GONE: there was no answer at all; the server may have died of the request.
    """

    HONOURED = "honoured"
    REFUSED = "refused"
    IGNORED = "ignored"
    BROKEN = "broken"
    UNTOLD = "untold"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer to one request, whatever its status.

    Attributes:
        status: HTTP status; NO_ANSWER if there was none.
        document: Decoded JSON, or why there is none.
    """

    status: int
    document: Any


NO_ANSWER = 0
"""Status where the connection broke, or nothing came in time."""

Send = Callable[[dict[str, Any]], Reply]
"""Posts one completion request, given its fields but for model and prompt."""

Rule = Callable[[Sequence[int]], str | None]
"""Takes the output and says what is wrong with it, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One request that forces its answer.

    Attributes:
        name: The field under test.
        fields: What the request holds, in vLLM's spelling.
        expected: The rule in words.
        broken: The rule.
    """

    name: str
    fields: tuple[tuple[str, Any], ...]
    expected: str
    broken: Rule


@dataclass(frozen=True, slots=True)
class Probed:
    """What one probe found; the finding is None where the server did well."""

    probe: Probe
    behaviour: Behaviour
    finding: Finding | None = None


def probes(greedy: GreedyAnswer, word: str, near_tie_logits: float = 0.0) -> tuple[Probe, ...]:
    """Return the probes for a prompt whose greedy answer is known.

    Args:
        greedy: The server's own answer at temperature 0, at least PROBE_TOKENS tokens that
            hold two different ones. Its gaps tell near ties, and what a penalty must overturn:
            penalties are probed only where one must.
        word: A text that is the token `greedy.token_ids[0]` alone, for `bad_words`.
        near_tie_logits: Largest gap at which another greedy token is rounding's.

    Raises:
        ValueError: If the answer is too short or all one token.
    """
    ids = greedy.token_ids
    if len(ids) < PROBE_TOKENS or len(set(ids[:PROBE_TOKENS])) < 2:
        raise ValueError(
            f"{greedy.prompt_id}: probes need a greedy answer of {PROBE_TOKENS} tokens, not all "
            f"the same, got {len(ids)} tokens. Take another prompt."
        )
    return (
        *_filter_probes(greedy, near_tie_logits),
        *_penalty_probes(greedy, near_tie_logits),
        *_mask_probes(ids, word),
        *_end_probes(ids),
    )


def run_probe(send: Send, probe: Probe) -> Probed:
    """Return what the server does with one probe.

    A refusal counts if its message names the field: one for any other reason would pass
    for an answer. One that names another field that the probe needs tells nothing.
    Obedience counts if the same request without the field breaks the rule.
    """
    fields = dict(probe.fields)
    reply = send(fields)
    if reply.status == NO_ANSWER:
        expected = f"an answer, or a refusal that names {probe.name}"
        return Probed(probe, Behaviour.GONE, _finding(probe, f"none: {reply.document}", expected))
    if 400 <= reply.status < 500:
        said = _message(reply.document)
        if probe.name in said:
            return Probed(probe, Behaviour.REFUSED)
        if any(name in said for name in NEEDED & fields.keys()):
            return Probed(probe, Behaviour.UNTOLD)
    wrong = _what_is_wrong(probe, reply)
    if isinstance(wrong, Finding):
        return Probed(probe, Behaviour.BROKEN, wrong)
    if wrong is not None:
        return Probed(probe, Behaviour.IGNORED, _finding(probe, wrong, probe.expected))
    del fields[probe.name]
    control = _what_is_wrong(probe, send(fields))
    return Probed(probe, Behaviour.HONOURED if isinstance(control, str) else Behaviour.UNTOLD)


def _what_is_wrong(probe: Probe, reply: Reply) -> str | Finding | None:
    """Return the broken rule in words, a finding if there is no answer, None if all is well."""
    try:
        ids = [int(token) for token in reply.document["choices"][0]["token_ids"]]
    except (KeyError, IndexError, TypeError, ValueError):
        got = f"status {reply.status}: {str(reply.document)[:200]}"
        expected = f"token ids, or a refusal with status 4xx that names {probe.name}"
        return _finding(probe, got, expected)
    return probe.broken(ids)


def _filter_probes(greedy: GreedyAnswer, near_tie_logits: float) -> tuple[Probe, ...]:
    """Return filters that leave one token: hot sampling must then be greedy."""
    head = GreedyAnswer(
        greedy.prompt_id,
        greedy.token_ids[:PROBE_TOKENS],
        greedy.gap_logits[:PROBE_TOKENS],
        greedy.runner_up[:PROBE_TOKENS],
    )

    def differs(ids: Sequence[int]) -> str | None:
        found = first_divergence(head, tuple(ids), near_tie_logits)
        if found is None or found.near_tie:
            return None
        return (
            f"token {found.got} at index {found.position}, where greedy text has {found.expected}"
        )

    settings: tuple[tuple[str, Any], ...] = (("top_k", 1), ("top_p", 1e-6), ("min_p", 1.0))
    return tuple(
        _probe(name, "the greedy answer", differs, temperature=HOT, seed=1, **{name: value})
        for name, value in settings
    )


def _penalty_probes(greedy: GreedyAnswer, near_tie_logits: float) -> tuple[Probe, ...]:
    """Return the probes of penalties that must change the greedy answer; none if none must.

    A token that came c times before loses PENALTY (presence) or c times PENALTY
    (frequency), the runner-up likewise. If it loses more than its lead, another comes.
    """
    found = []
    for name, most in (("presence_penalty", 1), ("frequency_penalty", len(greedy.token_ids))):
        index = _first_overturned(greedy, most, near_tie_logits)
        if index is None:
            continue
        head = tuple(greedy.token_ids[: index + 1])

        def same(got: Sequence[int], head: tuple[int, ...] = head) -> str | None:
            return f"{list(got)}, as without it" if tuple(got) == head or not got else None

        settings = {"temperature": 0, "max_tokens": len(head), name: PENALTY}
        found.append(_probe(name, "another token than the repeated one", same, **settings))
    return tuple(found)


def _first_overturned(greedy: GreedyAnswer, most: int, near_tie_logits: float) -> int | None:
    """Return the first index whose token loses its lead to the penalty, counts capped at `most`."""
    for index, token in enumerate(greedy.token_ids):
        before = greedy.token_ids[:index]
        lost, other = (
            PENALTY * min(before.count(t), most) for t in (token, greedy.runner_up[index])
        )
        if lost - other > greedy.gap_logits[index] + near_tie_logits + PENALTY_SLACK_LOGITS:
            return index
    return None


def _mask_probes(ids: Sequence[int], word: str) -> tuple[Probe, ...]:
    """Return probes of what forces, forbids or allows tokens."""
    first, other = ids[0], next(token for token in ids if token != ids[0])
    pair = {first, other}

    def only_other(got: Sequence[int]) -> str | None:
        return _outside(got, {other})

    def only_pair(got: Sequence[int]) -> str | None:
        return _outside(got, pair)

    def without_first(got: Sequence[int]) -> str | None:
        return f"token {first} in {list(got)}" if first in got else None

    allowed = sorted(pair)
    return (
        _probe(
            "logit_bias",
            f"token {other} alone",
            only_other,
            temperature=1.0,
            logit_bias={str(other): 100},
        ),
        _probe("bad_words", f"no token {first}", without_first, temperature=0, bad_words=[word]),
        _probe(
            "allowed_token_ids",
            f"tokens {allowed} alone",
            only_pair,
            temperature=HOT,
            seed=1,
            allowed_token_ids=allowed,
        ),
    )


def _end_probes(ids: Sequence[int]) -> tuple[Probe, ...]:
    """Return probes of what ends an output, made of the greedy answer's own tokens."""
    first = ids[0]
    stop = next(token for token in ids if token != first)
    before = len(list(takewhile(lambda token: token != stop, ids)))

    def ends_at_stop(got: Sequence[int]) -> str | None:
        # The stop token itself may or may not be among the ids.
        kept = tuple(got) in {tuple(ids[:before]), tuple(ids[: before + 1])}
        return None if kept else f"{list(got)}"

    def long_enough(got: Sequence[int]) -> str | None:
        return f"{len(got)} tokens" if len(got) < PROBE_TOKENS // 2 else None

    return (
        _probe(
            "stop_token_ids",
            f"an end at token {stop}, index {before}",
            ends_at_stop,
            temperature=0,
            stop_token_ids=[stop],
            ignore_eos=True,
        ),
        _probe(
            "min_tokens",
            f"at least {PROBE_TOKENS // 2} tokens",
            long_enough,
            temperature=0,
            stop_token_ids=[first],
            min_tokens=PROBE_TOKENS // 2,
            ignore_eos=True,
        ),
    )


def _probe(name: str, expected: str, broken: Rule, **fields: Any) -> Probe:
    common = {"max_tokens": PROBE_TOKENS, "ignore_eos": True, "return_token_ids": True}
    whole = tuple((common | fields).items())
    return Probe(name=name, fields=whole, expected=expected, broken=broken)


def _outside(got: Sequence[int], allowed: set[int]) -> str | None:
    outside = [token for token in got if token not in allowed]
    if not got:
        return "no tokens"
    return f"token {outside[0]} in {list(got)}" if outside else None


def _message(document: Any) -> str:
    """Return why a request was refused, in OpenAI's form or as a plain `message`; "" if unsaid."""
    error = document.get("error", document) if isinstance(document, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _finding(probe: Probe, got: str, expected: str) -> Finding:
    return Finding(
        what="honoured, or refused by name", where=probe.name, got=got, expected=expected
    )
