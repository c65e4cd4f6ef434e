"""The subcommand `check`: is the sampled text of a running server still the target's?

Turns options into a `CheckSetup` and its result into lines, files and an exit code;
what happens in between is in `draftgate.checks.run`.
"""

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import exit_for_check, say
from draftgate.errors import MeasurementError, SpecError

if TYPE_CHECKING:  # quick start
    from draftgate.checks.distribution import Gathered
    from draftgate.checks.outcome import CheckResult
    from draftgate.checks.run import Address, CheckSetup


def add_check(commands: Commands) -> None:
    """Enter the subcommand."""
    from draftgate.cli.check_options import add_options  # noqa: PLC0415 - quick start

    about = "test whether a server's sampled text follows its target's law"
    add_command(commands, "check", about, run_check, add_options)


def run_check(args: argparse.Namespace) -> int:
    """Check a server, print the verdict, store it, and return it as exit code."""
    from draftgate.checks.run import take_check  # noqa: PLC0415 - quick start
    from draftgate.checks.words import lines  # noqa: PLC0415 - quick start
    from draftgate.cli.check_progress import CheckProgress  # noqa: PLC0415 - quick start

    setup = check_setup(args)
    _check_writable(args.out)
    line = CheckProgress()
    try:
        result, gathered = take_check(setup, say, line.show)
    finally:
        line.end()
    print("\n".join(lines(result)))
    stored = _store(args.out, result, gathered)
    print(f"stored: {stored}")
    print(f"report: {_report(stored.parent)}")
    return exit_for_check(result.judgement.outcome)


def check_setup(args: argparse.Namespace) -> "CheckSetup":
    """Return what options ask for.

    Raises:
        SpecError: If they contradict each other, or a value is wrong.
    """
    from draftgate.checks.budget import parse_budget  # noqa: PLC0415 - quick start
    from draftgate.checks.conditions import DEFAULT, conditions, share  # noqa: PLC0415
    from draftgate.checks.run import Address, CheckSetup  # noqa: PLC0415 - quick start

    wanted = conditions(args.condition or DEFAULT)
    share(args.alpha, len(wanted))
    _check_positive("--k", args.k, 1)
    _check_positive("--vocabulary", args.vocabulary, 2)
    return CheckSetup(
        checked=Address(args.url, args.model, args.api_key_env),
        engine=args.engine,
        reference=_reference(args),
        plain=None if args.plain is None else Address(args.plain),
        draft=args.draft,
        draft_sampled=args.draft_sampled,
        k=args.k,
        dtype=args.dtype,
        conditions=wanted,
        alpha=args.alpha,
        budget=parse_budget(args.budget),
        prompts=args.prompts,
        tokenizer=args.tokenizer,
        vocabulary=args.vocabulary,
        seed=secrets.randbits(31) if args.seed is None else args.seed,
        probes=not args.skip_probes,
    )


def _reference(args: argparse.Namespace) -> "Address | str | None":
    from draftgate.checks.run import Address  # noqa: PLC0415 - quick start

    named = args.reference_model is not None or args.reference_api_key_env is not None
    if args.reference is not None and args.reference.startswith(("http://", "https://")):
        return Address(args.reference, args.reference_model, args.reference_api_key_env)
    if named:
        raise SpecError(
            f"--reference: got {args.reference or 'none'} with --reference-model or "
            "--reference-api-key-env, expected the URL of a server. Drop them, or give its URL."
        )
    return str(args.reference) if args.reference is not None else None


def _check_positive(option: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise SpecError(f"{option}: got {value}, expected at least {least}, or leave it out.")


def _check_writable(folder: Path) -> None:
    """Check before the run that its result can be written.

    Raises:
        SpecError: If it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"--out {folder}: {error.strerror}. Name another folder.") from error
    if not os.access(folder, os.W_OK):
        raise SpecError(f"--out {folder}: cannot be written to. Name another folder.")


def _store(root: Path, result: "CheckResult", gathered: "Gathered") -> Path:
    from draftgate.checks.kept import write_check  # noqa: PLC0415 - quick start
    from draftgate.clock import SYSTEM_CLOCK  # noqa: PLC0415 - quick start
    from draftgate.report.check import evidence_of, write_evidence  # noqa: PLC0415 - quick start
    from draftgate.runstore import new_id  # noqa: PLC0415 - quick start

    folder = root / new_id("check", SYSTEM_CLOCK.wall())
    try:
        write_evidence(folder, evidence_of(gathered))
        return write_check(folder, result, gathered)
    except OSError as error:
        raise MeasurementError(
            f"--out {root}: cannot be written ({error.strerror or error}); the verdict is above. "
            "Free some space there, or name another folder."
        ) from error


def _report(folder: Path) -> Path:
    from draftgate.report.check import write_check_report  # noqa: PLC0415 - quick start

    return write_check_report(folder)
