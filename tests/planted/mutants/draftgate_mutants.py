"""Wrong rejection samplers in a real vLLM server, for tests only.

On PYTHONPATH this folder is a distribution with a `vllm.general_plugins` entry
point. Off until DRAFTGATE_MUTANT names a mutant or DRAFTGATE_MUTANT_FILE a file
that does; the file is looked at in every step, so that one server shows them all.
Its text is the mutant's name and, optionally, `greedy` for drafts that are the
draft's most likely tokens. Written for the V1 runner of vLLM 0.32.
"""

import functools
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

NAME = "DRAFTGATE_MUTANT"
"""The mutant at the start; "none" swaps the sampler for our honest one."""
FILE = "DRAFTGATE_MUTANT_FILE"
"""A file that names the mutant; it may change while the server runs and wins over NAME."""

ANNOUNCEMENT = "planted: the rejection sampler is swapped"
TOO_MANY = "one_token_too_many"
DEAF = "stop_inside_chain_ignored"
GREEDY_DRAFTS = "greedy"


@dataclass(frozen=True)
class Setting:
    """What is planted now: a mutant's name, and whether drafts are made greedily."""

    mutant: str = "none"
    greedy_drafts: bool = False


def parse(text):
    """Return the setting that a text such as "always_accept greedy" asks for.

    Raises:
        ValueError: If there are other words in it.
    """
    mutant, *rest = text.split() or ["none"]
    if rest not in ([], [GREEDY_DRAFTS]):
        raise ValueError(
            f"mutant setting {text!r}: got {' '.join(rest)!r} after the name, expected nothing or "
            f"{GREEDY_DRAFTS!r}. Correct the file that {FILE} names."
        )
    return Setting(mutant, bool(rest))


class Control:
    """Reads the setting again whenever the file's stamp has changed.

    Args:
        name: Mutant where there is no file.
        path: The file; None for none.
    """

    def __init__(self, name, path):
        self._setting = parse(name)
        self._path = path
        self._stamp = None

    def now(self):
        """Return the setting of this moment."""
        if self._path is not None and self._path.exists():
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns)
            if stamp != self._stamp:
                self._stamp, self._setting = stamp, parse(self._path.read_text(encoding="utf-8"))
        return self._setting


@dataclass
class Running:
    """What the swapped functions share within one process.

    Attributes:
        setting: Of the step that runs; read once a step, so that no step is half and half.
        requests: Names of the batch's requests, in order.
        lengths: Their texts' lengths in tokens.
        stale: Logits of each request's first place a step ago.
        noise: Noise of the drafts that were drawn since the last step, one entry a place.
        noise_requests: Names of the requests in the rows of that noise.
    """

    setting: Setting = field(default_factory=Setting)
    requests: tuple = ()
    lengths: tuple = ()
    stale: dict = field(default_factory=dict)
    noise: list = field(default_factory=list)
    noise_requests: tuple = ()


def register():
    """Swap what the environment asks for; called by vLLM in each process."""
    name, file = os.environ.get(NAME), os.environ.get(FILE)
    if name is None and file is None:
        return
    control = Control(name or "none", Path(file) if file else None)
    running = Running()
    _swap_sampler(running)
    _watch_steps(control, running)
    _swap_drafting(running)
    _swap_stop_check(control)
    sys.stderr.write(f"{ANNOUNCEMENT}: {control.now()} (pid {os.getpid()})\n")


def _swap_sampler(running):
    """Put our rule in the place of vLLM's rejection sampler."""
    from draftgate_mutant_sampler import sample
    from vllm.v1.sample.rejection_sampler import RejectionSampler

    def forward(self, metadata, draft_probs, logits, sampling_metadata):
        return sample(self, running, metadata, draft_probs, logits, sampling_metadata)

    RejectionSampler.forward = forward


def _watch_steps(control, running):
    """Tell the sampler which mutant is on and whose rows it gets."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    honest = GPUModelRunner._sample

    @functools.wraps(honest)
    def watched(self, logits, spec_decode_metadata):
        running.setting = control.now()
        batch = self.input_batch
        running.requests = tuple(batch.req_ids)
        running.lengths = tuple(int(n) for n in batch.num_tokens_no_spec[: batch.num_reqs])
        output = honest(self, logits, spec_decode_metadata)
        running.noise = []
        running.noise_requests = running.requests
        return output

    GPUModelRunner._sample = watched


def _swap_drafting(running):
    """Make drafts greedy if asked to, and keep the noise of sampled ones if a rule needs it."""
    import vllm.v1.spec_decode.llm_base_proposer as drafting
    from draftgate_mutant_rules import MUTANTS

    proposer = drafting.SpecDecodeBaseProposer
    honest_tokens = proposer._sample_draft_tokens
    honest_draw = drafting.compute_probs_and_sample_next_token

    @functools.wraps(honest_tokens)
    def tokens(self, hidden_states, sampling_metadata):
        if running.setting.greedy_drafts:
            return self._greedy_sample(hidden_states), None
        return honest_tokens(self, hidden_states, sampling_metadata)

    @functools.wraps(honest_draw)
    def draw(logits, sampling_metadata, use_fp64_gumbel=False):  # noqa: FBT002 - vLLM's signature
        if not MUTANTS[running.setting.mutant].needs_noise or not sampling_metadata.all_random:
            return honest_draw(logits, sampling_metadata, use_fp64_gumbel)
        probs = (logits / sampling_metadata.temperature.view(-1, 1)).softmax(-1)
        noise = probs.new_empty(probs.shape).exponential_()
        running.noise.append(noise)
        return (probs / noise).argmax(-1), probs

    proposer._sample_draft_tokens = tokens
    drafting.compute_probs_and_sample_next_token = draw


def _swap_stop_check(control):
    """Plant the two faults of the stop check, which runs in the scheduler's process."""
    from vllm.v1.core.sched import scheduler

    check, update = scheduler.check_stop, scheduler.Scheduler._update_request_with_output

    @functools.wraps(check)
    def late(request, max_model_len):
        if control.now().mutant == TOO_MANY and _ends_by_length(request, max_model_len):
            return False
        return check(request, max_model_len)

    @functools.wraps(update)
    def deaf(self, request, new_token_ids, is_stale=False):  # noqa: FBT002 - vLLM's signature
        if control.now().mutant != DEAF or len(new_token_ids) < 2:
            return update(self, request, new_token_ids, is_stale)
        room = max(request.max_tokens - request.num_output_tokens, 1)
        del new_token_ids[room:]
        for token in new_token_ids[:-1]:
            request.append_output_token_ids(token)
        _, stopped = update(self, request, new_token_ids[-1:], is_stale)
        return new_token_ids, stopped

    scheduler.check_stop = late
    scheduler.Scheduler._update_request_with_output = deaf


def _ends_by_length(request, max_model_len):
    """Return whether the request has just reached `max_tokens` and one more would still fit."""
    return request.num_output_tokens == request.max_tokens and request.num_tokens < max_model_len
