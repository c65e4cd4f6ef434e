"""The probes of parameters sent to a running server, in the form that its engine takes them.

Probes stand in vLLM's spelling (`draftgate.checks.probes`); a `Form` says how another engine
is asked the same. Opens no socket: it is handed a function that posts and returns whatever
came back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from draftgate.checks.completions import PATH, answers_of, teacher_rows
from draftgate.checks.exact import Finding
from draftgate.checks.greedy import NEAR_TIE_LOGITS, GreedyAnswer, greedy_of
from draftgate.checks.probes import Behaviour, Probe, Probed, Reply, probes, run_probe
from draftgate.errors import EngineError
from draftgate.laws.parameters import LawParameters
from draftgate.load.apis.sglang import NAMES as SGLANG_NAMES
from draftgate.load.apis.sglang import PATH as SGLANG_PATH

GREEDY_TOKENS = 24
"""Length of the greedy answer that probes are made of; twice what they need, so that a token
comes again with a small lead, which the penalties' probes need."""

MOST_TEXTS = 6
"""Prompts that are tried for an answer of that kind."""

PENALTIES = {"presence_penalty", "frequency_penalty"}

Answering = Callable[[str, dict[str, Any]], Reply]
"""Posts JSON to a path and returns status and document, whatever the status."""

Text = tuple[str, tuple[int, ...]]
"""A prompt's id and its token ids."""


