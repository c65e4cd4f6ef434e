"""The forward reference on the real model: text from its own law passes, other text does not.

Tokens are drawn here with numpy from the laws themselves, so no server and no engine's
sampler stands between the law and the evidence.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from draftgate.datasets import load_prompts
from draftgate.laws.answer import Answer
from draftgate.laws.entries import EntryScorer, entry_of
from draftgate.laws.forward import ForwardReference
from draftgate.laws.model import special_token_ids
from draftgate.laws.orders import law
from draftgate.laws.parameters import LawParameters, Structure
from draftgate.laws.partial import LogprobEntry, Setting
from draftgate.laws.processors import log_softmax
from draftgate.stats.directions import directions
from draftgate.stats.eprocess import Evidence, evidence
from draftgate.stats.scores import Scores
from draftgate.targets import resolve_target

pytestmark = pytest.mark.correctness

ALPHA = 1e-4
SEED = 5
ANSWERS = 5
TOKENS = 41  # the first of each answer is left out, so 200 are looked at

Draw = Callable[[LawParameters], tuple[Answer, ...]]


@pytest.fixture(scope="module")
def folder() -> Path:
    """Folder of the default target."""
    return Path(resolve_target("smollm2-135m-instruct", log=print))


@pytest.fixture(scope="module")
def forward(folder: Path) -> ForwardReference:
    """The target in this process, with itself as the draft model."""
    return ForwardReference(folder, draft=folder, special_ids=special_token_ids(folder))


@pytest.fixture(scope="module")
def draw(folder: Path, forward: ForwardReference) -> Draw:
    """A function that draws answers from the laws of given parameters, token by token."""
    torch = pytest.importorskip("torch")
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(str(folder))
    model = forward._target._model

    @cache
    def many(parameters: LawParameters) -> tuple[Answer, ...]:
        (prompt,) = load_prompts("mixed", seed=SEED)[:1]
        text = tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in prompt.messages],
            add_generation_prompt=True,
            return_dict=False,
        )
        rng, cache = np.random.default_rng(SEED), None
        outputs: list[list[int]] = [[] for _ in range(ANSWERS)]
        fresh = torch.tensor([text] * ANSWERS)
        for _ in range(TOKENS):
            with torch.inference_mode():
                out = model(
                    input_ids=fresh, past_key_values=cache, use_cache=True, logits_to_keep=1
                )
            for output, logits in zip(outputs, out.logits[:, -1].numpy(), strict=True):
                probs = np.exp(law(logits, parameters, text, output, "vllm").log_probs)
                output.append(int(rng.choice(len(probs), p=probs / probs.sum())))
            cache = out.past_key_values
            fresh = torch.tensor([output[-1:] for output in outputs])
        return tuple(
            answer(number, text, output, parameters) for number, output in enumerate(outputs)
        )

    return many


def answer(
    number: int, prompt: Sequence[int], output: Sequence[int], parameters: LawParameters
) -> Answer:
    """Return an answer whose chunks hold one token each."""
    return Answer(
        request=number,
        prompt_id="p",
        prompt_token_ids=tuple(prompt),
        token_ids=tuple(output),
        chunks=(1,) * len(output),
        finish_reason="length",
        parameters=parameters,
    )


def found(forward: ForwardReference, scores: Scores) -> Evidence:
    """Return the evidence of scores by the generic family."""
    family = directions(forward.vocabulary, len(forward.special_ids))
    return evidence(scores, family)


@pytest.mark.parametrize(
    "parameters",
    [LawParameters(), LawParameters(temperature=0.8, top_p=0.95, top_k=50, presence_penalty=0.5)],
    ids=["plain", "filtered"],
)
def test_text_from_the_law_passes(
    forward: ForwardReference, draw: Draw, parameters: LawParameters
) -> None:
    """Tokens drawn from the law itself raise no alarm (same-versus-same run)."""
    scores = forward.score(draw(parameters), 4)

    assert len(scores) == ANSWERS * (TOKENS - 1)
    assert found(forward, scores).alarm_at(ALPHA) is None


def test_hotter_text_alarms(forward: ForwardReference, draw: Draw) -> None:
    """Tokens drawn at temperature 1.3 are not taken for ones of temperature 1."""
    hot = [
        replace(drawn, parameters=LawParameters()) for drawn in draw(LawParameters(temperature=1.3))
    ]

    result = found(forward, forward.score(hot, 4))

    assert result.alarm_at(ALPHA) is not None


def test_garbage_token_shows_in_its_row(forward: ForwardReference, draw: Draw) -> None:
    """A token swapped for garbage is called garbage, and the rows before it stay as they were."""
    first = draw(LawParameters())[0]
    place = 20
    swapped = (*first.token_ids[:place], 40_000, *first.token_ids[place + 1 :])

    clean = forward.score([first], 4)
    faulty = forward.score([replace(first, token_ids=swapped)], 4)

    row = place - 1
    np.testing.assert_allclose(faulty.logp[:row], clean.logp[:row], atol=1e-4)
    assert faulty.logp[row] < np.log(1e-5)
    assert found(forward, faulty).path[row] > found(forward, clean).path[row]


def test_a_batch_gives_the_same_laws_as_single_answers(
    forward: ForwardReference, draw: Draw
) -> None:
    """Padding and batching move log-probabilities by no more than float32's rounding."""
    answers = draw(LawParameters())[:3]

    together = forward.score(answers, 4)
    alone = np.concatenate([forward.score([drawn], 4).logp for drawn in answers])

    np.testing.assert_allclose(together.logp, alone, atol=1e-4)


