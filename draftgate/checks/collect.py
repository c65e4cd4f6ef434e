"""Asks a server for sampled text and returns answers in token ids, chunk by chunk.

Requests go through the load generator and its dialects, several open at once, so
that drafts of several requests are verified together. Knows no laws and judges
nothing. A round is kept whole or not at all: which answers are ready at some moment
depends on how many drafts were accepted, so a cut round would favour some tokens.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from draftgate.checks.conditions import sampling
from draftgate.checks.exact import Finding
from draftgate.errors import EngineError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.load.apis import LoadPrompt
from draftgate.load.closed import ClosedLoopPlan
from draftgate.load.generator import run
from draftgate.load.requests import Endpoint, PreparedRequest, prepare
from draftgate.records import FailureKind, RequestRecord

DIALECTS = {"vllm": "completions", "sglang": "sglang", "tensorrt_llm": "trtllm"}
"""Per engine the load generator's dialect that takes and returns token ids."""

OUTPUT_TOKENS = (24, 48, 72)
"""Lengths in turn, so that requests begin and end while others are being verified."""

SIBLING_EVERY = 4
"""Every fourth prompt is sent twice at the same time: a server that draws both with one
random number, or hands one request the other's tokens, is seen only there."""

SEEDED_EVERY = 4
"""Every fourth request has a seed of its own; engines draw for those on another path."""

ROUND_GROUPS = 3
"""Groups of requests in a round of few conditions; a group is four prompts, one of them
twice. With more conditions each has one group, so that all of them are in every round
and requests with unlike settings are verified in one batch. The first round has one group
of each in any case: it is enough to see a gross fault."""

STREAMS = 16
"""Requests open at once. A step of a small model on the CPU costs little more for 16 than for
8: SmolLM2-135M gives 157 tokens/s at 8 streams and 259 at 32."""

STALL_TIMEOUT_S = 120.0
"""Silence after which a request is given up; a CPU engine under load needs tens of
seconds for its first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request to make.

    Attributes:
        request: Running number in the check; no two requests of an arm share one.
        condition: Index of its condition.
        prompt_id: Which prompt it is.
        prompt: Its token ids.
        parameters: How tokens are drawn.
        max_tokens: Length of the output.
        seed: Seed of the request; None leaves it to the server.
    """

    request: int
    condition: int
    prompt_id: str
    prompt: tuple[int, ...]
    parameters: LawParameters
    max_tokens: int
    seed: int | None


@dataclass(frozen=True, slots=True)
class Round:
    """What one round brought.

    Attributes:
        answers: By number of the request.
        failures: Why other requests brought none.
        mismatches: Those among them in which ids, usage and `max_tokens` contradict each other.
    """

    answers: tuple[Answer, ...]
    failures: tuple[str, ...] = ()
    mismatches: tuple[Finding, ...] = ()


Ask = Callable[[Sequence[Asked]], Round]
"""Sends a round and waits for its answers."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers in token ids.

    Attributes:
        endpoint: Where it listens and what it calls its model.
        engine: Key of `DIALECTS`.
        streams: Requests open at once.
        stall_timeout_s: Silence after which a request is given up.
    """

    endpoint: Endpoint
    engine: str
    streams: int = STREAMS
    stall_timeout_s: float = STALL_TIMEOUT_S

    def __post_init__(self) -> None:
        if self.engine not in DIALECTS:
            raise SpecError(
                f"engine {self.engine!r}: expected one of {', '.join(DIALECTS)}, whose APIs return "
                "token ids."
            )

    def prepared(self, asked: Asked) -> PreparedRequest:
        """Return a request in the engine's own form; its number stands in for the prompt's id."""
        prompt = LoadPrompt(str(asked.request), token_ids=asked.prompt)
        settings = sampling(asked.parameters, asked.max_tokens, asked.seed)
        return prepare(DIALECTS[self.engine], prompt, self.endpoint.model, settings)

    def ask(self, requests: Sequence[Asked]) -> Round:
        """Send requests and return what came back once all have ended.

        Raises:
            EngineError: If no request brought an answer.
            KeyboardInterrupt: On Ctrl-C, once all sockets are closed.
        """
        waiting = iter([self.prepared(asked) for asked in requests])
        plan = ClosedLoopPlan(
            concurrency=min(self.streams, len(requests)),
            stall_timeout_s=self.stall_timeout_s,
            run_timeout_s=self.stall_timeout_s * len(requests),
            keep_text=False,
            has_window=False,
            max_requests=len(requests),
        )
        result = run(self.endpoint, lambda _: next(waiting, None), plan)
        return _round(self.endpoint, requests, result.records)

    def curl(self, asked: Asked) -> str:
        """Return a command that sends a request again; the key is read from its variable."""
        request, key = self.prepared(asked), self.endpoint.api_key_env
        words = ["curl", "-N", f"{self.endpoint.base_url}{request.path}"]
        words += ["-H", "Content-Type: application/json", "-d", request.body.decode()]
        header = f' -H "Authorization: Bearer ${key}"' if key else ""
        return shlex.join(words) + header


