"""vLLM's own rejection sampler against the exact rule, in process, on laws of our making."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from draftgate.laws.parameters import LawParameters
from draftgate.stats.conformity import Conformity
from draftgate.stats.conformity_family import family
from draftgate.stats.rejection import Chunk, Scheme, chunk_law, draw, one_hot
from tests.support import sampler_v2
from tests.support.sampler import (
    Engine,
    Situation,
    device,
    emitted,
    engine_module,
    judged,
    repair,
    target_law,
)

pytestmark = pytest.mark.correctness

EXAMPLES = 40
ALPHA = 1e-6
"""False alarms over all drawn examples together."""

Mutation = Callable[[ModuleType, pytest.MonkeyPatch], None]

V2 = pytest.param("standard", marks=pytest.mark.gpu, id="V2")
V2_BLOCK = pytest.param("block", marks=pytest.mark.gpu, id="V2 block")


@pytest.fixture
def engine() -> ModuleType:
    """The module `rejection_sampler` of vLLM's CPU build, as it is."""
    if device() != "cpu":
        pytest.skip("the kernels' stand-ins are those of vLLM's CPU build")
    return engine_module()


@pytest.fixture(params=["V1", V2, V2_BLOCK])
def sampler(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """V1's sampler, on a CPU with our repair of its stand-in for `expand_kernel`, or V2's."""
    if request.param != "V1":
        yield sampler_v2.engine(request.param)
        return
    with pytest.MonkeyPatch.context() as patch:
        module = engine_module()
        repair(module, patch)
        yield Engine(module, emitted)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the laws of logits in float32, as an engine hands over its drafts' laws."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def drafted(kind: str, logits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the laws of a drafter that is right, noisy, or wrong on purpose."""
    if kind == "reversed":
        order = logits.argsort(axis=-1)
        turned = np.empty_like(logits)
        np.put_along_axis(turned, order[:, ::-1], np.take_along_axis(logits, order, -1), -1)
        return softmax(turned)
    if kind == "over-confident":
        return softmax(3 * (logits + rng.normal(0, 0.5, logits.shape)))
    return softmax(logits + rng.normal(0, 1, logits.shape))


def situation(
    seed: int, vocabulary: int, kind: str, drafts: int, parameters: LawParameters
) -> Situation:
    """Return a verify step with random laws; `certain` drafts come without probabilities."""
    rng = np.random.default_rng(seed)
    spread = 4 if vocabulary > 1000 else 1.5
    logits = rng.normal(0, spread, (drafts + 1, vocabulary)).astype(np.float32)
    law = drafted(kind, logits[:drafts], rng)
    chain = tuple(draw(row.astype(float), rng) for row in law)
    return Situation(
        logits=logits,
        draft=None if kind == "certain" else law,
        proposals=chain,
        parameters=parameters,
    )


def check(sampler: Engine, situations: list[Situation], repeats: int, seed: int = 1) -> Conformity:
    """Return the evidence of one batch in which each situation stands `repeats` times."""
    import torch

    torch.manual_seed(seed)
    owner = np.tile(np.arange(len(situations)), repeats)
    tokens = sampler.emit(sampler.module, [situations[row] for row in owner], ())
    return judged(situations, tokens, owner, np.full(len(owner), -1), sampler.scheme)


requests = st.builds(
    LawParameters,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 1.5]),
    top_k=st.sampled_from([0, 0, 2]),
    top_p=st.sampled_from([1.0, 1.0, 0.7]),
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 2**20),
    vocabulary=st.integers(3, 8),
    kind=st.sampled_from(["noisy", "reversed", "over-confident", "certain"]),
    steps=st.lists(st.tuples(st.integers(1, 3), requests), min_size=1, max_size=5),
    idle=st.integers(0, 1),
)
def test_small_vocabularies_follow_the_rule(
    sampler: Engine,
    seed: int,
    vocabulary: int,
    kind: str,
    steps: list[tuple[int, LawParameters]],
    idle: int,
) -> None:
    """Batches of mixed lengths, temperatures and filters follow the rule in flags and tokens.

    Rows without any proposals stand beside others. The 40 examples together raise a
    false alarm with P <= 1e-6 (Ville, split evenly).
    """
    situations = [
        situation(seed + number, vocabulary, kind, drafts, parameters)
        for number, (drafts, parameters) in enumerate(steps)
    ]
    situations += [situation(seed, vocabulary, kind, 0, steps[0][1])] * idle
    found = check(sampler, situations, repeats=150)

    assert found.impossible == 0
    assert found.alarm_at(ALPHA / EXAMPLES) is None