def test_draft_columns_of_the_target_itself(forward: ForwardReference, draw: Draw) -> None:
    """With the target as its own draft model the proposal is the most likely token."""
    scores = forward.score(draw(LawParameters())[:1], 4)

    np.testing.assert_allclose(scores.draft_logp, scores.top, atol=1e-6)
    assert ((scores.draft_law == 0) == scores.is_top).all()


def test_sampled_drafts_of_the_target_itself_are_always_accepted(
    forward: ForwardReference, draw: Draw
) -> None:
    """When drafts are drawn from the target's own law, the two laws overlap as a whole."""
    sampled = copy(forward)
    sampled.drafts_sampled = True

    scores = sampled.score(draw(LawParameters())[:1], 4)

    np.testing.assert_allclose(scores.draft_law, scores.logp, atol=1e-6)
    np.testing.assert_allclose(scores.overlap, 0.0, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_twenty_likely_tokens_find_what_the_whole_law_finds(
    forward: ForwardReference, draw: Draw, temperature: float
) -> None:
    """Reported log-probabilities alarm on text that is too hot and on no other."""
    answers = [
        replace(drawn, parameters=LawParameters())
        for drawn in draw(LawParameters(temperature=temperature))
    ]
    scorer = EntryScorer(
        setting=Setting(vocabulary=forward.vocabulary), special_ids=forward.special_ids
    )

    scores = scorer.score(answers, [listed(forward, drawn) for drawn in answers], 4)

    alarmed = found(forward, scores).alarm_at(ALPHA) is not None
    assert alarmed == (temperature > 1)


def listed(forward: ForwardReference, drawn: Answer) -> list[LogprobEntry]:
    """Return what a server that lists 20 likely tokens reports about an answer."""
    entries = []
    for logits, token in zip(forward.logits(drawn), drawn.token_ids, strict=True):
        logprobs = log_softmax(logits.astype(float))
        ids = [*np.argsort(-logprobs)[:20].tolist(), token]
        entries.append(entry_of(token, {i: float(logprobs[i]) for i in ids}, 20))
    return entries


def test_structure_is_part_of_the_law(folder: Path, forward: ForwardReference) -> None:
    """A form's tokens have their probability, and the first one that breaks it ends the rows."""
    pytest.importorskip("xgrammar")
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(str(folder))
    prompt = tokenizer("Is the sea blue or green? It is").input_ids
    ids = tokenizer("green as glass").input_ids
    structure = Structure(kind="choice", texts=("green as glass", "blue"))
    parameters = LawParameters(structure=structure, stop_token_ids=(tokenizer.eos_token_id,))

    kept = forward.score([answer(0, prompt, ids, parameters)], None)
    broken = forward.score([answer(0, prompt, [*ids[:1], *ids[:1], 5], parameters)], None)

    assert len(ids) > 2
    assert np.isfinite(kept.logp).all()
    assert broken.logp.tolist() == [-np.inf]
