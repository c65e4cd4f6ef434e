"""Wrong rejection samplers in the served engine are found, and the honest one is not.

One server with a bad draft runs them all; a file switches them (`tests/planted/mutants`).
Each mutant has a budget of tokens and the parameters under which it shows: sampled text
is held against the target's law, verify steps against their rule where proposals are
known (greedy drafts), lengths and ends against the exact rules.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from draftgate.checks.budget import TokenBudget
from draftgate.checks.conditions import conditions
from draftgate.checks.exact import Findings, Terms, ending_findings, length_findings
from draftgate.checks.outcome import CheckOutcome
from draftgate.checks.run import against_target, take_check
from draftgate.checks.spelling import LocalSpelling
from draftgate.datasets import load_prompts
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.laws.forward import ForwardReference, special_token_ids
from draftgate.laws.parameters import LawParameters
from draftgate.plugin.session import GateSession
from draftgate.specs import Profile
from draftgate.targets import resolve_target
from tests.correctness.conftest import in_float32
from tests.planted.mutants import draftgate_mutants as plugin
from tests.support import mutants
from tests.support.mutant_evidence import (
    TOGETHER,
    Asked,
    Verdict,
    ask_all,
    joint_rows,
    joint_verdict,
    law_verdict,
    until_alarm,
)
from tests.support.situations import Examiner, cases, search

pytestmark = [pytest.mark.correctness, pytest.mark.slow]

TOKENS = 33
"""Length of an answer; its first token is not speculated."""

PROMPT_TOKENS = 48
"""Longest prompt: the reference reads every prompt anew."""

BASE = LawParameters(temperature=0.8, ignore_eos=True)
NUCLEUS = replace(BASE, top_p=0.95)
TOP_40 = replace(BASE, top_k=40)
SEARCH_EXAMPLES = 8
"""Situations drawn for a mutant before a search gives up."""

PLAIN = replace(BASE, temperature=1.0)
MIX = (BASE, NUCLEUS, TOP_40, PLAIN)
FILTERS = (NUCLEUS, TOP_40)
COLD = (replace(BASE, temperature=0.4),)
PENALTIES = (replace(BASE, presence_penalty=0.6, frequency_penalty=0.4, repetition_penalty=1.2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """How one mutant is looked for.

    Attributes:
        budget: Tokens within which it must be found.
        parameters: What requests ask for, in turn.
        greedy_drafts: Whether drafts are the draft model's most likely tokens.
        joint: Whether verify steps are held against their rule, not tokens against a law.
        same_prompt: Whether all requests of a round have one prompt.
    """

    budget: int
    parameters: tuple[LawParameters, ...] = MIX
    greedy_drafts: bool = False
    joint: bool = False
    same_prompt: bool = False


PLANTED = {
    "recovered_from_target": Planted(budget=2000),
    "accept_if_argmax": Planted(budget=2000),
    "accept_above_threshold": Planted(budget=2000),
    "bonus_from_draft": Planted(budget=2000),
    "temperature_ignored": Planted(budget=2000, parameters=(BASE,)),
    "ratio_mismatch": Planted(budget=2000),
    "row_off_by_one": Planted(budget=2000),
    "one_coin_for_the_chain": Planted(budget=3000, greedy_drafts=True, joint=True),
    "greedy_recovered": Planted(budget=2000),
    "always_accept": Planted(budget=2000),
    "rejected_kept": Planted(budget=3000, greedy_drafts=True, joint=True),
    "padding_token": Planted(budget=3000),
    "stale_rows": Planted(budget=2000),
    "bonus_ignores_temperature": Planted(budget=3000, parameters=COLD),
    "one_quantile_per_request": Planted(budget=2000),
    "filters_dropped_on_recovered": Planted(budget=2000, parameters=FILTERS),
    "penalties_not_on_verified_rows": Planted(budget=2000, parameters=PENALTIES),
    "seed_shared_by_rows": Planted(
        budget=2000, parameters=(BASE,), greedy_drafts=True, same_prompt=True
    ),
}
"""How each mutant that changes the law or the rule is looked for.

