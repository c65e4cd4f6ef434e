"""The target's answers to many prompts: vLLM inside this process, or in several side by side.

A small target leaves a large GPU idle while one process schedules it; several engines,
each with a share of the prompts, fill it.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from draftgate.drafts.recipe import AnswersRecipe
from draftgate.errors import EngineError

ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment of vLLM where nothing else is set. The engine's core stays in its process: one start
less, and a process forked after CUDA was touched cannot use it."""

GPU_RATIO = 0.5
"""Share of a GPU's memory that all engines take together."""

GPU_REQUESTS = 1024
"""Requests that run at once, all engines together; one engine has at least a quarter of it."""

Answers = list[list[list[int]]]
"""Token ids by temperature and prompt."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked.

    Attributes:
        target: Folder of the target.
        recipe: Temperatures and lengths.
        seed: Of the engines' samplers: this number, the next, and so on.
        prompts: Token ids of each prompt.
        engines: Processes that share the prompts, >= 1.
    """

    target: Path
    recipe: AnswersRecipe
    seed: int
    prompts: Sequence[list[int]]
    engines: int = 1


def answer_all(ask: Ask) -> tuple[Answers, str]:
    """Return all answers and vLLM's version.

    Raises:
        EngineError: If an engine does not start.
    """
    engines = min(ask.engines, max(1, len(ask.prompts)))
    if engines == 1:
        return _one(ask)
    shares = [
        replace(ask, seed=ask.seed + number, prompts=ask.prompts[number::engines], engines=engines)
        for number in range(engines)
    ]
    with ProcessPoolExecutor(engines, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(_one, shares))
    return together([answers for answers, _ in found]), found[0][1]


def together(shares: Sequence[Answers]) -> Answers:
    """Return the answers in order, where share k of n has every n-th from k on."""
    whole: Answers = []
    for parts in zip(*shares, strict=True):
        row: list[list[int]] = [[] for _ in range(sum(len(part) for part in parts))]
        for number, part in enumerate(parts):
            row[number :: len(parts)] = part
        whole.append(row)
    return whole


def _one(ask: Ask) -> tuple[Answers, str]:
    llm, version = _start(ask)
    return [_generate(llm, ask, temperature) for temperature in ask.recipe.temperatures], version


def _start(ask: Ask) -> tuple[Any, str]:
    import torch  # noqa: PLC0415 - optional, and seconds to import

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import vllm  # noqa: PLC0415 - optional, and seconds to import

    options: dict[str, Any] = {"max_num_seqs": 16, "enforce_eager": True}
    if torch.cuda.is_available():
        options = gpu_options(ask.engines, torch.cuda.get_device_properties(0).total_memory)
    try:
        llm = vllm.LLM(
            model=str(ask.target),
            max_model_len=ask.recipe.max_length,
            generation_config="vllm",
            seed=ask.seed,
            **options,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(f"answers: vLLM {vllm.__version__} did not start: {error}") from error
    return llm, vllm.__version__


def gpu_options(engines: int, memory_bytes: int) -> dict[str, Any]:
    """Return what one of some engines on a GPU is told.

    Several would each take the others' memory for free while they look how much there is, so
    their caches have a stated size; and they start sooner without CUDA graphs.
    """
    options: dict[str, Any] = {
        "max_num_seqs": max(GPU_REQUESTS // engines, GPU_REQUESTS // 4),
        "gpu_memory_utilization": GPU_RATIO / engines,
    }
    if engines > 1:
        options["kv_cache_memory_bytes"] = int(0.8 * GPU_RATIO / engines * memory_bytes)
        options["enforce_eager"] = True
    return options


def _generate(llm: Any, ask: Ask, temperature: float) -> list[list[int]]:
    from vllm import SamplingParams  # noqa: PLC0415 - optional, and seconds to import

    # Without seeds of their own: a seeded request is sampled alone, outside the batch's one kernel.
    sampling = SamplingParams(
        temperature=temperature, max_tokens=ask.recipe.max_tokens, detokenize=False
    )
    prompts = [{"prompt_token_ids": ids} for ids in ask.prompts]
    found = llm.generate(prompts, sampling, use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in found]
