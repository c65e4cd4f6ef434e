"""Subcommand `headroom`: what a GPU has room for, by formula."""

import argparse

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit

_LENGTHS = (8192, 32768)
_TARGETS = ("shape-llama-3.3-70b", "shape-qwen3-coder-30b", "shape-gpt-oss-120b")


def add_headroom(commands: Commands) -> None:
    """Enter the subcommand."""
    add_command(
        commands,
        "headroom",
        "weights, KV room and requests at once of the known shapes, by formula",
        run_headroom,
        _add_headroom,
    )


def run_headroom(args: argparse.Namespace) -> int:
    """Print one line for each known target and format."""
    from draftgate.shapes import load_shape  # noqa: PLC0415 - quick start
    from draftgate.shapes.count import count_experts  # noqa: PLC0415 - quick start
    from draftgate.shapes.memory import (  # noqa: PLC0415 - quick start
        FORMATS,
        headroom,
        most_requests,
    )

    print("Predicted by formula (docs/gpu.md), not measured.")
    print(f"{'target':24} {'weights':7} {'GB':>7} {'KV kB/token':>12} {'KV room GB':>11}", end="")
    print("".join(f" {f'at {length}':>9}" for length in _LENGTHS))
    for name in _TARGETS:
        shape = load_shape(name)
        for weights in FORMATS:
            if weights == "mxfp4" and not count_experts(shape.config):
                continue  # it is a format of experts
            room = headroom(
                shape.config,
                weights,
                memory_bytes=args.memory_gb * 1e9 * args.gpus,
                utilisation=args.utilisation,
                overhead_bytes=args.overhead_gb * 1e9 * args.gpus,
                kv=args.kv,
            )
            counts = (most_requests(shape.config, room, length, args.kv) for length in _LENGTHS)
            line = f"{name:24} {weights:7} {room.weights_bytes / 1e9:7.1f}"
            line += f" {room.kv_bytes_per_token / 1e3:12.1f} {room.free_bytes / 1e9:11.1f}"
            print(line + "".join(f" {number:9}" for number in counts))
    return Exit.OK


def _add_headroom(parser: argparse.ArgumentParser) -> None:
    from draftgate.shapes.memory import KV_BYTES  # noqa: PLC0415 - quick start

    parser.add_argument(
        "--memory-gb", type=float, default=150.0, metavar="GB", help="of one GPU, 10^9 bytes"
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N")
    parser.add_argument("--utilisation", type=float, default=0.92, metavar="SHARE")
    parser.add_argument(
        "--overhead-gb",
        type=float,
        default=3.0,
        metavar="GB",
        help="activations, graphs and context of one GPU; measure it on your engine",
    )
    parser.add_argument("--kv", choices=tuple(KV_BYTES), default="bf16")
