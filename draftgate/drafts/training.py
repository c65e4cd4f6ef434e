"""The step `training`: the loop that turns states into a head.

Goes on from `checkpoint.pt` after a stop. On a GPU in bfloat16 with float32
weights, on processors in float32.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.drafts.answers import Samples, check_samples
from draftgate.drafts.heads import Learned, as_facts, call_options, forward, learned, new_model
from draftgate.drafts.packing import batch_of, packs, steps_of
from draftgate.drafts.recipe import Recipe, TrainingRecipe
from draftgate.drafts.states import Source, States
from draftgate.drafts.steps import Facts, Say
from draftgate.errors import SpecError

CHECKPOINT = "checkpoint.pt"
WEIGHTS = "head.pt"
SAY_EVERY_S = 15.0
SAVE_EVERY_S = 60.0
EVALUATIONS = 8
"""Times that held-out answers are measured in a training, beside its end."""
EVALUATED_TOKENS = 60_000
LAST_RATE = 0.01
"""Learning rate at the end, as a share of the peak."""
SAMPLES_AHEAD = 192
"""Samples whose states are computed together: one forward pass of the target on a GPU."""

Tensor = Any


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a training works with.

    Attributes:
        recipe: What to make.
        target: Folder of the target.
        vocabulary: (t2d, d2t).
        layer_ids: Target layers that the head reads.
        samples: Prompts with answers.
        source: Where their states come from.
        start: Weights to begin with, as `train` leaves them; None for new ones.
        limit_s: Time after which it ends although steps are left, seconds; the learning
            rate falls by whichever of time and steps is further on.
    """

    recipe: Recipe
    target: Path
    vocabulary: tuple[Tensor, Tensor]
    layer_ids: tuple[int, ...]
    samples: Samples
    source: Source
    start: Path | None = None
    limit_s: float = math.inf


def train(lesson: Lesson, folder: Path, say: Say, clock: Clock = SYSTEM_CLOCK) -> Facts:
    """Train a head, or go on with one, and leave its weights in `head.pt`.

    Args:
        lesson: What to work with.
        folder: Where checkpoint and weights go.
        say: Takes lines of progress: loss, top-1 agreement by depth, estimated
            acceptance length, time left.
        clock: Source of times.

    Returns:
        Steps taken, samples and parameters, and all evaluations on held-out answers.

    Raises:
        SpecError: If samples are of no use, or the first weights are of another head.
    """
    return _Training(lesson, folder, say, clock).run()


def rate_at(done: float, training: TrainingRecipe) -> float:
    """Return the learning rate as a share of its peak, when a share `done` of a training is.

    A linear rise, then half a cosine down to `LAST_RATE` (Loshchilov and Hutter,
    arXiv:1608.03983, without restarts).
    """
    rise = training.warmup_ratio
    if done < rise:
        return LAST_RATE + (1 - LAST_RATE) * done / rise
    share = (done - rise) / (1 - rise)
    return LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * share))


