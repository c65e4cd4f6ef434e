"""Memory by formula: weights by format, KV cache by length, and what is left."""

import pytest

from draftgate.cli import main
from draftgate.errors import SpecError
from draftgate.shapes import load_shape
from draftgate.shapes.memory import headroom, kv_bytes, most_requests, weights_bytes

LLAMA = load_shape("shape-llama-3.3-70b").config
QWEN = load_shape("shape-qwen3-coder-30b").config
GPT_OSS = load_shape("shape-gpt-oss-120b").config


@pytest.mark.parametrize(
    ("config", "weights", "gigabytes"),
    [
        # 70,553,706,496 weights at 2 bytes
        (LLAMA, "bf16", 141.1),
        # 2,101,346,304 of them in embedding and output at 2 bytes, the others at 1
        (LLAMA, "fp8", 72.66),
        # published checkpoints: 39.8 GB in AWQ, 65.2 GB in MXFP4
        (LLAMA, "awq", 39.8),
        (GPT_OSS, "mxfp4", 65.2),
        (QWEN, "bf16", 61.06),
    ],
)
def test_weights_are_those_of_the_checkpoints(
    config: dict[str, object], weights: str, gigabytes: float
) -> None:
    """Within one percent the bytes are those of a checkpoint in that format."""
    assert weights_bytes(config, weights) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_a_token_takes_what_all_layers_keep() -> None:
    """Llama keeps 2 x 8 heads x 128 numbers in each of 80 layers: 327,680 bytes in BF16."""
    assert kv_bytes(LLAMA, 1) == 327_680
    assert kv_bytes(LLAMA, 8192) == 8192 * 327_680
    assert kv_bytes(LLAMA, 1, "fp8") == 163_840


def test_sliding_layers_keep_their_window_alone() -> None:
    """Half of gpt-oss's layers stop growing at 128 tokens; a sum over layers agrees."""
    per_layer = 2 * 8 * 64 * 2
    literal = sum(
        per_layer * (min(8192, 128) if kind == "sliding_attention" else 8192)
        for kind in GPT_OSS["layer_types"]
    )

    assert kv_bytes(GPT_OSS, 8192) == literal
    assert kv_bytes(GPT_OSS, 100) == 36 * per_layer * 100


def test_what_is_left_is_for_the_cache() -> None:
    """Room is memory x share - weights - overhead; requests are whole ones."""
    room = headroom(LLAMA, "fp8", memory_bytes=150e9, utilisation=0.9, overhead_bytes=3e9)
    left = 135e9 - weights_bytes(LLAMA, "fp8") - 3e9

    assert room.free_bytes == pytest.approx(left)
    assert room.fits
    assert most_requests(LLAMA, room, 8192) == int(left / (8192 * 327_680))


def test_a_model_that_does_not_fit_serves_nothing() -> None:
    """In BF16 the 70B has negative room on 141 GB at 0.9, and no request fits."""
    room = headroom(LLAMA, "bf16", memory_bytes=150e9, utilisation=0.9, overhead_bytes=3e9)

    assert room.free_bytes < 0
    assert not room.fits
    assert most_requests(LLAMA, room, 8192) == 0


def test_mistakes_are_told() -> None:
    """Unknown formats and an impossible share are one clear error each."""
    with pytest.raises(SpecError, match="format 'int3': got no known one"):
        weights_bytes(LLAMA, "int3")
    with pytest.raises(SpecError, match="KV format 'int3'"):
        kv_bytes(LLAMA, 1, "int3")
    with pytest.raises(SpecError, match=r"utilisation: got 1\.1"):
        headroom(LLAMA, "fp8", memory_bytes=1, utilisation=1.1, overhead_bytes=0)


def test_command_lists_every_target_and_format(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each target and format that suits it, under one that says "not measured"."""
    code = main(["headroom", "--gpus", "2"])
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    assert "not measured" in lines[0]
    assert sum(line.startswith("shape-llama-3.3-70b ") for line in lines) == 3
    assert len(lines) == 2 + 3 + 4 + 4
