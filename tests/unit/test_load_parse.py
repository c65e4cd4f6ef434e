"""From raw bytes to records: what counts as tokens, and every way to fall short."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.errors import SpecError
from draftgate.load.exchange import RawExchange
from draftgate.load.parse import ReadStats, SentRequest, parse_exchange, parse_with_stats
from draftgate.load.requests import PreparedRequest
from draftgate.records import Failure, FailureKind
from tests.support.exchanges import (
    CHUNKED_HEAD,
    DONE,
    OPEN_HEAD,
    answered,
    chunk,
    event,
    exchange,
    ids,
    parsed,
    request,
    tokens,
    usage,
)

ID_APIS = ("chat", "completions", "trtllm")
COUNT_APIS = ("openai-chat", "trtllm-chat")


def _failure(raw: RawExchange, max_tokens: int, api: str = "chat") -> Failure:
    failure = parsed(raw, max_tokens, api)[0].failure
    assert failure is not None
    return failure


# Chunks, stamps and reads


def test_chunk_is_an_event_with_tokens_stamped_by_its_last_byte() -> None:
    """Two events in one read share a stamp; a split event takes the later; empty ones are none."""
    first, second, third = event(ids(1, 2)), event(ids(3)), event(ids(4))
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    reads = (
        (5, OPEN_HEAD),
        (10, role),
        (20, first + second + third[:9]),
        (30, third[9:]),
        (40, event(usage(4)) + DONE),
    )

    record, stats = parsed(RawExchange(0, 40, 200, reads, None), 4)

    assert record.failure is None
    chunks = [(chunk.t_ns, chunk.token_ids) for chunk in record.chunks]
    assert chunks == [(20, (1, 2)), (20, (3,)), (30, (4,))]
    assert stats == ReadStats(reads=5, events=3, coalesced_reads=1)


def test_whole_answer_becomes_a_record() -> None:
    """Ids, text, usage, finish reason and all times arrive as they were sent."""
    events = (event(ids(7)), event(ids(8, 9, finish_reason="length")), event(usage(3)), DONE)
    raw = exchange(CHUNKED_HEAD, *(chunk(data) for data in events), chunk(b""))

    record = parse_exchange(SentRequest(4, 2, -9, request(3), raw))

    assert (record.index, record.stream, record.scheduled_ns) == (4, 2, -9)
    assert (record.sent_ns, record.ended_ns, record.prompt_id) == (0, 6, "p")
    assert tokens(record) == [(7,), (8, 9)]
    assert (record.prompt_tokens, record.completion_tokens) == (3, 3)
    assert (record.finish_reason, record.text, record.failure) == ("length", "xx", None)


@settings(deadline=None, max_examples=60)  # a busy machine is no failure
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_record_does_not_depend_on_fragments(sizes: list[int], data: st.DataObject) -> None:
    """Any cut gives the same tokens, stamped by the reads that complete their events."""
    wire, bounds_of = CHUNKED_HEAD, []
    for size in sizes:
        framed = chunk(event(ids(*range(size))))
        if size:
            bounds_of.append((len(wire) + len(framed) - 3, size))
        wire += framed
    wire += chunk(event(usage(sum(sizes)))) + chunk(DONE) + chunk(b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=9)))
    bounds = [0, *cuts, len(wire)]
    reads = [wire[start:end] for start, end in pairwise(bounds)]

    record, stats = parsed(exchange(*reads), sum(sizes))

    ends = [next(i for i, end in enumerate(bounds[1:]) if at < end) for at, _ in bounds_of]
    assert record.failure is None or sum(sizes) == 0
    assert [chunk.t_ns for chunk in record.chunks] == ends
    assert [len(chunk.token_ids) for chunk in record.chunks] == [size for _, size in bounds_of]
    coalesced = sum(ends.count(read) > 1 for read in set(ends))
    assert stats == ReadStats(len(reads), len(ends), coalesced)


def test_read_statistics_add_up() -> None:
    """The sum of two records is that of both spans."""
    assert ReadStats(3, 2, 1) + ReadStats(30, 20, 10) == ReadStats(33, 22, 11)


def test_text_can_be_left_out() -> None:
    """keep_text=False stores no text."""
    sent = SentRequest(0, 0, 1, request(1), answered(ids(1), usage(1)))

    assert parse_exchange(sent, keep_text=False).text is None


def test_api_without_text_stores_none() -> None:
    """TensorRT-LLM sends empty text next to token ids; that is no output text."""
    documents = ({"choices": [{"text": "", "token_ids": [1]}]}, usage(1))

    record, _ = parsed(answered(*documents), 1, "trtllm")

    assert record.failure is None
    assert record.text is None


def test_completions_text_is_kept() -> None:
    """A completion's text is in the choice itself."""
    documents = ({"choices": [{"text": "a", "token_ids": [1]}]}, usage(1))

    assert parsed(answered(*documents), 1, "completions")[0].text == "a"


