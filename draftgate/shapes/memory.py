"""How much memory a model takes, and what is left for the KV cache: a formula, before any start.

Sizes are of the tensors alone. What an engine needs beside them (activations,
CUDA graphs, the context) is an argument, since only a measurement tells it.
Knows no GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftgate.errors import SpecError
from draftgate.shapes.count import count_experts, count_parameters

BF16_BITS = 16.0

FORMATS: Mapping[str, float] = {
    "bf16": BF16_BITS,
    "fp8": 8.0,
    "awq": 4.0 + (16 + 4) / 128,
    "mxfp4": 4.0 + 8 / 32,
}
"""Bits of a quantized weight, its scales included: AWQ has a 16-bit scale and a 4-bit zero for
each group of 128 (Lin et al., arXiv:2306.00978, and the checkpoints' `group_size`), MXFP4 an 8-bit
scale for each 32 (OCP Microscaling Formats, version 1.0, section 5). FP8's one scale a tensor is
nothing."""

KV_BYTES: Mapping[str, int] = {"bf16": 2, "fp8": 1}
"""Bytes of one number in the KV cache."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What one replica has room for.

    Attributes:
        weights_bytes: All weights.
        kv_bytes_per_token: KV cache of one token, as long as no window cuts it.
        free_bytes: Left for the KV cache; negative if the weights do not fit.
    """

    weights_bytes: float
    kv_bytes_per_token: float
    free_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the weights fit with room for at least one token."""
        return self.free_bytes >= self.kv_bytes_per_token


def weights_bytes(config: Mapping[str, Any], weights: str) -> float:
    """Return the bytes of all weights in a format.

    Embedding and output matrix stay in BF16, as all these formats leave them; of a
    mixture in MXFP4 everything but the experts does too.

    Args:
        config: As for `count_parameters`.
        weights: One of FORMATS.

    Raises:
        SpecError: If the format is unknown.
    """
    if weights not in FORMATS:
        raise SpecError(
            f"format {weights!r}: got no known one, expected one of {', '.join(FORMATS)}. Correct "
            "it."
        )
    total = count_parameters(config)
    plain = 2 * config["vocab_size"] * config["hidden_size"]
    quantized = count_experts(config) if weights == "mxfp4" else total - plain
    return (quantized * FORMATS[weights] + (total - quantized) * BF16_BITS) / 8


def kv_bytes(config: Mapping[str, Any], tokens: int, kv: str = "bf16") -> float:
    """Return the bytes of the KV cache of one request.

    2 * kv heads * head size numbers per layer and token; a sliding layer keeps
    no more tokens than its window.

    Args:
        config: Model config.
        tokens: Length of the request, prompt and output.
        kv: One of KV_BYTES.

    Raises:
        SpecError: If the format is unknown.
    """
    if kv not in KV_BYTES:
        raise SpecError(
            f"KV format {kv!r}: got no known one, expected one of {', '.join(KV_BYTES)}. Correct "
            "it."
        )
    layers = config["num_hidden_layers"]
    kinds = config.get("layer_types", ["full_attention"] * layers)
    window = config.get("sliding_window") or tokens
    held = sum(min(tokens, window) if kind == "sliding_attention" else tokens for kind in kinds)
    return float(2 * config["num_key_value_heads"] * config["head_dim"] * KV_BYTES[kv] * held)


def headroom(
    config: Mapping[str, Any],
    weights: str,
    *,
    memory_bytes: float,
    utilisation: float,
    overhead_bytes: float,
    kv: str = "bf16",
) -> Headroom:
    """Return what one replica has room for.

    free = memory * utilisation - weights - overhead.

    Args:
        config: Model config.
        weights: One of FORMATS.
        memory_bytes: Of all its GPUs together.
        utilisation: Share that the engine may use, in (0, 1].
        overhead_bytes: Activations, graphs and context, measured on the engine.
        kv: One of KV_BYTES.

    Raises:
        SpecError: If a format is unknown or the share is outside (0, 1].
    """
    if not 0 < utilisation <= 1:
        raise SpecError(f"utilisation: got {utilisation:g}, expected > 0 and <= 1. Correct it.")
    held = weights_bytes(config, weights)
    free = memory_bytes * utilisation - held - overhead_bytes
    return Headroom(held, kv_bytes(config, 1, kv), free)


def most_requests(config: Mapping[str, Any], room: Headroom, tokens: int, kv: str = "bf16") -> int:
    """Return how many requests of a length fit at once; 0 if none does."""
    return max(0, int(room.free_bytes // kv_bytes(config, tokens, kv)))
