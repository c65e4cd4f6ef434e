"""vLLM's own rejection sampler in process, fed with laws of our making and judged by our rule.

The V1 sampler, on the CPU build's stand-ins or on CUDA; `sampler_v2` has that of the
model runner V2. Needs torch and vLLM, which are imported late; no model is loaded and no
server is started.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from draftgate.laws.orders import law
from draftgate.laws.parameters import LawParameters
from draftgate.stats.conformity import Conformity, conformity
from draftgate.stats.conformity_family import family
from draftgate.stats.conformity_rows import Steps, joined_places, places
from draftgate.stats.rejection import Scheme
from draftgate.vllm_plugins.cpu_sampling import expand

Floats = np.ndarray
ROWS_AT_ONCE = 32_000_000
"""Numbers in the laws that are judged in one go; bounds the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One verify step that is about to happen.

    Attributes:
        logits: Of the target along the proposals; shape (K + 1, V), float32.
        draft: Laws that the proposals were drawn from; shape (K, V), float32; None if
            the sampler is not told.
        proposals: K draft tokens.
        parameters: What the request asked for.
    """

    logits: Floats
    draft: Floats | None
    proposals: tuple[int, ...]
    parameters: LawParameters = LawParameters()  # noqa: RUF009 - frozen


Emit = Callable[[ModuleType, Sequence[Situation], Sequence[int | None]], np.ndarray]
"""Module, situations and seeds (() for none) to tokens, as `emitted` has them."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One of vLLM's rejection samplers.

    Attributes:
        module: Where it looks up its functions, so that they can be replaced.
        emit: Runs it on a batch of verify steps.
        scheme: The rule that it states.
    """

    module: ModuleType
    emit: Emit
    scheme: Scheme = Scheme.STANDARD


def device() -> str:
    """Return where this vLLM computes, `cuda` or `cpu`.

    Skips the test where there is no vLLM or where it is built for something else.
    """
    pytest.importorskip("vllm", exc_type=ImportError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.platforms import current_platform
    if not (current_platform.is_cpu() or current_platform.is_cuda()):
        pytest.skip("this vLLM is neither a CPU nor a CUDA build")
    return "cpu" if current_platform.is_cpu() else "cuda"


def engine_module() -> ModuleType:
    """Return vLLM's module `rejection_sampler`, on a CPU with kernels in place of Triton's.

    Skips the test where there is no vLLM for a CPU or CUDA.
    """
    on_cpu = device() == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.platforms import current_platform
        from vllm.v1.sample import rejection_sampler

        current_platform.import_kernels()
        if on_cpu:
            from vllm.triton_utils.dispatcher import KernelOverride

            if not isinstance(rejection_sampler.expand_kernel, KernelOverride):
                current_platform.register_triton_kernel_overrides()
    return rejection_sampler


def repair(engine: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Install what the plugin `cpu_sampling` installs in servers; on CUDA nothing is broken."""
    if device() == "cpu":
        patch.setattr(engine.expand_kernel, "_impl", expand)


def emitted(
    engine: ModuleType, situations: Sequence[Situation], seeds: Sequence[int | None] = ()
) -> np.ndarray:
    """Return what the engine's sampler emits for a batch of verify steps.

    Args:
        engine: From `engine_module`.
        situations: One a request. Either all or none of them know the drafts' laws.
        seeds: A request's seed, or None; () for a batch without seeds.

    Returns:
        Tokens, -1 at the end; shape (batch, largest K + 1).
    """
    import torch
    from vllm.v1.sample.sampler import Sampler

    known = [s.draft for s in situations if s.draft is not None and len(s.proposals)]
    at = device()
    rows = torch.from_numpy(np.concatenate([s.logits for s in situations])).to(at)
    output = engine.RejectionSampler(Sampler())(
        _draft_metadata([s.proposals for s in situations], at),
        torch.from_numpy(np.concatenate(known)).to(at) if known else None,
        rows,
        _sampling_metadata(situations, seeds, at),
    )
    return np.asarray(output.sampled_token_ids.cpu().numpy())


def _draft_metadata(proposals: list[tuple[int, ...]], at: str) -> Any:
    import torch
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    metadata = SpecDecodeMetadata.make_dummy([list(p) for p in proposals], torch.device(at))
    ends = np.cumsum([len(p) + 1 for p in proposals])
    drafted = np.setdiff1d(np.arange(ends[-1]), ends - 1)
    metadata.bonus_logits_indices = torch.from_numpy(ends - 1).to(at)
    metadata.target_logits_indices = torch.from_numpy(drafted).to(at)
    metadata.logits_indices = torch.arange(int(ends[-1]), device=at)
    return metadata


def _sampling_metadata(
    situations: Sequence[Situation], seeds: Sequence[int | None], at: str
) -> Any:
    import torch
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    asked = [s.parameters for s in situations]
    size = situations[0].logits.shape[1]
    temperature = torch.tensor([p.temperature for p in asked], device=at)
    top_k = torch.tensor([p.top_k or size for p in asked], dtype=torch.int32, device=at)
    top_p = torch.tensor([p.top_p for p in asked], device=at)
    greedy = bool((temperature == 0).all())
    none = torch.zeros(len(asked), device=at)
    return SamplingMetadata(
        temperature=None if greedy else temperature,
        all_greedy=greedy,
        all_random=bool((temperature > 0).all()),
        top_p=top_p if (top_p < 1).any() else None,
        top_k=top_k if (top_k < size).any() else None,
        generators={
            row: torch.Generator(at).manual_seed(seed)
            for row, seed in enumerate(seeds)
            if seed is not None
        },
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none + 1,
        output_token_ids=[[] for _ in asked],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def target_law(situation: Situation) -> Floats:
    """Return the probabilities that the request's parameters make of the logits; (K + 1, V)."""
    return np.exp(
        [law(row, situation.parameters, (), (), "vllm").log_probs for row in situation.logits]
    )


def judged(
    situations: Sequence[Situation],
    tokens: np.ndarray,
    owner: np.ndarray,
    twin: np.ndarray,
    scheme: Scheme = Scheme.STANDARD,
) -> Conformity:
    """Return the evidence against the stated rule in what a batch emitted.

    Args:
        situations: The different ones.
        tokens: From `emitted`; shape (batch, largest K + 1).
        owner: Which situation each row of the batch was; shape (batch,).
        twin: Earlier row that each may have copied, -1 for none; shape (batch,).
        scheme: That rule.
    """
    width, size = tokens.shape[1] - 1, situations[0].logits.shape[1]
    targets = np.zeros((len(situations), width + 1, size))
    drafts = np.zeros((len(situations), width, size))
    proposals = np.full((len(situations), width), -1)
    for row, situation in enumerate(situations):
        count = len(situation.proposals)
        targets[row, : count + 1] = target_law(situation)
        proposals[row, :count] = situation.proposals
        if situation.draft is not None:
            drafts[row, :count] = situation.draft
    sampled = any(s.draft is not None and s.proposals for s in situations)
    at_once = max(1, ROWS_AT_ONCE // targets[0].size) if (twin < 0).all() else len(tokens)
    parts = [
        places(
            Steps(
                proposals=proposals[owner[rows]],
                emitted=tokens[rows],
                target=targets[owner[rows]],
                ahead=True,
                draft=drafts[owner[rows]] if sampled else None,
                cut=np.zeros(len(tokens[rows]), dtype=bool),
                request=np.arange(len(tokens))[rows],
                twin=twin[rows],
            ),
            scheme,
        )
        for rows in (slice(at, at + at_once) for at in range(0, len(tokens), at_once))
    ]
    return conformity(joined_places(parts), family(size))
