"""The two sides of a comparison: what each form becomes, and what a wrong one is told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.compare import forms, sides
from draftgate.compare.forms import FORMS, read_form
from draftgate.compare.sides import check_sides, resolve_side
from draftgate.errors import SpecError
from draftgate.specfile import parse_profile
from draftgate.specs import SLO, CompareSpec, DockerLaunch, ProcessLaunch, UrlLaunch
from tests.support.sides import changed, side, write_profile

DOCKER = (
    ("[engine]\n", '[engine]\nlaunch = "docker"\n'),
    (
        "[engine.env]",
        '[engine.docker]\nimage = "old"\npython = "/opt/python"\nshm_size = "8g"\n[engine.env]',
    ),
)
LIVE = (
    ('name = "vllm"\nargs = ["--enforce-eager"]\nplugins = ["cpu_sampling"]\n', ""),
    ('[engine.env]\nB = "2"\nA = "1"\n', ""),
    ("[engine]\n", '[engine]\nname = "vllm"\nlaunch = "url"\napi_key_env = "THE_KEY"\n'),
    ('args = ["--seed", "1"]\nenv = { A = "3" }\n', 'url = "http://old:2"\n'),
    ('method = "none"\n', 'method = "none"\nurl = "http://old:1"\n'),
)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return the small profile of two arms, launched as processes."""
    return write_profile(tmp_path)


def _venv(folder: Path, mode: int = 0o755) -> Path:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n", encoding="utf-8")
    python.chmod(mode)
    return folder


def test_every_form_stands_in_the_docstring() -> None:
    """The table that people read has one row per form that messages list."""
    rows = [
        line.split("  ")[2] for line in (sides.__doc__ or "").splitlines() if line[:4] == "    "
    ]

    assert [row for row in rows if row] == list(FORMS)


@pytest.mark.parametrize("text", ["profile", ".", " profile ", "profile;"])
def test_the_profile_as_it_is(profile: Path, text: str) -> None:
    """Both spellings give the file's own servers, in its order."""
    found, of_side = resolve_side(text, str(profile))

    expected = parse_profile(profile.read_text(encoding="utf-8"), profile)
    assert (found.kind, found.label, found.restarts) == ("profile", text.strip(), True)
    assert found.arms == of_side.arms == expected.arms
    assert replace(of_side, text=expected.text) == expected


def test_assignments_change_the_profile_for_one_side(profile: Path) -> None:
    """Assignments go in order, reach arms by name, and may hold a `;` in quotes."""
    text = 'engine.args=["--a;b"]; arm.ngram.num_speculative_tokens=5;engine.dtype=float32'
    found = side(text, profile)

    none, ngram = (arm.engine for arm in found.arms)
    assert (found.kind, found.label) == ("profile", text)
    assert (none.args, none.dtype) == (("--a;b",), "float32")
    assert ngram.args == ("--a;b", "--seed", "1")
    assert ngram.speculative is not None
    assert ngram.speculative.num_speculative_tokens == 5


def test_another_profile_by_path_or_name(profile: Path, tmp_path: Path) -> None:
    """A TOML file and a profile that comes with draftgate both stand for themselves."""
    other = write_profile(tmp_path / "other", ("num_speculative_tokens = 3", DRAFTS_7))

    by_path = side(str(other), profile)
    by_name = changed("cpu-smollm2;engine.dtype=float32", profile)

    assert by_path.kind == "profile"
    assert by_path.arms == parse_profile(other.read_text(encoding="utf-8"), other).arms
    assert by_name.name == "cpu-smollm2"
    assert {arm.engine.dtype for arm in by_name.arms} == {"float32"}


DRAFTS_7 = "num_speculative_tokens = 7"


def test_a_venv_by_folder_or_interpreter(profile: Path, tmp_path: Path) -> None:
    """The folder's bin/python, link or not, runs every arm; the rest of the profile stays."""
    venv = _venv(tmp_path / "venv")
    link = tmp_path / "python"
    link.symlink_to(venv / "bin" / "python")

    by_folder, by_file = side(str(venv), profile), side(str(link), profile)

    assert (by_folder.kind, by_folder.label, by_folder.restarts) == ("venv", str(venv), True)
    assert {arm.engine.launch for arm in by_folder.arms} == {
        ProcessLaunch(str(venv / "bin" / "python"))
    }
    assert {arm.engine.launch for arm in by_file.arms} == {ProcessLaunch(str(link))}
    assert by_folder.arms[1].engine.args == ("--enforce-eager", "--seed", "1")