def test_response_that_ends_with_the_connection_is_whole() -> None:
    """Without length or chunking the close is the end, as HTTP says, not a failure."""
    record, _ = parsed(answered(ids(1, 2), usage(2)), 2)

    assert record.failure is None


def test_nan_in_a_log_probability_is_no_failure() -> None:
    """What Python's servers write and JSON forbids is read like the rest."""
    documents = (ids(1, logprobs={"token_logprobs": [float("nan")]}), usage(1))

    record, _ = parsed(answered(*documents), 1)

    assert record.failure is None
    assert tokens(record) == [(1,)]


def test_space_after_a_document_is_nothing() -> None:
    """TensorRT-LLM ends its first chat event with a space."""
    role = b'data: {"choices": [{"delta": {"role": "assistant"}}]} \n\n'
    raw = exchange(OPEN_HEAD + role, event(ids(1)), event(usage(1)), b"data: [DONE] \n\n")

    assert parsed(raw, 1)[0].failure is None


def test_unknown_dialect_is_refused() -> None:
    """A request of an API that is not registered cannot be read by guesswork."""
    sent = SentRequest(0, 0, 1, PreparedRequest("p", "/", b"", 1, "grpc"), answered(usage(0)))

    with pytest.raises(SpecError, match="grpc"):
        parse_exchange(sent)


# Running usage


def _counted(total: int | None, text: str = "x", **more: object) -> dict[str, object]:
    document: dict[str, object] = {"choices": [{"delta": {"content": text}, **more}]}
    if total is not None:
        document["usage"] = {"prompt_tokens": 3, "completion_tokens": total}
    return document


@pytest.mark.parametrize("api", COUNT_APIS)
def test_running_usage_is_counted_by_its_growth(api: str) -> None:
    """A chunk holds as many tokens as usage has grown; without growth there is none."""
    documents = (_counted(0, ""), _counted(1), _counted(4), _counted(4), usage(4))

    record, stats = parsed(answered(*documents), 4, api)

    assert record.failure is None
    assert [(chunk.t_ns, chunk.num_tokens) for chunk in record.chunks] == [(1, 1), (2, 3)]
    assert tokens(record) == [(), ()]
    assert stats.events == 2


def test_tokens_that_only_the_last_usage_tells_of_are_counted_there() -> None:
    """SGLang's chat sends no event for a last token without text; usage tells of it."""
    documents = (_counted(1), _counted(None, "", finish_reason="stop"), usage(2))

    record, _ = parsed(answered(*documents), 2, "openai-chat")

    assert record.failure is None
    assert [(chunk.t_ns, chunk.num_tokens) for chunk in record.chunks] == [(0, 1), (2, 1)]