def rounds(
    prompts: Sequence[tuple[str, tuple[int, ...]]], parameters: Sequence[LawParameters], seed: int
) -> Iterator[tuple[Asked, ...]]:
    """Yield rounds without end; each holds as many requests of every condition.

    Args:
        prompts: Pairs of id and token ids, taken in turn.
        parameters: One per condition.
        seed: From which requests' seeds are made.
    """
    groups, number = 1, 0
    while True:
        batch = []
        for condition, wanted in enumerate(parameters):
            for _ in range(groups * (SIBLING_EVERY + 1)):
                batch.append(_asked(prompts, condition, wanted, seed, number))
                number += 1
        yield tuple(batch)
        groups = max(1, -(-ROUND_GROUPS // len(parameters)))


def seed_of(seed: int, number: int) -> int | None:
    """Return the seed of request `number` of a check with this seed; None for most."""
    return (seed + number) % 2**31 if number % SEEDED_EVERY == 0 else None


def _asked(
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    condition: int,
    wanted: LawParameters,
    seed: int,
    number: int,
) -> Asked:
    turn, place = divmod(number, SIBLING_EVERY + 1)
    prompt_id, ids = prompts[(turn * SIBLING_EVERY + min(place, SIBLING_EVERY - 1)) % len(prompts)]
    return Asked(
        request=number,
        condition=condition,
        prompt_id=prompt_id,
        prompt=ids,
        parameters=wanted,
        max_tokens=OUTPUT_TOKENS[number % len(OUTPUT_TOKENS)],
        seed=seed_of(seed, number),
    )


def _round(
    endpoint: Endpoint, requests: Sequence[Asked], records: Sequence[RequestRecord]
) -> Round:
    asked = {entry.request: entry for entry in requests}
    answers = [
        answer_of(asked[int(record.prompt_id)], record)
        for record in records
        if record.failure is None
    ]
    failures = tuple(
        f"request {record.prompt_id}: {record.failure.kind.value}: {record.failure.message}"
        for record in records
        if record.failure is not None
    )
    if not answers:
        raise EngineError(
            f"{endpoint.base_url}: none of {len(requests)} requests brought an answer in token "
            f"ids; the first: {failures[0] if failures else 'none was sent'}. Is --engine the one "
            "that serves there?"
        )
    mismatches = tuple(
        Finding(
            what="token ids, usage and max_tokens agree",
            where=f"request {record.prompt_id} ({asked[int(record.prompt_id)].prompt_id})",
            got=record.failure.message,
            expected="the same number",
        )
        for record in records
        if record.failure is not None and record.failure.kind is FailureKind.WRONG_LENGTH
    )
    ordered = tuple(sorted(answers, key=lambda answer: answer.request))
    return Round(ordered, failures, mismatches)


def answer_of(asked: Asked, record: RequestRecord) -> Answer:
    """Return a served request as an answer."""
    return Answer(
        request=asked.request,
        prompt_id=asked.prompt_id,
        prompt_token_ids=asked.prompt,
        token_ids=tuple(token for chunk in record.chunks for token in chunk.token_ids),
        chunks=tuple(len(chunk.token_ids) for chunk in record.chunks),
        finish_reason=record.finish_reason,
        parameters=asked.parameters,
        usage_tokens=record.completion_tokens,
    )
