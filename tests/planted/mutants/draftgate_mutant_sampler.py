"""From a batch's tensors to one verify step a request, and back to vLLM's output.

Stands in for `RejectionSampler.forward` of vLLM 0.32 (V1 runner): rules come from
`draftgate_mutant_rules`, what is on from `draftgate_mutants`. Batches of tests are
small, so requests are taken one after the other. Imported inside a server only.
"""

from dataclasses import dataclass

import torch
from draftgate_mutant_rules import MUTANTS, Chain, Sampling, one_hot_rows, quantile_of, verify
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata


def sample(sampler, running, metadata, draft_probs, logits, sampling_metadata):
    """Return what the rejection sampler would, by the rule of the mutant that is on.

    Penalties, bad words, allowed ids and minimal lengths are applied by vLLM's own
    functions; temperature, filters and the rule are ours.
    """
    rule = MUTANTS[running.setting.mutant]
    rows = _processed(sampler, metadata, logits, sampling_metadata)
    width = metadata.max_spec_len + 1
    output = torch.full((len(metadata.num_draft_tokens), width), -1, dtype=torch.int32)
    for index, chain in enumerate(_chains(rule, running, metadata, draft_probs, rows)):
        tokens = verify(rule, chain)
        output[index, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    logprobs = None
    if sampling_metadata.max_num_logprobs is not None:
        logprobs = sampler._get_logprobs_tensors(
            sampling_metadata.max_num_logprobs,
            metadata,
            logits,
            rows.raw_targets,
            rows.raw_bonus,
            output,
        )
    return SamplerOutput(sampled_token_ids=output, logprobs_tensors=logprobs)


@dataclass(frozen=True)
class _Rows:
    """Logits before and after vLLM's processors: of all places, and of each bonus; float32."""

    raw_targets: torch.Tensor
    targets: torch.Tensor
    raw_bonus: torch.Tensor
    bonus: torch.Tensor
    sampling: SamplingMetadata


def _processed(sampler, metadata, logits, sampling_metadata):
    raw_targets = logits[metadata.target_logits_indices].float()
    raw_bonus = logits[metadata.bonus_logits_indices].float()
    targets = sampler.apply_logits_processors(raw_targets.clone(), sampling_metadata, metadata)
    bonus = sampler.sampler.apply_logits_processors(
        raw_bonus.clone(), sampling_metadata, predict_bonus_token=True
    )
    return _Rows(raw_targets, targets, raw_bonus, bonus, sampling_metadata)


def _chains(rule, running, metadata, draft_probs, rows):
    """Yield each request's verify step, in the order of the batch."""
    known = dict(running.stale)
    running.stale = {}
    start = 0
    for index, count in enumerate(metadata.num_draft_tokens):
        places = slice(start, start + count)
        start += count
        request = running.requests[index] if index < len(running.requests) else str(index)
        length = running.lengths[index] if index < len(running.lengths) else 0
        generator = rule.generator(length, rows.sampling.generators.get(index))
        proposals = tuple(metadata.draft_token_ids[places].tolist())
        stacked = torch.cat([rows.targets[places], rows.bonus[index : index + 1]])
        hot = draft_probs is None or -1 in proposals
        yield Chain(
            proposals=proposals,
            logits=stacked,
            raw=torch.cat([rows.raw_targets[places], rows.raw_bonus[index : index + 1]]),
            draft=one_hot_rows(proposals, stacked.shape[1]) if hot else draft_probs[places],
            coins=torch.rand(count, dtype=torch.float64, generator=generator),
            sampling=_asked(rows.sampling, index),
            generator=generator,
            quantile=quantile_of(request),
            stale=known.get(request),
            noise=_noise(running, request, count),
        )
        running.stale[request] = stacked[0]


def _asked(sampling, index):
    """Return temperature and filters of one request."""
    greedy = sampling.all_greedy or sampling.temperature is None
    temperature = 0.0 if greedy else float(sampling.temperature[index])
    return Sampling(
        temperature=temperature if temperature >= 1e-5 else 0.0,  # vLLM's _SAMPLING_EPS
        top_k=0 if sampling.top_k is None else int(sampling.top_k[index]),
        top_p=1.0 if sampling.top_p is None else float(sampling.top_p[index]),
    )


def _noise(running, request, count):
    """Return the noise of a request's drafts, or None if it was not kept."""
    if len(running.noise) < count or not count or request not in running.noise_requests:
        return None
    row = running.noise_requests.index(request)
    return torch.stack([noise[row] for noise in running.noise[:count]])