def test_a_venv_in_the_working_directory(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare name is looked up where the caller stands, not beside the profile."""
    _venv(tmp_path / "elsewhere" / ".venv")
    monkeypatch.chdir(tmp_path / "elsewhere")

    found = side(".venv", profile)

    assert found.arms[0].engine.launch == ProcessLaunch(
        str(tmp_path / "elsewhere" / ".venv" / "bin" / "python")
    )


def test_a_venv_wins_over_the_overrides_of_both_sides(profile: Path, tmp_path: Path) -> None:
    """An `engine.python` for both sides leaves the side's own interpreter alone."""
    venv, both = _venv(tmp_path / "venv"), _venv(tmp_path / "both")
    override = f"engine.python={both}/bin/python"

    assert side(str(venv), profile, (), override).arms[0].engine.launch == ProcessLaunch(
        f"{venv}/bin/python"
    )
    assert side("profile", profile, (), override).arms[0].engine.launch == ProcessLaunch(
        f"{both}/bin/python"
    )


def test_an_image_for_a_profile_of_processes(profile: Path, tmp_path: Path) -> None:
    """Every arm moves into the container, with defaults; a profile's interpreter is left behind."""
    venv = _venv(tmp_path / "venv")
    found = side("image:vllm/vllm-openai:v0.33.0", profile, (), f"engine.python={venv}/bin/python")

    assert (found.kind, found.label, found.restarts) == (
        "image",
        "image:vllm/vllm-openai:v0.33.0",
        True,
    )
    assert {arm.engine.launch for arm in found.arms} == {DockerLaunch("vllm/vllm-openai:v0.33.0")}
    assert found.arms[1].engine.env == (("A", "3"), ("B", "2"))


def test_an_image_keeps_the_containers_other_settings(tmp_path: Path) -> None:
    """Where the profile has [engine.docker], its image alone is replaced."""
    found = side("image:new", write_profile(tmp_path, *DOCKER))

    assert {arm.engine.launch for arm in found.arms} == {
        DockerLaunch("new", python="/opt/python", shm_size="8g")
    }


def test_settings_of_containers_for_one_side_or_both(profile: Path) -> None:
    """[engine.docker] may be assigned where only the form makes a container of it."""
    one = side('image:new;engine.docker.gpus="all"', profile)
    both = side("image:new", profile, (), 'engine.docker.gpus="all"')

    assert one.arms == both.arms
    assert one.arms[0].engine.launch == DockerLaunch("new", gpus=("all",))


def test_one_live_server(profile: Path) -> None:
    """A lone address serves the one arm that is asked for, and is not restarted."""
    found = side("http://127.0.0.1:8000/", profile, ["ngram"])

    (ngram,) = found.arms
    assert (found.kind, found.label, found.restarts) == ("url", "http://127.0.0.1:8000/", False)
    assert ngram.name == "ngram"
    assert ngram.engine.launch == UrlLaunch("http://127.0.0.1:8000")
    assert (ngram.engine.args, ngram.engine.env, ngram.engine.plugins) == ((), (), ())
    assert ngram.engine.speculative is not None


def test_live_servers_by_arm(profile: Path) -> None:
    """Addresses go by name, the arms by the profile's order, and an arm without one is left out."""
    two = side("ngram=https://b:2/v1, none=http://a:1", profile)
    one = side("ngram=http://b:2", profile)

    assert [(arm.name, arm.engine.launch) for arm in two.arms] == [
        ("none", UrlLaunch("http://a:1")),
        ("ngram", UrlLaunch("https://b:2")),
    ]
    assert [arm.name for arm in one.arms] == ["ngram"]


def test_live_servers_of_a_live_profile_keep_its_key(tmp_path: Path) -> None:
    """The variable with the key stays, every address is replaced, and one can be assigned."""
    profile = write_profile(tmp_path, *LIVE)

    found = side("none=http://new:1", profile)
    assigned = side("none=http://new:1;engine.api_key_env=OTHER;engine.model=m", profile)
    as_it_is = side("profile", profile)

    assert [arm.engine.launch for arm in found.arms] == [
        UrlLaunch("http://new:1", api_key_env="THE_KEY")
    ]
    assert assigned.arms[0].engine.launch == UrlLaunch("http://new:1", "m", "OTHER")
    assert (as_it_is.kind, as_it_is.restarts) == ("profile", False)
    assert len(as_it_is.arms) == 2


def test_an_image_for_a_live_profile_starts_servers(tmp_path: Path) -> None:
    """Addresses and key of a profile of live servers have no meaning in a container."""
    found = side("image:new", write_profile(tmp_path, *LIVE))

    assert found.restarts
    assert [arm.engine.launch for arm in found.arms] == [DockerLaunch("new")] * 2


@pytest.mark.parametrize(
    ("arms", "kept"),
    [
        ((), ["none", "ngram"]),
        (("ngram", "none", "none"), ["none", "ngram"]),
        (("ngram",), ["ngram"]),
    ],
)
def test_arms_that_are_asked_for(profile: Path, arms: tuple[str, ...], kept: list[str]) -> None:
    """Only those stay, in the profile's order, in the side and in its profile."""
    found, of_side = resolve_side("profile", str(profile), arms)

    assert [arm.name for arm in found.arms] == kept
    assert of_side.arms == found.arms


def test_changes_are_noted_in_the_profiles_text(profile: Path) -> None:
    """The stored text stays the file's TOML, with what was changed as comments of one line."""
    text = changed("engine.args=[\n]", profile, (), "slo.ttft_s=3").text

    added = text.removeprefix(profile.read_text(encoding="utf-8"))
    assert added == "\n# override: slo.ttft_s=3\n# side: engine.args=[ ]"
    assert parse_profile(text, profile).slo == SLO(ttft_s=2.0)


@pytest.mark.parametrize(
    "text",
    ["", ";", "vllm", "Profile", "images:x", "ftp://h:1", "engine.args", "none", "  ", "x" * 5000],
)
def test_anything_else_is_told_the_forms(profile: Path, text: str) -> None:
    """What is no form gets one message with all of them and the known profiles."""
    with pytest.raises(SpecError) as caught:
        side(text, profile)

    assert all(form in str(caught.value) for form in FORMS)
    assert "Known profiles: cpu-smollm2" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine.arg=[]", r"side 'engine\.arg=\[\]': .*engine\.arg: got an unknown key"),
        ("engine.dtype=float32;--foo", r"override '--foo': got no KEY=VALUE"),
        ("arm.eagle.num_speculative_tokens=5", r"no arm 'eagle'. It has: none, ngram"),
        ("workload.repeats=0", r"workload\.repeats: got 0, expected a whole number >= 1"),
        ("missing.toml", r"there is no file .*missing\.toml"),
        ("image:", r"engine\.docker\.image: got '', expected the name of an image"),
        ("image:-x", r"engine\.docker\.image: got '-x', expected the name of an image"),
        ("image:x;engine.docker.imag=y", r"docker\.imag: got an unknown key"),
        ("git:", r"git ref: got '', expected a branch, tag or commit"),
        ("git:--output=x", r"git ref: got '--output=x', expected a branch"),
        ("git:-p:small.toml", r"git ref: got '-p', expected a branch"),
        ("./no-venv", r"there is no file .*no-venv, expected an interpreter or the folder"),
        ("~nobody-of-this-name/venv", r"expected a venv\. Correct the path"),
        (f"./{'x' * 5000}", r"File name too long.*expected a venv"),
        ("http://h:1", r"one address for the arms none, ngram.*none=http://HOST:PORT, or keep one"),
        ("eagle=http://h:1", r"it has no arm 'eagle'\. It has: none, ngram\."),
        ("http://h:1,http://h:2", r"got 'http://h:1', expected http://HOST:PORT for one arm"),
        ("none=http://h:1,none=http://h:2", r"got 'none=http://h:2', expected .* once for each"),
        ("none=http://h:1,ngram", r"got 'ngram', expected http://HOST:PORT for one arm"),
        ("none=http://h:1,", r"got '', expected http://HOST:PORT for one arm"),
        ("none=http://h:1,ngram=http://h:1", r"arm\.ngram\.url: got 'http://h:1', expected anothe"),
        (
            "none=http://h:1;engine.args=[]",
            r"engine\.args: got .*, expected no such key with launch",
        ),
        ("http://", r"got 'http://', expected http://HOST:PORT"),
    ],
)
def test_each_wrong_side_is_told_why(profile: Path, text: str, message: str) -> None:
    """The message names what was got, what was expected and what to do."""
    with pytest.raises(SpecError, match=message):
        side(text, profile)