`noise_shared_with_draft` is left out: it is .001 nats a token, 30,000 tokens by text
(benchmarks/correctness). On a GPU `test_rejection_sampler.py` finds it in the engine's own sampler.
"""

ALPHA = 1e-4 / (len(PLANTED) + 3)
"""Bound on false alarms of one condition: the issue's 1e-4, shared with the three honest runs."""

RULE_TOKENS = 700
"""Tokens of the check of n-gram drafts, with which it may say PASS at all."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A running server that can be made wrong, and what it is held against."""

    engine: RunningEngine
    control: Path
    references: dict[bool, ForwardReference]
    prompts: tuple[tuple[str, tuple[int, ...]], ...]
    say: Callable[[str], None]

    def requests(self, planted: Planted, number: int) -> tuple[Asked, ...]:
        """Return the requests of round `number`."""
        first = number * TOGETHER
        return tuple(
            Asked(
                first + i,
                *self.prompts[(number if planted.same_prompt else first + i) % len(self.prompts)],
                planted.parameters[i % len(planted.parameters)],
                TOKENS,
            )
            for i in range(TOGETHER)
        )

    def look(self, mutant: str, planted: Planted) -> Verdict:
        """Return what text of the mutant says, gathered until it alarms or the budget is spent."""
        mutants.plant(self.control, mutant, greedy_drafts=planted.greedy_drafts)
        reference = self.references[not planted.greedy_drafts]
        scores, places = [], []

        def gather(number: int) -> Verdict:
            answers = ask_all(self.engine, self.requests(planted, number), mutants.K)
            if planted.joint:
                places.extend(joint_rows(reference, answers, mutants.K))
                return joint_verdict(places, reference.vocabulary, ALPHA)
            scores.append(reference.score(answers, mutants.K))
            special = len(reference.special_ids)
            return law_verdict(scores, reference.vocabulary, special, ALPHA)

        verdict = until_alarm(gather, planted.budget)
        self.say(f"{mutant}: {verdict}")
        return verdict


@pytest.fixture(scope="module")
def bench(
    engine_pool: EnginePool,
    profile: Profile,
    draftgate_session: GateSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    """The one server, its control file, and references for sampled and for greedy drafts."""
    say = draftgate_session.say
    control = tmp_path_factory.mktemp("mutant") / "control"
    arm = mutants.mutable(in_float32(profile.arm("draft_model")), control, "probabilistic", say)
    (engine,) = engine_pool.require([arm])
    assert engine.log_path is not None
    assert plugin.ANNOUNCEMENT in engine.log_path.read_text(encoding="utf-8")
    target = Path(resolve_target(arm.engine.target, log=say))
    spelling = LocalSpelling(target)
    spelled = [(p.prompt_id, spelling.ids(p)) for p in load_prompts("mixed", seed=17)]
    sampled = ForwardReference(
        target,
        draft=mutants.bad_draft(arm.engine.target, say),
        drafts_sampled=True,
        special_ids=special_token_ids(target),
    )
    yield Bench(
        engine=engine,
        control=control,
        references={True: sampled, False: mutants.with_greedy_drafts(sampled)},
        prompts=tuple((name, ids) for name, ids in spelled if len(ids) <= PROMPT_TOKENS),
        say=say,
    )
    engine_pool.discard(arm)


@pytest.mark.parametrize(
    "planted",
    [Planted(budget=3000), Planted(budget=3000, joint=True, greedy_drafts=True)],
    ids=["law", "rule"],
)
def test_honest_rule_passes(bench: Bench, planted: Planted) -> None:
    """The swapped code with the honest rule gives no alarm (same-versus-same run)."""
    verdict = bench.look("none", planted)

    assert verdict.alarm_at is None, verdict


@pytest.mark.parametrize("mutant", PLANTED)
def test_mutant_is_found(
    bench: Bench, mutant: str, record_property: Callable[[str, object], None]
) -> None:
    """Each wrong rule alarms within its budget of tokens."""
    verdict = bench.look(mutant, PLANTED[mutant])
    record_property("alarm_at", verdict.alarm_at)

    assert verdict.alarm_at is not None, verdict


def endings(bench: Bench, mutant: str) -> Findings:
    """Return what is wrong with the lengths and ends of a mutant's short answers."""
    mutants.plant(bench.control, mutant)
    reference = bench.references[True]
    stops = tuple(sorted({*reference.special_ids, *mutants.COMMON_TOKENS}))
    ending = replace(BASE, ignore_eos=False, stop_token_ids=stops)
    requests = [
        Asked(i, *bench.prompts[i % len(bench.prompts)], law, length)
        for i, (law, length) in enumerate(
            [(BASE, i % (mutants.K + 2) + 1) for i in range(TOGETHER)] + [(ending, 12)] * TOGETHER
        )
    ]
    answers = ask_all(bench.engine, requests, mutants.K)
    return tuple(
        finding
        for asked, answer in zip(requests, answers, strict=True)
        # What stands past `max_tokens` may also stand behind a stop token: told once, as that.
        for finding in length_findings(answer, Terms(max_tokens=asked.max_tokens))
        or ending_findings(answer)
    )


@pytest.mark.parametrize("mutant", ["none", plugin.TOO_MANY, plugin.DEAF])
def test_wrong_ends_are_found(bench: Bench, mutant: str) -> None:
    """One token past `max_tokens`, and a stop token inside a chain, break an exact rule."""
    found = endings(bench, mutant)

    rules = {finding.what for finding in found}
    expected = {
        "none": set(),
        plugin.TOO_MANY: {"no more tokens than max_tokens"},
        plugin.DEAF: {"no tokens after EOS or a stop token"},
    }
    assert rules == expected[mutant]


@pytest.fixture(scope="module")
def lookup(
    engine_pool: EnginePool, profile: Profile, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningEngine, Path]]:
    """A server with n-gram drafts whose sampler a file switches, and that file."""
    control = tmp_path_factory.mktemp("lookup") / "control"
    arm = mutants.steered(in_float32(profile.arm("ngram")), control)
    (engine,) = engine_pool.require([arm])
    yield engine, control
    engine_pool.discard(arm)


