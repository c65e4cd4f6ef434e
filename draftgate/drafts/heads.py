"""What differs between EAGLE-3 and P-EAGLE heads in training; the models are Speculators'.

Source: Li et al., arXiv:2503.01840 (EAGLE-3, training-time test); P-EAGLE as
Speculators 0.9 trains it and vLLM runs it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.drafts.packing import Batch
from draftgate.drafts.recipe import Recipe
from draftgate.errors import SpecError

Tensor = Any


@dataclass(frozen=True, slots=True)
class Learned:
    """What one step or one evaluation says.

    Attributes:
        loss: Mean loss, summed over depths for EAGLE-3.
        accuracy: By depth: for EAGLE-3 the share of positions where this and all earlier drafts
            are the target's most likely tokens; for P-EAGLE the share where this one is.
        chained: Whether `accuracy` counts whole chains.
    """

    loss: float
    accuracy: tuple[float, ...]
    chained: bool

    @property
    def acceptance_length(self) -> float:
        """Estimated tokens per verify step under greedy decoding, bonus token included.

        One plus the chance that the first k drafts are all right, summed over k. For
        P-EAGLE as if drafts were right independently of one another.
        """
        total, chain = 1.0, 1.0
        for share in self.accuracy:
            chain = share if self.chained else chain * share
            total += chain
        return total


def new_model(
    recipe: Recipe, target: Path, vocabulary: tuple[Tensor, Tensor], layer_ids: Sequence[int]
) -> Any:
    """Return an untrained head as a Speculators model, weights drawn by PyTorch's seed.

    Args:
        recipe: Algorithm and shape.
        target: Folder of the target; embedding, norm and output rows come from it.
        vocabulary: (t2d, d2t).
        layer_ids: Target layers that it reads.
    """
    import torch  # noqa: PLC0415 - optional, and seconds to import
    from transformers import AutoConfig  # noqa: PLC0415 - optional, and seconds to import

    config = AutoConfig.from_pretrained(str(target))
    config.num_hidden_layers = recipe.head.layers
    config.tie_word_embeddings = False
    t2d, d2t = vocabulary
    model = _class_of(recipe).from_training_args(
        config,
        t2d=t2d,
        d2t=d2t,
        verifier_name_or_path=str(target),
        draft_vocab_size=recipe.head.draft_vocab_size,
        norm_before_residual=recipe.algorithm == "eagle3",
        target_layer_ids=list(layer_ids),
        ttt_steps=recipe.head.depth,
        num_depths=recipe.head.depth,
        mask_token_id=_mask_token(config) if recipe.algorithm == "peagle" else None,
        draft_attn_impl="sdpa" if torch.cuda.is_available() else "eager",
    )
    # The target's embedding is used in service: a head's own would be 56 MB of 76.
    model.embed_tokens.weight.requires_grad_(requires_grad=False)
    model.lm_head.weight.requires_grad_(requires_grad=recipe.training.train_lm_head)
    return model


def call_options(recipe: Recipe) -> dict[str, Any]:
    """Return the keyword arguments of the model's forward pass beside the batch."""
    from speculators.losses import resolve_loss_config  # noqa: PLC0415 - optional

    losses = resolve_loss_config(json.dumps(dict(recipe.training.losses)), "eager")
    if recipe.algorithm == "peagle":
        return {"loss_config": losses, "num_depths": recipe.head.depth}
    return {
        "loss_config": losses,
        "ttt_steps": recipe.head.depth,
        "ttt_step_loss_decay": recipe.training.step_decay,
    }


def forward(model: Any, batch: Batch, options: Mapping[str, Any]) -> tuple[Tensor, Any]:
    """Return (loss, metrics) of a batch."""
    tensors = {name: getattr(batch, name) for name in Batch.__slots__}
    _, loss, metrics = model(**tensors, **options)
    return loss, metrics


def learned(recipe: Recipe, metrics: Sequence[Mapping[str, Tensor]]) -> Learned:
    """Return what the metrics of one forward pass or several say together."""
    chained = recipe.algorithm == "eagle3"
    name = "full_acc_{}" if chained else "position_{}_acc"

    def ratio(key: str) -> float:
        above = sum(float(one[f"{key}_sum"]) for one in metrics)
        below = sum(float(one[f"{key}_total"]) for one in metrics)
        return above / below if below else 0.0

    accuracy = tuple(ratio(name.format(depth)) for depth in range(recipe.head.depth))
    return Learned(ratio("loss"), accuracy, chained)


def as_facts(found: Learned) -> dict[str, Any]:
    """Return what was learned as JSON values, rounded to what they are worth."""
    return {
        "loss": round(found.loss, 4),
        "accuracy": [round(share, 4) for share in found.accuracy],
        "acceptance_length": round(found.acceptance_length, 3),
    }


def _class_of(recipe: Recipe) -> Any:
    import torch  # noqa: PLC0415 - optional, and seconds to import

    # Speculators compiles the forward pass on a GPU; each step has another length here, and would
    # be compiled anew.
    torch._dynamo.config.disable = True  # noqa: SLF001 (PyTorch's documented switch)
    if recipe.algorithm == "peagle":
        from speculators.models.peagle import PEagleDraftModel  # noqa: PLC0415 - optional

        return PEagleDraftModel
    from speculators.models.eagle3 import Eagle3DraftModel  # noqa: PLC0415 - optional

    return Eagle3DraftModel


def _mask_token(config: Any) -> int:
    """Return the token that stands at places not yet drafted: padding, else the begin of text.

    SmolLM2's padding is also its end of text. That confuses nothing, since nothing is
    drafted after an end.

    Raises:
        SpecError: If the target names neither.
    """
    token = config.pad_token_id
    token = config.bos_token_id if token is None else token
    if token is None:
        raise SpecError(
            "target: got a config.json without pad_token_id and bos_token_id, expected one of "
            "them for a P-EAGLE head. Add the id of a token that text does not hold."
        )
    return int(token)
