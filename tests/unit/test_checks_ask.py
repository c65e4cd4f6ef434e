"""What correctness checks ask a server and how they read its answers, in vLLM's format."""

import threading
from typing import Any

import pytest

from draftgate.checks.ask import PARALLEL, greedy_answer, in_parallel
from draftgate.datasets import Prompt
from draftgate.errors import EngineError

PROMPT = Prompt("p1", "chat", (("system", "be brief"), ("user", "hello")))


class Server:
    """Answers every question with one document and keeps what was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Keep the question and give the answer."""
        self.asked.append((path, body))
        return self.answer


def greedy_document(token_ids: list[int]) -> dict[str, Any]:
    """Return a chat answer of two tokens with their two leading log-probabilities."""
    content = [
        {
            "token": "token_id:5",
            "logprob": -0.25,
            "top_logprobs": [
                {"token": "token_id:5", "logprob": -0.25},
                {"token": "token_id:9", "logprob": -1.5},
            ],
        },
        {
            "token": "token_id:6",
            "logprob": -0.5,
            "top_logprobs": [
                {"token": "token_id:7", "logprob": -0.75},
                {"token": "token_id:6", "logprob": -0.5},
            ],
        },
    ]
    return {"choices": [{"token_ids": token_ids, "logprobs": {"content": content}}]}


def test_greedy_answer_has_gaps_and_runners_up() -> None:
    """The gap is leading minus next, in whatever order the server lists them."""
    server = Server(greedy_document([5, 6]))

    answer = greedy_answer(server.post, "target", PROMPT, 2)

    assert answer.prompt_id == "p1"
    assert answer.token_ids == (5, 6)
    assert answer.gap_logits == (1.25, 0.25)
    assert answer.runner_up == (9, 7)
    ((path, body),) = server.asked
    assert path == "/v1/chat/completions"
    assert body["messages"][1] == {"role": "user", "content": "hello"}
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("target", 2, 0)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert body["return_token_ids"] is body["return_tokens_as_token_ids"] is True


def test_missing_log_probabilities_are_an_error() -> None:
    """Fewer log-probabilities than tokens (an overlap bug) are refused, not cut to fit."""
    with pytest.raises(EngineError, match="p1: 3 token ids but 2 log-probabilities"):
        greedy_answer(Server(greedy_document([5, 6, 7])).post, "target", PROMPT, 3)


@pytest.mark.parametrize(
    "document",
    [{}, {"choices": []}, {"choices": [{"logprobs": None, "token_ids": [1]}]}, [], None],
    ids=["empty", "no-choice", "no-logprobs", "list", "null"],
)
def test_answer_without_what_was_asked_for_is_an_engine_error(document: Any) -> None:
    """A server that ignores the fields we need is told so, not shown as a traceback."""
    with pytest.raises(EngineError, match=r"^p1: the answer lacks"):
        greedy_answer(Server(document).post, "target", PROMPT, 1)


def test_parallel_answers_keep_their_order() -> None:
    """Several questions are open at once and the answers come in the prompts' order."""
    prompts = [Prompt(str(i), "chat", (("user", str(i)),)) for i in range(PARALLEL)]
    meeting = threading.Barrier(PARALLEL, timeout=10)

    def question(prompt: Prompt) -> str:
        meeting.wait()
        return prompt.prompt_id

    assert in_parallel(question, prompts) == [str(i) for i in range(PARALLEL)]
