"""What each dialect sends: its body, field by field, and what it refuses to send."""

import json
from typing import Any

import pytest

from draftgate.errors import SpecError
from draftgate.load.apis import APIS, LoadPrompt
from draftgate.load.requests import prepare
from draftgate.specs import SamplingParams

TEXT = LoadPrompt("p", text="once upon")
TOKENS = LoadPrompt("p", token_ids=(5, 0, 7))
ONE_MESSAGE = LoadPrompt("p", messages=(("user", "hello"),))
DIALOGUE = LoadPrompt("p", messages=(("system", "be brief"), ("user", "hello")))

NEUTRAL = SamplingParams(max_tokens=5, ignore_eos=False)
SEEDED = SamplingParams(max_tokens=5, temperature=0.7, top_p=0.9, seed=0)
FULL = SamplingParams(max_tokens=5, temperature=0.7, top_p=0.9, top_k=4, seed=0)

USAGE = {"include_usage": True}
RUNNING = {"include_usage": True, "continuous_usage_stats": True}
FULL_FIELDS = {
    "max_tokens": 5,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 4,
    "seed": 0,
    "ignore_eos": True,
}

CHATS = ("chat", "openai-chat", "trtllm-chat")
RAW = ("completions", "sglang", "trtllm")


def _sent(
    api: str, prompt: LoadPrompt, sampling: SamplingParams = NEUTRAL, salt: str | None = None
) -> dict[str, Any]:
    body = json.loads(prepare(api, prompt, "m", sampling, cache_salt=salt).body)
    assert isinstance(body, dict)
    return body


def test_apis_are_the_documented_ones() -> None:
    """The registry holds six dialects."""
    assert sorted(APIS.names()) == sorted(CHATS + RAW)


@pytest.mark.parametrize("api", sorted(CHATS + RAW))
def test_dialect_is_registered_under_its_own_name(api: str) -> None:
    """A dialect's name is the one by which a request names it to the parser."""
    request = prepare(api, ONE_MESSAGE, "m", NEUTRAL)

    assert APIS.get(api).name == api
    assert request.dialect == api


@pytest.mark.parametrize(
    ("api", "path"),
    [
        ("chat", "/v1/chat/completions"),
        ("openai-chat", "/v1/chat/completions"),
        ("trtllm-chat", "/v1/chat/completions"),
        ("completions", "/v1/completions"),
        ("trtllm", "/v1/completions"),
        ("sglang", "/generate"),
    ],
)
def test_path_is_the_apis(api: str, path: str) -> None:
    """Each dialect posts to its own path."""
    assert prepare(api, ONE_MESSAGE, "m", NEUTRAL).path == path


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("chat", {"stream_options": USAGE, "return_token_ids": True}),
        ("openai-chat", {"stream_options": RUNNING}),
        ("trtllm-chat", {"stream_options": RUNNING}),
    ],
)
def test_neutral_chat_body_holds_nothing_else(api: str, expected: dict[str, Any]) -> None:
    """Neutral sampling fields are left out, so that plain servers accept the body."""
    assert _sent(api, DIALOGUE) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
        ],
        "stream": True,
        "max_tokens": 5,
        "temperature": 0.0,
        **expected,
    }


@pytest.mark.parametrize(
    ("api", "expected"),
    [("completions", {"return_token_ids": True}), ("trtllm", {"detokenize": False})],
)
def test_neutral_completions_body_holds_nothing_else(api: str, expected: dict[str, Any]) -> None:
    """The field that asks for token ids is the one which that server knows."""
    assert _sent(api, TEXT) == {
        "model": "m",
        "prompt": "once upon",
        "stream": True,
        "stream_options": USAGE,
        "max_tokens": 5,
        "temperature": 0.0,
        **expected,
    }


def test_neutral_generate_body_holds_nothing_else() -> None:
    """SGLang's own API gets its own names, and no model, of which it serves one."""
    assert _sent("sglang", TEXT) == {
        "text": "once upon",
        "sampling_params": {"max_new_tokens": 5, "temperature": 0.0},
        "stream": True,
    }


@pytest.mark.parametrize("api", ["chat", "completions", "trtllm", "trtllm-chat"])
def test_all_sampling_fields_are_sent(api: str) -> None:
    """Every sampling field away from its neutral value is sent."""
    sent = _sent(api, ONE_MESSAGE, FULL)

    assert {key: sent.get(key) for key in FULL_FIELDS} == FULL_FIELDS


