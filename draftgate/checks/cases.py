"""A situation that a server may be put into, as data: drawn, shrunk, stored, sent again.

A case is one request under test and what runs beside it. It can be written to a file
and read back, and its request printed as a `curl`. Knows no engine; sends nothing.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from draftgate.errors import SpecError
from draftgate.files import write_text
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters

SCHEMA = 1

Manner = Literal["sampled", "seeded", "greedy", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A request that is open at the same time.

    Attributes:
        prompt: Its token ids.
        manner: How it is sent; `aborted` hangs up in the middle.
        max_tokens: Length of its output.
    """

    prompt: tuple[int, ...]
    manner: Manner
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One situation.

    Attributes:
        prompt: Token ids of the request under test.
        parameters: How its tokens are drawn.
        max_tokens: Longest output.
        n: Outputs of the request.
        stop: Strings that end an output.
        seed: Seed of the request; None leaves it to the server.
        times: How often the request is sent in a row; from the second time on its
            prompt is in the prefix cache.
        neighbours: What is open beside it.
    """

    prompt: tuple[int, ...]
    parameters: LawParameters
    max_tokens: int
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    times: int = 1
    neighbours: tuple[Neighbour, ...] = ()


def body(case: Case, model: str, seed: int | None) -> dict[str, Any]:
    """Return the request under test as vLLM's completions API takes it."""
    p = case.parameters
    asked: dict[str, Any] = {
        "model": model,
        "prompt": list(case.prompt),
        "max_tokens": case.max_tokens,
        "n": case.n,
        "temperature": p.temperature,
        "top_p": p.top_p,
        "top_k": p.top_k,
        "presence_penalty": p.presence_penalty,
        "frequency_penalty": p.frequency_penalty,
        "repetition_penalty": p.repetition_penalty,
        "min_tokens": p.min_tokens,
        "ignore_eos": p.ignore_eos,
        "return_token_ids": True,
    }
    if case.stop:
        asked["stop"] = list(case.stop)
    if p.allowed_token_ids:
        asked["allowed_token_ids"] = list(p.allowed_token_ids)
    if seed is not None:
        asked["seed"] = seed
    return asked


def neighbour_body(neighbour: Neighbour, model: str, seed: int) -> dict[str, Any]:
    """Return a neighbour's request as vLLM's completions API takes it."""
    asked: dict[str, Any] = {
        "model": model,
        "prompt": list(neighbour.prompt),
        "max_tokens": neighbour.max_tokens,
        "temperature": 0.0 if neighbour.manner == "greedy" else 1.0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    return asked | ({"seed": seed} if neighbour.manner == "seeded" else {})


def answers_of(case: Case, document: Any, first: int) -> list[Answer]:
    """Return the outputs of one response, numbered from `first`.

    Raises:
        SpecError: If the response holds no token ids.
    """
    choices = document.get("choices") if isinstance(document, dict) else None
    if not choices or any("token_ids" not in choice for choice in choices):
        raise SpecError(
            f"the response holds no token ids: {str(document)[:200]!r}. Expected vLLM's "
            "completions API, which gives them for `return_token_ids`."
        )
    usage = document.get("usage") or {}
    alone = usage.get("completion_tokens") if len(choices) == 1 else None
    return [
        Answer(
            request=first + place,
            prompt_id="case",
            prompt_token_ids=case.prompt,
            token_ids=tuple(choice["token_ids"]),
            chunks=(),
            finish_reason=choice.get("finish_reason"),
            parameters=case.parameters,
            usage_tokens=alone,
        )
        for place, choice in enumerate(choices)
    ]


def curl(case: Case, base_url: str, model: str) -> str:
    """Return the request under test as a command; neighbours are not in it."""
    text = json.dumps(body(case, model, case.seed))
    address = f"{base_url}/v1/completions"
    return shlex.join(["curl", "-s", address, "-H", "Content-Type: application/json", "-d", text])


def store(path: Path, case: Case, *, server: Sequence[str], found: Sequence[str]) -> None:
    """Write a case with the server's command and what was found, to be read by `load`."""
    document = {
        "schema": SCHEMA,
        "server": list(server),
        "found": list(found),
        "case": asdict(case),
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def load(path: Path) -> Case:
    """Return the case in a file.

    Raises:
        SpecError: If the file is absent, no case, or of another schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"case {path}: cannot be read ({error}). Give a stored case.") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise SpecError(f"case {path}: expected a stored case of schema {SCHEMA}.")
    raw = document.get("case")
    if not isinstance(raw, dict) or set(raw) != {field.name for field in fields(Case)}:
        raise SpecError(f"case {path}: its keys are not those of a case. Store it again.")
    neighbours = [Neighbour(**_tuples(entry)) for entry in raw.pop("neighbours")]
    parameters = LawParameters(**_tuples(raw.pop("parameters")))
    return Case(**_tuples(raw), parameters=parameters, neighbours=tuple(neighbours))


def _tuples(entry: dict[str, Any]) -> dict[str, Any]:
    """Return JSON's lists as the tuples that they were."""
    return {key: _tuple(value) for key, value in entry.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value
