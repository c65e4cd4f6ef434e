"""The step `hidden-states`: what the target thinks at each token, as a head reads it.

Per token: the states that enter the chosen layers, side by side, and the last
layer's output before the final norm. Stored in shards, or computed anew; both
give the same `States`.

Source: the layout is that of Speculators 0.9 (`hidden_states` of each layer id,
last one pre-norm); layer ids as in vLLM's `llama_eagle3`: id k is the state that
enters layer k.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from draftgate.drafts.answers import Samples
from draftgate.drafts.steps import Facts, Say
from draftgate.errors import SpecError

SAMPLES_PER_SHARD = 256
TOKENS_PER_FORWARD = 65_536
"""Padded tokens of one forward pass; on two cores a shard of short samples has far fewer."""

Tensor = Any
"""A torch.Tensor; PyTorch is imported where it is needed."""


@dataclass(frozen=True, slots=True)
class States:
    """One sample's states.

    Attributes:
        index: Which sample.
        features: States that enter the chosen layers, side by side; shape
            (length, layers * hidden_size).
        last: Output of the last layer before the final norm; shape (length, hidden_size).
    """

    index: int
    features: Tensor
    last: Tensor


class Source(Protocol):
    """Where states come from."""

    def states(self, indices: Sequence[int]) -> Iterator[States]:
        """Yield the states of samples, in the order asked for."""
        ...


def default_layer_ids(num_layers: int) -> tuple[int, int, int]:
    """Return the three layers that EAGLE-3 heads read where nothing else is said.

    Raises:
        SpecError: If the target has fewer than seven layers, where they are not distinct.

    Source:
        `get_eagle3_aux_hidden_state_layers` of vLLM's models: (2, n // 2, n - 3).
    """
    if num_layers < 7:
        raise SpecError(
            f"layer_ids: got a target of {num_layers} layers, expected 7 or more. Name layer_ids "
            "in [head]."
        )
    return (2, num_layers // 2, num_layers - 3)


class Computed:
    """States by forward passes of the target, on the GPU where there is one.

    Args:
        target: Folder of the target.
        layer_ids: Layers whose input is read.
        samples: The samples.
    """

    def __init__(self, target: Path, layer_ids: Sequence[int], samples: Samples) -> None:
        import torch  # noqa: PLC0415 - optional, and seconds to import
        from transformers import AutoModel  # noqa: PLC0415 - optional, and seconds to import

        self._torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = AutoModel.from_pretrained(str(target), dtype=torch.bfloat16)
        self._model = self._model.to(self.device).eval()
        self._layer_ids = tuple(layer_ids)
        self._samples = samples
        self._last: Tensor = None
        self._model.layers[-1].register_forward_hook(self._keep)

    def _keep(self, _module: object, _inputs: object, output: Any) -> None:
        self._last = output[0] if isinstance(output, tuple) else output

    def states(self, indices: Sequence[int]) -> Iterator[States]:
        """Yield the states of samples, in the order asked for."""
        for batch in _batches(self._samples, indices):
            yield from self._forward(batch)

    def _forward(self, batch: Sequence[int]) -> Iterator[States]:
        torch = self._torch
        rows = [self._samples.tokens(index) for index in batch]
        longest = max(len(row) for row in rows)
        ids = np.zeros((len(rows), longest), dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        with torch.no_grad():
            found = self._model(
                input_ids=torch.from_numpy(ids).to(self.device),
                attention_mask=torch.from_numpy(mask).to(self.device),
                output_hidden_states=True,
                use_cache=False,
            )
            features = torch.cat([found.hidden_states[at] for at in self._layer_ids], dim=-1)
        last, self._last = self._last, None
        for at, row in enumerate(rows):
            yield States(batch[at], features[at, : len(row)], last[at, : len(row)])


class Stored:
    """States that `store_states` has written.

    Args:
        folder: Folder of the step.
        samples: The samples.
    """

    def __init__(self, folder: Path, samples: Samples) -> None:
        import torch  # noqa: PLC0415 - optional, and seconds to import

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._folder = folder
        self._samples = samples
        self._open: dict[int, Any] = {}

    def states(self, indices: Sequence[int]) -> Iterator[States]:
        """Yield the states of samples, in the order asked for."""
        for index in indices:
            shard = self._shard(index // SAMPLES_PER_SHARD)
            features, last = (
                shard.get_tensor(f"{name}.{index}").to(self.device) for name in ("features", "last")
            )
            yield States(index, features, last)

    def _shard(self, number: int) -> Any:
        from safetensors import safe_open  # noqa: PLC0415 - optional

        if number not in self._open:
            path = self._folder / shard_name(number)
            self._open[number] = safe_open(str(path), framework="pt")
        return self._open[number]


def shard_name(number: int) -> str:
    """Return the name of a shard's file."""
    return f"states-{number:05d}.safetensors"


def store_states(source: Source, samples: Samples, folder: Path, say: Say) -> Facts:
    """Write the states of all samples; shards that are there whole stay.

    Returns:
        Counts, and the bytes on disk.
    """
    from safetensors.torch import save_file  # noqa: PLC0415 - optional

    shards = -(-len(samples) // SAMPLES_PER_SHARD)
    for number in range(shards):
        path = folder / shard_name(number)
        if path.exists():
            continue
        first = number * SAMPLES_PER_SHARD
        wanted = range(first, min(first + SAMPLES_PER_SHARD, len(samples)))
        tensors = {}
        for one in source.states(wanted):
            tensors[f"features.{one.index}"] = one.features.cpu().contiguous()
            tensors[f"last.{one.index}"] = one.last.cpu().contiguous()
        part = path.with_suffix(".part")
        save_file(tensors, str(part))
        part.rename(path)
        say(f"hidden-states: shard {number + 1} of {shards}")
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    return {"shards": shards, "tokens": len(samples.token_ids), "bytes": sum(sizes)}


def _batches(samples: Samples, indices: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    longest = 0
    for index in indices:
        length = int(samples.starts[index + 1] - samples.starts[index])
        if batch and (len(batch) + 1) * max(longest, length) > TOKENS_PER_FORWARD:
            yield batch
            batch, longest = [], 0
        batch.append(index)
        longest = max(longest, length)
    if batch:
        yield batch