def test_openai_chat_sends_what_is_standard_or_checked() -> None:
    """Seed and nucleus are standard fields; ignore_eos is checked by the answer's length."""
    sent = _sent("openai-chat", ONE_MESSAGE, SEEDED)

    assert (sent["top_p"], sent["seed"], sent["ignore_eos"]) == (0.9, 0, True)


def test_generate_gets_all_sampling_fields_by_its_names() -> None:
    """SGLang calls the length and the seed differently."""
    assert _sent("sglang", TEXT, FULL)["sampling_params"] == {
        "max_new_tokens": 5,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 4,
        "sampling_seed": 0,
        "ignore_eos": True,
    }


@pytest.mark.parametrize(
    ("api", "field"),
    [
        ("chat", "cache_salt"),
        ("completions", "cache_salt"),
        ("trtllm-chat", "cache_salt"),
        ("sglang", "extra_key"),
    ],
)
def test_salt_is_sent_by_the_servers_name(api: str, field: str) -> None:
    """A salt goes into the field that is part of that server's cache key."""
    assert _sent(api, ONE_MESSAGE, salt="s-1")[field] == "s-1"


@pytest.mark.parametrize(
    ("api", "sampling", "salt", "setting"),
    [
        ("trtllm", NEUTRAL, "s", "cache_salt"),
        ("openai-chat", NEUTRAL, "s", "cache_salt"),
        ("openai-chat", FULL, None, "top_k"),
    ],
)
def test_setting_that_an_api_lacks_is_refused(
    api: str, sampling: SamplingParams, salt: str | None, setting: str
) -> None:
    """What a server would refuse or drop is an error that names API and setting."""
    with pytest.raises(SpecError, match=rf"API '{api}': cannot express {setting}"):
        _sent(api, ONE_MESSAGE, sampling, salt)


TRTLLM_FIELDS = frozenset(
    {
        "detokenize",
        "ignore_eos",
        "max_tokens",
        "model",
        "prompt",
        "seed",
        "stream",
        "stream_options",
        "temperature",
        "top_k",
        "top_p",
    }
)
"""Of `CompletionRequest` in TensorRT-LLM's `serve/openai_protocol.py`, which forbids others."""


@pytest.mark.parametrize("prompt", [TEXT, TOKENS, ONE_MESSAGE])
def test_tensorrt_llm_gets_no_field_it_does_not_know(prompt: LoadPrompt) -> None:
    """Its request model forbids extra fields, so one of them fails every request."""
    assert set(_sent("trtllm", prompt, FULL)) <= TRTLLM_FIELDS


@pytest.mark.parametrize(
    ("api", "field"), [("completions", "prompt"), ("trtllm", "prompt"), ("sglang", "input_ids")]
)
def test_raw_api_is_sent_token_ids(api: str, field: str) -> None:
    """Token ids go out as a list of numbers."""
    assert _sent(api, TOKENS)[field] == [5, 0, 7]


@pytest.mark.parametrize(
    ("api", "field"), [("completions", "prompt"), ("trtllm", "prompt"), ("sglang", "text")]
)
def test_raw_api_is_sent_a_single_user_message_as_it_stands(api: str, field: str) -> None:
    """One user message is raw text where there is no chat template."""
    assert _sent(api, ONE_MESSAGE)[field] == "hello"


@pytest.mark.parametrize("api", RAW)
@pytest.mark.parametrize("messages", [DIALOGUE.messages, (("system", "x"),)])
def test_raw_api_refuses_a_dialogue(api: str, messages: tuple[tuple[str, str], ...]) -> None:
    """Messages that need a template are refused, in words that say what to use."""
    with pytest.raises(SpecError, match=rf"API '{api}': cannot express the messages.*chat API"):
        _sent(api, LoadPrompt("p", messages))


@pytest.mark.parametrize("api", CHATS)
def test_chat_sends_text_as_one_user_message(api: str) -> None:
    """Raw text becomes what a user says."""
    assert _sent(api, TEXT)["messages"] == [{"role": "user", "content": "once upon"}]


@pytest.mark.parametrize("api", CHATS)
def test_chat_refuses_token_ids(api: str) -> None:
    """No chat API takes token ids."""
    with pytest.raises(SpecError, match=rf"API '{api}': cannot express the token ids"):
        _sent(api, TOKENS)
