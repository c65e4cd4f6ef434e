"""Run folders: lossless, whole or absent, and clear about damage."""

import errno
import json
import shutil
import string
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftgate.clock import ManualClock
from draftgate.codec import decode, encode
from draftgate.datasets import load_prompts, prompts_digest, with_prompts_digest
from draftgate.errors import BaselineError, MeasurementError
from draftgate.hidden import HIDDEN
from draftgate.records import (
    ClientHealth,
    Failure,
    FailureKind,
    RequestRecord,
    ResourceUse,
    RunSamples,
    StreamChunk,
    Window,
)
from draftgate.runstore import (
    RunDirectory,
    _writing,
    load_run,
    read_samples,
    write_samples,
    writing,
)
from draftgate.specs import ProcessLaunch, Profile, UrlLaunch
from draftgate.verdict import Verdict
from tests.support.samples import (
    make_environment,
    make_profile,
    make_run,
    make_runs,
    make_verdicts,
)

NS = st.integers(0, 2**63 - 1)
COUNTS = st.integers(0, 2**40)
CHUNKS = st.builds(StreamChunk, NS, st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple))
RECORDS = st.builds(
    RequestRecord,
    index=COUNTS,
    stream=st.integers(0, 512),
    prompt_id=st.text(),
    scheduled_ns=NS,
    sent_ns=NS,
    ended_ns=NS,
    chunks=st.lists(CHUNKS, max_size=6).map(tuple),
    prompt_tokens=st.none() | COUNTS,
    completion_tokens=st.none() | COUNTS,
    finish_reason=st.none() | st.text(),
    failure=st.none() | st.builds(Failure, st.sampled_from(FailureKind), st.text()),
    text=st.none() | st.text(),
)
NUMBERS = st.floats(allow_nan=False)  # nan is not equal to itself; tested on its own
RUNS = st.builds(
    RunSamples,
    arm=st.text(),
    method=st.text(),
    num_speculative_tokens=st.integers(0, 64),
    concurrency=st.integers(1, 512),
    repeat=st.integers(0, 99),
    started_at=st.text(),
    records=st.lists(RECORDS, max_size=4).map(tuple),
    window=st.none() | st.builds(Window, NS, NS),
    counters=st.none() | st.just(make_run(method="ngram", k=2, tokens_per_step=1.5).counters),
    resources=st.builds(ResourceUse, st.none() | NUMBERS, st.none() | COUNTS, st.none() | NUMBERS),
    client=st.builds(ClientHealth, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    invalid=st.lists(st.text(), max_size=3).map(tuple),
)


def _write_run(root: Path, profile: Profile, runs: tuple[RunSamples, ...] = ()) -> Path:
    directory = RunDirectory.create(root, profile, ["draftgate", "perf"], ManualClock())
    directory.write_environment(make_environment())
    directory.write_command("none", "vllm serve /models/smollm2 --port 0")
    for run in runs:
        directory.add(run)
    return directory.path


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A complete small run folder."""
    profile = make_profile(concurrencies=(1,), repeats=2)
    path = _write_run(tmp_path / "runs", profile, make_runs(profile, requests=3))
    RunDirectory(path, path / "logs").write_verdicts(make_verdicts(), "baselines/a.json")
    return path


@settings(
    max_examples=60,
    deadline=None,  # the first example pays for imports
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # one file, overwritten
)
@given(run=RUNS)
def test_samples_come_back_equal(tmp_path: Path, run: RunSamples) -> None:
    """Any run, with any text, stamp and failure, is the same after a round trip."""
    path = tmp_path / "run.parquet"

    write_samples(path, run)

    assert read_samples(path) == run


def test_samples_keep_not_a_number(tmp_path: Path) -> None:
    """A NaN that was measured is a NaN when read back, not an error and not a gap."""
    run = make_run(resources=ResourceUse(cpu_cores=float("nan")))

    write_samples(tmp_path / "run.parquet", run)

    cores = read_samples(tmp_path / "run.parquet").resources.cpu_cores
    assert cores is not None
    assert cores != cores  # noqa: PLR0124 - only NaN differs from itself


def test_run_folder_comes_back_equal(tmp_path: Path) -> None:
    """Header, environment, commands, samples in order, verdicts: all as written."""
    profile = make_profile(concurrencies=(1, 2), repeats=2)
    runs = make_runs(profile, requests=3)

    path = _write_run(tmp_path, profile, runs)
    RunDirectory(path, path / "logs").write_verdicts(make_verdicts(), "baselines/a.json")
    stored = load_run(path)

    assert stored.profile == replace(profile, workload=with_prompts_digest(profile.workload))
    assert stored.profile.workload.prompts_digest == prompts_digest(load_prompts("mixed", 1))
    assert stored.environment == make_environment()
    assert stored.commands == {"none": "vllm serve /models/smollm2 --port 0"}
    assert stored.argv == ("draftgate", "perf")
    assert stored.samples == runs
    assert stored.verdicts == make_verdicts()
    assert stored.baseline == "baselines/a.json"
    assert stored.id == path.name
    assert stored.started_at == "2026-01-01T00:00:00+00:00"


def test_no_file_of_a_run_holds_a_secret(tmp_path: Path) -> None:
    """Planted in a variable, an argument, text, call, command and reason: gone from all."""
    secret = "hf_planted-0123"
    profile = make_profile(concurrencies=(1,), repeats=1)
    arms = tuple(
        replace(
            arm,
            engine=replace(
                arm.engine, args=("--api-key", secret), env=(("HF_TOKEN", secret), ("A", "plain"))
            ),
        )
        for arm in profile.arms
    )
    profile = replace(profile, arms=arms, text=f'env = {{ HF_TOKEN = "{secret}" }}')
    argv = ["draftgate", "--set", f'engine.env.HF_TOKEN="{secret}"']
    directory = RunDirectory.create(tmp_path, profile, argv, ManualClock())
    directory.write_environment(make_environment())
    directory.write_command("none", f"HF_TOKEN={secret} serve --api-key {secret} --port 1")
    directory.add(make_run(requests=1, invalid=(f"log: {{'api_key': ['{secret}']}}",)))

    held = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    stored = load_run(directory.path)
    assert len(held) == 2
    assert [name for name, data in held.items() if secret.encode() in data] == []
    assert stored.profile.arms[0].engine.env == (("HF_TOKEN", HIDDEN), ("A", "plain"))
    assert stored.commands["none"] == f"HF_TOKEN={HIDDEN} serve --api-key {HIDDEN} --port 1"


def test_run_ids_name_time_and_profile_and_do_not_collide(tmp_path: Path) -> None:
    """Two invocations in the same second get two folders."""
    paths = [_write_run(tmp_path, make_profile("cpu smollm2/x")) for _ in range(4)]

    assert len(set(paths)) == 4
    assert all(path.name.startswith("20260101T000000Z-cpu_smollm2_x-") for path in paths)
    assert all((path / "logs").is_dir() for path in paths)


def test_run_without_verdicts_is_readable(tmp_path: Path) -> None:
    """A run that was stopped before its verdicts still yields its samples."""
    run = make_run(requests=3)

    stored = load_run(_write_run(tmp_path, make_profile(), (run,)))

    assert stored.samples == (run,)
    assert stored.verdicts == ()
    assert stored.baseline is None


def test_run_without_environment_is_an_error(tmp_path: Path) -> None:
    """A run that never reached a server says so."""
    directory = RunDirectory.create(tmp_path, make_profile(), [], ManualClock())

    with pytest.raises(BaselineError, match=r"run\.json: no environment is recorded"):
        load_run(directory.path)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (name, damage)
        for name in ("run.json", "verdicts.json", "samples")
        for damage in ("missing", "empty", "truncated", "garbage", "flipped")
        if (name, damage) not in {("verdicts.json", "missing"), ("samples", "flipped")}  # own tests
    ],
)
def test_damaged_file_is_named(stored: Path, name: str, damage: str) -> None:
    """Whatever happens to a file, the error names it; nothing is read as a default."""
    path = max((stored / name).iterdir()) if name == "samples" else stored / name
    data = path.read_bytes()
    middle = len(data) // 3
    flipped = bytes([data[middle] ^ 0xFF])
    changed = {
        "empty": b"",
        "truncated": data[: len(data) // 2],
        "garbage": b"\x00\xff not a run record",
        "flipped": data[:middle] + flipped + data[middle + 1 :],
    }
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(changed[damage])

    with pytest.raises(BaselineError) as caught:
        load_run(stored)

    assert str(path) in str(caught.value)


def test_flipped_bits_in_the_data_are_never_read_as_data(tmp_path: Path) -> None:
    """With one byte changed anywhere, the run is the same or refused."""
    path, run = tmp_path / "run.parquet", make_run(requests=3, tokens=8)
    write_samples(path, run)
    data = path.read_bytes()

    refused = 0
    for position in range(0, len(data), 3):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x04]) + data[position + 1 :])
        try:
            assert read_samples(path) == run
        except BaselineError:
            refused += 1

    assert refused > 50


@pytest.mark.parametrize("schema", [0, 1, "2", None])
def test_other_schema_is_refused(stored: Path, schema: object) -> None:
    """A record of another schema version is refused with both versions named."""
    document = json.loads((stored / "run.json").read_text())
    (stored / "run.json").write_text(json.dumps({**document, "schema": schema}))

    with pytest.raises(BaselineError, match=r"schema .* is not the one this version reads, 2"):
        load_run(stored)


def test_other_columns_are_refused(stored: Path) -> None:
    """A Parquet file that is not one of ours is refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = min((stored / "samples").iterdir())
    metadata = pq.read_schema(path).metadata
    table = pa.table({"index": [1]}).replace_schema_metadata(metadata)
    pq.write_table(table, path)

    with pytest.raises(BaselineError, match="expected the columns"):
        load_run(stored)


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    """A path that is no run folder is named."""
    with pytest.raises(BaselineError, match=r"nowhere/run\.json: cannot be read"):
        load_run(tmp_path / "nowhere")


def test_real_full_device_becomes_a_measurement_error(tmp_path: Path) -> None:
    """The system's own "no space left" says where it happened and what to do."""
    with (
        pytest.raises(MeasurementError, match=r"No space left.*Free some space") as caught,
        _writing(tmp_path / "run.json"),
    ):
        Path("/dev/full").write_text("x", encoding="utf-8")

    assert str(tmp_path / "run.json") in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOSPC, "Free some space there, or ask for help."),
        (errno.EDQUOT, "Free some space there, or ask for help."),
        (errno.EACCES, "Ask for help."),
    ],
)
def test_room_is_asked_for_only_where_it_lacks(tmp_path: Path, number: int, step: str) -> None:
    """All stores word a failed write alike, each in its class: place, cause, rest, next step."""
    with (
        pytest.raises(BaselineError) as caught,
        writing("thing", tmp_path, left="It is whole.", advice="ask for help.", kind=BaselineError),
    ):
        raise OSError(number, "no")

    told = f"thing {tmp_path}: cannot be written (no). It is whole. {step}"
    assert str(caught.value) == told


