"""Where a check's reference law comes from: a model in process, a server, or the checked one.

Turns what a user names into a reference and what goes with it. The references
themselves are in `draftgate.laws`; knows no conditions and no evidence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from draftgate.checks.ask import Post
from draftgate.checks.rule import Laws
from draftgate.errors import EngineError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.entries import entry_of
from draftgate.laws.orders import NOISE, law, stated
from draftgate.laws.partial import PartialLaw, Setting
from draftgate.laws.proposals import Drafter, NgramDrafter
from draftgate.laws.reference import Reference
from draftgate.stats.scores import Scores
from draftgate.targets import resolve_target

LARGEST_VOCABULARY = 2**18
"""Stands in where the vocabulary's size is not known: larger is safe, only weaker."""

TOP_N = 20
"""Likeliest tokens that a server tells per place; the most that vLLM gives by default."""

LIKELY = 3
"""Tokens that are shown beside a worst example."""

SHARED = "faults that the server's prefill shares with its decoding: weights, kernels, tokenizer"
"""What a server that is its own reference can't see."""

LikelyTokens = Callable[[Answer, int], tuple[tuple[int, float], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A reference and what comes with it.

    Attributes:
        reference: Scores answers.
        likely: What was likely at a place of an answer's output under the law that the
            answer is held against.
        vocabulary: Number of tokens, or more.
        special: Number of special tokens; 0 if they are not known.
        folder: Folder of the model; None where there is none here.
        laws: Whole laws of an answer's places; None where only some numbers are known.
        drafter: What proposes; None where that is not known.
        filters: Whether laws under top-k and top-p are known.
    """

    reference: Reference
    likely: LikelyTokens
    vocabulary: int
    special: int
    folder: Path | None
    laws: Laws | None = None
    drafter: Drafter | None = None
    filters: bool = True


class _WithLogits(Protocol):
    """A reference that gives the target's raw logits, shape (n, V)."""

    def logits(self, answer: Answer) -> Any: ...


@dataclass(slots=True)
class SelfReference:
    """The checked server as its own reference, by reading its own answers.

    Attributes:
        inner: Asks that server.
        name: For reports.
        blind_to: What `inner` can't see, and what only another one could.
    """

    inner: Reference
    name: str
    blind_to: tuple[str, ...]

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return what the server says of its own answers."""
        return self.inner.score(answers, k)


def drafter_of(text: str | None, k: int | None) -> Drafter | None:
    """Return the drafter that `ngram` or `ngram:MIN-MAX` names; None for a model or nothing.

    Raises:
        SpecError: If the lengths make no sense, or K is not known.
    """
    if text is None or text.partition(":")[0] != "ngram":
        return None
    if k is None:
        raise SpecError(f"draft {text!r}: expected K beside it. Give --k.")
    _, _, lengths = text.partition(":")
    if not lengths:
        return NgramDrafter(k=k)
    low, _, high = lengths.partition("-")
    if not (low.isdigit() and high.isdigit()):
        raise SpecError(
            f"draft {text!r}: expected ngram:MIN-MAX with two numbers, the server's "
            "prompt_lookup_min and prompt_lookup_max. For example ngram:2-5"
        )
    return NgramDrafter(k=k, shortest=int(low), longest=int(high))


def model_source(
    name: str,
    engine: str,
    *,
    draft: str | None,
    drafts_sampled: bool,
    drafter: Drafter | None,
    dtype: str,
) -> Source:
    """Return a reference that runs in this process.

    Args:
        name: Known name or folder of the target.
        engine: Whose order of sampling steps applies.
        draft: Known name or folder of the draft model; None for none.
        drafts_sampled: Whether that model's tokens are drawn, not its most likely ones.
        drafter: A drafter that looks at ids alone; None for none.
        dtype: What the checked server computes in, which softens the edges of filters.

    Raises:
        SpecError: If a model is not here, or what runs it is not installed.
    """
    from draftgate.laws.forward import ForwardReference  # noqa: PLC0415 - not always needed
    from draftgate.laws.model import special_token_ids  # noqa: PLC0415 - likewise

    folder = model_folder(name)
    special = special_token_ids(folder)
    reference = ForwardReference(
        folder,
        engine=engine,
        draft=None if draft is None else model_folder(draft),
        special_ids=special,
        drafts_sampled=drafts_sampled,
        drafter=drafter,
        numerics=_numerics(dtype),
    )
    laws = _stated_laws(reference, engine, reference.numerics)
    return Source(
        reference=reference,
        likely=_likely_by_laws(laws),
        vocabulary=reference.vocabulary,
        special=len(special),
        folder=folder,
        laws=laws,
        drafter=drafter,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetting:
    """What a reference has to know of a server that it asks.

    Attributes:
        vocabulary: Number of tokens; None if it is not known.
        dtype: What it computes in.
        drafter: A drafter that looks at ids alone; None for none.
        special: Ids of special tokens; none if they are not known.
        itself: Address of the server if it is the checked one; None if it is another.
    """

    vocabulary: int | None
    dtype: str
    drafter: Drafter | None
    special: frozenset[int]
    itself: str | None


def server_source(post: Post, model: str, setting: ServerSetting) -> Source:
    """Return a reference that asks a server to read the answers (vLLM's `prompt_logprobs`).

    Args:
        post: Posts JSON to that server.
        model: Name by which it serves the target.
        setting: What is known of it.
    """
    from draftgate.laws.teacher import TeacherReference  # noqa: PLC0415 - not always needed

    numerics = _numerics(setting.dtype)
    laws = Setting(vocabulary=setting.vocabulary or LARGEST_VOCABULARY, numerics=numerics)
    reference: Reference = TeacherReference(
        post,
        model,
        TOP_N,
        laws.vocabulary,
        special_ids=setting.special,
        numerics=numerics,
        drafter=setting.drafter,
    )
    if setting.itself is not None:
        name = f"the checked server itself, which read its answers again ({setting.itself})"
        reference = SelfReference(reference, name, (*reference.blind_to, SHARED))
    return Source(
        reference=reference,
        likely=_likely_by_server(post, model, laws),
        vocabulary=laws.vocabulary,
        special=len(setting.special),
        folder=None,
        filters=not NOISE[numerics],
    )


def special_ids_in(tokenizer: str | None) -> frozenset[int]:
    """Return the special tokens of a tokenizer's folder; none if it has no tokenizer.json.

    Raises:
        SpecError: If that file is damaged.
    """
    from draftgate.laws.model import special_token_ids  # noqa: PLC0415 - not always needed

    if tokenizer is None or not (Path(tokenizer) / "tokenizer.json").exists():
        return frozenset()
    return special_token_ids(Path(tokenizer))


def _numerics(dtype: str) -> str:
    """Return a dtype's name as the laws know it; float16 has the softer edges of bfloat16."""
    return "float32" if dtype == "float32" else "bfloat16"


def model_folder(name: str) -> Path:
    """Return the folder of a model that is on this machine.

    Raises:
        SpecError: If there is none.
    """
    found = resolve_target(name, log=lambda _: None)
    if not isinstance(found, Path):
        raise SpecError(
            f"model {name!r}: got a hub name, expected a folder on this machine or a known name. "
            "Download it and name its folder, or give the URL of a server without speculation."
        )
    return found


def _stated_laws(reference: _WithLogits, engine: str, numerics: str) -> Laws:
    def laws(answer: Answer) -> Any:
        rows = reference.logits(answer)
        found = np.empty(rows.shape)
        for index, row in enumerate(rows):
            output = answer.token_ids[:index]
            given = law(row, answer.parameters, answer.prompt_token_ids, output, engine)
            found[index] = np.exp(stated(given, numerics))
        return found

    return laws


def _likely_by_laws(laws: Laws) -> LikelyTokens:
    def likely(answer: Answer, index: int) -> tuple[tuple[int, float], ...]:
        found = np.asarray(laws(answer)[index])
        best = np.argsort(-found, kind="stable")[:LIKELY]
        return tuple((int(token), float(found[token])) for token in best)

    return likely


def _likely_by_server(post: Post, model: str, setting: Setting) -> LikelyTokens:
    """Return what tells likely tokens by the bounds that also give the token's own probability."""

    def likely(answer: Answer, index: int) -> tuple[tuple[int, float], ...]:
        prefix = [*answer.prompt_token_ids, *answer.token_ids[: index + 1]]
        body = {"model": model, "prompt": prefix, "max_tokens": 1, "temperature": 0}
        document = post("/v1/completions", body | {"prompt_logprobs": TOP_N})
        try:
            told = document["choices"][0]["prompt_logprobs"][-1]
            logprobs = {int(token): float(entry["logprob"]) for token, entry in told.items()}
            entry = entry_of(answer.token_ids[index], logprobs, TOP_N)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise EngineError(
                f"{model}: the answer holds no prompt_logprobs ({type(error).__name__}: {error}). "
                "The reference server must be vLLM's API."
            ) from error
        law = PartialLaw(entry, answer.parameters, setting)
        best = [token for token, _ in entry.top[:LIKELY]]
        return tuple((token, float(np.exp(law.highest(token)))) for token in best)

    return likely
