"""One distribution check from what a user names to its result.

Connects, builds the reference, gathers, judges and picks the worst example; writes
nothing and prints nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate import __version__
from draftgate.checks.ask import Post
from draftgate.checks.budget import Budget
from draftgate.checks.collect import Asked, Server, seed_of
from draftgate.checks.conditions import Condition
from draftgate.checks.distribution import Arms, CheckPlan, Gathered, Progress, gather
from draftgate.checks.example import Witness, worst_of
from draftgate.checks.filters import with_known_law
from draftgate.checks.judge import judge, with_mismatches
from draftgate.checks.outcome import CheckOutcome, CheckResult, Subject
from draftgate.checks.probes import NO_ANSWER, Reply
from draftgate.checks.probing import Answering, ProbeReport, Text, probe_server
from draftgate.checks.rule import RuleEvidence
from draftgate.checks.sources import (
    ServerSetting,
    Source,
    drafter_of,
    model_source,
    server_source,
    special_ids_in,
)
from draftgate.checks.spelling import LocalSpelling, ServerSpelling, Spelling
from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import load_prompts
from draftgate.engines.running import RunningEngine, launch
from draftgate.errors import EngineError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.proposals import Drafter
from draftgate.load.requests import Endpoint
from draftgate.specs import Arm, EngineSpec, UrlLaunch

MOST_PROMPTS = 64
"""Prompts that are tokenised; with four of five requests on a prompt of its own they come
again after 80 requests, with another condition or length."""


_UNACCUSED = (CheckOutcome.PASS, CheckOutcome.INCONCLUSIVE)
"""Outcomes after which parameters are probed. A server that samples wrongly may also die of a
filter, and is found out already."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server as a user names it; `model` None takes the first that it serves."""

    url: str
    model: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSetup:
    """What to check against what, as a user says it.

    Attributes:
        checked: The server under test.
        engine: Key of `draftgate.checks.collect.DIALECTS`.
        reference: Another server, the name or folder of a model, or None for the server
            under test itself.
        plain: The A/A arm, a server of the same build without speculation; None takes
            `reference` if that is a server, and otherwise there is none.
        draft: Name or folder of the draft model, or `ngram[:MIN-MAX]`; None if not known.
        k: Draft tokens per verify step; None if not known.
        dtype: What the servers compute in.
        conditions: Settings of sampling.
        alpha: Bound on the chance that any condition of a faultless server alarms.
        budget: When to end without an alarm.
        prompts: Name or file of a dataset.
        tokenizer: Folder with the tokenizer; None takes the reference's or the server's.
        vocabulary: Number of tokens; None if it is not known.
        seed: Of requests and prompts.
        draft_sampled: Whether the draft model's tokens are drawn, not its most likely ones.
        probes: Whether to ask what the server does with single parameters, at the end and
            only of one whose text was not found wrong.
    """

    checked: Address
    engine: str
    reference: Address | str | None
    plain: Address | None
    draft: str | None
    k: int | None
    dtype: str
    conditions: tuple[Condition, ...]
    alpha: float
    budget: Budget
    prompts: str
    tokenizer: str | None
    vocabulary: int | None
    seed: int
    draft_sampled: bool = False
    probes: bool = True


def against_target(
    engine: RunningEngine,
    plain: RunningEngine,
    *,
    conditions: tuple[Condition, ...],
    alpha: float,
    budget: Budget,
    seed: int,
) -> CheckSetup:
    """Return the check of a running server against a forward pass of its target.

    Args:
        engine: The server under test.
        plain: The A/A arm, the same build without speculation.
        conditions: As in `CheckSetup`, like all that follow.
        alpha: See there.
        budget: See there.
        seed: See there.
    """
    drafts = engine.spec.speculative
    return CheckSetup(
        checked=Address(engine.base_url),
        engine=engine.spec.engine,
        reference=engine.spec.target,
        plain=Address(plain.base_url),
        draft=None,
        k=None if drafts is None else drafts.num_speculative_tokens,
        dtype=engine.spec.dtype,
        conditions=conditions,
        alpha=alpha,
        budget=budget,
        prompts="mixed",
        tokenizer=None,
        vocabulary=None,
        seed=seed,
        probes=False,  # they have tests of their own, one request at a time
    )


