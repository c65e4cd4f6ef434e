"""Evidence against a stated rejection rule: its rate under the rule and what it finds."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.conformity import Conformity, conformity, departure_weights, gathered
from draftgate.stats.conformity_family import FAMILIES, PARTS, family, log_ratios
from draftgate.stats.conformity_rows import Places, Steps, joined_places, places
from draftgate.stats.rejection import Chunk, Scheme, chunk_law, greedy_law, one_hot, verify

VOCABULARY = 6
DRAFTS = 3
CONTEXTS = 30
ALPHA = 1e-4
DEPARTURES = family(VOCABULARY)

Floats = np.ndarray
Law = dict[Chunk, float]
Rule = Callable[[Floats, Floats, Chunk], Law]


@cache
def contexts(kind: str) -> tuple[tuple[Floats, Floats, Chunk], ...]:
    """Return situations of verify steps: laws of the target, of the draft, and proposals.

    Drafts are sampled from a noisy copy of the target, or certain (`one-hot`).
    """
    rng = np.random.default_rng(4)
    found = []
    for _ in range(CONTEXTS):
        target = rng.dirichlet(np.full(VOCABULARY, 0.7), DRAFTS + 1)
        draft = 0.4 * target[:DRAFTS] + 0.6 * rng.dirichlet(np.full(VOCABULARY, 0.7), DRAFTS)
        chain = tuple(int(rng.choice(VOCABULARY, p=law)) for law in draft)
        if kind == "one-hot":
            draft = one_hot(np.array(chain), VOCABULARY)
        found.append((target, draft, chain))
    return tuple(found)


def step_table(kind: str, scheme: Scheme, rule: Rule) -> tuple[Places, list[tuple[Floats, Floats]]]:
    """Return rows of every chunk that `rule` can emit, and per context (first rows, chances)."""
    chunks, owner, chances = [], [], []
    for number, (target, draft, chain) in enumerate(contexts(kind)):
        law = rule(target, draft, chain)
        chunks += list(law)
        owner += [number] * len(law)
        chances.append(np.array(list(law.values())))
    rows = places(steps(kind, owner, chunks), scheme)
    begins = np.searchsorted(rows.step, np.arange(len(chunks) + 1))
    bounds = np.cumsum([0, *(len(c) for c in chances)])
    return rows, [
        (np.stack([begins[low:high], begins[low + 1 : high + 1]], axis=1), chance)
        for (low, high), chance in zip(pairwise(bounds), chances, strict=True)
    ]


def steps(kind: str, owner: list[int], chunks: list[Chunk]) -> Steps:
    """Return steps in given contexts with given chunks."""
    known = [contexts(kind)[number] for number in owner]
    return Steps(
        proposals=np.array([chain for _, _, chain in known]),
        emitted=np.array([(*c, *[-1] * (DRAFTS + 1 - len(c))) for c in chunks]),
        target=np.stack([target for target, _, _ in known]),
        ahead=True,
        draft=None if kind == "one-hot" else np.stack([draft for _, draft, _ in known]),
        cut=np.zeros(len(chunks), dtype=bool),
        request=np.arange(len(chunks)),
        twin=np.full(len(chunks), -1),
    )


def streams(
    kind: str, scheme: Scheme, rule: Rule, size: tuple[int, int], seed: int
) -> Iterator[Conformity]:
    """Yield the evidence of `size` = (streams, steps each) drawn by a rule, judged by a scheme."""
    rng = np.random.default_rng(seed)
    table, by_context = step_table(kind, scheme, rule)
    spans = np.zeros((*size, 2), dtype=int)
    which = rng.integers(CONTEXTS, size=size)
    for number, (rows, chances) in enumerate(by_context):
        here = which == number
        spans[here] = rows[rng.choice(len(rows), p=chances / chances.sum(), size=here.sum())]
    index = [np.arange(low, high) for low, high in spans.reshape(-1, 2).tolist()]
    lengths = np.array([len(rows) for rows in index])
    number = np.repeat(np.arange(len(index)), lengths)
    rows = replace(table.take(np.concatenate(index)), step=number, request=number // size[1])
    ratios, weights = log_ratios(rows, DEPARTURES), departure_weights(DEPARTURES)
    for low, high in pairwise(np.searchsorted(rows.request, np.arange(size[0] + 1)).tolist()):
        yield gathered(rows.take(slice(low, high)), ratios[:, low:high], weights)


def by_places(chances: Floats, endings: Floats, chain: Chunk) -> Law:
    """Return the law of the chunk from chances of accepting and laws of the last token."""
    law: Law = {}
    reached = 1.0
    for place in range(len(chain) + 1):
        chance = chances[place] if place < len(chain) else 0.0
        for token in np.flatnonzero(endings[place]).tolist():
            law[(*chain[:place], token)] = reached * (1 - chance) * endings[place][token]
        reached *= chance
    return {chunk: chance for chunk, chance in law.items() if chance > 0}


def stated(target: Floats, draft: Floats, chain: Chunk) -> tuple[Floats, Floats]:
    """Return the standard rule's chances of accepting and laws of the last token."""
    rows = np.arange(len(chain))
    chances = np.minimum(target[rows, chain] / draft[rows, chain], 1.0)
    left = np.maximum(target[: len(chain)] - draft, 0.0)
    left = np.where(left.sum(1, keepdims=True) > 0, left, target[: len(chain)])
    endings = np.concatenate([left, target[-1:]])
    return chances, endings / endings.sum(1, keepdims=True)


