"""Probes in each engine's form, against servers that obey, refuse, drop a field or die."""

from collections.abc import Callable
from typing import Any

import pytest

from draftgate.checks.probes import NO_ANSWER, Behaviour, Reply
from draftgate.checks.probing import GREEDY_TOKENS, Answering, ProbeReport, probe_server
from draftgate.errors import EngineError
from tests.support.obedient import FILTERS, obeyed, without

REPEATS = (4, 7, 4, 5, 9, 8, 7, 6, 5, 4, 3, 1) * 2
FREE = tuple(range(31, 31 + GREEDY_TOKENS))
LEAD = 0.5
SECOND = 2
PROMPT = ("p1", (11, 12, 13))

Answer = Callable[[dict[str, Any]], tuple[int, ...]]


def obedient(fields: dict[str, Any]) -> tuple[int, ...]:
    """Return what an engine that honours every field says."""
    return obeyed(fields, REPEATS, FREE)


def deaf_to(name: str) -> Answer:
    """Return an engine that drops one field in silence."""
    return lambda fields: obedient(without(fields, name))


def vllm(answer: Answer) -> Answering:
    """Return a server that speaks vLLM's completions."""

    def reply(_path: str, body: dict[str, Any]) -> Reply:
        if "prompt_logprobs" in body:
            ids = body["prompt"]
            rows = [None] + [row(token) for token in ids[1:]]
            return Reply(200, {"choices": [{"prompt_logprobs": rows}]})
        ids = list(answer(body))
        choice = {"index": 0, "token_ids": ids, "finish_reason": "length"}
        return Reply(200, {"choices": [choice], "usage": {"completion_tokens": len(ids)}})

    return reply


def row(token: int) -> dict[str, Any]:
    """Return a place where a token leads by `LEAD`."""
    return {str(token): {"logprob": -1.0}, str(SECOND): {"logprob": -1.0 - LEAD}}


def sglang(answer: Answer) -> Answering:
    """Return a server that speaks SGLang's /generate."""
    spelled = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}

    def reply(path: str, body: dict[str, Any]) -> Reply:
        assert path == "/generate"
        assert body["input_ids"] == list(PROMPT[1])
        fields = {spelled.get(k, k): v for k, v in body["sampling_params"].items()}
        ids = list(answer(fields))
        top = [[[-1.0, token, None], [-1.0 - LEAD, SECOND, None]] for token in ids]
        meta = {"output_top_logprobs": top} if body.get("return_logprob") else {}
        return Reply(200, {"output_ids": ids, "meta_info": meta})

    return reply


def probed(answering: Answering, engine: str = "vllm") -> ProbeReport:
    """Return what the probes of one prompt find."""
    return probe_server(answering, engine, "m", [PROMPT], lambda _: " word", "float32")


def behaviours(report: ProbeReport) -> dict[str, Behaviour]:
    """Return what became of each field."""
    return {entry.probe.name: entry.behaviour for entry in report.probed}


@pytest.mark.parametrize(
    ("form", "engine", "number"),
    [(vllm, "vllm", 10), (sglang, "sglang", 8)],
    ids=["vllm", "sglang"],
)
def test_obedient_server_honours_every_field_of_its_api(
    form: Callable[[Answer], Answering], engine: str, number: int
) -> None:
    """Each field that the API has is probed, and none is held against the server."""
    report = probed(form(obedient), engine)

    assert set(behaviours(report).values()) == {Behaviour.HONOURED}
    assert len(report.probed) == number
    assert report.left_out == ()


@pytest.mark.parametrize("name", ["min_p", "min_tokens", "stop_token_ids", "frequency_penalty"])
@pytest.mark.parametrize(("form", "engine"), [(vllm, "vllm"), (sglang, "sglang")])
def test_field_that_is_dropped_in_silence_is_found(
    name: str, form: Callable[[Answer], Answering], engine: str
) -> None:
    """SGLang takes min_p under speculation and does nothing with it: that is what this finds."""
    report = probed(form(deaf_to(name)), engine)

    found = behaviours(report)
    assert found.pop(name) is Behaviour.IGNORED
    # Without stop tokens every answer is long enough, so min_tokens can't be told.
    assert set(found.values()) <= {Behaviour.HONOURED, Behaviour.UNTOLD}


def test_server_that_dies_of_a_probe_is_asked_nothing_more() -> None:
    """The field that it died of is the finding, and the rest is told as not probed."""
    asked: list[str] = []
    honest = vllm(obedient)

    def dying(path: str, body: dict[str, Any]) -> Reply:
        asked.append(next(iter(FILTERS & body.keys()), "other"))
        return Reply(NO_ANSWER, "connection reset") if "top_p" in body else honest(path, body)

    report = probed(dying)

    assert behaviours(report) == {"top_k": Behaviour.HONOURED, "top_p": Behaviour.GONE}
    assert report.probed[-1].finding is not None
    assert "connection reset" in str(report.probed[-1].finding)
    assert asked[-1] == "top_p"
    assert report.left_out == ("no parameter was probed after top_p: there was no answer",)


def test_engine_without_leads_is_not_probed_and_that_is_told() -> None:
    """TensorRT-LLM's form is not known here: nothing is sent."""
    report = probed(lambda _path, _body: pytest.fail("something was sent"), "tensorrt_llm")

    assert report.probed == ()
    assert "tensorrt_llm" in report.left_out[0]


def test_text_that_decides_nothing_is_told() -> None:
    """An answer that is one token alone can't be probed with."""
    report = probed(vllm(lambda fields: (4,) * fields["max_tokens"]))

    assert report.probed == ()
    assert "1 greedy answers decide none" in report.left_out[0]


def test_penalties_that_must_change_nothing_are_told_as_left_out() -> None:
    """Without a repeated token there is nothing that a penalty has to overturn."""
    report = probed(vllm(lambda fields: FREE[: fields["max_tokens"]]))

    assert not {"presence_penalty", "frequency_penalty"} & behaviours(report).keys()
    assert [line.split(":")[0] for line in report.left_out] == [
        "frequency_penalty",
        "presence_penalty",
    ]


@pytest.mark.parametrize(
    ("engine", "document"),
    [
        ("vllm", {"error": {"message": "no"}}),
        ("sglang", {"output_ids": [1, 2], "meta_info": {}}),
        ("sglang", {"output_ids": [1, 2], "meta_info": {"output_top_logprobs": [[[0.0, 1]]] * 2}}),
    ],
)
def test_server_without_greedy_answer_is_an_engine_error(
    engine: str, document: dict[str, Any]
) -> None:
    """What can't be read is said, with the prompt it was asked about."""
    status = 500 if "error" in document else 200

    with pytest.raises(EngineError, match="p1: "):
        probed(lambda _path, _body: Reply(status, document), engine)