def test_a_venv_that_is_none(profile: Path, tmp_path: Path) -> None:
    """A folder without bin/python and a python that cannot be run are told apart."""
    shut = _venv(tmp_path / "shut", mode=0o644)

    with pytest.raises(SpecError, match=rf"no file {tmp_path}/bin/python, expected an interpr"):
        side(str(tmp_path), profile)
    with pytest.raises(SpecError, match=rf"{shut}/bin/python cannot be run"):
        side(str(shut), profile)


@pytest.mark.parametrize(("changes", "launch"), [(DOCKER, "docker"), (LIVE, "url")])
def test_a_venv_needs_a_profile_of_processes(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], launch: str
) -> None:
    """An interpreter of this machine says nothing about a container or a live server."""
    venv = _venv(tmp_path / "venv")

    with pytest.raises(SpecError, match=rf"engine\.launch = \"process\", got '{launch}'"):
        side(str(venv), write_profile(tmp_path, *changes))


@pytest.mark.parametrize("text", ["profile", "http://h:1", "ngram=http://h:1"])
def test_unknown_arms_are_told_the_known(profile: Path, text: str) -> None:
    """A name of `--arm` that a side lacks is refused with those that it has."""
    with pytest.raises(SpecError, match=r"it has no arm 'nggram'\. It has: (none, )?ngram\. Did"):
        side(text, profile, ["nggram"])


