"""What may be a secret: found by its name, gone from texts, command lines and documents."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.codec import encode
from draftgate.hidden import HIDDEN, hide, is_secret
from tests.support.samples import make_profile


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "VLLM_API_KEY",
        "S3_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "PGPASSWORD",
        "DB_PASSWORD_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "APIKEY",
        "api-key",
        "hf-token",
        "s3-access-key-id",
        "clientSecret",
        "authToken",
        "password",
    ],
)
def test_names_of_secrets(name: str) -> None:
    """A word that tells a secret counts wherever it stands in a name, in any case."""
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "num_speculative_tokens",
        "max_tokens",
        "max-num-batched-tokens",
        "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE",
        "VLLM_USE_FASTOKENS",
        "TOKENIZERS_PARALLELISM",
        "tokenizer-mode",
        "long-prefill-token-threshold",
        "VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD",
        "stop_token_ids",
        "per_token_p50_s",
        "KVCACHE",
        "VLLM_CPU_KVCACHE_SPACE",
        "kv-cache-dtype",
        "KEYBOARD",
        "MONKEY",
        "api_key_env",
        "DO_NOT_TRACK",
    ],
)
def test_names_that_only_look_like_secrets(name: str) -> None:
    """Counts of tokens, tokenizers, caches and the names of variables are told."""
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:hush@h:1/", "http://(hidden)@h:1/"),
        ("none=http://hush@h:1,ngram=http://b:2", "none=http://(hidden)@h:1,ngram=http://b:2"),
        ("http://h:1/?key=hush", "http://h:1/?(hidden)"),
        ('engine.env.HF_TOKEN="hush"', 'engine.env.HF_TOKEN="(hidden)"'),
        ("arm.*.env.HF_TOKEN=hush;dtype=auto", "arm.*.env.HF_TOKEN=(hidden);dtype=auto"),
        ('env = { A = "1", API_KEY = "hush" }', 'env = { A = "1", API_KEY = "(hidden)" }'),
        ("'HF_TOKEN' = 'hush'", "'HF_TOKEN' = '(hidden)'"),
        ('HF_TOKEN = """\nhush\n"""\nB = "1"', 'HF_TOKEN = "(hidden)"\nB = "1"'),
        (r'HF_TOKEN = "hu\"sh"', 'HF_TOKEN = "(hidden)"'),
        ('args=["--api-key", "hush", "--x"]', 'args=["--api-key", "(hidden)", "--x"]'),
        ('"--api-key",  # mine\n "hush"', '"--api-key",  # mine\n "(hidden)"'),
        ('args=["--hf-token=hush, hush"]', 'args=["--hf-token=(hidden)"]'),
        ("HF_TOKEN=hush serve --api-key hush --port 1", None),
        ('{"api_key": "hush", "max_tokens": 3}', '{"api_key": "(hidden)", "max_tokens": 3}'),
        (r'"{\"token\": \"hush\"}"', r'"{\"token\": \"(hidden)\"}"'),
        ("args: {'api_key': ['hush', 'hush'], 'a': 1}", "args: {'api_key': (hidden), 'a': 1}"),
    ],
)
def test_secrets_are_struck_out_of_texts(text: str, shown: str | None) -> None:
    """What an address, a variable, a flag or a key holds is gone; the rest stays."""
    shown = shown or "HF_TOKEN=(hidden) serve --api-key (hidden) --port 1"

    assert hide(text) == shown
    assert hide(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "arm.ngram.num_speculative_tokens=5",
        "engine.api_key_env=OPENAI_API_KEY",
        "image:registry:5000/x/vllm@sha256:0a",
        "git:main@{1}:a/b.toml",
        "http://127.0.0.1:8000/",
        'engine.args=["--max-num-batched-tokens", "512"]',
        "slo.per_token_s = 0.05",
        "override '3': got no KEY=VALUE. Write for example workload.repeats=2.",
        "tokens per step by prompt -0.11 tokens over 8 pairs: the key is to find the cause",
    ],
)
def test_texts_without_secrets_stay(text: str) -> None:
    """Names that only look like secrets, and prose about them, stay readable."""
    assert hide(text) == text


_VALUES = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), min_size=6)


@given(_VALUES.filter(lambda text: not text.startswith("-") and text != HIDDEN))
def test_command_lines_never_hold_the_value(value: str) -> None:
    """Whatever a secret is made of, a command line tells its names and flags alone."""
    argv = ["serve", "--api-key", value, f"--hf-token={value}", f"X_SECRET={value}", "--port", "1"]

    assert hide(argv) == [
        "serve",
        "--api-key",
        HIDDEN,
        f"--hf-token={HIDDEN}",
        f"X_SECRET={HIDDEN}",
        "--port",
        "1",
    ]


def test_flag_without_a_value_takes_none() -> None:
    """What follows is then a flag of its own."""
    assert hide(["--hf-token", "--port", "1"]) == ["--hf-token", "--port", "1"]


def test_value_that_is_known_is_found_everywhere() -> None:
    """A value that one place tells to be secret is gone from every text of the document."""
    secret = "a 'b' \"c\""
    document = {
        "env": [["HF_TOKEN", secret], ["A", "1"]],
        "note": f"it said {secret}, twice",
        "command": f"serve {shlex.quote('plain')}",
        "names": {"api_key": "hush", "keys": ["hush"], "max_tokens": 3, "api_key_env": "THE_KEY"},
    }

    assert hide(document) == {
        "env": [["HF_TOKEN", HIDDEN], ["A", "1"]],
        "note": f"it said {HIDDEN}, twice",
        "command": "serve plain",
        "names": {
            "api_key": HIDDEN,
            "keys": [HIDDEN],
            "max_tokens": 3,
            "api_key_env": "THE_KEY",
        },
    }


def test_short_value_is_not_sought_elsewhere() -> None:
    """A secret of one letter would take that letter out of every word."""
    assert hide({"env": [["HF_TOKEN", "a"]], "note": "a cat"})["note"] == "a cat"


def test_record_without_secrets_is_as_it_was() -> None:
    """No number, name or setting of a whole profile is lost."""
    document = encode(make_profile())

    assert hide(document) == document
