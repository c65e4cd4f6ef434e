"""Faults planted into a real vLLM server, for tests and benchmarks only.

On PYTHONPATH this folder is a distribution with a `vllm.general_plugins` entry
point; each fault is off until its variable is set, and says on stderr what it
does. Delays are sleeps of the worker's main thread: the server's other processes
go on meanwhile, so a client sees a little less than what was planted.

Times are those of `Worker.execute_model` and `sample_tokens` together, which
hold the target, the sampler and the draft. Written for vLLM 0.32.
"""

import functools
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

STEP_DELAY = "DRAFTGATE_PLANTED_STEP_DELAY_MS"
"""Every step takes so much longer."""
STEP_SHARE = "DRAFTGATE_PLANTED_STEP_SHARE"
"""Every step takes longer by this share of its own time; 0.05 is 5 %."""
STALL = "DRAFTGATE_PLANTED_STALL_MS"
"""Length of a stall."""
STALL_SHARE = "DRAFTGATE_PLANTED_STALL_SHARE"
"""Share of steps that stall: one in each 1 / share, at a place drawn at random."""
STALL_SEED = "DRAFTGATE_PLANTED_STALL_SEED"
"""Seed of those places; 1 if unset."""
PREFILL = "DRAFTGATE_PLANTED_PREFILL_MS_PER_TOKEN"
"""A step takes so much longer per prompt token of requests that it starts."""
PREFILL_SHARE = "DRAFTGATE_PLANTED_PREFILL_SHARE"
"""A step that starts requests takes longer by this share of its own time."""
QUEUE = "DRAFTGATE_PLANTED_QUEUE_MS"
"""A request waits so long in the scheduler's queue before it may be scheduled."""
BAD_START = "DRAFTGATE_PLANTED_BAD_START"
"""A file with a share: the first server that finds it deletes it and takes the
share as its STEP_SHARE, so that one start of many is bad."""
FORK = "DRAFTGATE_PLANTED_FORK"
"""Not a fault: engine core and worker are forked, and import nothing again."""

_CLAIMED = "DRAFTGATE_PLANTED_BAD_START_SHARE"


def register() -> None:
    """Plant what the environment asks for; called by vLLM in each process."""
    if os.environ.get(FORK) == "1":
        _fork_processes()
    share = _number(STEP_SHARE) + _claimed_share()
    delays = [
        _constant(_number(STEP_DELAY) / 1e3),
        _share_of_step(share),
        _per_prompt_token(_number(PREFILL) / 1e3),
        _share_of_prefill(_number(PREFILL_SHARE)),
        _stalls(_number(STALL) / 1e3, _number(STALL_SHARE), int(os.environ.get(STALL_SEED, "1"))),
    ]
    planted = [delay for delay in delays if delay is not None]
    if planted:
        _lengthen_steps(planted)
    if _number(QUEUE) > 0:
        _hold_back(_number(QUEUE) / 1e3)


def stall_steps(share, seed):
    """Yield for each step whether it stalls: exactly one in each 1 / share, at random."""
    block = round(1 / share)
    rng = random.Random(seed)
    while True:
        place = rng.randrange(block)
        yield from (step == place for step in range(block))


def claim(path):
    """Return the share that the file holds and delete it; 0 if another had it or there is none."""
    mine = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.rename(mine)  # one process only can do this
    except FileNotFoundError:
        return 0.0
    share = float(mine.read_text())
    mine.unlink()
    return share


def _claimed_share():
    """Return the share of a bad start; the server's first process asks, the others inherit."""
    path = os.environ.get(BAD_START)
    if path is None:
        return 0.0
    if _CLAIMED not in os.environ:
        os.environ[_CLAIMED] = str(claim(Path(path)))
    return float(os.environ[_CLAIMED])


def _number(variable):
    return float(os.environ.get(variable, "0"))


def _say(text):
    sys.stderr.write(f"planted: {text}\n")


