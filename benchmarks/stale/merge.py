"""Put a low-rank delta into a model: the target's next version from what is kept of it.

    python -m benchmarks.stale.merge --folder NEXT

W becomes W + (alpha / r) B A for every pair of matrices of the delta (Hu et al.,
arXiv:2106.09685), computed in float32 and rounded once. Needs no PEFT.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftgate.errors import DraftgateError, SpecError
from draftgate.targets import STAMP, resolve_target

DELTA = Path(__file__).parent / "next"
TARGET = "smollm2-135m-instruct"
WEIGHTS = "model.safetensors"
PREFIX = "base_model.model."

Tensor = Any


def merged(
    weights: Mapping[str, Tensor], delta: Mapping[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """Return a model's weights with a delta put in.

    Args:
        weights: Name to tensor, (out, in) for matrices.
        delta: PEFT's names to tensors: `lora_A` (r, in) and `lora_B` (out, r) of each.
        scale: alpha / r.

    Raises:
        SpecError: If the delta is of another model.
    """
    found = dict(weights)
    for name, low in delta.items():
        if ".lora_A." not in name:
            continue
        place = name.removeprefix(PREFIX).replace(".lora_A.", ".")
        high = delta.get(name.replace(".lora_A.", ".lora_B."))
        known = found.get(place)
        if known is None or high is None or known.shape != (high.shape[0], low.shape[1]):
            raise SpecError(
                f"delta: got {name}, which fits no matrix {place} of the model. Take the model "
                "that the delta was trained on."
            )
        added = scale * (high.float() @ low.float())
        found[place] = (known.float() + added).to(known.dtype)
    return found


def make_next(folder: Path, delta: Path = DELTA) -> Path:
    """Write the target's next version into a folder, unless it is there; return the folder.

    Raises:
        SpecError: If the target or the delta cannot be used.
    """
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - optional

    if (folder / WEIGHTS).is_file():
        return folder
    target = resolve_target(TARGET, log=print)
    if not isinstance(target, Path):
        raise SpecError(f"target {TARGET}: got no folder here, expected its weights.")
    config = json.loads((delta / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = merged(
        load_file(str(target / WEIGHTS)),
        load_file(str(delta / "adapter_model.safetensors")),
        config["lora_alpha"] / config["r"],
    )
    folder.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if path.name not in (WEIGHTS, STAMP):
            shutil.copyfile(path, folder / path.name)
    save_file(tensors, str(folder / f"{WEIGHTS}.part"), metadata={"format": "pt"})
    (folder / f"{WEIGHTS}.part").rename(folder / WEIGHTS)
    return folder


def main() -> int:
    """Write the next version; return 0."""
    parser = argparse.ArgumentParser(description="Put the delta into the target.")
    parser.add_argument("--folder", type=Path, required=True, help="where the model goes")
    args = parser.parse_args()
    print(make_next(args.folder))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftgateError as error:
        sys.exit(f"merge: {error}")
