"""What must hold of every answer and every counter exactly: any mismatch is a failure.

Pure functions over answers and counters, each of which returns what it found wrong; no
statistics and no level. Knows no servers. What a request asked for beside its law stands
in `Terms`; whether single parameters are honoured is asked by `draftgate.checks.probes`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.errors import SpecError
from draftgate.laws.answer import Answer

LOGPROB_TOLERANCE_NATS = {"float32": 1e-3, "bfloat16": 0.25}
"""Largest difference between a reported log-probability and the reference's, by dtype.

float32: forty times the largest of 5,184 differences, 2.4e-5, between what vLLM 0.32's CPU
build reported (without speculation, ngram, draft model; greedy and T = .8) and what its
server without speculation gave when it read the same ids; SmolLM2-135M, one thread a server.
bfloat16: four times the largest of 16,416 such differences, .064. Almost all were 0 there.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that does not hold.

    Attributes:
        what: The rule that is broken.
        where: The request or counter.
        got: What was there.
        expected: What the rule asks for.
    """

    what: str
    where: str
    got: str
    expected: str

    def __str__(self) -> str:
        """Say all of it in one line."""
        return f"{self.where}: {self.what}: got {self.got}, expected {self.expected}"


Findings = tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a request asked for beside its law.

    Attributes:
        max_tokens: Longest output, tokens.
        stop_strings: Whether it named stop strings, which end an output after any token.
        logprobs: Whether it asked for the log-probability of each token.
        k: Draft tokens per verify step; 0 without speculation, None if not known.
        keeps_stop: Whether the engine leaves the stop token in its ids; vLLM does.
    """

    max_tokens: int
    stop_strings: bool = False
    logprobs: bool = False
    k: int | None = None
    keeps_stop: bool = True


def answer_findings(answer: Answer, terms: Terms) -> Findings:
    """Return everything that does not hold of one answer by itself."""
    return (
        *count_findings(answer, terms),
        *length_findings(answer, terms),
        *ending_findings(answer),
        *finish_findings(answer, terms),
        *chunk_findings(answer, terms),
        *logprob_range_findings(answer),
        *mask_findings(answer),
    )


def count_findings(answer: Answer, terms: Terms) -> Findings:
    """Return where ids, log-probability entries and usage differ in number."""
    ids = len(answer.token_ids)
    counts: list[tuple[str, int]] = []
    if terms.logprobs:
        counts.append(("log-probability entries", len(answer.logprobs)))
    if answer.usage_tokens is not None:
        counts.append(("usage.completion_tokens", answer.usage_tokens))
    return tuple(
        _finding(answer, f"{name} must equal token ids", count, ids)
        for name, count in counts
        if count != ids
    )


def length_findings(answer: Answer, terms: Terms) -> Findings:
    """Return whether there are more than `max_tokens` tokens, or fewer than `min_tokens`."""
    got, least = len(answer.token_ids), answer.parameters.min_tokens
    if got > terms.max_tokens:
        rule = "no more tokens than max_tokens"
        return (_finding(answer, rule, got, f"at most {terms.max_tokens}"),)
    if got < min(least, terms.max_tokens):
        rule = "at least min_tokens tokens"
        return (_finding(answer, rule, got, f"at least {least}"),)
    return ()


def ending_findings(answer: Answer) -> Findings:
    """Return whether the output runs on after a stop token, or has one below `min_tokens`.

    A chain of accepted drafts may hold EOS in its middle; what follows it in the chain
    must not come out.
    """
    stops = set(answer.parameters.stop_token_ids)
    at = [index for index, token in enumerate(answer.token_ids) if token in stops]
    found: list[Finding] = []
    early = [index for index in at if index < answer.parameters.min_tokens]
    if early:
        index = early[0]
        token = f"stop token {answer.token_ids[index]} at index {index}"
        rule = "no stop token below min_tokens"
        least = answer.parameters.min_tokens
        found.append(_finding(answer, rule, token, f"none before index {least}"))
    over = [index for index in at if index < len(answer.token_ids) - 1]
    if over:
        index = over[0]
        more = len(answer.token_ids) - 1 - index
        token = f"{more} after token {answer.token_ids[index]} at index {index}"
        found.append(_finding(answer, "no tokens after EOS or a stop token", token, "0"))
    return tuple(found)


def finish_findings(answer: Answer, terms: Terms) -> Findings:
    """Return whether the finish reason contradicts the output's length or its last token.

    An output that the model's context ends is `length` too and shorter than `max_tokens`:
    ask for no more than fits.
    """
    got, reason = len(answer.token_ids), answer.finish_reason
    stops = answer.parameters.stop_token_ids
    stopped = got > 0 and answer.token_ids[-1] in stops
    if reason == "length" and got < terms.max_tokens:
        rule = "finish_reason 'length' only at max_tokens"
        return (_finding(answer, rule, f"{got} tokens", f"{terms.max_tokens}"),)
    if reason == "length" and stopped and terms.keeps_stop:
        rule = "finish_reason of an output that ends in a stop token"
        return (_finding(answer, rule, "'length'", "'stop'"),)
    may_be_elsewhere = terms.stop_strings or answer.parameters.structure is not None
    if reason == "stop" and terms.keeps_stop and not (stopped or may_be_elsewhere):
        last = answer.token_ids[-1] if answer.token_ids else "no token"
        rule = "finish_reason 'stop' only at a stop token"
        return (_finding(answer, rule, f"last is {last}", f"one of {list(stops)}"),)
    return ()


