"""Profiles: what a correct one becomes, and what each kind of wrong one is told."""

from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.specfile import load_profile, parse_profile, profile_names
from draftgate.specs import (
    SLO,
    GateSpec,
    PrefixCache,
    ProcessLaunch,
    Profile,
    SamplingParams,
    SpeculativeConfig,
    UrlLaunch,
)

PROFILE = """\
schema = 1
name = "small"
description = "A small profile."

[engine]
name = "vllm"
args = ["--enforce-eager"]
plugins = ["cpu_sampling"]
[engine.env]
B = "2"
A = "1"

[target]
model = "smollm2-135m-instruct"

[[arm]]
name = "none"
method = "none"

[[arm]]
name = "ngram"
method = "ngram"
num_speculative_tokens = 3
prompt_lookup_min = 2
args = ["--seed", "1"]
env = { A = "3" }

[workload]
dataset = "mixed"
concurrencies = [1, 8]
window_s = 4
prefix_cache = "primed"
[workload.sampling]
max_tokens = 48

[slo]
ttft_s = 2

[[gate]]
metric = "ttft_p50_s"
margin_ratio = 0.1
"""
SOURCE = Path("/profiles/small.toml")


def _parse(*changes: tuple[str, str], text: str = PROFILE) -> Profile:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_profile(text, SOURCE)


def _by_url(*arms: str) -> str:
    head, tail = PROFILE.split("[[arm]]", 1)
    head = head.split("[engine]")[0] + '[engine]\nname = "vllm"\nlaunch = "url"\nmodel = "m"\n'
    head += '[target]\nmodel = "meta/x"\n'
    return head + "".join(f"[[arm]]\n{arm}\n" for arm in arms) + tail[tail.index("[workload]") :]


def test_tables_become_records() -> None:
    """Every table of a correct profile arrives in its record, with the defaults of the rest."""
    profile = _parse()

    assert (profile.name, profile.description) == ("small", "A small profile.")
    assert (profile.keep_alive, profile.source, profile.text) == (True, SOURCE, PROFILE)
    assert profile.slo == SLO(ttft_s=2.0)
    assert profile.gates == (GateSpec("ttft_p50_s", 0.1),)
    assert profile.workload.sampling == SamplingParams(48)
    assert profile.workload.concurrencies == (1, 8)
    assert profile.workload.prefix_cache is PrefixCache.PRIMED
    assert isinstance(profile.workload.window_s, float)


def test_arms_add_to_the_shared_engine() -> None:
    """An arm's args follow the engine's, its variables win, its options are sorted pairs."""
    profile = _parse()
    reference, ngram = (profile.arm(name).engine for name in ("none", "ngram"))

    assert reference.speculative is None
    assert reference.launch == ProcessLaunch()
    assert reference.env == (("A", "1"), ("B", "2"))
    assert reference.plugins == ("cpu_sampling",)
    assert ngram.speculative == SpeculativeConfig("ngram", 3, None, (("prompt_lookup_min", 2),))
    assert ngram.args == ("--enforce-eager", "--seed", "1")
    assert ngram.env == (("A", "3"), ("B", "2"))


def test_running_servers_go_by_address() -> None:
    """With launch = "url" each arm has an address, without /v1, and needs no draft model here."""
    profile = _parse(
        text=_by_url(
            'name = "none"\nmethod = "none"\nurl = "http://h:1/v1/"',
            'name = "eagle"\nmethod = "eagle3"\nnum_speculative_tokens = 3\nurl = "http://h:2"',
        )
    )

    assert profile.arm("none").engine.launch == UrlLaunch("http://h:1", "m")
    assert profile.arm("eagle").engine.launch == UrlLaunch("http://h:2", "m")
    assert profile.arm("eagle").engine.speculative == SpeculativeConfig("eagle3", 3)


