"""A served engine with wrong rejection samplers, and a draft that is bad on purpose.

Sets up what `tests/planted/mutants` needs: the arm with the plugin on its path, the
file that switches mutants, and a draft that is often wrong and too sure of itself.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from draftgate import targets
from draftgate.laws.forward import ForwardReference
from draftgate.specs import Arm, SpeculativeConfig
from tests.planted.mutants.draftgate_mutants import FILE

FOLDER = Path(__file__).parent.parent / "planted" / "mutants"

NOISE_RATIO = 0.1
"""Noise on the bad draft's weights, as a share of their standard deviation.

On 160 tokens of five answers at temperature 0.8, the target rejects 34 % of what the
sharpened draft proposes at 0.1, 53 % at 0.15 and 77 % at 0.2.
"""

SHARPENED = 2.0
"""Factor on the bad draft's final norm, and so on its logits."""

COMMON_TOKENS = (28, 30, 198, 253, 260, 284)
"""Ids of frequent tokens of SmolLM2, to stop at: comma, full stop, line end, and three words."""

K = 4
"""Draft tokens a step, as in issue 5."""


def bad_draft(target: str, say: Callable[[str], None]) -> Path:
    """Return the folder of a draft that is often wrong and over-confident, made once.

    A copy of the target with noise on its weights, then its last norm's weights
    times SHARPENED, which multiplies every logit by that.
    """
    source = Path(targets.resolve_target(target, log=say))
    weak = targets.weakened_copy(source, noise_ratio=NOISE_RATIO, seed=1, log=say)
    job = targets._Job(
        targets.cache_root() / "sharpened",
        weak.name,
        f"over-confident copy of {weak.name}",
        {"source": weak.name, "factor": SHARPENED},
        sum(path.stat().st_size for path in weak.glob("*.safetensors")),
    )
    return targets._made_once(job, lambda folder: _sharpen(weak, folder), say)


def mutable(arm: Arm, control: Path, drafts: str, say: Callable[[str], None]) -> Arm:
    """Return the arm with the bad draft and the planted sampler, steered by the file `control`.

    Args:
        arm: Any arm of vLLM.
        control: The file that `plant` writes.
        drafts: `probabilistic` or `greedy`, vLLM's `draft_sample_method`.
        say: Takes lines of progress.
    """
    speculative = SpeculativeConfig(
        method="draft_model",
        num_speculative_tokens=K,
        model=str(bad_draft(arm.engine.target, say)),
        options=(("draft_sample_method", drafts),),
    )
    args = (*arm.engine.args, "--per-request-spec-decode-metrics", "detailed")
    spec = replace(arm.engine, speculative=speculative, args=args)
    return steered(Arm(f"mutable-{drafts}", spec), control)


def steered(arm: Arm, control: Path) -> Arm:
    """Return the arm, with its own drafts, with the planted sampler steered by the file."""
    env = {**dict(arm.engine.env), "PYTHONPATH": str(FOLDER), FILE: str(control)}
    plant(control, "none")
    return Arm(f"{arm.name}-steered", replace(arm.engine, env=tuple(sorted(env.items()))))


def with_greedy_drafts(sampled: ForwardReference) -> ForwardReference:
    """Return the reference for greedy drafts, on the same models in memory."""
    greedy = copy.copy(sampled)
    greedy.drafts_sampled = False
    return greedy


def plant(control: Path, mutant: str, *, greedy_drafts: bool = False) -> None:
    """Switch the running server to a mutant; in force from its next step on."""
    part = control.with_suffix(".part")
    part.write_text(f"{mutant}{' greedy' if greedy_drafts else ''}\n", encoding="utf-8")
    part.rename(control)


def _sharpen(source: Path, folder: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    targets._copy_without_weights(source, folder)
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(str(path), framework="pt") as tensors:
            metadata = tensors.metadata()
            weights = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 - not a dict
        if "model.norm.weight" in weights:
            weights["model.norm.weight"] *= SHARPENED
        save_file(weights, str(folder / path.name), metadata=metadata)