def chunk_findings(answer: Answer, terms: Terms) -> Findings:
    """Return the first chunk that holds more tokens than one step can yield.

    A step yields at most K accepted drafts and one token of the target. The first chunk
    comes from prefill. Servers that gather several steps in a chunk (a stream interval
    over 1) break this rule rightly: leave `k` None for them.
    """
    if terms.k is None:
        return ()
    most = terms.k + 1
    for index, size in enumerate(answer.chunks):
        if size > most:
            rule = f"chunk {index} holds at most K + 1 tokens"
            return (_finding(answer, rule, size, f"at most {most}"),)
    return ()


def logprob_range_findings(answer: Answer) -> Findings:
    """Return the first log-probability that is none: over 0, infinite or not a number."""
    for index, value in enumerate(answer.logprobs):
        if not (math.isfinite(value) and value <= 1e-6):  # float32's rounding of log(1)
            rule = f"log-probability of token {index} is finite and at most 0"
            return (_finding(answer, rule, value, "a number <= 0"),)
    return ()


def mask_findings(answer: Answer) -> Findings:
    """Return tokens that the request forbade: outside the allowed ids, or a bad word."""
    allowed = set(answer.parameters.allowed_token_ids)
    outside = [t for t in answer.token_ids if allowed and t not in allowed]
    found = []
    if outside:
        rule = "only allowed_token_ids"
        found.append(_finding(answer, rule, f"token {outside[0]}", f"one of {sorted(allowed)}"))
    for word in answer.parameters.bad_words:
        at = occurrence(answer.token_ids, word)
        if at is not None:
            got = f"tokens {list(word)} at index {at}"
            found.append(_finding(answer, "no bad word", got, "never"))
    return tuple(found)


def logprob_findings(answer: Answer, reference: Sequence[float], tolerance_nats: float) -> Findings:
    """Return the token whose reported log-probability is farthest from the reference's.

    Args:
        answer: With its `logprobs`.
        reference: Log-probability of each of its tokens by the reference, nats, in the
            same form as the server reports them (vLLM: before temperature and filters).
        tolerance_nats: Largest difference let through; see LOGPROB_TOLERANCE_NATS.

    Raises:
        ValueError: If the two differ in length.
    """
    if len(reference) != len(answer.logprobs):
        raise ValueError(
            f"{len(reference)} reference log-probabilities for {len(answer.logprobs)} reported ones"
        )
    gaps = [abs(a - b) for a, b in zip(answer.logprobs, reference, strict=True)]
    if not gaps or max(gaps) <= tolerance_nats:
        return ()
    index = gaps.index(max(gaps))
    rule = f"log-probability of token {index} (id {answer.token_ids[index]}) equals the reference's"
    expected = f"{reference[index]:.5f} within {tolerance_nats:g}"
    return (_finding(answer, rule, f"{answer.logprobs[index]:.5f}", expected),)


@dataclass(frozen=True, slots=True)
class SeedPromise:
    """What an engine promises of a request that is sent twice with one seed.

    Attributes:
        kept: Whether both must give the same ids when each runs alone on the server.
        source: Where this stands.
    """

    kept: bool
    source: str


SEED_PROMISES = {
    "vllm": SeedPromise(
        kept=True,
        source="own generator per seeded request (v1/worker/gpu_model_runner.py, "
        "v1/sample/rejection_sampler.py, 0.32); in company only with VLLM_BATCH_INVARIANT=1 "
        "(docs, usage/reproducibility)",
    ),
    "sglang": SeedPromise(
        kept=False,
        source="sampling_seed works with --enable-deterministic-inference alone (docs, "
        "advanced_features/deterministic_inference); the coins of verification come from the "
        "global generator (srt/speculative/eagle_info.py)",
    ),
    "tensorrt_llm": SeedPromise(
        kept=False,
        source="per-request Philox streams are in newer versions only (_torch/pyexecutor/sampler, "
        "_SeedManager), whose text says of earlier kernels that batched rows share one seed",
    ),
}
"""By engine. A promise that is not made is not held against an engine."""


def repeat_findings(first: Answer, second: Answer, engine: str) -> Findings:
    """Return whether one seed gave two outputs where the engine promises one.

    Raises:
        SpecError: If the engine is not in SEED_PROMISES.
    """
    if engine not in SEED_PROMISES:
        raise SpecError(
            f"no seed promise known of engine {engine!r}, expected one of "
            f"{', '.join(SEED_PROMISES)}. Look it up and add it to SEED_PROMISES."
        )
    if not SEED_PROMISES[engine].kept or first.token_ids == second.token_ids:
        return ()
    pairs = zip(first.token_ids, second.token_ids, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    index = min(len(first.token_ids), len(second.token_ids)) if at is None else at
    got, expected = second.token_ids[index:][:1], first.token_ids[index:][:1]
    rule = f"same ids for the same seed (index {index})"
    return (_finding(second, rule, list(got), f"{list(expected)} as in request {first.request}"),)


def occurrence(token_ids: Sequence[int], word: Sequence[int]) -> int | None:
    """Return where `word` first begins in `token_ids`; None if it never does."""
    ids, size = tuple(token_ids), len(word)
    places = range(len(ids) - size + 1)
    return next((i for i in places if ids[i : i + size] == tuple(word)), None)


def _finding(answer: Answer, what: str, got: object, expected: object) -> Finding:
    where = f"request {answer.request} ({answer.prompt_id})"
    return Finding(what=what, where=where, got=str(got), expected=str(expected))