def test_relative_paths_start_at_the_profile(tmp_path: Path) -> None:
    """Model folders and prompt files are found beside the profile and made absolute."""
    (tmp_path / "heads").mkdir()
    (tmp_path / "prompts.jsonl").touch()
    text = PROFILE.replace('"mixed"', '"prompts.jsonl"').replace(
        'method = "ngram"\n', 'method = "eagle3"\nmodel = "./heads"\n'
    )
    profile = parse_profile(text.replace("prompt_lookup_min = 2\n", ""), tmp_path / "profile.toml")
    speculative = profile.arm("ngram").engine.speculative

    assert speculative is not None
    assert speculative.model == str(tmp_path / "heads")
    assert profile.workload.dataset == str(tmp_path / "prompts.jsonl")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1\n", "", r"schema: got nothing, expected a whole number >= 1"),
        ("schema = 1\n", "schema = 2\n", r"schema: got 2, expected 1, the only one"),
        ('name = "small"', 'name = "a/b"', r"name: got 'a/b', expected a name of letters"),
        ('"A small profile."', '"A small', r"not TOML: Illegal character"),
        ("[slo]", "[slos]", r"slos: got an unknown key.*Did you mean 'slo'\?"),
        ("window_s = 4", "windows_s = 4", r"workload\.windows_s: .*Did you mean 'window_s'\?"),
        ("max_tokens = 48", "max_token = 48", r"workload\.sampling\.max_token: got an unknown"),
        ("max_tokens = 48", "", r"workload\.sampling\.max_tokens: got nothing"),
        ("max_tokens = 48", "max_tokens = 4.8", r"max_tokens: got 4\.8, expected a whole number"),
        ("max_tokens = 48", "max_tokens = true", r"max_tokens: got true, expected a whole number"),
        ("max_tokens = 48", "max_tokens = 48\ntop_p = 0", r"top_p: got 0, expected a number > 0"),
        ("max_tokens = 48", "max_tokens = 1024", r"less than engine\.max_model_len = 1024"),
        ("window_s = 4", "window_s = nan", r"window_s: got nan, expected a number > 0"),
        ("window_s = 4", "window_s = 180", r"workload\.run_timeout_s: got 180\.0, expected more"),
        ("window_s = 4", "max_failure_share = 1.5", r"expected a number >= 0 and <= 1"),
        ("[1, 8]", "[]", r"concurrencies: got \[\], expected a list of different"),
        ("[1, 8]", "[8, 8]", r"concurrencies: got \[8, 8\]"),
        ("[1, 8]", "[1, 64]", r"got 64, expected at most engine\.max_num_seqs = 32"),
        ('"primed"', '"prime"', r'expected one of "defeated", "primed".*Did you mean \'primed\''),
        ('"mixed"', '"mixd"', r"workload\.dataset: got 'mixd', expected one of .*Did you mean"),
        ('"mixed"', '"gone.jsonl"', r"workload\.dataset: .*there is none at /profiles/gone"),
        ('model = "smollm2-135m-instruct"', "", r"target\.model: got nothing"),
        ('"smollm2-135m-instruct"', '"./gone"', r"target\.model: .*none at /profiles/gone"),
        ("[engine.env]", "dtyp = 1\n[engine.env]", r"engine\.dtyp: .*Did you mean 'dtype'"),
        ('A = "1"', "A = 1", r"engine\.env: .*numbers in quotes too"),
        ('["cpu_sampling"]', '"cpu_sampling"', r"engine\.plugins: .*a list of strings"),
        ("[engine.env]", 'launch = "docker"\n[engine.env]', r"engine\.docker: got nothing"),
        ("[engine.env]", 'launch = "url"\n[engine.env]', r'engine\.args: .*launch = "url"'),
        ("[engine.env]", 'url = "http://h"\n[engine.env]', r'engine\.url: .*launch = "process"'),
        ("[engine.env]", 'python = "/no/py"\n[engine.env]', r"engine\.python: .*interpreter"),
        ('method = "none"', 'method = "none"\nurl = "http://h"', r"arm\.none\.url: .*no url"),
        ('method = "none"', 'method = "ngra"', r"arm\.none\.method: .*Did you mean 'ngram'"),
        (
            'method = "none"',
            'method = "none"\nnum_speculative_tokens = 2',
            r'arm\.none\.num_speculative_tokens: got 2, expected none with method = "none"',
        ),
        (
            'method = "none"',
            'method = "ngram"\nnum_speculative_tokens = 2',
            r"arm\.none\.method: .*the reference",
        ),
        ('name = "ngram"', 'name = "none"', r"arm\.none\.name: .*of its own"),
        ('name = "none"\n', "", r"arm\[0\]\.name: got nothing"),
        ("num_speculative_tokens = 3", "", r"arm\.ngram\.num_speculative_tokens: got nothing"),
        ("num_speculative_tokens = 3", "num_speculative_tokens = 0", r"a whole number >= 1"),
        ("prompt_lookup_min = 2", "prompt_lookup_mn = 2", r"Did you mean 'prompt_lookup_min'"),
        (
            "prompt_lookup_min = 2",
            "prompt_lookup_min = 5\nprompt_lookup_max = 4",
            r"arm\.ngram\.prompt_lookup_min: got 5, expected at most prompt_lookup_max = 4",
        ),
        (
            'method = "ngram"\nnum_speculative_tokens = 3\nprompt_lookup_min = 2',
            (
                'method = "ngram_gpu"\nnum_speculative_tokens = 3\nprompt_lookup_min = 5\n'
                "prompt_lookup_max = 4"
            ),
            r"arm\.ngram\.prompt_lookup_min: got 5, expected at most prompt_lookup_max = 4",
        ),
        (
            'method = "ngram"\nnum_speculative_tokens = 3\nprompt_lookup_min = 2',
            'method = "draft_model"\nnum_speculative_tokens = 3',
            r"arm\.ngram\.model: got nothing, expected the draft model",
        ),
        ('name = "vllm"', 'name = "sglang"', r"arm\.ngram\.method: .*on engine 'sglang'"),
        ("margin_ratio = 0.1", "", r"gate\[0\]\.margin_ratio: got nothing"),
        ("margin_ratio = 0.1", "margin_ratio = 0", r"margin_ratio: got 0, expected a number > 0"),
        ("margin_ratio = 0.1", "margin_ratio = 0.1\nconfidence = 1", r"> 0 and < 1"),
        (
            "margin_ratio = 0.1",
            "margin_ratio = 0.1\nmin_runs = 4",
            r"gate\.ttft_p50_s\.min_runs: got 4, expected at most workload\.repeats = 3",
        ),
        ("window_s = 4", "repeats = 2", r"min_runs: got 3 \(the default\)"),
        ("[[gate]]", "[gate]", r"gate: got .*\[\[gate\]\] above each"),
    ],
)
def test_wrong_profiles_name_file_and_key(old: str, new: str, message: str) -> None:
    """Each mistake is one SpecError that names the file, the key, and what was expected."""
    with pytest.raises(SpecError, match=message) as caught:
        _parse((old, new))
    assert "/profiles/small.toml" in str(caught.value)


