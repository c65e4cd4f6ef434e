"""From a recipe and a target to SpecForge's two configurations, as plain documents.

Reads and writes no file. What SpecForge cannot do as the recipe says is refused,
never done otherwise.

Source:
    SpecForge 0.2.0: config/schema.py (names), training/strategies/base.py (weights
    of depths), algorithms/eagle3/model.py and core/lk_loss.py (losses),
    algorithms/model_providers.py (layers), training/model_loading.py (draft config).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from draftgate.drafts.recipe import Recipe
from draftgate.drafts.specforge.targets import TargetModel
from draftgate.drafts.states import default_layer_ids
from draftgate.drafts.training import EVALUATIONS
from draftgate.errors import SpecError
from draftgate.speculation.method import Problem

ARCHITECTURES = {"eagle3": "LlamaForCausalLMEagle3", "peagle": "PEagleDraftModel"}
"""SpecForge's classes of heads, by algorithm (specforge/modeling/draft/)."""

STEP_DECAY = 0.8
"""Its weight of depth d is this to the power d (`ploss_decay` of `Eagle3TrainStrategy`)."""

LK_DECAY = 3.0
"""The eta of Speculators' `lk_hybrid`; SpecForge calls it kl_decay."""

CAPTURE_PORT = 30_000
"""SGLang's usual port."""

CAPTURE_MEMORY_RATIO = 0.8
"""Share of a capture GPU for weights and cache, which it has for itself. Ours, not measured."""

EMBEDDING = "model.embed_tokens.weight"