@pytest.mark.parametrize(
    "delta", [{"content": "x"}, {"reasoning": "x"}, {"reasoning_content": "x"}]
)
def test_text_without_running_usage_is_a_failure_that_says_what_to_do(
    delta: dict[str, str],
) -> None:
    """Usage at the end alone gives no times, so the answer is not counted as one chunk."""
    failure = _failure(answered({"choices": [{"delta": delta}]}, usage(4)), 4, "openai-chat")

    assert failure.kind is FailureKind.MISSING_USAGE
    assert "continuous_usage_stats" in failure.message


def test_server_that_counts_nothing_is_a_failure_that_says_what_to_do() -> None:
    """Neither ids nor any usage: nothing is counted, whatever text there is."""
    failure = _failure(answered(_counted(None), _counted(None)), 2, "openai-chat")

    assert failure.kind is FailureKind.MISSING_USAGE
    assert "chat, completions, sglang, trtllm" in failure.message


def test_usage_that_falls_is_malformed() -> None:
    """A running count can't go back."""
    failure = _failure(answered(_counted(3), _counted(2), usage(3)), 3, "openai-chat")

    assert failure == Failure(FailureKind.MALFORMED, "usage.completion_tokens fell from 3 to 2")


# SGLang's /generate


def _generated(
    total: int | None, output_ids: list[int] | None, text: str, end: object = None
) -> dict[str, object]:
    meta = {"id": "r", "prompt_tokens": 3, "completion_tokens": total, "finish_reason": end}
    document: dict[str, object] = {"text": text, "meta_info": meta}
    if output_ids is not None:
        document["output_ids"] = output_ids
    return document


LENGTH_END = {"type": "length", "length": 4}

CUMULATIVE = (
    _generated(1, [5], "a"),
    _generated(3, [5, 6, 7], "abc"),
    _generated(3, [5, 6, 7], "abc"),
    _generated(4, [5, 6, 7, 8], "abcd", LENGTH_END),
)
INCREMENTAL = (
    _generated(1, [5], "a"),
    _generated(3, [6, 7], "bc"),
    _generated(3, [], ""),
    _generated(4, [8], "d", LENGTH_END),
)


@pytest.mark.parametrize("documents", [CUMULATIVE, INCREMENTAL])
def test_generate_gives_the_same_record_in_both_modes(
    documents: tuple[dict[str, object], ...],
) -> None:
    """Events that repeat all output and events that hold the new part say the same."""
    record, stats = parsed(answered(*documents), 4, "sglang")

    assert record.failure is None
    chunks = [(chunk.t_ns, chunk.token_ids) for chunk in record.chunks]
    assert chunks == [(0, (5,)), (1, (6, 7)), (3, (8,))]
    assert (record.prompt_tokens, record.completion_tokens) == (3, 4)
    assert (record.finish_reason, record.text) == ("length", "abcd")
    assert stats.events == 3


@settings(deadline=None, max_examples=60)  # a busy machine is no failure
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.booleans())
def test_mode_of_generate_is_told_from_every_event(steps: list[int], cumulative: bool) -> None:  # noqa: FBT001 - drawn
    """Whatever the steps' sizes, each mode gives just the tokens of each step."""
    output = list(range(sum(steps)))
    documents, seen = [], 0
    for step in steps:
        new = output[: seen + step] if cumulative else output[seen : seen + step]
        seen += step
        documents.append(_generated(seen, new, ""))

    record, _ = parsed(answered(*documents), seen, "sglang")

    assert [list(chunk) for chunk in tokens(record)] == [
        output[sum(steps[:i]) : sum(steps[: i + 1])] for i in range(len(steps)) if steps[i]
    ]
    assert record.failure is None or seen == 0


@pytest.mark.parametrize(
    ("total", "output_ids"), [(4, [6, 7, 8]), (4, [8]), (None, [6]), (1, [5, 6])]
)
def test_output_ids_of_neither_mode_are_malformed(total: int | None, output_ids: list[int]) -> None:
    """Ids that are neither all tokens nor the new ones are not guessed at."""
    documents = (_generated(2, [5, 6], "x"), _generated(total, output_ids, "x"))

    failure = _failure(answered(*documents), 4, "sglang")

    assert failure.kind is FailureKind.MALFORMED
    assert "neither all tokens nor the new ones" in failure.message


