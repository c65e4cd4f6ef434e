"""What tests of draft heads share: a small recipe, samples by a rule, and a random target.

PyTorch and Transformers are imported where they are used: seconds that a
collection of the suite does without.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftgate.cli import Exit, main
from draftgate.drafts.answers import Samples
from draftgate.drafts.recipe import Recipe, load_recipe

VOCAB = 64
HIDDEN = 32
LAYERS = 7
DRAFT_VOCAB = 48


def complaint_of(
    words: Sequence[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """Return the one line with which `draftgate drafts` refuses these words, leaving nothing."""
    monkeypatch.chdir(folder)
    code = main(["drafts", *words])

    out, err = capsys.readouterr()
    assert (code, out) == (Exit.BAD_SPEC, "")
    assert err.startswith("draftgate: ")
    assert err.count("\n") == 1
    assert list(folder.iterdir()) == []
    return err


def small_recipe(algorithm: str = "eagle3", **training: Any) -> Recipe:
    """Return a shipped recipe cut down to the random target, `training` replacing its values."""
    recipe = load_recipe(f"smollm2-{algorithm}")
    values = {"steps": 6, "tokens_per_step": 40, "warmup_ratio": 0.0} | training
    return replace(
        recipe,
        head=replace(recipe.head, draft_vocab_size=DRAFT_VOCAB, depth=3),
        training=replace(recipe.training, **values),
    )


def samples_of(
    parts: Sequence[tuple[Sequence[int], Sequence[int]]], held_out: Sequence[bool]
) -> Samples:
    """Return greedy samples of (prompt, answer) pairs of token ids."""
    lengths = [len(prompt) + len(answer) for prompt, answer in parts]
    starts = np.cumsum([0, *lengths])
    return Samples(
        token_ids=np.array([token for pair in parts for ids in pair for token in ids]),
        starts=starts,
        answers=starts[:-1] + np.array([len(prompt) for prompt, _ in parts]),
        held_out=np.array(held_out),
        greedy=np.ones(len(parts), dtype=bool),
        kinds=np.array(["chat"] * len(parts)),
    )


def random_samples(count: int, held_out: int) -> Samples:
    """Return samples of 12 to 19 random tokens, the last `held_out` of them held out."""
    draw = np.random.default_rng(5)
    parts = [
        (draw.integers(3, 40, 4).tolist(), draw.integers(3, 40, 8 + number % 8).tolist())
        for number in range(count)
    ]
    return samples_of(parts, [number >= count - held_out for number in range(count)])


def write_target(folder: Path) -> Path:
    """Write a random Llama of seven layers, without a tokenizer, and return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.2,
        pad_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def require_speculators() -> None:
    """Skip a test where the extra `drafts` is not installed.

    The first import warns of what PyTorch deprecates; `importorskip` swallows that.
    """
    pytest.importorskip("speculators", reason="needs the extra [drafts]")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread: with tensors this small, more only wait for one another."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