DRAFT_FILE = "draft.json"
SAMPLES_FILE = "answers.jsonl"
VOCABULARY_FILE = "vocabulary.pt"


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one host: numbers 0 up for the trainer, the next for the target.

    Attributes:
        trainer: How many train the head, each on its own samples.
        capture: Over how many the target is spread; unused where states are stored.
    """

    trainer: int
    capture: int


def draft_config(recipe: Recipe, target: TargetModel) -> dict[str, Any]:
    """Return the head's config.json for SpecForge: Llama's names, the target's sizes.

    Raises:
        SpecError: If the draft vocabulary is larger than the target's.
    """
    size = recipe.head.draft_vocab_size
    if size > target.sizes["vocab_size"]:
        _fail(
            recipe,
            Problem(
                "head.draft_vocab_size",
                str(size),
                f"at most {target.sizes['vocab_size']}, the tokens of {target.path}",
                "Correct the value.",
            ),
        )
    # SpecForge's P-EAGLE turns by rope_theta alone; the file says what was trained.
    scaling = None if recipe.algorithm == "peagle" else dict(target.rope.scaling) or None
    return {
        "architectures": [ARCHITECTURES[recipe.algorithm]],
        "model_type": "llama",
        "num_hidden_layers": recipe.head.layers,
        **target.sizes,
        "intermediate_size": target.mlp_size,
        "draft_vocab_size": size,
        "rope_theta": target.rope.theta,
        "rope_scaling": scaling,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def run_config(recipe: Recipe, target: TargetModel, gpus: Gpus, samples: int) -> dict[str, Any]:
    """Return the run config; its paths are relative to the folder it is run in.

    Args:
        recipe: What to make. With `store_states` the run is offline, else online.
        target: Of what.
        gpus: Where.
        samples: Answers that there will be to train on, >= 1.

    Raises:
        SpecError: If SpecForge cannot do what the recipe says.
    """
    for problem in (*_head_problems(recipe), *_training_problems(recipe)):
        _fail(recipe, problem)
    stored = recipe.training.store_states
    return {
        "model": _model(recipe, target),
        "data": {**_data(stored=stored), **_reading(recipe, target)},
        "training": _training(recipe, gpus, samples),
        "deployment": _stored_deployment(gpus) if stored else _managed_deployment(gpus),
        "run_id": recipe.name,
        "output_dir": "head",
    }


def _fail(recipe: Recipe, problem: Problem) -> None:
    raise SpecError(
        f"recipe {recipe.name}: {problem.key}: got {problem.got}, expected {problem.expected}. "
        f"{problem.next_step}"
    )


def _head_problems(recipe: Recipe) -> Iterator[Problem]:
    head, eagle3 = recipe.head, recipe.algorithm == "eagle3"
    if eagle3 and head.layers != 1:
        yield Problem(
            "head.layers", str(head.layers), "1", "SpecForge's EAGLE-3 head has one layer."
        )
    if head.layer_ids is not None and (len(head.layer_ids) != 3 or head.layer_ids[0] < 1):
        yield Problem(
            "head.layer_ids",
            str(list(head.layer_ids)),
            "three numbers >= 1",
            "SpecForge reads what three layers give on.",
        )


def _training_problems(recipe: Recipe) -> Iterator[Problem]:
    training, eagle3 = recipe.training, recipe.algorithm == "eagle3"
    losses = ["kl_div", "lk_hybrid"] if eagle3 else ["kl_div"]
    names = [name for name, _ in training.losses]
    if len(names) != 1 or names[0] not in losses or training.losses[0][1] != 1:
        yield Problem(
            "training.losses",
            str(dict(training.losses)),
            f"{' or '.join(losses)} alone, with weight 1",
            f"SpecForge has no other for {recipe.algorithm}.",
        )
    if eagle3 and training.step_decay != STEP_DECAY:
        yield Problem(
            "training.step_decay", str(training.step_decay), str(STEP_DECAY), "SpecForge fixes it."
        )
    if not training.train_lm_head:
        yield Problem(
            "training.train_lm_head", "false", "true", "SpecForge always trains the output matrix."
        )
    if training.store_states and not eagle3:
        yield Problem(
            "training.store_states",
            "true",
            "false",
            "SpecForge trains P-EAGLE on states captured as it goes.",
        )


def _model(recipe: Recipe, target: TargetModel) -> dict[str, Any]:
    model: dict[str, Any] = {
        "target_model_path": target.path,
        "draft_model_config": DRAFT_FILE,
        "target_backend": "sglang",
        "torch_dtype": "bfloat16",
        "embedding_key": EMBEDDING,
        "lm_head_key": EMBEDDING if target.tied else "lm_head.weight",
        "aux_hidden_state_layer_ids": _capture_layers(recipe, target),
    }
    if not recipe.training.store_states:
        model["vocab_mapping_path"] = VOCABULARY_FILE
        model["sglang_mem_fraction_static"] = CAPTURE_MEMORY_RATIO
    return model


def _capture_layers(recipe: Recipe, target: TargetModel) -> list[int]:
    """Return SpecForge's numbers of the layers.

    Our k is the state that enters layer k; SpecForge's is the layer that gave it, k - 1. Both
    defaults then name the same three states.
    """
    ids = recipe.head.layer_ids or default_layer_ids(target.num_hidden_layers)
    if ids[-1] >= target.num_hidden_layers:
        _fail(
            recipe,
            Problem(
                "head.layer_ids",
                str(ids[-1]),
                f"numbers below {target.num_hidden_layers}, the layers of {target.path}",
                "Correct the value.",
            ),
        )
    return [one - 1 for one in ids]


def _data(*, stored: bool) -> dict[str, Any]:
    if not stored:
        return {"train_data_path": SAMPLES_FILE}
    return {
        "hidden_states_path": "hidden-states/training",
        "eval_hidden_states_path": "hidden-states/held-out",
    }


def _reading(recipe: Recipe, target: TargetModel) -> dict[str, Any]:
    named = {"chat_template": target.chat_template} if target.chat_template else {}
    return {"max_length": recipe.answers.max_length, **named, "cache_dir": "cache"}


def _training(recipe: Recipe, gpus: Gpus, samples: int) -> dict[str, Any]:
    training = recipe.training
    # SpecForge counts samples, not tokens: as many as fit if all are of the longest length.
    per_step = max(1, training.tokens_per_step // recipe.answers.max_length)
    windows = math.ceil(per_step / gpus.trainer)
    # One epoch more than needed, as answers get lost; max_steps stops the run.
    epochs = math.ceil(training.steps * windows * gpus.trainer / samples) + 1
    every = max(1, training.steps // EVALUATIONS)
    depth = "ttt_length" if recipe.algorithm == "eagle3" else "num_depths"
    return {
        "strategy": recipe.algorithm,
        "num_epochs": epochs,
        "max_steps": training.steps,
        "batch_size": 1,
        "accumulation_steps": windows,
        "learning_rate": training.learning_rate,
        "lr_scheduler": "cosine",
        "warmup_ratio": training.warmup_ratio,
        "max_grad_norm": training.max_grad_norm,
        depth: recipe.head.depth,
        **_loss(training.losses),
        "attention_backend": "flex_attention",
        "save_interval": every,
        "eval_interval": every if training.store_states else 0,
        "max_checkpoints": 2,
        "seed": recipe.seed,
    }


def _loss(losses: tuple[tuple[str, float], ...]) -> Mapping[str, Any]:
    if losses[0][0] == "lk_hybrid":
        return {"lk_loss_type": "lambda", "kl_scale": 1.0, "kl_decay": LK_DECAY}
    return {}


def _stored_deployment(gpus: Gpus) -> dict[str, Any]:
    return {"mode": "local_colocated", "trainer": {"nnodes": 1, "nproc_per_node": gpus.trainer}}


def _managed_deployment(gpus: Gpus) -> dict[str, Any]:
    names = [str(number) for number in range(gpus.trainer + gpus.capture)]
    server = {
        "port": CAPTURE_PORT,
        "cuda_visible_devices": names[gpus.trainer :],
        "tp_size": gpus.capture,
    }
    return {
        "mode": "disaggregated",
        "trainer": {"nnodes": 1, "nproc_per_node": gpus.trainer},
        "disaggregated": {
            "control_dir": "control",
            "backend": "mooncake",
            "managed_local": {
                "trainer_cuda_visible_devices": names[: gpus.trainer],
                "capture_servers": [server],
            },
        },
    }
