"""The reference by teacher forcing: what is asked, what is read, and what it finds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from draftgate.errors import EngineError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.orders import law
from draftgate.laws.parameters import LawParameters
from draftgate.laws.reference import Reference
from draftgate.laws.teacher import TeacherReference
from draftgate.stats.directions import directions
from draftgate.stats.eprocess import evidence

VOCABULARY = 40
ALPHA = 1e-4


def raw_law(ids: list[int]) -> np.ndarray:
    """Return the log-probabilities after some ids, a function of the last two."""
    logits = np.random.default_rng(ids[-2:]).normal(size=VOCABULARY) * 2
    return np.asarray(logits - np.logaddexp.reduce(logits))


class Server:
    """A server without speculation whose law is `raw_law`."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Answer as vLLM's completions do."""
        assert path == "/v1/completions"
        self.bodies.append(body)
        ids = body["prompt"]
        places: list[Any] = [None, None]
        for end in range(2, len(ids)):
            raw = raw_law(ids[:end])
            rank = np.argsort(np.argsort(-raw)) + 1
            listed = {*np.argsort(-raw)[: body["prompt_logprobs"]].tolist(), ids[end]}
            places.append(
                {str(i): {"logprob": float(raw[i]), "rank": int(rank[i])} for i in listed}
            )
        return {"choices": [{"prompt_logprobs": places}]}


def answers(parameters: LawParameters, n: int) -> list[Answer]:
    """Return n answers of 21 tokens drawn by the parameters, each to a prompt of its own."""
    rng, found = np.random.default_rng(3), []
    for number in range(n):
        ids = [number, number + 1]
        for _ in range(21):
            probs = np.exp(law(raw_law(ids), parameters, ids[:2], ids[2:], "vllm").log_probs)
            ids.append(int(rng.choice(VOCABULARY, p=probs / probs.sum())))
        found.append(
            Answer(
                request=number,
                prompt_id=str(number),
                prompt_token_ids=tuple(ids[:2]),
                token_ids=tuple(ids[2:]),
                chunks=(1,) * 21,
                finish_reason="length",
                parameters=parameters,
            )
        )
    return found


def teacher(post: Any, top_n: int = 8) -> TeacherReference:
    """Return a reference with this server behind it."""
    return TeacherReference(post, "target", top_n, VOCABULARY)


def test_the_question_is_a_prompt_with_log_probabilities() -> None:
    """Each answer is sent once as token ids, with the number of likely tokens asked for."""
    server = Server()
    reference = teacher(server.post)

    scores = reference.score(answers(LawParameters(), 2), None)

    assert isinstance(reference, Reference)
    assert len(scores) == 40
    assert [len(body["prompt"]) for body in server.bodies] == [23, 23]
    assert {body["prompt_logprobs"] for body in server.bodies} == {8}


def test_at_temperature_one_the_drawn_tokens_are_rated_exactly() -> None:
    """Log-probabilities are the server's own, and a token's law before is that of its row."""
    (answer,) = answers(LawParameters(), 1)

    scores = teacher(Server().post, 20).score([answer], 4)

    ids = [*answer.prompt_token_ids, *answer.token_ids]
    expected = [raw_law(ids[:end])[ids[end]] for end in range(3, len(ids))]
    np.testing.assert_allclose(scores.logp, expected)
    before = np.array([raw_law(ids[: end - 1])[ids[end]] for end in range(3, len(ids))])
    known = np.isfinite(scores.before)
    assert known.any()
    np.testing.assert_allclose(scores.before[known], before[known])


@pytest.mark.parametrize(
    "parameters",
    [
        LawParameters(temperature=0.7),
        LawParameters(temperature=1.3),
        LawParameters(top_k=5),
        LawParameters(temperature=0.8, top_p=0.8),
    ],
)
def test_hot_text_alarms_and_faithful_text_does_not(parameters: LawParameters) -> None:
    """Text drawn 1.8 times too hot alarms under every setting; same-versus-same does not."""
    family, reference = directions(VOCABULARY, 0), teacher(Server().post, 20)
    hotter = replace(parameters, temperature=1.8 * parameters.temperature)
    hot = [replace(a, parameters=parameters) for a in answers(hotter, 16)]

    same = evidence(reference.score(answers(parameters, 16), None), family)
    other = evidence(reference.score(hot, None), family)

    assert same.alarm_at(ALPHA) is None
    assert other.alarm_at(ALPHA) is not None


@pytest.mark.parametrize(
    "document",
    [{}, {"choices": []}, {"choices": [{"prompt_logprobs": None}]}, {"choices": [{}]}],
)
def test_an_answer_without_log_probabilities_is_the_server_s_fault(document: Any) -> None:
    """A server that does not report what was asked for is named as the cause."""
    with pytest.raises(EngineError, match="request 0: the reference server's answer lacks"):
        teacher(lambda _path, _body: document).score(answers(LawParameters(), 1), None)


def test_penalties_are_refused_before_anything_is_asked() -> None:
    """A law that needs all logits is refused, and the server is not asked."""
    server = Server()

    with pytest.raises(SpecError, match="presence_penalty"):
        teacher(server.post).score(answers(LawParameters(presence_penalty=1.0), 1), None)
    assert not server.bodies


def test_filters_of_rounded_logits_are_refused_before_anything_is_asked() -> None:
    """In bfloat16 tokens from beyond a filter's edge are drawn, which would be false evidence."""
    server = Server()
    rounded = TeacherReference(server.post, "target", 20, VOCABULARY, numerics="bfloat16")

    with pytest.raises(SpecError, match=r"got top_k 5 and top_p 1 in bfloat16 .* float32"):
        rounded.score(answers(LawParameters(top_k=5), 1), None)
    assert not server.bodies
    assert len(rounded.score(answers(LawParameters(temperature=0.7), 1), None)) == 20
    assert "refused: rounding" in "; ".join(rounded.blind_to)


def test_blind_spots_are_named() -> None:
    """What a few log-probabilities cannot show stands in the reference's blind spots."""
    text = "; ".join(teacher(Server().post).blind_to)

    for part in ("first token", "without speculation has as well", "8 tokens", "penalties"):
        assert part in text


def test_numbers_without_sense_are_refused() -> None:
    """A vocabulary of one token is an error of the one who set it up."""
    with pytest.raises(SpecError, match="vocabulary"):
        TeacherReference(Server().post, "target", 5, 1)
