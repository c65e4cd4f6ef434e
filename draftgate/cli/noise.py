"""The subcommand `power`: what comparisons on this machine can show.

What is computed is in `draftgate.noise`, how it is shown in `power_table`.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit
from draftgate.errors import BaselineError, SpecError

if TYPE_CHECKING:  # quick start
    from draftgate.noise.power import PowerRow
    from draftgate.noise.records import NoiseStudy
    from draftgate.specs import Profile


def add_noise(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    about = "show which losses comparisons on this machine can find"
    add_command(commands, "power", about, run_power, _add_options)


def run_power(args: argparse.Namespace) -> int:
    """Print per gate the smallest loss that shows, and what a given loss would need."""
    from draftgate.cli.power_table import print_power  # noqa: PLC0415 - quick start
    from draftgate.noise.power import power_table  # noqa: PLC0415 - quick start
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start

    profile = load_profile(args.profile, args.set)
    study, gates = _study(profile, args.baselines)
    rows = power_table(study, pairs=args.pairs, loss=_share(args.loss), gates=gates)
    if args.json is not None:
        _write_json(study, rows, args.json)
    print_power(study, rows)
    return Exit.OK


def _study(profile: "Profile", baselines: Path) -> "tuple[NoiseStudy, int]":
    """Return this machine's study with the margins of now, and the gates of a comparison.

    Raises:
        BaselineError: If there is none, or none of its gates is asked any more.
    """
    from draftgate.compare.gates import gates_of  # noqa: PLC0415 - quick start
    from draftgate.environment import describe  # noqa: PLC0415 - quick start
    from draftgate.noise.power import with_gates  # noqa: PLC0415 - quick start
    from draftgate.noise.store import find_noise, noise_path  # noqa: PLC0415 - quick start

    environment = describe("")
    path = noise_path(baselines, environment, profile)
    take = f"Take one: draftgate calibrate --gate --profile {profile.name}"
    study = find_noise(baselines, environment, profile)
    if study is None:
        raise BaselineError(f"power: there is no noise study of this machine at {path}. {take}")
    gates = gates_of(profile.arms, profile.workload.concurrencies, profile.compare)
    study = with_gates(study, gates, profile.compare)
    if not study.gates:
        raise BaselineError(
            f"power: the noise study {path} holds none of the gates that profile {profile.name!r} "
            f"asks now. {take}"
        )
    return study, len(gates)


def _share(text: str | None) -> float | None:
    """Return "5%" or "0.05" as 0.05."""
    if text is None:
        return None
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError as error:
        raise SpecError(_bad_loss(text)) from error
    if rest or not 0.0 < value < 1.0:
        raise SpecError(_bad_loss(text))
    return value


def _bad_loss(text: str) -> str:
    return f"power: --loss got {text!r}, expected a share above 0 and under 100 %, such as 5%."


def _write_json(study: "NoiseStudy", rows: "tuple[PowerRow, ...]", path: Path) -> None:
    from draftgate.codec import encode, to_lines  # noqa: PLC0415 - quick start
    from draftgate.files import write_text  # noqa: PLC0415 - quick start

    document = {
        "profile": study.profile,
        "environment": encode(study.environment),
        "started_at": study.started_at,
        "quarantine": list(study.quarantine),
        "gates": encode(rows),
    }
    try:
        write_text(path, to_lines(document) + "\n")
    except OSError as error:
        raise SpecError(
            f"power: --json got {path}, which cannot be written: {error}. Name a file in a folder "
            "that you may write to."
        ) from error


def _add_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.specfile import DEFAULT_PROFILE  # noqa: PLC0415 - quick start

    parser.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    parser.add_argument("--baselines", type=Path, default=Path("baselines"), metavar="DIR")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help="pairs of stage one (default: the last look)"
    )
    parser.add_argument(
        "--loss", metavar="SHARE", help="loss to be found, such as 5%% (default: each gate's limit)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers, as shares")