def powered(law: Floats, power: float) -> Floats:
    """Return a law at another temperature."""
    return law**power / (law**power).sum(-1, keepdims=True)


def recovered_from_target(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Take the recovered token from the target's law, without the proposal."""
    chances, endings = stated(target, draft, chain)
    endings[:DRAFTS] = target[:DRAFTS]
    endings[np.arange(DRAFTS), chain] = 0.0
    return by_places(chances, endings / endings.sum(1, keepdims=True), chain)


def accept_argmax(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Accept a proposal if it is the most likely token."""
    endings = stated(target, draft, chain)[1]
    return by_places((target[:DRAFTS].argmax(1) == chain).astype(float), endings, chain)


def accept_near(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Accept if p > .9 q, without a coin."""
    chances, endings = stated(target, draft, chain)
    return by_places((chances > 0.9).astype(float), endings, chain)


def accept_always(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Accept every proposal."""
    return by_places(np.ones(DRAFTS), stated(target, draft, chain)[1], chain)


def accept_at_fixed_rate(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Accept 65 % of the proposals, whatever the laws are."""
    return by_places(np.full(DRAFTS, 0.65), stated(target, draft, chain)[1], chain)


def bonus_from_draft(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Draw the bonus token from the draft's law."""
    chances, endings = stated(target, draft, chain)
    endings[DRAFTS] = draft[-1]
    return by_places(chances, endings, chain)


def bonus_too_cold(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Draw the bonus token at 1/2.5 of the temperature."""
    chances, endings = stated(target, draft, chain)
    endings[DRAFTS] = powered(endings[DRAFTS], 2.5)
    return by_places(chances, endings, chain)


def one_coin(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Use one coin for the whole chain."""
    chances, endings = stated(target, draft, chain)
    smallest = np.minimum.accumulate(np.array([1.0, *chances]))
    return by_places(smallest[1:] / smallest[:-1], endings, chain)


def too_hot(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Verify and sample at 1/.7 of the temperature."""
    return by_places(*stated(powered(target, 0.7), draft, chain), chain)


def next_row(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Verify each proposal with the law of the place after it."""
    return by_places(*stated(np.roll(target, -1, axis=0), draft, chain), chain)


def greedy_recovery(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Take the most likely token of the residual."""
    chances, endings = stated(target, draft, chain)
    endings[:DRAFTS] = greedy_law(endings[:DRAFTS])
    return by_places(chances, endings, chain)


def ratio_forgotten(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Accept with p(d) instead of p(d) / q(d)."""
    endings = stated(target, draft, chain)[1]
    return by_places(target[np.arange(DRAFTS), chain], endings, chain)


WRONG = (
    recovered_from_target,
    accept_argmax,
    accept_near,
    accept_always,
    accept_at_fixed_rate,
    bonus_from_draft,
    bonus_too_cold,
    one_coin,
    too_hot,
    next_row,
    greedy_recovery,
    ratio_forgotten,
)


def block(target: Floats, draft: Floats, chain: Chunk) -> Law:
    """Verify by blocks."""
    return chunk_law(target, draft, chain, Scheme.BLOCK)


def tokens_to_alarm(kind: str, scheme: Scheme, rule: Rule, size: tuple[int, int]) -> list[float]:
    """Return tokens until each stream's alarm at ALPHA; inf for none."""
    found = [run.alarm_at(ALPHA) for run in streams(kind, scheme, rule, size, seed=8)]
    return [np.inf if at is None else at for at in found]


@pytest.mark.parametrize(
    ("kind", "scheme", "rule", "count"),
    [
        ("sampled", Scheme.STANDARD, chunk_law, 1000),
        ("one-hot", Scheme.STANDARD, chunk_law, 500),
        ("sampled", Scheme.BLOCK, block, 500),
    ],
)
def test_false_alarms_keep_their_rate(kind: str, scheme: Scheme, rule: Rule, count: int) -> None:
    """Of 2,000 streams of 16 steps under their rule at most 1 % ever alarm at alpha .01 (Ville).

    The limit is the binomial's upper 1e-4 quantile for each kind.
    """
    runs = list(streams(kind, scheme, rule, (count, 16), seed=3))
    alarms = sum(run.alarm_at(0.01) is not None for run in runs)

    assert alarms <= stats.binom.isf(1e-4, count, 0.01)
    assert not any(run.impossible for run in runs)


@pytest.mark.parametrize(
    ("kind", "scheme", "rule"),
    [
        ("sampled", Scheme.STANDARD, chunk_law),
        ("one-hot", Scheme.STANDARD, chunk_law),
        ("sampled", Scheme.BLOCK, block),
    ],
)
def test_every_departure_is_fair(kind: str, scheme: Scheme, rule: Rule) -> None:
    """Over all chunks of each context the mean of every departure's ratio is at most 1."""
    table, by_context = step_table(kind, scheme, rule)
    ratios = log_ratios(table, DEPARTURES)
    for rows, chances in by_context:
        worth = [np.exp(ratios[:, low:high].sum(axis=1)) for low, high in rows.tolist()]
        assert (np.array(worth).T @ chances).max() <= 1 + 1e-9


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.__name__)
def test_wrong_rules_are_found(rule: Rule) -> None:
    """Three of three streams of 1,000 steps under a wrong rule alarm at 1e-4."""
    assert max(tokens_to_alarm("sampled", Scheme.STANDARD, rule, (3, 1000))) < np.inf


def test_block_verification_is_held_to_its_own_rule() -> None:
    """Block verification passes where it is declared and alarms where it is not."""
    declared = tokens_to_alarm("sampled", Scheme.BLOCK, block, (3, 1000))
    undeclared = tokens_to_alarm("sampled", Scheme.STANDARD, block, (3, 1000))

    assert min(declared) == np.inf
    assert max(undeclared) < np.inf


def drawn(seeds: list[int], twins: list[int]) -> Places:
    """Return steps drawn by the literal rule, each with its own seed and maybe a twin."""
    owner = [index // 2 % CONTEXTS for index in range(len(seeds))]
    chunks = [
        verify(*contexts("sampled")[number], np.random.default_rng(seed))
        for number, seed in zip(owner, seeds, strict=True)
    ]
    return places(replace(steps("sampled", owner, chunks), twin=np.array(twins)))


def test_shared_noise_is_a_copy() -> None:
    """Pairs of steps with equal laws and equal noise alarm as copies; with own noise they pass."""
    twins = [index - 1 if index % 2 else -1 for index in range(120)]
    shared = conformity(drawn([index // 2 for index in range(120)], twins), DEPARTURES)
    own = conformity(drawn(list(range(120)), twins), DEPARTURES)

    assert shared.alarm_at(ALPHA) is not None
    assert DEPARTURES[shared.evidence.best[0]].family == "copy"
    assert own.alarm_at(0.01) is None


def test_one_coin_for_a_request_is_found() -> None:
    """A coin drawn once for all steps of a request alarms within 200 steps."""
    rng = np.random.default_rng(1)
    coin, chunks, owner = rng.random(), [], rng.integers(CONTEXTS, size=200).tolist()
    for number in owner:
        target, draft, chain = contexts("sampled")[number]
        chances, endings = stated(target, draft, chain)
        kept = int(np.append(np.flatnonzero(coin >= chances), DRAFTS)[0])
        chunks.append((*chain[:kept], int(rng.choice(VOCABULARY, p=endings[kept]))))
    one_request = replace(steps("sampled", owner, chunks), request=np.zeros(200, dtype=int))
    found = conformity(places(one_request), DEPARTURES)

    assert found.alarm_at(ALPHA) is not None


@pytest.mark.parametrize(
    ("what", "row"), [("other token", 0), ("kept proposal", 1), ("no support", 0)]
)
def test_what_the_rule_excludes_is_infinite_evidence(what: str, row: int) -> None:
    """One impossible place is infinite evidence from there on, counted and located."""
    chain = contexts("one-hot")[0][2]
    other = (chain[0] + 1) % VOCABULARY
    chunk = {
        "other token": (other, chain[1], 0),
        "kept proposal": chain[:2],
        "no support": (other,),
    }[what]
    step = steps("one-hot", [0], [chunk])
    if what == "no support":
        target = step.target.copy()
        target[0, 0, other] = 0.0
        step = replace(step, target=target / target.sum(-1, keepdims=True))
    found = conformity(places(step), DEPARTURES)

    assert found.impossible == 1
    assert found.first_impossible == row
    assert np.isinf(found.evidence.path[row:]).all()


def test_a_cut_chunk_may_end_with_its_proposal() -> None:
    """Where max_tokens cuts, a last token equal to its proposal counts as accepted."""
    chain = contexts("sampled")[0][2]
    whole = places(steps("sampled", [0], [chain[:2]]))
    cut = places(replace(steps("sampled", [0], [chain[:2]]), cut=np.array([True])))

    assert whole.broken.tolist() == [False, True]
    assert cut.broken.tolist() == [False, False]
    assert cut.accepted.tolist() == [True, True]


def test_rejection_by_rounding_costs_the_slack_only() -> None:
    """A rejection where p = q, which only rounding can cause, is no infinite evidence."""
    step = steps("sampled", [0], [(0,)])
    chain = (1, *contexts("sampled")[0][2][1:])
    step = replace(step, proposals=np.array([chain]), draft=step.target[:, :DRAFTS])
    strict = conformity(places(step, slack=0.0), DEPARTURES)
    lenient = conformity(places(step), DEPARTURES)

    assert strict.impossible == 1
    assert lenient.impossible == 0
    assert lenient.evidence.path[0] < -np.log(1e-6)


def test_laws_of_places_not_reached_are_not_needed() -> None:
    """Without laws beyond the chunk the standard rule judges alike, and blocks are refused."""
    full = steps("sampled", [0], [(contexts("sampled")[0][2][0] + 1,)])
    target = np.where(np.arange(DRAFTS + 1)[:, None] > 0, np.nan, full.target)
    short = replace(full, target=target, ahead=False)

    assert places(short).rejected_logp == pytest.approx(places(full).rejected_logp)
    with pytest.raises(ValueError, match="laws of all places"):
        places(short, Scheme.BLOCK)


def test_a_step_without_proposals_is_one_bonus_token() -> None:
    """A step in which nothing was proposed is judged as one draw from the target's law."""
    target = np.full((1, 2, VOCABULARY), 1 / VOCABULARY)
    step = Steps(
        proposals=np.array([[-1]]),
        emitted=np.array([[3, -1]]),
        target=target,
        ahead=True,
        draft=None,
        cut=np.array([False]),
        request=np.array([0]),
        twin=np.array([-1]),
    )
    rows = places(step)

    assert rows.bonus.tolist() == [True]
    assert rows.rejected_logp == pytest.approx([-np.log(VOCABULARY)], abs=1e-5)
    assert conformity(rows, DEPARTURES).impossible == 0


def test_weights_add_up() -> None:
    """Prior weights of the families, of the parts and of all their pairs add up to 1."""
    assert sum(FAMILIES.values()) == pytest.approx(1.0)
    assert sum(part.weight for part in PARTS) == pytest.approx(1.0)
    assert np.exp(departure_weights(DEPARTURES)).sum() == pytest.approx(1.0)


def test_joined_rows_keep_their_order() -> None:
    """Rows of two parts follow each other, with steps numbered on."""
    chain = contexts("sampled")[0][2]
    one = places(steps("sampled", [0, 0], [(*chain[:1], (chain[1] + 1) % VOCABULARY)] * 2))
    two = joined_places([one, one])

    assert two.step.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert two.token.tolist() == one.token.tolist() * 2
    with pytest.raises(ValueError, match="no places"):
        joined_places([])


def test_twins_must_be_earlier() -> None:
    """A step cannot be its own twin."""
    with pytest.raises(ValueError, match="earlier step"):
        places(replace(steps("sampled", [0], [(0,)]), twin=np.array([0])))
