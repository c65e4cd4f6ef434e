"""The step `export`: a folder that engines load, and its model card's numbers.

bfloat16 safetensors in Speculators' format, without the target's embedding, which
vLLM shares, and without `t2d`, which follows from `d2t` and which engines do not
read. The name of the target stands in the config, not its path.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftgate.drafts.heads import new_model
from draftgate.drafts.recipe import Recipe
from draftgate.drafts.steps import Facts

WEIGHTS = "model.safetensors"

Tensor = Any


def export_head(
    recipe: Recipe,
    target: Path,
    vocabulary: tuple[Tensor, Tensor],
    layer_ids: Sequence[int],
    weights: Path,
    folder: Path,
) -> Facts:
    """Write a trained head as vLLM loads it.

    Args:
        recipe: What was made.
        target: Folder of the target.
        vocabulary: (t2d, d2t).
        layer_ids: Target layers that it reads.
        weights: What the step `training` left.
        folder: Where `config.json` and `model.safetensors` go.

    Returns:
        Bytes and parameters.
    """
    import torch  # noqa: PLC0415 - optional, and seconds to import
    from safetensors.torch import save_file  # noqa: PLC0415 - optional

    trained = torch.load(weights, map_location="cpu", weights_only=True)
    model = new_model(recipe, target, vocabulary, layer_ids)
    model.load_state_dict(trained, strict=False)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in trained.items()}
    if "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = model.lm_head.weight.detach().to(torch.bfloat16).contiguous()
    tensors["d2t"] = vocabulary[1].to(torch.int64)
    save_file(tensors, str(folder / WEIGHTS), metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(0o644)
    _write_config(model, recipe, folder)
    return {
        "bytes": (folder / WEIGHTS).stat().st_size,
        "parameters": sum(t.numel() for n, t in tensors.items() if n != "d2t"),
    }


def _write_config(model: Any, recipe: Recipe, folder: Path) -> None:
    """Write the config that Speculators makes, with the target by name and true for the file."""
    with tempfile.TemporaryDirectory() as scratch:
        model.config.save_pretrained(scratch)
        config = json.loads((Path(scratch) / "config.json").read_text(encoding="utf-8"))
        for path in Path(scratch).glob("*.py"):
            shutil.copyfile(path, folder / path.name)
    config["speculators_config"]["verifier"]["name_or_path"] = recipe.target
    config["dtype"] = config["torch_dtype"] = "bfloat16"
    for inner in (config, config["transformer_layer_config"]):
        inner.pop("_name_or_path", None)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