class _Training:
    """One training: model, optimiser, and where it stands."""

    def __init__(self, lesson: Lesson, folder: Path, say: Say, clock: Clock) -> None:
        import torch  # noqa: PLC0415 - optional, and seconds to import

        self._torch = torch
        self._lesson = lesson
        self._folder = folder
        self._say = say
        self._clock = clock
        self._gpu = torch.cuda.is_available()
        # cuDNN plans its attention anew for every length, 17 ms a call on an H200.
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)
        check_samples(lesson.samples, "training")
        recipe = lesson.recipe
        torch.manual_seed(recipe.seed)
        self._model = new_model(recipe, lesson.target, lesson.vocabulary, lesson.layer_ids)
        self._model = self._model.to("cuda" if self._gpu else "cpu").float()
        if lesson.start is not None:
            self._begin_with(lesson.start)
        self._weights = [p for p in self._model.parameters() if p.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._weights, lr=recipe.training.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._options = call_options(recipe)
        self._lengths = np.diff(lesson.samples.starts).tolist()
        self._evaluations: list[dict[str, Any]] = []
        self._step = 0
        self._elapsed_s = 0.0

    def run(self) -> Facts:
        recipe, torch = self._lesson.recipe, self._torch
        self._resume()
        begin_ns = self._clock.now_ns() - round(self._elapsed_s * 1e9)
        said = saved = self._clock.now_ns()
        recent: list[Any] = []
        every = max(1, recipe.training.steps // EVALUATIONS)
        for step, batch in self._batches(self._step):
            done = max(step / recipe.training.steps, self._elapsed_s / self._lesson.limit_s)
            if done >= 1.0:
                break
            recent.append(self._learn(done, batch))
            self._step = step + 1
            if self._step % every == 0:
                self._evaluate()
            now = self._clock.now_ns()
            self._elapsed_s = (now - begin_ns) / 1e9
            if now - said > SAY_EVERY_S * 1e9 or self._step == recipe.training.steps:
                self._tell(learned(recipe, recent))
                recent, said = [], now
            if now - saved > SAVE_EVERY_S * 1e9:
                self._save()
                saved = now
        if not self._evaluations or self._evaluations[-1]["step"] != self._step:
            self._evaluate()
        torch.save(self._kept(), self._folder / WEIGHTS)
        (self._folder / CHECKPOINT).unlink(missing_ok=True)
        return {
            "steps": self._step,
            "samples": int((~self._lesson.samples.held_out).sum()),
            "parameters": sum(p.numel() for p in self._weights),
            "evaluations": self._evaluations,
        }

    def _batches(self, first: int) -> Iterator[tuple[int, Any]]:
        recipe, samples = self._lesson.recipe, self._lesson.samples
        steps = steps_of(
            self._lengths,
            np.flatnonzero(~samples.held_out).tolist(),
            tokens=recipe.training.tokens_per_step,
            seed=recipe.seed,
            first=first,
            last=recipe.training.steps,
        )
        for group in _groups(steps, SAMPLES_AHEAD):
            wanted = [index for _, pack in group for index in pack]
            states = self._lesson.source.states(wanted)
            for step, pack in group:
                yield step, self._batch([next(states) for _ in pack])

    def _batch(self, states: Sequence[States]) -> Any:
        torch = self._torch
        dtype = torch.bfloat16 if self._gpu else torch.float32
        return batch_of(states, self._lesson.samples, dtype=dtype)

    def _forward(self, batch: Any) -> tuple[Tensor, Any]:
        with self._torch.autocast("cuda", self._torch.bfloat16, enabled=self._gpu):
            return forward(self._model, batch, self._options)

    def _learn(self, done: float, batch: Any) -> Any:
        training = self._lesson.recipe.training
        for group in self._optimiser.param_groups:
            group["lr"] = training.learning_rate * rate_at(done, training)
        self._draw_by(self._step)
        loss, metrics = self._forward(batch)
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._weights, training.max_grad_norm)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return metrics

    def _draw_by(self, number: int) -> None:
        """Let chance go by seed and step alone: P-EAGLE draws which positions it learns."""
        state = np.random.SeedSequence([self._lesson.recipe.seed, number]).generate_state(1)
        self._torch.manual_seed(int(state[0]))

    def _evaluate(self) -> None:
        samples = self._lesson.samples
        held_out = np.flatnonzero(samples.held_out & samples.greedy).tolist()
        found: list[Any] = []
        seen = 0
        self._model.eval()
        self._draw_by(0)
        for pack in packs(self._lengths, held_out, tokens=4096, seed=0, epoch=0):
            if seen > EVALUATED_TOKENS:
                break
            seen += sum(self._lengths[index] for index in pack)
            with self._torch.no_grad():
                batch = self._batch(list(self._lesson.source.states(pack)))
                found.append(self._forward(batch)[1])
        self._model.train()
        result = learned(self._lesson.recipe, found)
        self._evaluations.append({"step": self._step, **as_facts(result)})
        self._say(f"training: step {self._step}, held out: {_line(result)}")

    def _tell(self, recent: Learned) -> None:
        seconds = self._elapsed_s / self._step
        steps = self._lesson.recipe.training.steps
        left = seconds * (steps - self._step)
        self._say(
            f"training: step {self._step} of {steps}: {_line(recent)}; "
            f"{1000 * seconds:.0f} ms a step, {left:.0f} s left"
        )

    def _kept(self) -> dict[str, Tensor]:
        names = {name for name, p in self._model.named_parameters() if p.requires_grad}
        state = self._model.state_dict()
        return {name: state[name].detach().cpu() for name in sorted(names)}

    def _begin_with(self, start: Path) -> None:
        try:
            self._load(self._torch.load(start, map_location="cpu", weights_only=True))
        except (OSError, RuntimeError, UnpicklingError) as error:
            shown = " ".join(str(error).split())
            raise SpecError(
                f"--start: got no weights of such a head in {start} ({shown}). Give a training of "
                "the same algorithm, shape and target architecture."
            ) from error

    def _load(self, weights: dict[str, Tensor]) -> None:
        missing, unknown = self._model.load_state_dict(weights, strict=False)
        learnt = {name for name, p in self._model.named_parameters() if p.requires_grad}
        other = sorted({*unknown, *learnt.intersection(missing)})
        if other:
            raise RuntimeError(f"weights of another head: {', '.join(other)}")

    def _save(self) -> None:
        part = self._folder / f"{CHECKPOINT}.part"
        held = {
            "step": self._step,
            "elapsed_s": self._elapsed_s,
            "weights": self._kept(),
            "optimiser": self._optimiser.state_dict(),
            "evaluations": self._evaluations,
        }
        self._torch.save(held, part)
        part.rename(self._folder / CHECKPOINT)

    def _resume(self) -> None:
        path = self._folder / CHECKPOINT
        if not path.exists():
            return
        held = self._torch.load(path, map_location="cpu", weights_only=True)
        self._load(held["weights"])
        self._optimiser.load_state_dict(held["optimiser"])
        self._step, self._elapsed_s = held["step"], held["elapsed_s"]
        self._evaluations = list(held["evaluations"])
        self._say(f"training: goes on at step {self._step}")


def _line(found: Learned) -> str:
    shares = "/".join(f"{share:.3f}" for share in found.accuracy)
    return (
        f"loss {found.loss:.3f}, top-1 by depth {shares}, "
        f"acceptance length about {found.acceptance_length:.2f}"
    )


def _groups(
    steps: Iterator[tuple[int, list[int]]], samples: int
) -> Iterator[list[tuple[int, list[int]]]]:
    group: list[tuple[int, list[int]]] = []
    held = 0
    for step, pack in steps:
        group.append((step, pack))
        held += len(pack)
        if held >= samples:
            yield group
            group, held = [], 0
    if group:
        yield group