@dataclass(frozen=True, slots=True)
class Connection:
    """A server that answers, with the name of its model."""

    endpoint: Endpoint
    post: Post
    answering: Answering


def take_check(
    setup: CheckSetup,
    tell: Callable[[str], None],
    on_progress: Callable[[Progress], None],
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[CheckResult, Gathered]:
    """Run a check and return its result with all that it rests on.

    Raises:
        SpecError: If the setup makes no sense.
        EngineError: If a server is not there or answers nothing of use.
    """
    started_at = clock.wall().isoformat(timespec="seconds")
    checked = connect("checked server", setup.checked, tell)
    plain_at = setup.plain or (setup.reference if isinstance(setup.reference, Address) else None)
    plain = None if plain_at is None else connect("server without speculation", plain_at, tell)
    source = _source(setup, checked, plain, tell)
    spelling = _spelling(setup, checked, source)
    chosen = load_prompts(setup.prompts, setup.seed)[:MOST_PROMPTS]
    prompts = [(prompt.prompt_id, spelling.ids(prompt)) for prompt in chosen]
    server = Server(checked.endpoint, setup.engine)
    plain_server = None if plain is None else Server(plain.endpoint, setup.engine)
    plan = _plan(setup, source, tell)
    arms = Arms(
        checked=server.ask,
        plain=None if plain_server is None else plain_server.ask,
        reference=source.reference,
        joint=_rule(plan, source),
    )
    gathered = gather(plan, arms, prompts, clock, on_progress)
    witnesses = [
        _witness(spelling, source, one, setup.seed) for one in (server, plain_server or server)
    ]
    judged = judge(gathered.findings, float32=setup.dtype == "float32")
    asked = setup.probes and judged.outcome in _UNACCUSED and not gathered.interrupted
    probed = _probed(setup, checked, prompts, spelling) if asked else ProbeReport(())
    mismatches = (*gathered.mismatches, *probed.findings)
    result = CheckResult(
        subject=_subject(setup, checked, plain, source),
        judgement=with_mismatches(judged, mismatches),
        findings=gathered.findings,
        worst=worst_of(gathered, *witnesses),
        alpha=setup.alpha,
        budget=str(setup.budget),
        elapsed_s=gathered.elapsed_s,
        requests=gathered.requests,
        failures=gathered.failures,
        interrupted=gathered.interrupted,
        started_at=started_at,
        draftgate=__version__,
        mismatches=mismatches,
        parameters=tuple((e.probe.name, e.behaviour.value) for e in probed.probed),
        not_probed=probed.left_out,
    )
    return result, gathered


def _probed(
    setup: CheckSetup, checked: Connection, prompts: Sequence[Text], spelling: Spelling
) -> ProbeReport:
    """Return what the server under test does with single parameters."""
    return probe_server(
        checked.answering,
        setup.engine,
        checked.endpoint.model,
        prompts,
        spelling.text,
        setup.dtype,
    )


def connect(name: str, address: Address, tell: Callable[[str], None]) -> Connection:
    """Return a connection to a server that answers now.

    Raises:
        EngineError: If it does not, or serves no model of that name.
        SpecError: If its key's variable is unset, or its address is none.
    """
    url = address.url.rstrip("/").removesuffix("/v1")
    target = UrlLaunch(url, address.model, address.api_key_env)
    # Health and list of models are the same for all engines, so any adapter does.
    arm = Arm(name, EngineSpec(engine="vllm", target=address.model or url, launch=target))
    engine = launch(arm, Path(), tell)
    engine.wait_ready(tell)
    endpoint = Endpoint(url, engine.model, address.api_key_env)
    return Connection(endpoint, engine.post, lambda path, body: _answered(engine, path, body))


def _answered(engine: RunningEngine, path: str, body: dict[str, Any]) -> Reply:
    """Return what a server says to a request; that it says nothing is an answer here as well."""
    try:
        return Reply(*engine.answer(path, body))
    except EngineError as error:
        return Reply(NO_ANSWER, str(error))


def asked_again(answer: Answer, seed: int) -> Asked:
    """Return the request of an answer of a check with this seed."""
    return Asked(
        request=answer.request,
        condition=0,
        prompt_id=answer.prompt_id,
        prompt=answer.prompt_token_ids,
        parameters=answer.parameters,
        max_tokens=len(answer.token_ids),
        seed=seed_of(seed, answer.request),
    )


def _witness(spelling: Spelling, source: Source, server: Server, seed: int) -> Witness:
    """Return who tells of answers of one server."""
    return Witness(spelling.text, source.likely, lambda a: server.curl(asked_again(a, seed)))


def _source(
    setup: CheckSetup, checked: Connection, plain: Connection | None, tell: Callable[[str], None]
) -> Source:
    drafter = drafter_of(setup.draft, setup.k)
    model = setup.draft if drafter is None else None
    if setup.draft_sampled and model is None:
        raise SpecError(
            f"--draft-sampled: got {setup.draft or 'no draft'}, expected a model whose tokens are "
            "drawn. Give --draft MODEL, or leave it out."
        )
    if isinstance(setup.reference, str):
        return model_source(
            setup.reference,
            setup.engine,
            draft=model,
            drafts_sampled=setup.draft_sampled,
            drafter=drafter,
            dtype=setup.dtype,
        )
    _check_server_reference(setup, drafter)
    reader = _reader(setup.reference, setup.plain, (checked, plain), tell)
    setting = ServerSetting(
        vocabulary=setup.vocabulary,
        dtype=setup.dtype,
        drafter=drafter,
        special=special_ids_in(setup.tokenizer),
        itself=checked.endpoint.base_url if setup.reference is None else None,
    )
    return server_source(reader.post, reader.endpoint.model, setting)


def _reader(
    reference: Address | None,
    named_plain: Address | None,
    known: tuple[Connection, Connection | None],
    tell: Callable[[str], None],
) -> Connection:
    """Return the server that reads answers: the checked one, the A/A arm or a third one."""
    checked, plain = known
    if reference is None:
        return checked
    if named_plain is None:
        assert plain is not None, "a server as reference is the A/A arm where none is named"
        return plain
    return connect("reference", reference, tell)


def _check_server_reference(setup: CheckSetup, drafter: Drafter | None) -> None:
    """Refuse what only a model as reference can do.

    Raises:
        SpecError: If there is a draft model, or an engine that does not read given tokens.
    """
    if setup.draft is not None and drafter is None:
        raise SpecError(
            f"--draft {setup.draft}: got a draft model with a server as reference, expected "
            "--reference MODEL beside it: both run here. Give one, or leave --draft out."
        )
    if setup.engine != "vllm":
        raise SpecError(
            f"engine {setup.engine!r}: got a server as reference, expected a model: only vLLM's "
            "API reads given tokens (prompt_logprobs). Give --reference MODEL, and --plain URL "
            "for the A/A arm."
        )


def _spelling(setup: CheckSetup, checked: Connection, source: Source) -> Spelling:
    folder = setup.tokenizer or source.folder
    if folder is not None:
        return LocalSpelling(folder)
    return ServerSpelling(checked.post, checked.endpoint.model)


def _plan(setup: CheckSetup, source: Source, tell: Callable[[str], None]) -> CheckPlan:
    asked = setup.conditions
    return CheckPlan(
        conditions=asked if source.filters else with_known_law(asked, setup.dtype, tell),
        alpha=setup.alpha,
        budget=setup.budget,
        k=setup.k,
        vocabulary=source.vocabulary,
        special=source.special,
        seed=setup.seed,
    )


def _rule(plan: CheckPlan, source: Source) -> RuleEvidence | None:
    """Return what looks at drafts; None where proposals or whole laws are not known."""
    if source.drafter is None or source.laws is None or plan.k is None:
        return None
    return RuleEvidence(
        plan.conditions,
        plan.alpha_each(joint=True),
        source.laws,
        drafter=source.drafter,
        k=plan.k,
        vocabulary=plan.vocabulary,
    )


def _subject(
    setup: CheckSetup, checked: Connection, plain: Connection | None, source: Source
) -> Subject:
    return Subject(
        url=checked.endpoint.base_url,
        model=checked.endpoint.model,
        engine=setup.engine,
        k=setup.k,
        dtype=setup.dtype,
        reference=source.reference.name,
        blind_to=source.reference.blind_to,
        plain_url=None if plain is None else plain.endpoint.base_url,
    )