class Form(Protocol):
    """How one engine's API is asked.

    Attributes:
        path: Route of a completion.
        lacks: Fields that it does not have, so that nothing is asked of them.
    """

    path: str
    lacks: frozenset[str]

    def body(self, model: str, prompt: Sequence[int], fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request with these fields, which are in vLLM's spelling."""
        ...

    def ids(self, document: Any) -> list[int]:
        """Return an answer's token ids; whatever error says that there are none."""
        ...

    def greedy(self, answering: Answering, model: str, text: Text) -> GreedyAnswer:
        """Return the greedy answer with the lead of each token.

        Raises:
            EngineError: If the server gives none.
        """
        ...


class VllmForm:
    """`/v1/completions` as vLLM has it; leads are read from `prompt_logprobs`."""

    path = PATH
    lacks: frozenset[str] = frozenset()

    def body(self, model: str, prompt: Sequence[int], fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with model and prompt."""
        return {"model": model, "prompt": list(prompt), **fields}

    def ids(self, document: Any) -> list[int]:
        """Return `token_ids` of the first choice."""
        return [int(token) for token in document["choices"][0]["token_ids"]]

    def greedy(self, answering: Answering, model: str, text: Text) -> GreedyAnswer:
        """Ask once for the answer, once for the log-probabilities of its tokens."""
        prompt_id, prompt = text

        def post(path: str, body: dict[str, Any]) -> Any:
            return _document(answering(path, body), prompt_id)

        body = self.body(model, prompt, {**_greedy_fields(), "return_token_ids": True})
        greedy = LawParameters(temperature=0)
        (answer,) = answers_of(post(self.path, body), prompt_id, prompt, greedy)
        rows = teacher_rows(post, model, answer)
        leading = [sorted(row.items(), key=lambda pair: -pair[1])[:2] for row in rows]
        return _with_leads(prompt_id, answer.token_ids, leading)


class SglangForm:
    """SGLang's `/generate`, whose `sampling_params` name some fields otherwise."""

    path = SGLANG_PATH
    lacks = frozenset({"bad_words", "allowed_token_ids"})

    _NAMES: Mapping[str, str] = SGLANG_NAMES | {"min_tokens": "min_new_tokens"}
    _NONE = frozenset({"return_token_ids"})  # ids come unasked

    def body(self, model: str, prompt: Sequence[int], fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields as `sampling_params`; the route knows no model."""
        del model
        renamed = {
            self._NAMES.get(name, name): value
            for name, value in fields.items()
            if name not in self._NONE
        }
        return {"input_ids": list(prompt), "sampling_params": renamed}

    def ids(self, document: Any) -> list[int]:
        """Return `output_ids`."""
        return [int(token) for token in document["output_ids"]]

    def greedy(self, answering: Answering, model: str, text: Text) -> GreedyAnswer:
        """Ask for the answer with the two likeliest tokens at each place."""
        prompt_id, prompt = text
        body = self.body(model, prompt, _greedy_fields())
        body |= {"return_logprob": True, "top_logprobs_num": 2}
        document = _document(answering(self.path, body), prompt_id)
        try:
            rows = document["meta_info"]["output_top_logprobs"]
            leading = [[(int(entry[1]), float(entry[0])) for entry in row[:2]] for row in rows]
            return _with_leads(prompt_id, tuple(self.ids(document)), leading)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"{prompt_id}: the answer of {self.path} lacks output_ids or output_top_logprobs "
                f"({type(error).__name__}: {error}). Is it SGLang 0.5 or later?"
            ) from error


FORMS: Mapping[str, Form] = {"vllm": VllmForm(), "sglang": SglangForm()}
"""By engine. TensorRT-LLM gives no lead of a token over HTTP, so that a flip by rounding could
not be told from a filter that was dropped."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What the probes of one server found.

    Attributes:
        probed: One entry per probe that was sent.
        left_out: Why others were not, a sentence each.
    """

    probed: tuple[Probed, ...]
    left_out: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is held against the server."""
        return tuple(entry.finding for entry in self.probed if entry.finding is not None)


def probe_server(
    answering: Answering,
    engine: str,
    model: str,
    texts: Sequence[Text],
    spell: Callable[[Sequence[int]], str | None],
    dtype: str,
) -> ProbeReport:
    """Ask a server whether it honours single parameters, one request after the other.

    Ends at the first request that brings no answer at all: the server may have died of it.

    Args:
        answering: Posts to the server.
        engine: Whose API it speaks.
        model: Its name for the model.
        texts: Prompts to try, in order.
        spell: Returns the text of ids, or None.
        dtype: What the server computes in: near ties of that size may flip.

    Raises:
        EngineError: If the server gives no greedy answer.
    """
    form = FORMS.get(engine)
    if form is None:
        return ProbeReport((), (f"parameters are not probed: no form of {engine}'s is known",))
    found = _best_probes(form, answering, model, texts, spell, dtype)
    if found is None:
        return ProbeReport(
            (),
            (f"parameters are not probed: {len(texts[:MOST_TEXTS])} greedy answers decide none",),
        )
    prompt, wanted, missing = found
    probed = []
    for probe in wanted:
        entry = run_probe(_sender(form, answering, model, prompt), probe)
        probed.append(entry)
        if entry.behaviour is Behaviour.GONE:
            missing += (f"no parameter was probed after {probe.name}: there was no answer",)
            break
    return ProbeReport(tuple(probed), missing)


def _best_probes(
    form: Form,
    answering: Answering,
    model: str,
    texts: Sequence[Text],
    spell: Callable[[Sequence[int]], str | None],
    dtype: str,
) -> tuple[tuple[int, ...], tuple[Probe, ...], tuple[str, ...]] | None:
    """Return the prompt whose answer decides most probes, with them and what is left out."""
    best: tuple[tuple[int, ...], tuple[Probe, ...]] | None = None
    for text in texts[:MOST_TEXTS]:
        greedy = form.greedy(answering, model, text)
        word = spell(greedy.token_ids[:1])
        try:
            made = probes(greedy, word or "", NEAR_TIE_LOGITS[dtype])
        except ValueError:  # too short, or one token alone: another text decides more
            continue
        lacking = form.lacks if word else form.lacks | {"bad_words"}
        made = tuple(probe for probe in made if probe.name not in lacking)
        if best is None or len(made) > len(best[1]):
            best = text[1], made
        if {probe.name for probe in made} >= PENALTIES:
            break
    if best is None:
        return None
    absent = PENALTIES - {probe.name for probe in best[1]}
    told = tuple(f"{name}: no answer has a token that it must change" for name in sorted(absent))
    return *best, told


def _sender(
    form: Form, answering: Answering, model: str, prompt: Sequence[int]
) -> Callable[[dict[str, Any]], Reply]:
    """Return what sends a probe's fields and answers in vLLM's form."""

    def send(fields: dict[str, Any]) -> Reply:
        reply = answering(form.path, form.body(model, prompt, fields))
        try:
            ids = form.ids(reply.document)
        except (KeyError, IndexError, TypeError, ValueError):
            return reply  # a refusal, or an answer of no use: `run_probe` tells which
        return replace(reply, document={"choices": [{"token_ids": ids}]})

    return send


def _greedy_fields() -> dict[str, Any]:
    return {"max_tokens": GREEDY_TOKENS, "temperature": 0, "ignore_eos": True}


def _document(reply: Reply, prompt_id: str) -> Any:
    if reply.status != 200:
        raise EngineError(
            f"{prompt_id}: a greedy request was answered with status {reply.status}: "
            f"{str(reply.document)[:200]}. Parameters can't be probed; leave that out with "
            "--skip-probes."
        )
    return reply.document


def _with_leads(
    prompt_id: str, ids: tuple[int, ...], leading: Sequence[Sequence[tuple[int, float]]]
) -> GreedyAnswer:
    """Return an answer with the lead of each token over the next, out of two candidates each.

    Raises:
        EngineError: If they differ in number, or a place has one candidate alone.
    """
    if len(leading) != len(ids) or any(len(pair) < 2 for pair in leading):
        raise EngineError(
            f"{prompt_id}: got the two likeliest tokens at {sum(len(p) > 1 for p in leading)} "
            f"places, expected {len(ids)}"
        )
    return greedy_of(prompt_id, ids, leading)