def test_unwritable_folder_becomes_a_measurement_error(tmp_path: Path) -> None:
    """Any other failure to write is a clear error too."""
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(MeasurementError, match="cannot be written"):
        RunDirectory.create(tmp_path / "file", make_profile(), [], ManualClock())


_FILL = """
import subprocess, sys
from pathlib import Path
from draftgate.clock import ManualClock
from draftgate.errors import MeasurementError
from draftgate.runstore import RunDirectory, load_run
from tests.support.samples import make_environment, make_profile, make_run

root = Path(sys.argv[1])
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", root]).returncode:
    sys.exit(77)
directory = RunDirectory.create(root, make_profile(), [], ManualClock())
directory.write_environment(make_environment())
written = 0
try:
    for repeat in range(1000):
        directory.add(make_run(repeat=repeat, requests=40))
        written += 1
except MeasurementError as error:
    print(error)
stored = load_run(directory.path)
files = [path.name for path in directory.path.rglob("*") if path.is_file()]
print(written, len(stored.samples), sum(name.endswith(".parquet") for name in files), len(files))
"""


def test_full_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    """On a tmpfs that fills up, what was written before stays readable, whole."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare(1) to mount a small tmpfs")
    mount = tmp_path / "small"
    mount.mkdir()
    inner = [sys.executable, "-c", textwrap.dedent(_FILL), str(mount)]

    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", *inner],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"this machine lets no user mount a tmpfs: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    message, counts = done.stdout.strip().splitlines()
    assert "No space left" in message
    written, read, parquet, files = map(int, counts.split())
    assert written >= 2
    assert written == read == parquet
    assert files == parquet + 1  # the header, and nothing half-written under any name


@pytest.mark.parametrize("launch", [ProcessLaunch(), UrlLaunch("http://127.0.0.1:1"), None])
def test_codec_tells_union_members_apart(launch: ProcessLaunch | UrlLaunch | None) -> None:
    """A union of records comes back as the member that was written."""
    kind: object = ProcessLaunch | UrlLaunch | None

    assert decode(kind, json.loads(json.dumps(encode(launch))), "launch") == launch  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arm": 3}, r"v\.arm: expected str, got 3"),
        ({"concurrency": True}, r"v\.concurrency: expected int, got True"),
        ({"outcome": "good"}, "'good' is not a valid Outcome"),
        ({"colour": "red"}, r"unknown keys \['colour'\]"),
        ({"gate": {"metric": "x"}}, r"v\.gate: .*missing keys \['margin_ratio'\]"),
        ({"gate": []}, r"v\.gate: expected an object"),
        ({"value": "1.0"}, r"v\.value: expected float"),
    ],
)
def test_codec_refuses_what_does_not_fit(change: dict[str, object], message: str) -> None:
    """A wrong type, an unknown key or a missing one is an error that says where."""
    document = {**encode(make_verdicts()[0]), **change}

    with pytest.raises(ValueError, match=message):
        decode(Verdict, document, "v")


def test_codec_refuses_to_encode_what_it_cannot_read_back() -> None:
    """An object of a foreign kind is refused when written, not found out later."""
    with pytest.raises(TypeError, match="cannot encode set"):
        encode({"a": {1, 2}})


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(alphabet=string.printable))
def test_codec_keeps_any_path(text: str) -> None:
    """A path comes back as the same path."""
    assert decode(Path, encode(Path(text)), "path") == Path(text)
