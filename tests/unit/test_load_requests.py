"""Addresses, keys, certificates and prepared requests."""

import pickle
import ssl
from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.load.requests import Endpoint, LoadPrompt, prepare, prepare_chat
from draftgate.specs import SamplingParams
from tests.support.fake import OnePrompt

AUTHORITY = Path(__file__).parent / "data" / "authority.pem"
"""A self-signed certificate whose key was thrown away."""

LENGTH = SamplingParams(max_tokens=5)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://host", "http://", "http://h:x1", "http://u:secret@h"]
)
def test_bad_address_is_refused_without_showing_credentials(url: str) -> None:
    """An address that cannot be used is the user's error, and never echoes a password."""
    with pytest.raises(SpecError, match="endpoint URL") as caught:
        Endpoint(url, "m")
    assert "secret" not in str(caught.value)


def test_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key variable that is unset is an error that names it."""
    monkeypatch.delenv("DRAFTGATE_TEST_KEY", raising=False)
    with pytest.raises(SpecError, match="DRAFTGATE_TEST_KEY"):
        Endpoint("http://h", "m", "DRAFTGATE_TEST_KEY").api_key()


def test_key_that_no_header_can_carry_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break inside the key is an error whose message holds no part of the key."""
    monkeypatch.setenv("DRAFTGATE_TEST_KEY", "sk-one\r\nsk-two")

    with pytest.raises(SpecError, match="HTTP header") as caught:
        Endpoint("http://h", "m", "DRAFTGATE_TEST_KEY").api_key()
    assert "sk-" not in str(caught.value)


def test_key_is_in_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint and its pickle name the variable and hold no key."""
    monkeypatch.setenv("DRAFTGATE_TEST_KEY", "sk-secret")
    endpoint = Endpoint("http://h", "m", "DRAFTGATE_TEST_KEY")

    assert endpoint.api_key() == "sk-secret"
    assert "sk-secret" not in repr(endpoint)
    assert b"sk-secret" not in pickle.dumps(endpoint)


def test_http_has_no_ssl_context() -> None:
    """Plain http is not secured."""
    assert Endpoint("http://h", "m").ssl_context() is None


def test_https_is_verified_by_default() -> None:
    """Chain and host name are checked unless somebody turns that off."""
    context = Endpoint("https://h", "m").ssl_context()

    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_verification_can_be_turned_off() -> None:
    """verify_tls=False checks neither chain nor host name."""
    context = Endpoint("https://h", "m", verify_tls=False).ssl_context()

    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


def test_own_authority_takes_the_place_of_the_systems() -> None:
    """Only the authorities in ca_file are trusted, and verification stays on."""
    context = Endpoint("https://h", "m", ca_file=str(AUTHORITY)).ssl_context()

    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    subjects = [certificate["subject"] for certificate in context.get_ca_certs()]
    assert subjects == [((("commonName", "draftgate test authority"),),)]


@pytest.mark.parametrize("content", [None, "", "no certificate\n"])
def test_unusable_ca_file_is_named(tmp_path: Path, content: str | None) -> None:
    """A ca_file that is absent or holds no certificate is the user's error."""
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content, encoding="utf-8")

    with pytest.raises(SpecError, match=r"ca_file .*authority\.pem"):
        Endpoint("https://h", "m", ca_file=str(path)).ssl_context()


def test_authority_without_verification_is_refused() -> None:
    """Naming an authority and turning verification off contradict each other."""
    with pytest.raises(SpecError, match="verify_tls is off"):
        Endpoint("https://h", "m", verify_tls=False, ca_file=str(AUTHORITY))


@pytest.mark.parametrize(
    "forms",
    [
        {},
        {"text": ""},
        {"text": "x", "token_ids": (1,)},
        {"messages": (("user", "x"),), "text": "x"},
    ],
)
def test_prompt_has_exactly_one_form(forms: dict[str, object]) -> None:
    """A prompt without content, or with two contents, is the user's error."""
    with pytest.raises(SpecError, match=r"prompt 'p': got .* expected exactly one"):
        LoadPrompt("p", **forms)  # type: ignore[arg-type]  # parametrised over the fields


def test_negative_token_is_refused() -> None:
    """No vocabulary has a token below 0."""
    with pytest.raises(SpecError, match="token id -2"):
        LoadPrompt("p", token_ids=(1, -2))


def test_request_survives_pickling() -> None:
    """A request can cross to another process and back."""
    request = prepare("completions", LoadPrompt("p", token_ids=(1, 2)), "m", LENGTH)

    assert pickle.loads(pickle.dumps(request)) == request


def test_text_is_sent_as_utf_8() -> None:
    """Characters go out as they are, not as escapes, so that bodies stay short."""
    request = prepare("chat", LoadPrompt("p", text="hé"), "m", LENGTH)

    assert "hé".encode() in request.body


def test_text_that_is_no_unicode_is_refused() -> None:
    """Half of a surrogate pair cannot be sent, and the message names the prompt."""
    with pytest.raises(SpecError, match="prompt 'p': cannot be sent as UTF-8"):
        prepare("chat", LoadPrompt("p", text="\ud83d"), "m", LENGTH)


def test_unknown_api_lists_the_known_ones() -> None:
    """A name that is not registered is an error that lists those that are."""
    with pytest.raises(SpecError, match=r"unknown API 'grpc'\. Known: chat, completions"):
        prepare("grpc", LoadPrompt("p", text="x"), "m", LENGTH)


def test_chat_from_a_dataset_is_the_chat_api() -> None:
    """prepare_chat gives the request that the API `chat` gives."""
    messages = (("system", "be brief"), ("user", "x"))

    request = prepare_chat(OnePrompt("p", messages), "m", LENGTH, cache_salt="s")

    assert request == prepare("chat", LoadPrompt("p", messages), "m", LENGTH, cache_salt="s")


@pytest.mark.parametrize(("ignore_eos", "expected"), [(True, 5), (False, None)])
def test_length_is_known_when_eos_is_ignored(ignore_eos: bool, expected: int | None) -> None:  # noqa: FBT001 - a parameter of the test
    """The answer's length is checked just where the request fixes it."""
    sampling = SamplingParams(max_tokens=5, ignore_eos=ignore_eos)

    request = prepare("chat", LoadPrompt("p", text="x"), "m", sampling)

    assert request.expected_tokens == expected