@pytest.mark.parametrize("override", ["engine=3", "arm=[]", "engine.docker=3", "arm.none.name=[1]"])
@pytest.mark.parametrize("text", ["image:x", "none=http://h:1", "profile"])
def test_overrides_that_replace_a_table(profile: Path, text: str, override: str) -> None:
    """A form is never lost because an override put something else where it belongs."""
    with pytest.raises(SpecError, match=r"to stay tables"):
        side(text, profile, (), override)


def test_a_profile_has_to_be_right_before_its_side(tmp_path: Path) -> None:
    """What a side would repair is still refused: the other side has it too."""
    wrong = write_profile(tmp_path, ('"--enforce-eager"', "3"))

    with pytest.raises(SpecError, match=r"engine\.args: got \[3\], expected a list of strings"):
        side("engine.args=[]", wrong)


def test_what_both_sides_are_given_completes_a_profile(tmp_path: Path) -> None:
    """A profile that is right only with `--set` is compared as it is then."""
    open_profile = write_profile(tmp_path, ('"--enforce-eager"', "3"))

    found = side("engine.dtype=float32", open_profile, (), 'engine.args=["--foo"]').arms[0].engine
    assert (found.args, found.dtype) == (("--foo",), "float32")


def test_no_git(profile: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the program the message says so."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SpecError, match=r"side 'git:main': git: there is no such program on PATH"):
        side("git:main", profile)


@pytest.mark.parametrize(
    "text",
    ["none=http://me:hush@h:1", "http://hush@h:1", "http://h:1?key=hush", "http://h:1/x?key=hush"],
)
def test_secrets_in_addresses_are_refused_without_being_shown(profile: Path, text: str) -> None:
    """A key in an address would be stored with the run; the message points to a variable."""
    with pytest.raises(SpecError, match=r"engine\.api_key_env names") as caught:
        side(text, profile, ["none"])

    assert "hush" not in str(caught.value)


def test_secrets_stay_out_of_labels_texts_and_messages(profile: Path) -> None:
    """A variable's value is neither in the label nor in the noted changes nor in an error."""
    found, of_side = resolve_side(
        "engine.env.HF_TOKEN=hush", str(profile), overrides=["engine.env.API_KEY=hush"]
    )
    with pytest.raises(SpecError) as caught:
        side("engine.env.HF_TOKEN.X_TOKEN=hush;engine.env.HF_TOKEN=3", profile)

    assert "hush" not in found.label + of_side.text + str(caught.value)
    assert ("HF_TOKEN", "hush") in found.arms[0].engine.env


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40).filter(
        lambda text: text.strip() != ""
    )
)
def test_any_text_is_a_form_or_refused(text: str) -> None:
    """Nothing but a SpecError comes of odd input, and no part of it is lost."""
    try:
        form = read_form(text, ())
    except SpecError:
        return

    assert form.kind in ("profile", "venv", "image", "git", "url")
    assert all(assignment in text for assignment in form.assignments)


