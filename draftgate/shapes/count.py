"""How many weights a config describes, by the shapes of its tensors.

Formulas of the three families that have twins; each is checked against the
published count of its model.
"""

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]


def count_parameters(config: Config) -> int:
    """Return the number of weights of the model that config.json describes.

    embedding and output matrix 2 V h, a final norm h, and per layer attention,
    two norms and an MLP or router and experts. Scales of a quantized checkpoint
    are not counted.

    Args:
        config: Of `model_type` llama, qwen3_moe or gpt_oss, its output matrix not tied.

    Raises:
        KeyError: If a size is missing, or the family is another.
    """
    hidden = config["hidden_size"]
    layer = _LAYERS[config["model_type"]](config) + 2 * hidden
    return int(2 * config["vocab_size"] * hidden + config["num_hidden_layers"] * layer + hidden)


def count_experts(config: Config) -> int:
    """Return the number of weights in experts, biases left out; 0 without a mixture."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    if config["model_type"] == "gpt_oss":
        return int(layers * config["num_local_experts"] * 3 * hidden * config["intermediate_size"])
    if config["model_type"] == "qwen3_moe":
        expert = 3 * hidden * config["moe_intermediate_size"]
        return int(layers * config["num_experts"] * expert)
    return 0


def _attention(config: Config) -> int:
    """Return the weights of q, k, v and o, with their biases where there are any."""
    hidden = config["hidden_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    weights = 2 * hidden * queries + 2 * hidden * keys
    biases = queries + 2 * keys + hidden if config["attention_bias"] else 0
    return int(weights + biases)


def _llama(config: Config) -> int:
    return int(_attention(config) + 3 * config["hidden_size"] * config["intermediate_size"])


def _qwen3_moe(config: Config) -> int:
    """Attention has a norm for q and one for k; every layer has a router and experts."""
    hidden, experts = config["hidden_size"], config["num_experts"]
    expert = 3 * hidden * config["moe_intermediate_size"]
    return int(_attention(config) + 2 * config["head_dim"] + experts * (hidden + expert))


def _gpt_oss(config: Config) -> int:
    """Attention has a sink for each head; router and experts have biases."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    expert = 2 * inner * (hidden + 1) + hidden * (inner + 1)
    router = hidden + 1
    sinks = config["num_attention_heads"]
    return int(_attention(config) + sinks + config["num_local_experts"] * (router + expert))


_LAYERS: Mapping[str, Callable[[Config], int]] = {
    "llama": _llama,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
}