@pytest.mark.parametrize(
    ("mutant", "outcome"),
    [("none", CheckOutcome.PASS), ("half_of_the_drafts", CheckOutcome.NONCONFORMING)],
)
def test_another_lossless_rule_is_nonconforming(
    lookup: tuple[RunningEngine, Path],
    draftgate_session: GateSession,
    mutant: str,
    outcome: CheckOutcome,
) -> None:
    """Drafts taken half as often, the residual to match: the text is right, the rule is not."""
    engine, control = lookup
    mutants.plant(control, mutant)
    drafts = engine.spec.speculative
    assert drafts is not None
    options = dict(drafts.options)
    setup = against_target(
        engine,
        engine,
        conditions=conditions(("T=0.8",)),
        alpha=ALPHA,
        budget=TokenBudget(RULE_TOKENS),
        seed=3,
    )
    named = f"ngram:{options['prompt_lookup_min']}-{options['prompt_lookup_max']}"

    result, _ = take_check(
        replace(setup, plain=None, draft=named), draftgate_session.say, lambda _: None
    )

    assert result.judgement.outcome is outcome, result.judgement
    assert sum(entry.places for entry in result.findings.joint) > 0


@pytest.mark.parametrize("mutant", ["none", "always_accept", plugin.TOO_MANY])
def test_search_finds_a_situation(bench: Bench, mutant: str) -> None:
    """Drawn situations bring a wrong law and a wrong length to light, and shrink; else nothing."""
    mutants.plant(bench.control, mutant)
    special = tuple(sorted(bench.references[True].special_ids))
    examiner = Examiner(bench.engine, bench.references[True], eos=special)
    # One server, room for all prompts in one piece: seeds may be drawn.
    drawn = cases([ids for _, ids in bench.prompts], mutants.K, seeded=PROMPT_TOKENS)

    broken = search(examiner, drawn, SEARCH_EXAMPLES)

    bench.say(f"{mutant}: {examiner.tries} tries, {broken}")
    assert (broken is None) == (mutant == "none"), examiner.found