_STRINGS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=12)


@settings(max_examples=200, deadline=None)
@given(st.lists(_STRINGS, max_size=4), _STRINGS)
def test_quoted_values_arrive_whole(values: list[str], last: str) -> None:
    """Whatever stands in quotes, `;` and escaped quotes too, stays in its assignment."""
    args, dtype = f"engine.args={json.dumps(values)}", f"engine.dtype={json.dumps(last)}"

    assert read_form(f"{args};{dtype}", ()) == forms.Form(
        "profile",
        "profile",
        read_form("profile", ()).edit,
        (args, dtype),
    )


def test_a_side_may_be_compared_with_itself(profile: Path) -> None:
    """Same against same is what a noise study does."""
    base, candidate = (resolve_side("profile", str(profile)) for _ in range(2))

    check_sides(base[1], candidate[1], base[0], candidate[0])

    assert base == candidate


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("image:new", ()),
        ("engine.dtype=float32;arm.ngram.num_speculative_tokens=9", ()),
        ("none=http://h:1", ("none",)),
    ],
)
def test_sides_may_differ_in_their_servers(profile: Path, text: str, arms: tuple[str, ...]) -> None:
    """Launch, arguments and drafts are what a comparison is about."""
    base, base_profile = resolve_side("profile", str(profile), arms)
    candidate, candidate_profile = resolve_side(text, str(profile), arms)

    check_sides(base_profile, candidate_profile, base, candidate)

    assert base.arms != candidate.arms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "workload.repeats=9;workload.sampling.max_tokens=9",
            r"sampling\.max_tokens = 48 \(base\) and 9 \(candidate\); workload\.repeats = 3 .*load",
        ),
        ("slo.ttft_s=3", r"got slo\.ttft_s = 2\.0 \(base\) and 3\.0 \(candidate\), .* limits\."),
        (
            "engine.keep_alive=false",
            r"got engine\.keep_alive = true \(base\) and false \(candidate\).*both with --set\.",
        ),
        (
            "ngram=http://h:1",
            r"arms none, ngram of base 'profile' and ngram of candidate 'ngram=.* --arm ngram\.",
        ),
        ("arm.none.name=plain;arm.ngram.name=x", r"arms none, ngram .* and plain, x .* alike\."),
    ],
)
def test_sides_that_answer_different_questions(profile: Path, text: str, message: str) -> None:
    """A difference in load, limits or arms is refused with both values and a way out."""
    base, base_profile = resolve_side("profile", str(profile))
    candidate, candidate_profile = resolve_side(text, str(profile))

    with pytest.raises(SpecError, match=message):
        check_sides(base_profile, candidate_profile, base, candidate)


def test_sides_with_other_gates_or_order(profile: Path) -> None:
    """The paired gate's settings and the order of arms are one for both sides."""
    base, of_side = resolve_side("profile", str(profile))
    other = replace(of_side, compare=CompareSpec(confirm_pairs=7))
    turned = replace(base, arms=base.arms[::-1])

    with pytest.raises(SpecError, match=r"compare\.confirm_pairs = 24 \(base\) and 7 \(candidate"):
        check_sides(of_side, other, base, base)
    with pytest.raises(SpecError, match=r"Put the arms of both profiles in one order"):
        check_sides(of_side, of_side, base, turned)