def test_generate_without_output_ids_says_what_to_do() -> None:
    """Text and totals alone are not counted."""
    failure = _failure(answered(_generated(2, None, "xy", "length")), 2, "sglang")

    assert failure.kind is FailureKind.WRONG_LENGTH
    assert "must hold output_ids" in failure.message


def test_generate_that_aborts_is_no_success() -> None:
    """SGLang puts an abort into the finish reason, under status 200 and before [DONE]."""
    end = {"type": "abort", "message": "out of memory", "status_code": 503}

    failure = _failure(answered(_generated(1, [5], "a"), _generated(1, [5], "a", end)), 1, "sglang")

    assert failure == Failure(FailureKind.IN_BAND_ERROR, "in the stream: out of memory")


# In-band errors

ERROR_DETAIL = {"message": "engine died", "type": "InternalServerError", "code": 500}


@pytest.mark.parametrize("api", [*ID_APIS, *COUNT_APIS, "sglang"])
@pytest.mark.parametrize(
    "said",
    [
        {"error": ERROR_DETAIL},
        {"error": ERROR_DETAIL, "choices": []},
        {"error": "engine died"},
        {"object": "error", **ERROR_DETAIL},
    ],
)
@pytest.mark.parametrize("done", [True, False])
def test_error_in_the_stream_is_never_a_success(
    api: str,
    said: dict[str, object],
    done: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """An error object fails the request, with or without [DONE] behind it."""
    failure = _failure(answered(said, done=done), 0, api)

    assert failure.kind is FailureKind.IN_BAND_ERROR
    assert "engine died" in failure.message


def test_error_after_a_complete_answer_is_no_success() -> None:
    """An error between usage and [DONE] counts, as vLLM may fail that late."""
    failure = _failure(answered(ids(1), usage(1), {"error": ERROR_DETAIL}), 1)

    assert failure.kind is FailureKind.IN_BAND_ERROR


def test_error_after_the_end_mark_is_no_success() -> None:
    """An error behind [DONE] counts too."""
    whole = answered(ids(1), usage(1))
    reads = (*whole.reads, (9, event({"error": ERROR_DETAIL})))

    failure = _failure(RawExchange(0, 9, 200, reads, None), 1)

    assert failure.kind is FailureKind.IN_BAND_ERROR


def test_error_that_the_close_cut_off_is_no_success() -> None:
    """An error event whose blank line never came leaves a stream without [DONE]."""
    raw = exchange(OPEN_HEAD + event(ids(1)), event({"error": ERROR_DETAIL})[:-1])

    assert _failure(raw, 1).kind is FailureKind.EARLY_END


@pytest.mark.parametrize("reason", ["abort", "error"])
@pytest.mark.parametrize("api", ["chat", "openai-chat"])
def test_abort_as_finish_reason_is_no_success(api: str, reason: str) -> None:
    """A server that gave up says so in the finish reason, with usage and [DONE] in order."""
    document = {**_counted(1), "choices": [{"token_ids": [1], "finish_reason": reason}]}

    failure = _failure(answered(document, usage(1)), 1, api)

    assert failure == Failure(
        FailureKind.IN_BAND_ERROR,
        f"in the stream: the server ended with finish_reason {reason!r}",
    )


def test_error_in_the_stream_explains_a_lost_connection() -> None:
    """What the server said is nearer to the cause than that it then hung up."""
    whole = answered({"error": ERROR_DETAIL}, done=False)
    lost = Failure(FailureKind.EARLY_END, "the server closed the connection")
    raw = RawExchange(0, 1, 200, whole.reads, lost)

    assert _failure(raw, 1).kind is FailureKind.IN_BAND_ERROR


def test_failure_of_the_connection_is_kept_with_what_came_before() -> None:
    """A stalled request keeps its chunks, and the failure that the client noticed."""
    stalled = Failure(FailureKind.STALLED, "no byte for 5 s")
    whole = answered(ids(1, 2), done=False)

    record, _ = parsed(RawExchange(0, 9, 200, whole.reads, stalled), 4)

    assert record.failure == stalled
    assert tokens(record) == [(1, 2)]


# Other failures


def test_http_error_holds_what_the_server_said_without_framing() -> None:
    """Status and body text make the message, however the body was framed."""
    head = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = exchange(head + chunk(b"the model "), chunk(b"does not exist"), chunk(b""), status=404)

    failure = _failure(raw, 1)

    assert failure == Failure(FailureKind.HTTP_ERROR, "HTTP status 404: the model does not exist")


def test_http_error_with_a_coded_body_says_so() -> None:
    """A compressed error body is named, not printed."""
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Encoding: br\r\n\r\n"

    failure = _failure(exchange(head + b"\x1b\x02\x80", status=502), 1)

    assert failure.message == "HTTP status 502: (a body encoded as 'br')"


def test_key_is_struck_out_before_the_message_is_cut() -> None:
    """A key that straddles the cut leaves no part of itself."""
    head = b"HTTP/1.1 401 Unauthorized\r\n\r\n"
    raw = exchange(head + b"x" * 270 + b"SECRETSECRETSECRET", status=401)

    record, _ = parsed(raw, 1, secret="SECRETSECRETSECRET")

    assert record.failure is not None
    assert "SECRET" not in record.failure.message


@pytest.mark.parametrize(
    ("reads", "kind", "words"),
    [
        ((b"SSH-2.0-OpenSSH\r\n",), FailureKind.MALFORMED, "not an HTTP/1.1 response"),
        ((OPEN_HEAD + b"hello",), FailureKind.MALFORMED, "without any server-sent event: hello"),
        ((OPEN_HEAD,), FailureKind.EARLY_END, "after 0 tokens"),
        (
            (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", b"\x1f\x8b\n\n"),
            FailureKind.MALFORMED,
            "'gzip'",
        ),
        ((OPEN_HEAD + b"data: \xff\n\n",), FailureKind.MALFORMED, "UTF-8"),
        ((OPEN_HEAD + b"data: {oops\n\n",), FailureKind.MALFORMED, "not JSON"),
        ((OPEN_HEAD + b"data: []\n\n",), FailureKind.MALFORMED, "not a JSON object"),
        ((OPEN_HEAD + b"data: " + b"[" * 9999 + b"\n\n",), FailureKind.MALFORMED, "not JSON"),
        ((CHUNKED_HEAD, b"zz\r\n"), FailureKind.MALFORMED, "not an HTTP/1.1 response"),
        ((CHUNKED_HEAD, chunk(DONE)), FailureKind.EARLY_END, "last bytes are missing"),
    ],
)
def test_broken_response_is_classified(
    reads: tuple[bytes, ...], kind: FailureKind, words: str
) -> None:
    """Whatever a server sends instead of an event stream gives a failure that says so."""
    failure = _failure(exchange(*reads), 1)

    assert failure.kind is kind
    assert words in failure.message


@pytest.mark.parametrize("api", ["chat", "openai-chat"])
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"choices": 1},
        {"choices": ["x"]},
        {"choices": [{"token_ids": ["1"]}]},
        {"choices": [{"token_ids": [True]}]},
        {"choices": [{"token_ids": "12"}]},
        {"choices": [{"token_ids": [-1]}]},
        {"choices": [{"token_ids": [2147483648]}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"content": "\ud83d"}}]},
        {"choices": [], "usage": []},
        {"choices": [], "usage": {"completion_tokens": "2"}},
        {"choices": [], "usage": {"completion_tokens": -1}},
        {"choices": [], "usage": {"completion_tokens": 2147483648}},
    ],
)
def test_event_of_another_form_is_malformed(api: str, document: object) -> None:
    """A document of the wrong form is a failure, never an empty chunk."""
    failure = _failure(answered(document, usage(0)), 0, api)

    assert failure.kind is FailureKind.MALFORMED
    assert "data has another form" in failure.message


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"meta_info": {"completion_tokens": -1}},
        {"meta_info": {"finish_reason": 3}},
        {"meta_info": {"completion_tokens": 1}, "output_ids": ["1"]},
        {"meta_info": {"completion_tokens": 1}, "output_ids": [-1]},
        {"choices": []},
    ],
)
def test_generate_event_of_another_form_is_malformed(document: object) -> None:
    """SGLang's documents are checked likewise; an OpenAI event is none of them."""
    failure = _failure(answered(document), 0, "sglang")

    assert failure.kind is FailureKind.MALFORMED
    assert "data has another form" in failure.message


