"""Faults planted into a real vLLM server, for tests only.

On PYTHONPATH this folder is a distribution with a `vllm.general_plugins` entry
point; each fault is off until its variable is set.
"""

import functools
import os
import sys
import time

STEP_DELAY = "DRAFTGATE_PLANTED_STEP_DELAY_MS"


def register() -> None:
    """Plant what the environment asks for; called by vLLM in each process."""
    delay_ms = float(os.environ.get(STEP_DELAY, "0"))
    if delay_ms > 0:
        _slow_steps(delay_ms / 1e3)


def _slow_steps(delay_s: float) -> None:
    """Make every step that computes tokens longer by `delay_s`."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    honest = GPUModelRunner.execute_model

    @functools.wraps(honest)
    def slow(self, scheduler_output, *args, **kwargs):
        if scheduler_output.total_num_scheduled_tokens > 0:
            time.sleep(delay_s)
        return honest(self, scheduler_output, *args, **kwargs)

    GPUModelRunner.execute_model = slow
    sys.stderr.write(f"planted: every step is {delay_s * 1e3:g} ms longer\n")