# Each of these returns None if nothing is to be planted, else a function from a
# step's own seconds and its prompt tokens of new requests to seconds of delay.


def _constant(delay_s):
    if delay_s <= 0:
        return None
    _say(f"every step is {delay_s * 1e3:g} ms longer")
    return lambda _own_s, _prompt_tokens: delay_s


def _share_of_step(share):
    if share <= 0:
        return None
    _say(f"every step is {share:.1%} longer")
    return lambda own_s, _prompt_tokens: share * own_s


def _per_prompt_token(delay_s):
    if delay_s <= 0:
        return None
    _say(f"prefill is {delay_s * 1e3:g} ms longer per prompt token")
    return lambda _own_s, prompt_tokens: delay_s * prompt_tokens


def _share_of_prefill(share):
    if share <= 0:
        return None
    _say(f"steps that start requests are {share:.1%} longer")
    return lambda own_s, prompt_tokens: share * own_s if prompt_tokens else 0.0


def _stalls(stall_s, share, seed):
    if stall_s <= 0 or share <= 0:
        return None
    steps = stall_steps(share, seed)
    _say(f"{share:.1%} of steps stall for {stall_s * 1e3:g} ms, seed {seed}")
    return lambda _own_s, _prompt_tokens: stall_s if next(steps) else 0.0


def _lengthen_steps(delays):
    """Make every step that computes tokens longer by what all delays say together."""
    from vllm.v1.worker.gpu_worker import Worker

    execute, sample = Worker.execute_model, Worker.sample_tokens
    begun = {"own_s": 0.0, "prompt_tokens": 0}

    @functools.wraps(execute)
    def slow_execute(self, scheduler_output, *args, **kwargs):
        start_s = time.perf_counter()
        output = execute(self, scheduler_output, *args, **kwargs)
        begun["own_s"] = time.perf_counter() - start_s
        begun["prompt_tokens"] = sum(
            scheduler_output.num_scheduled_tokens[request.req_id]
            for request in scheduler_output.scheduled_new_reqs
        )
        return output

    @functools.wraps(sample)
    def slow_sample(self, *args, **kwargs):
        start_s = time.perf_counter()
        output = sample(self, *args, **kwargs)
        own_s = begun["own_s"] + time.perf_counter() - start_s
        delay_s = sum(delay(own_s, begun["prompt_tokens"]) for delay in delays)
        if delay_s > 0:
            time.sleep(delay_s)
        return output

    Worker.execute_model, Worker.sample_tokens = slow_execute, slow_sample


def _hold_back(delay_s):
    """Keep each new request in the scheduler's queue for `delay_s` after it came in."""
    from vllm.v1.core.sched.scheduler import Scheduler

    add, ready = Scheduler.add_request, Scheduler._handle_blocked_waiting_request
    came_s = {}

    @functools.wraps(add)
    def stamped_add(self, request, *args, **kwargs):
        came_s[request.request_id] = time.monotonic()
        return add(self, request, *args, **kwargs)

    @functools.wraps(ready)
    def late(self, request):
        since_s = came_s.get(request.request_id)
        if since_s is not None and time.monotonic() - since_s < delay_s:
            return False
        came_s.pop(request.request_id, None)
        return ready(self, request)

    Scheduler.add_request, Scheduler._handle_blocked_waiting_request = stamped_add, late
    _say(f"every request waits {delay_s * 1e3:g} ms in the queue")


def _fork_processes():
    """Turn vLLM's "spawn" into "fork", which saves each child's imports.

    A forked child's OpenMP starts again and would bind the engine core to one
    core, where a spawned one has all: it is told to bind nothing. The worker's
    threads are bound as usual, since vLLM sets this variable for the worker.
    """
    honest = multiprocessing.get_context

    def get_context(method=None):
        return honest("fork" if method == "spawn" else method)

    multiprocessing.get_context = get_context
    os.environ["KMP_AFFINITY"] = "disabled"
    _say("engine core and worker are forked, not spawned")
