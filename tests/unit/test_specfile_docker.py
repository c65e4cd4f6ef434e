"""[engine.docker]: what a correct table becomes, and what each wrong one is told."""

from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.specfile import load_profile, parse_profile
from draftgate.specs import DockerLaunch, Profile
from tests.unit.test_specfile import PROFILE, SOURCE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "cpu-smollm2-docker.toml"
HEAD = '[engine]\nlaunch = "docker"\n'


def in_docker(*lines: str, source: Path = SOURCE) -> Profile:
    """Return the small profile with an [engine.docker] of these lines."""
    table = "".join(f"{line}\n" for line in ("[engine.docker]", *lines))
    return parse_profile(PROFILE.replace("[engine]\n", HEAD) + table, source)


def test_image_alone_is_enough() -> None:
    """Every arm runs in the named image, with its variables; the rest has defaults."""
    profile = in_docker('image = "vllm/vllm-openai:v0.33.0"')

    launch = DockerLaunch("vllm/vllm-openai:v0.33.0")
    assert [arm.engine.launch for arm in profile.arms] == [launch, launch]
    assert (launch.python, launch.network, launch.gpus) == ("python3", "host", ())
    assert profile.arm("ngram").engine.env == (("A", "3"), ("B", "2"))


def test_every_key_arrives(tmp_path: Path) -> None:
    """All keys, paths of volumes made absolute from the profile's folder."""
    (tmp_path / "cache").mkdir()
    profile = in_docker(
        'image = "registry:5000/x/vllm@sha256:0a"',
        'python = "/opt/venv/bin/python"',
        'entrypoint = "/banner.sh"',
        "gpus = [0, 'GPU-5c']",
        'network = "bridge"',
        'volumes = ["./cache:/root/.cache", "hub:/hub:ro"]',
        'shm_size = "8g"',
        'args = ["--ulimit", "memlock=-1"]',
        source=tmp_path / "p.toml",
    )

    assert profile.arm("none").engine.launch == DockerLaunch(
        "registry:5000/x/vllm@sha256:0a",
        python="/opt/venv/bin/python",
        entrypoint="/banner.sh",
        gpus=("0", "GPU-5c"),
        network="bridge",
        volumes=(f"{tmp_path}/cache:/root/.cache", "hub:/hub:ro"),
        shm_size="8g",
        args=("--ulimit", "memlock=-1"),
    )


@pytest.mark.parametrize(("given", "gpus"), [('"all"', ("all",)), ('"none"', ()), ("[1]", ("1",))])
def test_gpus_are_all_none_or_some(given: str, gpus: tuple[str, ...]) -> None:
    """A word or a list; numbers become text."""
    launch = in_docker('image = "x"', f"gpus = {given}").arm("none").engine.launch

    assert isinstance(launch, DockerLaunch)
    assert launch.gpus == gpus


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), r"engine\.docker\.image: got nothing, expected the name of an image"),
        (('image = "-x"',), r"engine\.docker\.image: got '-x', expected the name of an image"),
        (
            ('imag = "x"',),
            r"docker\.imag: got an unknown key, expected one of image, python, .*Did",
        ),
        (('image = "x"', "gpus = []"), r"docker\.gpus: got \[\], expected \"all\", \"none\", or a"),
        (('image = "x"', 'gpus = "two"'), r"docker\.gpus: got 'two'"),
        (('image = "x"', 'shm_size = "8 GiB"'), r"docker\.shm_size: got '8 GiB', expected a size"),
        (
            ('image = "x"', 'shm_size = "8g"', 'ipc = "host"'),
            r"docker\.shm_size: got '8g', expected none with ipc = \"host\"",
        ),
        (('image = "x"', 'args = ["--name=me"]'), r"docker\.args: got '--name=me', .*finds its"),
        (('image = "x"', 'args = ["-d"]'), r"docker\.args: got '-d', .*foreground"),
        (('image = "x"', 'volumes = ["/tmp"]'), r"docker\.volumes: got '/tmp', expected SOURCE:"),
        (('image = "x"', 'volumes = ["/tmp:x"]'), r"docker\.volumes: .*TARGET an absolute path"),
        (('image = "x"', 'volumes = ["/tmp:/x:rx"]'), r"docker\.volumes: .*TARGET an absolute"),
        (
            ('image = "x"', 'volumes = ["./no:/x"]'),
            r"docker\.volumes: .*nothing is at /profiles/no",
        ),
    ],
)
def test_wrong_tables_name_file_and_key(lines: tuple[str, ...], message: str) -> None:
    """Each mistake is one SpecError that names the file, the key, and what was expected."""
    with pytest.raises(SpecError, match=message) as caught:
        in_docker(*lines)
    assert "/profiles/small.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[engine]\n", HEAD + 'python = "python3"\n', r"engine\.python: .*engine\.docker\.python"),
        ("[engine]\n", HEAD + 'url = "http://h"\n', r'engine\.url: .*no such key.*"docker"'),
        (
            "[engine.env]",
            '[engine.docker]\nimage = "x"\n[engine.env]',
            r'engine\.docker: got .*no such key with launch = "process".*set launch = "docker"',
        ),
    ],
)
def test_keys_of_other_launches_are_refused(old: str, new: str, message: str) -> None:
    """A key that this kind of launch has no use for is an error, never ignored."""
    with pytest.raises(SpecError, match=message):
        parse_profile(PROFILE.replace(old, new), SOURCE)


def test_override_reaches_the_table(tmp_path: Path) -> None:
    """The command line can choose another image."""
    (tmp_path / "p.toml").write_text(
        PROFILE.replace("[engine]\n", HEAD) + '[engine.docker]\nimage = "x:1"\n'
    )
    profile = load_profile(str(tmp_path / "p.toml"), ["engine.docker.image=vllm/x:2"])

    assert profile.arm("none").engine.launch == DockerLaunch("vllm/x:2")


def test_example_differs_from_the_default_profile_in_its_launch_alone() -> None:
    """The example in docs/ measures what cpu-smollm2 does, with the same arms and gates."""
    example, default = load_profile(str(EXAMPLE)), load_profile("cpu-smollm2")

    assert (example.workload, example.slo, example.gates) == (
        default.workload,
        default.slo,
        default.gates,
    )
    assert [(arm.name, arm.engine.speculative) for arm in example.arms] == [
        (arm.name, arm.engine.speculative) for arm in default.arms
    ]
    for arm in example.arms:
        assert isinstance(arm.engine.launch, DockerLaunch)
        assert arm.engine.args == default.arm(arm.name).engine.args
        assert arm.engine.plugins == default.arm(arm.name).engine.plugins
