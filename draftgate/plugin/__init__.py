"""The pytest plugin (entry point `draftgate`): options, markers, fixtures, summary.

Installed with the package, so any repository can ask for its fixtures. Knows
how pytest is wired; what happens in a session stands in `session`.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from draftgate.errors import DraftgateError
from draftgate.interrupts import keep_interrupts
from draftgate.plugin.asked import Options, short_overrides
from draftgate.plugin.fixtures import (
    draftgate_session,
    engine_pool,
    measure,
    measure_acceptance,
    paired_gate,
    paired_session,
    perf_cell,
    perf_run,
    profile,
    speculative_arm,
)
from draftgate.plugin.paired import PairedOptions, PairedSession
from draftgate.plugin.session import PAIRED, SESSION, GateSession
from draftgate.runstore import load_run
from draftgate.specfile import DEFAULT_PROFILE, load_profile

__all__ = [
    "draftgate_session",
    "engine_pool",
    "measure",
    "measure_acceptance",
    "paired_gate",
    "paired_session",
    "perf_cell",
    "perf_run",
    "profile",
    "speculative_arm",
]

FILE_WIDTH = 120
"""Columns of the tables where the output is no terminal; narrower ones cut headings."""

MARKERS = {
    "perf": "timed against a live engine",
    "correctness": "output compared with the target model's",
    "drift": "acceptance by kind of traffic, against history",
    "gpu": "needs an accelerator",
    "slow": "over a minute on a CPU",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of a session."""
    group = parser.getgroup("draftgate", "speculative decoding gates")
    group.addoption("--profile", metavar="NAME|PATH", help="what to start and send")
    group.addoption(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="draftgate_set",
        help="replace one profile value, for example workload.repeats=2",
    )
    group.addoption(
        "--short",
        action="store_true",
        help="fewer and shorter runs; never compared with stored baselines of full ones",
    )
    group.addoption(
        "--against",
        metavar="SIDE",
        help="compare with this build in pairs of starts; sides as for `draftgate compare`",
    )
    group.addoption(
        "--candidate",
        default="profile",
        metavar="SIDE",
        help="what --against is compared with; default: the profile as it is",
    )
    group.addoption("--max-minutes", type=float, metavar="M", help="budget of --against")
    group.addoption("--runs", default="runs", metavar="DIR", help="where run folders go")
    group.addoption(
        "--baselines", default="baselines", metavar="DIR", help="where baselines are read from"
    )
    group.addoption(
        "--history", default="history", metavar="DIR", help="whose open items the report shows"
    )
    group.addoption("--require-baseline", action="store_true", help="fail where no baseline fits")
    group.addoption(
        "--require-verdict",
        action="store_true",
        help="fail where evidence does not suffice for a verdict",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register markers, keep Ctrl-C from being lost, and make the session's state.

    A profile named on the command line is read at once, so that a mistake in
    it stops pytest before it collects; the default one only when a test asks.

    Raises:
        pytest.UsageError: If the named profile or an override is wrong.
    """
    config.add_cleanup(keep_interrupts())
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    overrides = list(config.getoption("draftgate_set"))
    if config.getoption("--short"):
        overrides = [*short_overrides(), *overrides]
    name = config.getoption("--profile")
    options = Options(
        runs=_below(config, config.getoption("--runs")),
        baselines=_below(config, config.getoption("--baselines")),
        history=_below(config, config.getoption("--history")),
        require_baseline=bool(config.getoption("--require-baseline")),
        require_verdict=bool(config.getoption("--require-verdict")),
        argv=("python", "-m", "pytest", *map(str, config.invocation_params.args)),
        short=bool(config.getoption("--short")),
    )
    session = GateSession(
        lambda: load_profile(name or DEFAULT_PROFILE, overrides), options, _say(config)
    )
    config.stash[SESSION] = session
    config.stash[PAIRED] = _paired(config, name or DEFAULT_PROFILE, overrides, options)
    if name is not None or overrides or config.stash[PAIRED] is not None:
        try:
            _ = session.profile
            if (paired := config.stash[PAIRED]) is not None:
                _ = paired.gates
        except DraftgateError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise by run, by cell or by arm whatever asks for these fixtures."""
    session, paired = metafunc.config.stash[SESSION], metafunc.config.stash[PAIRED]
    if "paired_gate" in metafunc.fixturenames:
        gates = paired.gates if paired is not None else ()
        ids = [f"{gate.arm}-c{gate.concurrency}-{gate.metric}" for gate in gates]
        metafunc.parametrize("paired_gate", gates, ids=ids, indirect=True)
    if "perf_run" in metafunc.fixturenames:
        plan = session.plan() if paired is None else ()
        ids = [f"r{run.repeat}-c{run.concurrency}-{run.arm}" for run in plan]
        metafunc.parametrize("perf_run", plan, ids=ids, indirect=True)
    if "perf_cell" in metafunc.fixturenames:
        cells = [
            (arm.name, concurrency)
            for concurrency in session.profile.workload.concurrencies
            for arm in session.profile.arms
            if paired is None
        ]
        ids = [f"c{concurrency}-{arm}" for arm, concurrency in cells]
        metafunc.parametrize("perf_cell", cells, ids=ids, indirect=True)
    if "speculative_arm" in metafunc.fixturenames:
        names = [arm.name for arm in session.profile.arms if arm.engine.speculative is not None]
        # All tests of an arm run together: where not all servers can live, each starts once.
        metafunc.parametrize("speculative_arm", names, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Write the report of whatever was measured, also after a failure or Ctrl-C."""
    gate = session.config.stash[SESSION]
    try:
        gate.finish()
        if gate.run_path is not None and gate.has_results:
            from draftgate.report import write_report  # noqa: PLC0415 - slow, and most sessions need none

            gate.stored = load_run(gate.run_path)
            write_report(gate.stored, gate.options.history)
        _write_comparison(session.config)
    except (DraftgateError, OSError) as error:
        gate.report_error = str(error)
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables and where the page is."""
    gate = terminalreporter.config.stash[SESSION]
    _print_comparison(terminalreporter)
    if gate.report_error:
        terminalreporter.section("draftgate: the report could not be written", red=True)
        terminalreporter.write_line(gate.report_error)
    if gate.stored is not None:
        from draftgate.report import print_report  # noqa: PLC0415 - as above

        terminalreporter.section("draftgate")
        output = terminalreporter._tw._file  # noqa: SLF001 - no public way to pytest's own output
        console = Console(file=output, width=None if output.isatty() else FILE_WIDTH)
        print_report(gate.stored, console)
    if gate.stored is not None and not gate.report_error:
        terminalreporter.write_line(f"report: {gate.stored.path / 'report.html'}")


def _paired(
    config: pytest.Config, profile_name: str, overrides: list[str], options: Options
) -> PairedSession | None:
    """Return the comparison that `--against` asks for; None without it."""
    against = config.getoption("--against")
    if against is None:
        return None
    asked = PairedOptions(
        against=against,
        candidate=config.getoption("--candidate"),
        profile=profile_name,
        overrides=tuple(overrides),
        max_minutes=config.getoption("--max-minutes"),
        runs=options.runs,
        baselines=options.baselines,
        argv=options.argv,
    )
    return PairedSession(asked, _say(config))


def _write_comparison(config: pytest.Config) -> None:
    """Write the reports of a comparison, also of one that was cut short."""
    paired = config.stash[PAIRED]
    if paired is not None and paired.folder is not None and paired.stored is not None:
        from draftgate.report.compared import write_comparison  # noqa: PLC0415 - slow, and rare

        write_comparison(paired.stored, paired.folder, config.stash[SESSION].options.history)


def _print_comparison(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a comparison's table and where its page is."""
    paired = terminalreporter.config.stash[PAIRED]
    if paired is None or paired.folder is None or paired.stored is None:
        return
    from draftgate.report.compared import print_comparison  # noqa: PLC0415 - slow, and rare

    terminalreporter.section("draftgate compare")
    output = terminalreporter._tw._file  # noqa: SLF001 - no public way to pytest's own output
    console = Console(file=output, width=None if output.isatty() else FILE_WIDTH)
    print_comparison(paired.stored, console)
    terminalreporter.write_line(f"report: {paired.folder.path / 'report.html'}")


def _below(config: pytest.Config, folder: str) -> Path:
    path = Path(folder)
    return path if path.is_absolute() else config.rootpath / path


class _say:  # noqa: N801 - used as a function
    """Prints a line of progress past pytest's capture."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(self, line: str) -> None:
        plugins = self._config.pluginmanager
        reporter, capture = (
            plugins.get_plugin("terminalreporter"),
            plugins.get_plugin("capturemanager"),
        )
        if reporter is None:
            return
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"  [draftgate] {line}")
            reporter.flush()