@pytest.mark.parametrize("api", [*ID_APIS, *COUNT_APIS])
def test_stream_without_done_ended_early(api: str) -> None:
    """Usage alone does not make an answer whole."""
    document = {**_counted(1), "choices": [{"token_ids": [1]}]}

    assert _failure(answered(document, usage(1), done=False), 1, api) == Failure(
        FailureKind.EARLY_END, "the stream ended after 1 tokens, no [DONE]"
    )


@pytest.mark.parametrize("api", ID_APIS)
def test_missing_usage_is_a_failure(api: str) -> None:
    """Ids without usage cannot be checked, so the request does not count."""
    failure = _failure(answered(ids(1)), 1, api)

    assert failure.kind is FailureKind.MISSING_USAGE
    assert "usage.completion_tokens" in failure.message


def test_missing_total_of_generate_is_a_failure() -> None:
    """SGLang's total is in meta_info, and the message says so."""
    failure = _failure(answered({"meta_info": {}}), 1, "sglang")

    assert failure == Failure(FailureKind.MISSING_USAGE, "no meta_info.completion_tokens")


@pytest.mark.parametrize(
    ("documents", "expected", "words"),
    [
        ((ids(1, 2), usage(3)), 3, "2 token ids, but usage says 3"),
        ((ids(1, 2), usage(2)), 3, "2 tokens, expected 3"),
        (({"choices": [{"delta": {"content": "x"}}]}, usage(2)), 2, "return_token_ids"),
    ],
)
def test_wrong_length_says_what_disagrees(
    documents: tuple[object, ...], expected: int, words: str
) -> None:
    """Token ids, usage and the length asked for must agree, and the message tells which not."""
    failure = _failure(answered(*documents), expected)

    assert failure.kind is FailureKind.WRONG_LENGTH
    assert words in failure.message


@pytest.mark.parametrize(
    ("api", "words"),
    [
        ("chat", "the API sglang, trtllm, completions or openai-chat"),
        ("completions", "TensorRT-LLM is asked by the API trtllm"),
        ("trtllm", "detokenize: false"),
    ],
)
def test_text_without_token_ids_says_what_to_do(api: str, words: str) -> None:
    """Text is not tokenised again: the message names the field and other APIs."""
    document = {"choices": [{"text": "x", "delta": {"content": "x"}}]}

    failure = _failure(answered(document, usage(2)), 2, api)

    assert failure.kind is FailureKind.WRONG_LENGTH
    assert words in failure.message


def test_failed_status_counts_reads_without_events() -> None:
    """An error body holds no events, whatever it looks like."""
    raw = exchange(b"HTTP/1.1 500 Oops\r\n\r\n", event(ids(1)), status=500)

    record, stats = parse_with_stats(SentRequest(0, 0, 0, request(1), raw))

    assert record.chunks == ()
    assert stats == ReadStats(reads=2)
