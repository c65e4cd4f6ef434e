"""The step `answers`: the target's own answers to all prompts, as tokens.

How the target is asked is in `asking`. A sample is a prompt, rendered by
the target's chat template as its server does, and one answer. Samples lie in
`samples.npz`; `read_samples` knows the format.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from draftgate.drafts.asking import Answers
from draftgate.drafts.prompts import Chosen, read_chosen
from draftgate.drafts.recipe import AnswersRecipe
from draftgate.drafts.steps import Facts, Say
from draftgate.errors import EngineError, SpecError

FILE = "samples.npz"

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Samples:
    """Prompts with their answers, all tokens in a row.

    Attributes:
        token_ids: Of all samples, one after the other; shape (n_tokens,).
        starts: Where each sample begins, and the end of the last; shape (n_samples + 1,).
        answers: Where in `token_ids` each answer begins; shape (n_samples,).
        held_out: Whether a sample is kept from training; shape (n_samples,).
        greedy: Whether its answer is greedy; shape (n_samples,).
        kinds: Kind of traffic of each; shape (n_samples,).
    """

    token_ids: Ints
    starts: Ints
    answers: Ints
    held_out: NDArray[np.bool_]
    greedy: NDArray[np.bool_]
    kinds: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.answers)

    def tokens(self, index: int) -> Ints:
        """Return prompt and answer of one sample; shape (length,)."""
        return self.token_ids[self.starts[index] : self.starts[index + 1]]

    def answer_mask(self, index: int) -> NDArray[np.bool_]:
        """Return which tokens of one sample are the answer's; shape (length,)."""
        at = np.arange(self.starts[index], self.starts[index + 1])
        mask: NDArray[np.bool_] = at >= self.answers[index]
        return mask


def read_samples(folder: Path) -> Samples:
    """Return the samples of a finished step.

    Raises:
        SpecError: If the file cannot be read.
    """
    try:
        with (folder / FILE).open("rb") as file, np.load(file, allow_pickle=False) as held:
            return Samples(**{name: held[name] for name in Samples.__slots__})
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise SpecError(
            f"{folder / FILE}: got no samples ({error}). Remove {folder} and run again."
        ) from error


def write_samples(samples: Samples, folder: Path) -> None:
    """Write samples so that `read_samples` returns equal ones."""
    held = {name: getattr(samples, name) for name in Samples.__slots__}
    np.savez(folder / FILE, **held)


def check_samples(samples: Samples, step: str) -> None:
    """Refuse samples that nothing can be learned from, or nothing measured on.

    Raises:
        SpecError: If none is trained on, or none is both held out and greedy.
    """
    learnt = int((~samples.held_out).sum())
    measured = int((samples.held_out & samples.greedy).sum())
    if not learnt or not measured:
        raise SpecError(
            f"{step}: got {learnt} answers to learn from and {measured} greedy ones held out, "
            "expected some of either. Take more prompts, raise held_out_ratio, or raise "
            "max_length if prompts were too long."
        )


def answer(
    target: Path,
    prompts: Path,
    recipe: AnswersRecipe,
    *,
    ask: Callable[[Sequence[list[int]]], tuple[Answers, str]],
    folder: Path,
    say: Say,
) -> Facts:
    """Let the target answer every prompt once at each temperature.

    Args:
        target: Folder of the target model.
        prompts: Folder of the step `prompts`.
        recipe: Temperatures and lengths.
        ask: From prompts as token ids to all answers and the engine's version.
        folder: Where `samples.npz` goes.
        say: Takes lines of progress.

    Returns:
        Counts of samples and tokens, and the engine's version.

    Raises:
        EngineError: If vLLM does not start or answers nothing.
        SpecError: If the target has no tokenizer, or what was answered is of no use.
    """
    chosen = read_chosen(prompts)
    rendered = _rendered(target, chosen)
    room = recipe.max_length - recipe.max_tokens
    kept = [at for at, ids in enumerate(rendered) if len(ids) <= room]
    say(
        f"answers: {len(kept)} prompts at temperature "
        f"{' and '.join(f'{one:g}' for one in recipe.temperatures)}"
    )
    found, version = ask([rendered[at] for at in kept])
    parts = [
        (rendered[at], ids, chosen[at], temperature == 0.0)
        for temperature, answers in zip(recipe.temperatures, found, strict=True)
        for at, ids in zip(kept, answers, strict=True)
        if len(ids) > 1
    ]
    if not parts:
        raise EngineError("answers: vLLM gave no answer of two tokens or more. Look at its log.")
    samples = _gathered(parts)
    check_samples(samples, "answers")
    write_samples(samples, folder)
    return {
        "samples": len(samples),
        "tokens": len(samples.token_ids),
        "answer_tokens": int(sum(samples.starts[1:] - samples.answers)),
        "left_out_too_long": len(chosen) - len(kept),
        "engine": f"vllm {version}",
    }


def _rendered(target: Path, chosen: Sequence[Chosen]) -> list[list[int]]:
    from transformers import AutoTokenizer  # noqa: PLC0415 - optional, and seconds to import

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(target))
    except (OSError, ValueError) as error:
        raise SpecError(
            f"target {target}: got no tokenizer that can be read ({error}). Copy the model's "
            "tokenizer files into its folder."
        ) from error
    texts = [
        tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in one.prompt.messages],
            tokenize=False,
            add_generation_prompt=True,
        )
        for one in chosen
    ]
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def _gathered(parts: Sequence[tuple[list[int], list[int], Chosen, bool]]) -> Samples:
    lengths = [len(prompt) + len(answer) for prompt, answer, _, _ in parts]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    prompt_lengths = np.array([len(prompt) for prompt, _, _, _ in parts], dtype=np.int64)
    return Samples(
        token_ids=np.concatenate([[*prompt, *answer] for prompt, answer, _, _ in parts]).astype(
            np.int64
        ),
        starts=starts,
        answers=starts[:-1] + prompt_lengths,
        held_out=np.array([one.held_out for _, _, one, _ in parts]),
        greedy=np.array([greedy for _, _, _, greedy in parts]),
        kinds=np.array([one.prompt.kind for _, _, one, _ in parts]),
    )
