"""The exact reference for the scripted server's known model, and checks against it.

What the model's own code says of each token, as rows of scores: nothing is estimated,
so whatever a check finds is the server's doing or the check's own fault.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from draftgate.checks.budget import parse_budget
from draftgate.checks.collect import Ask, Asked, Round, Server
from draftgate.checks.conditions import conditions
from draftgate.checks.distribution import CheckPlan
from draftgate.checks.rule import RuleEvidence
from draftgate.engines.fake_law import Model, Sampling, law, likeliest_draft
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.laws.rows import known_columns, places_of, siblings_of, steps_of
from draftgate.load.requests import Endpoint
from draftgate.stats.scores import Scores, joined, score_many

VOCABULARY = 50
K = 4
FAST = {"step_s": 0.0, "ttft_s": 0.0}
PROMPTS = tuple((f"p{number}", (number, number + 1, 7)) for number in range(20))


def scripted(*, fault: str | None = None, k: int = K, **more: Any) -> FakeConfig:
    """Return a server of the known model that speculates, or with k = 0 does not."""
    return FakeConfig(
        law="context",
        vocab_size=VOCABULARY,
        method="draft_model" if k else None,
        k=k,
        law_fault=fault,
        **{**FAST, **more},
    )


def server_at(server: FakeServer) -> Server:
    """Return how a check asks a scripted server."""
    return Server(Endpoint(server.url, server.config.model), "vllm")


def plan(budget: str = "1500", *names: str, alpha: float = 1e-4, seed: int = 1) -> CheckPlan:
    """Return a plan over the named conditions, by default T=1 alone."""
    return CheckPlan(
        conditions=conditions(names or ("T=1",)),
        alpha=alpha,
        budget=parse_budget(budget),
        k=K,
        vocabulary=VOCABULARY,
        special=0,
        seed=seed,
    )


def model_ask(*, fault: str | None = None, k: int = K, share: float = 1.0, seed: int = 0) -> Ask:
    """Return what asks the known model in this process, without a server."""
    model = Model(vocab_size=VOCABULARY, k=k, fault=fault, fault_share=share)

    def ask(requests: Sequence[Asked]) -> Round:
        return Round(tuple(_answer(model, asked, seed) for asked in requests))

    return ask


def _answer(model: Model, asked: Asked, seed: int) -> Answer:
    wanted = asked.parameters
    sampling = Sampling(temperature=wanted.temperature, top_k=wanted.top_k, top_p=wanted.top_p)
    rng = random.Random(f"{seed} {asked.request}")
    steps = model.steps(asked.prompt, asked.max_tokens, sampling, rng)
    return Answer(
        request=asked.request,
        prompt_id=asked.prompt_id,
        prompt_token_ids=asked.prompt,
        token_ids=tuple(token for step in steps for token in step.tokens),
        chunks=tuple(len(step.tokens) for step in steps),
        finish_reason="length",
        parameters=wanted,
    )


class ScriptedReference:
    """The model's own laws; knows the drafts as well."""

    name = "the scripted model's own law"
    blind_to: tuple[str, ...] = ("the first token of each answer",)

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return one row for every token but the first of each answer."""
        siblings = siblings_of(answers)
        return joined([_rows(a, k, s) for a, s in zip(answers, siblings, strict=True)])


def laws_of(answer: Answer) -> Any:
    """Return the model's laws at each place of an answer, shape (n, V)."""
    text = [*answer.prompt_token_ids, *answer.token_ids]
    begin = len(answer.prompt_token_ids)
    return np.array([_law(text[:end], answer.parameters) for end in range(begin, len(text))])


def rule_of(wanted: CheckPlan) -> RuleEvidence:
    """Return what holds the model's steps against the rule, with its own drafts."""
    return RuleEvidence(
        wanted.conditions,
        wanted.alpha_each(joint=True),
        laws_of,
        drafter=Model(vocab_size=VOCABULARY, k=K).drafts,
        k=K,
        vocabulary=VOCABULARY,
    )


def _rows(answer: Answer, k: int | None, sibling: Any) -> Scores:
    text = [*answer.prompt_token_ids, *answer.token_ids]
    begin = len(answer.prompt_token_ids)
    laws = laws_of(answer)
    free = np.array([_law(text[:end], LawParameters()) for end in range(begin + 1, len(text))])
    ids = np.array(answer.token_ids[1:])
    every = np.arange(len(ids))
    likely = [likeliest_draft(text[:end], VOCABULARY) for end in range(begin + 1, len(text))]
    with np.errstate(divide="ignore"):
        logs = np.log(laws)
        columns = known_columns(answer, places_of(answer, steps_of(answer, k)), sibling, ())
        columns |= {"before": logs[every, ids], "draft": np.array(likely) if k else -1 + 0 * ids}
        if answer.parameters.filtered:
            columns["unfiltered"] = np.log(free[every, ids])
    return score_many(logs[1:], ids, **columns)


def _law(text: Sequence[int], asked: LawParameters) -> tuple[float, ...]:
    sampling = Sampling(temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p)
    return law(text, VOCABULARY, sampling)