def test_two_arms_of_one_name_are_refused() -> None:
    """Arms are told apart by name alone."""
    with pytest.raises(SpecError, match=r"arm\.none\.name: got 'none', expected a name of its own"):
        _parse(("[workload]\n", '[[arm]]\nname = "none"\nmethod = "none"\n[workload]\n'))


def test_two_gates_of_one_metric_are_refused() -> None:
    """A metric has one gate, so that it has one verdict."""
    with pytest.raises(SpecError, match=r"gate\.ttft_p50_s: got a second gate"):
        _parse(("[slo]", '[[gate]]\nmetric = "ttft_p50_s"\nmargin_ratio = 0.2\n[slo]'))


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (('name = "none"\nmethod = "none"',), r"arm\.none\.url: got nothing"),
        (
            ('name = "none"\nmethod = "none"\nurl = "h:1"',),
            r"arm\.none\.url: got 'h:1', expected an address",
        ),
        (
            ('name = "none"\nmethod = "none"\nurl = "http://h"\nargs = ["-x"]',),
            r"arm\.none\.args: .*already runs",
        ),
        (
            (
                'name = "none"\nmethod = "none"\nurl = "http://h:1"',
                'name = "n"\nmethod = "ngram"\nnum_speculative_tokens = 3\nurl = "http://h:1/"',
            ),
            r"arm\.n\.url: .*another address than that of arm 'none'",
        ),
    ],
)
def test_wrong_addresses_are_refused(arms: tuple[str, ...], message: str) -> None:
    """A running server needs an address, its own, and takes no start arguments."""
    with pytest.raises(SpecError, match=message):
        _parse(text=_by_url(*arms))