@pytest.mark.parametrize("kind", ["noisy", "certain"])
def test_counts_fit_the_exact_enumeration(sampler: Engine, kind: str) -> None:
    """20,000 repeats of one step have the enumerated law of the chunk (G-test, p > 1e-6)."""
    import torch

    torch.manual_seed(3)
    step = situation(5, 5, kind, 2, LawParameters(temperature=0.8))
    draft = step.draft
    known = one_hot(np.array(step.proposals), 5) if draft is None else draft.astype(float)
    law = chunk_law(target_law(step), known, step.proposals, sampler.scheme)
    seen: Counter[Chunk] = Counter(
        tuple(token for token in row if token >= 0)
        for row in sampler.emit(sampler.module, [step] * 20_000, ()).tolist()
    )
    counts = np.array([[seen[chunk], 20_000 * chance] for chunk, chance in law.items()])
    common = counts[counts[:, 1] >= 5]
    common[:, 1] *= common[:, 0].sum() / common[:, 1].sum()

    assert set(seen) <= set(law)
    assert stats.power_divergence(common[:, 0], common[:, 1], lambda_=0).pvalue > 1e-6


@pytest.mark.parametrize("kind", ["noisy", "reversed", "over-confident", "certain"])
def test_wrong_drafters_leave_the_rule_alone(sampler: Engine, kind: str) -> None:
    """Eight steps of one drafter, 300 times each, follow the rule however wrong it is."""
    found = check(sampler, standard(kind), repeats=300)

    assert found.impossible == 0
    assert found.alarm_at(ALPHA) is None


@pytest.mark.parametrize("kind", ["noisy", "over-confident", "certain"])
def test_a_real_vocabulary_follows_the_rule(sampler: Engine, kind: str) -> None:
    """Peaked laws over 49,152 tokens, 4 drafts a step, 24 steps 3 times each, follow the rule."""
    found = check(sampler, real(kind), repeats=3)

    assert found.impossible == 0
    assert found.alarm_at(ALPHA) is None


def real(kind: str) -> list[Situation]:
    """Return 24 steps with a vocabulary as large as the default target's."""
    parameters = LawParameters(temperature=0.8)
    return [situation(100 + n, 49_152, kind, 4, parameters) for n in range(24)]


def standard(kind: str) -> list[Situation]:
    """Return the eight steps that planted faults are looked for in."""
    asked = [
        LawParameters(temperature=0.7),
        LawParameters(temperature=1.0),
        LawParameters(temperature=1.4, top_p=0.8),
        LawParameters(temperature=1.4, top_k=3),
    ]
    return [situation(40 + n, 6, kind, 1 + n % 3, asked[n % 4]) for n in range(8)]


def test_seeds_give_the_same_tokens_whatever_stands_beside(sampler: Engine) -> None:
    """A request with a seed emits the same tokens alone as among greedy and unseeded others."""
    steps = [*standard("noisy"), situation(7, 6, "noisy", 2, LawParameters(temperature=0.0))]
    for seed in range(40):
        own = steps[seed % 8]
        alone = sampler.emit(sampler.module, [own], [seed])[0]
        among = [*[None] * len(steps), seed]
        beside = sampler.emit(sampler.module, [*steps, own], among)[-1]
        assert alone.tolist() == beside[: len(alone)].tolist()


