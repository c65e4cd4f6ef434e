"""The rejection sampler of vLLM's model runner V2 in process, fed like V1's in `sampler`.

Its kernels are Triton's and run on CUDA only. The way it takes the drafts' laws (logits
after the temperature) is that of vLLM 0.26. Needs torch and vLLM, which are imported late.
"""

import warnings
from collections.abc import Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from draftgate.stats.rejection import Scheme
from tests.support.sampler import Engine, Situation, device

AT = "cuda"
FIRST = 1000
"""Position of each request's last sampled token; the proposals follow it."""

SALT = 1 << 30
"""By how much vLLM keeps its drafts' noise away from the target's since vllm-project/vllm#54282."""


def engine(method: str = "standard") -> Engine:
    """Return V2's sampler with a `rejection_sample_method`: `standard`, `block` or `synthetic`.

    Skips the test where vLLM 0.26 for CUDA is missing. `synthetic` accepts every proposal.
    """
    if device() != AT:
        pytest.skip("the kernels of vLLM's model runner V2 need CUDA; this vLLM is a CPU build")
    import vllm

    if not vllm.__version__.startswith("0.26."):
        pytest.skip(f"got vLLM {vllm.__version__}; the adapter for V2 is written for 0.26")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.v1.worker.gpu.spec_decode import rejection_sampler
    scheme = Scheme.BLOCK if method == "block" else Scheme.STANDARD
    return Engine(rejection_sampler, partial(emitted, method=method), scheme)


def emitted(
    module: ModuleType,
    situations: Sequence[Situation],
    seeds: Sequence[int | None] = (),
    *,
    method: str = "standard",
) -> np.ndarray:
    """Return what V2's sampler emits for a batch of verify steps.

    Args:
        module: Its module `rejection_sampler`.
        situations: One a request. Either all or none of them know the drafts' laws.
        seeds: A request's seed, or None; () for a batch without seeds. As in the engine,
            a request without one gets a random one.
        method: The engine's `rejection_sample_method`.

    Returns:
        Tokens, -1 at the end; shape (batch, largest K + 1).
    """
    import torch

    width = max(len(s.proposals) for s in situations)
    config = SimpleNamespace(
        num_speculative_tokens=width,
        rejection_sample_method=method,
        synthetic_acceptance_rates=[1.0] * width,
    )
    sampler = module.RejectionSampler(_sampler(situations, seeds, width), config, torch.device(AT))
    output = sampler(
        torch.from_numpy(np.concatenate([s.logits for s in situations])).to(AT),
        _batch([s.proposals for s in situations]),
        _draft_logits(situations, width),
    )
    tokens, counts = output.sampled_token_ids.cpu().numpy(), output.num_sampled.cpu().numpy()
    return np.where(np.arange(width + 1) < counts[:, None], tokens, -1)


def drafted(situations: Sequence[Situation], seeds: Sequence[int], shift: int) -> np.ndarray:
    """Return proposals that V2's own draft sampler draws from the situations' draft laws.

    Args:
        situations: One a request, all with the same number of proposals, which are ignored.
        seeds: A request's seed.
        shift: Added to the positions that the noise is drawn for. 0 is the noise that
            the verification of the same place draws from.

    Returns:
        Tokens; shape (batch, K).
    """
    import torch
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample

    width, batch = len(situations[0].proposals), len(situations)
    logits = _draft_logits(situations, width)
    columns = [
        gumbel_sample(
            logits[:, place].contiguous(),
            torch.arange(batch, dtype=torch.int32, device=AT),
            torch.ones(batch, device=AT),
            torch.tensor(seeds, device=AT),
            torch.full((batch,), FIRST + place + shift, device=AT),
            apply_temperature=False,
        )
        for place in range(width)
    ]
    return np.asarray(torch.stack(columns, dim=1).cpu().numpy())


def _sampler(situations: Sequence[Situation], seeds: Sequence[int | None], width: int) -> Any:
    import torch
    from vllm import SamplingParams
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.states import RequestState

    batch, size = len(situations), situations[0].logits.shape[1]
    at = torch.device(AT)
    states = RequestState(
        max_num_reqs=batch,
        max_model_len=8,
        max_num_batched_tokens=8,
        num_speculative_steps=width,
        vocab_size=size,
        device=at,
    )
    sampler = Sampler(batch, size, at, states, num_speculative_tokens=width)
    drawn = torch.randint(2**62, (batch,)).tolist()
    own = [*seeds, *[None] * (batch - len(seeds))]
    for row, situation in enumerate(situations):
        asked, seed = situation.parameters, own[row]
        sampler.add_request(
            row,
            1,
            SamplingParams(
                temperature=asked.temperature,
                top_k=asked.top_k,
                top_p=asked.top_p,
                seed=drawn[row] if seed is None else seed,
            ),
        )
    sampler.apply_staged_writes()
    return sampler


def _batch(proposals: list[tuple[int, ...]]) -> SimpleNamespace:
    """Return what the sampler reads of the runner's `InputBatch`: a logit for each input token."""
    import torch

    lengths = np.array([len(p) + 1 for p in proposals])
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rows = np.arange(len(proposals), dtype=np.int32)
    local = np.concatenate([np.arange(n) for n in lengths])

    def put(numbers: Any, kind: Any = torch.int32) -> Any:
        return torch.from_numpy(np.asarray(numbers)).to(AT, kind)

    return SimpleNamespace(
        num_reqs=len(proposals),
        idx_mapping=put(rows),
        idx_mapping_np=rows,
        expanded_idx_mapping=put(np.repeat(rows, lengths)),
        expanded_local_pos=put(local),
        cu_num_logits=put(ends),
        cu_num_logits_np=ends,
        input_ids=put(np.concatenate([(0, *p) for p in proposals])),
        positions=put(FIRST + local, torch.int64),
        logits_indices=put(np.arange(ends[-1]), torch.int64),
        seq_lens=put(FIRST + lengths),
    )


def _draft_logits(situations: Sequence[Situation], width: int) -> Any:
    """Return logarithms of the drafts' laws, one row a place; shape (batch, width, V), or None."""
    import torch

    if not any(s.draft is not None and s.proposals for s in situations):
        return None
    laws = np.ones((len(situations), width, situations[0].logits.shape[1]), dtype=np.float32)
    for row, situation in enumerate(situations):
        if situation.draft is not None:
            laws[row, : len(situation.proposals)] = situation.draft
    return torch.from_numpy(laws).to(AT).log()