def test_default_profile_has_the_arms_it_promises() -> None:
    """The profile that runs by default is valid and starts each way of drafting."""
    profile = load_profile("cpu-smollm2")

    assert "cpu-smollm2" in profile_names()
    names = [arm.name for arm in profile.arms]
    assert names == ["none", "ngram", "draft_model", "eagle3", "peagle"]
    assert profile.workload.concurrencies == (1, 8, 32)
    assert profile.text == profile.source.read_text(encoding="utf-8")


def test_unknown_profile_lists_the_known() -> None:
    """A misspelt name gets a suggestion and the list; an absent path is named in full."""
    with pytest.raises(SpecError, match=r"Did you mean 'cpu-smollm2'\? Known profiles: .*cpu-smo"):
        load_profile("cpu-smolm2")
    with pytest.raises(SpecError, match=r"there is no file /absent/x\.toml"):
        load_profile("/absent/x.toml")


def test_unreadable_profile_is_a_spec_error(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are refused with the file's name."""
    (tmp_path / "p.toml").write_bytes(b'name = "\xff"')

    with pytest.raises(SpecError, match=r"p\.toml: got .*expected a readable UTF-8 file"):
        load_profile(str(tmp_path / "p.toml"))


def test_overrides_are_applied_checked_and_noted(tmp_path: Path) -> None:
    """Assignments reach keys, arms by name and gates by metric, and end up in the text."""
    path = tmp_path / "p.toml"
    path.write_text(PROFILE)
    profile = load_profile(
        str(path),
        [
            "workload.repeats=2",
            "engine.dtype = float32",
            "workload.concurrencies=[1]",
            "arm.ngram.num_speculative_tokens=5",
            "gate.*.min_runs=2",
            'slo.e2e_s="x"',
            "slo.e2e_s=9",
        ],
    )
    ngram = profile.arm("ngram").engine

    assert (profile.workload.repeats, profile.workload.concurrencies) == (2, (1,))
    assert ngram.dtype == "float32"
    assert ngram.speculative is not None
    assert ngram.speculative.num_speculative_tokens == 5
    assert profile.gates[0].min_runs == 2
    assert profile.slo == SLO(ttft_s=2.0, e2e_s=9.0)
    assert profile.text.startswith(PROFILE)
    assert profile.text.endswith("\n# override: slo.e2e_s=9")
    assert parse_profile(profile.text, path).workload.repeats == 3


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("workload.repeats", "got no KEY=VALUE"),
        ("workload..repeats=1", "got no KEY=VALUE"),
        ("workload.repeats=1 2", "is not TOML"),
        ("workload.repeats=1\nseed = 2", "several lines"),
        ("workload.repeat=2", r"workload\.repeat: got an unknown key.*'repeats'"),
        ("workload.repeats=two", "got 'two', expected a whole number"),
        ("arm.ngrm.model=x", r"no arm 'ngrm'. It has: none, ngram. Did you mean 'ngram'"),
        ("arm.ngram=x", r"Write arm\.ngram\.KEY=VALUE"),
        ("gate.x.min_runs=2", r"no gate 'x'"),
        ("schema.x.y=2", "'schema' is no table"),
    ],
)
def test_wrong_overrides_are_refused(tmp_path: Path, assignment: str, message: str) -> None:
    """An assignment that cannot be made or breaks a rule is quoted in the error."""
    (tmp_path / "p.toml").write_text(PROFILE)

    with pytest.raises(SpecError, match=message) as caught:
        load_profile(str(tmp_path / "p.toml"), [assignment])
    assert repr(assignment)[1:-1] in str(caught.value)