def test_equal_seeds_are_copies(sampler: Engine) -> None:
    """Two requests with equal laws, proposals and seeds are copies; with own seeds they are not.

    The engine promises a request's tokens for its seed, so equal requests with equal
    seeds are equal on purpose; a check must not count them as two samples.
    """
    steps = standard("noisy")
    owner = np.repeat(np.tile(np.arange(8), 10), 2)
    batch = [steps[row] for row in owner]
    twin = np.where(np.arange(160) % 2, np.arange(160) - 1, -1)
    copied, own = (
        judged(steps, sampler.emit(sampler.module, batch, seeds), owner, twin, sampler.scheme)
        for seeds in ([n // 2 for n in range(160)], list(range(160)))
    )

    assert copied.alarm_at(ALPHA) is not None
    assert family(6)[copied.evidence.best[0]].family == "copy"
    assert own.alarm_at(0.001) is None


def test_the_stand_in_for_expand_writes_nothing(engine: ModuleType) -> None:
    """Without the repair `expand_kernel` leaves its output as it was (vllm-project/vllm#55005)."""
    import torch

    output = torch.full((3,), 7.0)
    engine.expand_kernel[(2,)](
        output, torch.tensor([0.5, 0.8]), torch.tensor([1, 3], dtype=torch.int32), 0, 1, 128
    )

    assert output.tolist() == [7.0, 7.0, 7.0]


def test_unrepaired_sampling_alarms(engine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the repair the same check alarms, here with 7 in the memory that was not written."""
    broken = engine.expand_kernel._impl

    def left_over(output: Any, *others: Any, **named: Any) -> None:
        output.fill_(7)
        broken(output, *others, **named)

    monkeypatch.setattr(engine.expand_kernel, "_impl", left_over)
    steps = [replace(s, parameters=LawParameters(temperature=0.7)) for s in standard("noisy")]

    assert check(Engine(engine, emitted), steps, repeats=300).alarm_at(ALPHA) is not None


class Wrapped:
    """A function of the engine's, or a kernel of Triton's, that is called with other arguments."""

    def __init__(self, original: Any, wrap: Callable[[Any], Any]) -> None:
        self.original, self.wrap = original, wrap
        # The engine's kernels carry a method that its sampler calls when it is made.
        self.register_warmup = getattr(original, "register_warmup", None)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function."""
        return self.wrap(self.original)(*given, **named)

    def __getitem__(self, grid: Any) -> Any:
        """Return the kernel for a grid of programs."""
        return self.wrap(self.original[grid])


def changed(name: str, at: int, change: Callable[..., Any]) -> Mutation:
    """Return a mutation: argument `at` of the engine's function or kernel `name` is replaced."""

    def wrap(original: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            args = list(given)
            args[at] = change(*given)
            return original(*args, **named)

        return wrong

    def mutate(engine: ModuleType, patch: pytest.MonkeyPatch) -> None:
        home = engine if hasattr(engine, name) else sys.modules[engine.rejection_sample.__module__]
        patch.setattr(home, name, Wrapped(getattr(home, name), wrap))

    return mutate


def returned(name: str, change: Callable[..., Any]) -> Mutation:
    """Return a mutation: the engine's function `name` is replaced by `change` of its arguments."""
    return lambda engine, patch: patch.setattr(engine, name, change)


def one_coin(tokens: int, lengths: list[int], _generators: object, at: Any) -> Any:
    """Return one uniform number a request, at all of its places."""
    import torch

    coins = torch.rand(len(lengths), dtype=torch.float64, device=at)
    assert sum(lengths) == tokens
    return torch.repeat_interleave(coins, torch.tensor(lengths, device=at))


def most_likely(*given: Any, **_named: Any) -> Any:
    """Return the most likely token of the residual."""
    return (given[5] - given[4]).argmax(dim=-1).to(given[3].dtype)


def draft_bonus(*given: Any) -> Any:
    """Return tokens drawn from the draft's law of the last place."""
    import torch

    return torch.multinomial(given[4][given[3].long() - 1], 1)


def argmax_law(*given: Any) -> Any:
    """Return 1 for the most likely token and 0 for others."""
    return (given[4] >= given[4].amax(dim=-1, keepdim=True)).float()


def verified(at: int, change: Callable[..., Any]) -> Mutation:
    """Return a mutation of what V1's verification gets.

    Output, ends, proposals, q, p, bonus, recovered, coins, greedy rows, in this order. On
    CUDA vLLM 0.26 launches the kernel itself; later ones do so in a function of their own.
    """

    def mutate(engine: ModuleType, patch: pytest.MonkeyPatch) -> None:
        wrapped = hasattr(engine, "_rejection_random_sample")
        name = "_rejection_random_sample" if wrapped else "rejection_random_sample_kernel"
        changed(name, at, change)(engine, patch)

    return mutate


MUTATIONS: dict[str, Mutation] = {
    "recovered from the target": changed("sample_recovered_tokens", 4, lambda *a: 0 * a[5]),
    "most likely recovered token": returned("sample_recovered_tokens", most_likely),
    "one coin for the chain": returned("generate_uniform_probs", one_coin),
    "parameters ignored in verification": returned("apply_sampling_constraints", lambda x, *_: x),
    "row after": changed("rejection_sample", 5, lambda *a: a[5].roll(-1, 0)),
    "bonus from the draft": changed("rejection_sample", 6, draft_bonus),
    "ratio forgotten": verified(3, lambda *a: 0 * a[3] + 1),
    "accepted if most likely": verified(4, argmax_law),
    "always accepted": verified(7, lambda *a: 0 * a[7]),
    "accepted if p > .9 q": verified(7, lambda *a: 0 * a[7] + 0.9),
    "proposals accepted too often": verified(7, lambda *a: a[7] ** 1.5),
}

V2_MUTATIONS: dict[str, Mutation] = {
    "recovered from the target": changed("_resample_kernel", 10, lambda *a: a[10] + np.inf),
    "one coin for the chain": changed("_rejection_kernel", 25, lambda *a: 0 * a[25]),
    "row after": changed("rejection_sample", 0, lambda *a: a[0].roll(-1, 0)),
    "draft's law forgotten": changed("rejection_sample", 1, lambda *_: None),
    "too hot": changed("rejection_sample", 0, lambda *a: 0.7 * a[0]),
    "q times .4": changed("_rejection_kernel", 17, lambda *a: a[17] - np.log(0.4)),
}
"""The resampling kernel gets the log of q's sum at 10; the one that verifies gets q's
largest logits at 17 and the positions that its coins are drawn for at 25."""

FAULTS = [
    *(pytest.param("V1", fault, id=name) for name, fault in MUTATIONS.items()),
    *(
        pytest.param("standard", fault, marks=pytest.mark.gpu, id=f"V2 {name}")
        for name, fault in V2_MUTATIONS.items()
    ),
]
LARGE = ("one coin for the chain", "always accepted", "V2 one coin for the chain", "V2 q times .4")
"""Ids of the faults that are looked for in a real vocabulary, too."""


@pytest.mark.parametrize(("sampler", "fault"), FAULTS, indirect=["sampler"])
def test_planted_faults_are_found(
    sampler: Engine, monkeypatch: pytest.MonkeyPatch, fault: Mutation
) -> None:
    """A fault planted in the engine's own functions alarms in the check that passes without it."""
    honest = check(sampler, standard("over-confident"), repeats=300)
    fault(sampler.module, monkeypatch)
    mutated = check(sampler, standard("over-confident"), repeats=300)

    assert honest.alarm_at(ALPHA) is None
    assert mutated.alarm_at(ALPHA) is not None


@pytest.mark.parametrize(
    ("sampler", "fault"), [f for f in FAULTS if f.id in LARGE], indirect=["sampler"]
)
def test_planted_faults_are_found_in_a_real_vocabulary(
    sampler: Engine, monkeypatch: pytest.MonkeyPatch, fault: Mutation
) -> None:
    """With 49,152 tokens, too, a planted fault alarms where the honest engine passes."""
    fault(sampler.module, monkeypatch)

    assert check(sampler, real("over-confident"), repeats=3).alarm_at(ALPHA) is not None


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("method", "scheme"),
    [("standard", Scheme.BLOCK), ("block", Scheme.STANDARD), ("synthetic", Scheme.STANDARD)],
)
def test_another_rule_of_v2_alarms(method: str, scheme: Scheme) -> None:
    """V2's own other rules alarm; that of `synthetic` accepts all and is wrong on purpose."""
    other = replace(sampler_v2.engine(method), scheme=scheme)

    assert check(other, standard("noisy"), repeats=800).alarm_at(ALPHA) is not None


@pytest.mark.gpu
@pytest.mark.parametrize(("shift", "alarms"), [(0, True), (sampler_v2.SALT, False)])
def test_a_draft_that_shares_the_targets_noise_alarms(shift: int, *, alarms: bool) -> None:
    """Proposals of V2's draft sampler alarm if drawn from the noise of their own verification.

    vLLM 0.26 drew sampled drafts so (vllm-project/vllm#54282): a recovered token then
    comes from what is left of the noise that the rejected proposal won.
    """
    v2 = sampler_v2.engine()
    import torch

    torch.manual_seed(4)
    laws = [situation(60 + n, 6, "reversed", 2, LawParameters()) for n in range(8)] * 1500
    seeds = torch.randint(2**62, (len(laws),)).tolist()
    chains = sampler_v2.drafted(laws, seeds, shift).tolist()
    steps = [replace(s, proposals=tuple(chain)) for s, chain in zip(laws, chains, strict=True)]
    rows = np.arange(len(steps))
    found = judged(steps, v2.emit(v2.module, steps, seeds), rows, np.full(len(rows), -1))

    assert (found.alarm_at(ALPHA) is not None) == alarms
