"""Replay a served EAGLE-3 head step by step, and tell why it accepts less than its training says.

    python -m benchmarks.drafts.served --draft models/smollm2-eagle3 --prompts 20

A server of the default profile answers prompts of each built-in kind greedily, one at a
time; each chunk of an answer is a verify step. The head is then run in PyTorch over the
same tokens with the target's states, and its chain of K drafts at every place is held
against the answer. Three lengths come of it (bonus token included):

- *places*: mean over all places of the answer, which is what training estimates;
- *steps*: mean over the places where a verify step would begin if accepted drafts are
  skipped. Easy places are skipped more often than they are begun at, so this is less;
- *served*: mean over the server's own steps.

The last two differ by numerics alone if engine and training mean the same by states,
places and vocabulary. Written to `served.json`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.checks.collect import Asked, Server
from draftgate.checks.spelling import LocalSpelling, Spelling
from draftgate.datasets import Prompt, load_prompts
from draftgate.datasets.builtin import KINDS
from draftgate.drafts.answers import Samples
from draftgate.drafts.check import Draft, read_draft, served
from draftgate.drafts.states import Computed, States
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.environment import describe
from draftgate.errors import DraftgateError, MeasurementError, SpecError
from draftgate.files import write_text
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.load.requests import Endpoint
from draftgate.specfile import load_profile
from draftgate.targets import resolve_target

RESULTS = Path(__file__).parent / "served.json"
MAX_TOKENS = 64

Tensor = Any
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """What one kind shows.

    Attributes:
        kind: Kind of traffic.
        places: Acceptance length over all places.
        steps: Over the places where steps begin.
        served: Over the server's steps.
        same_steps: Share of the server's steps whose number of accepted drafts is the replay's.
        verify_steps: Number of the server's steps.
        in_vocabulary: Share of answer tokens that the head can draft.
    """

    kind: str
    places: float
    steps: float
    served: float
    same_steps: float
    verify_steps: int
    in_vocabulary: float


def answers(engine: RunningEngine, spelling: Spelling, prompts: Sequence[Prompt]) -> list[Answer]:
    """Return greedy answers, asked for one at a time.

    Raises:
        MeasurementError: If a request brought none.
    """
    asked = [
        Asked(
            request=number,
            condition=0,
            prompt_id=prompt.prompt_id,
            prompt=spelling.ids(prompt),
            parameters=LawParameters(temperature=0, ignore_eos=True),
            max_tokens=MAX_TOKENS,
            seed=None,
        )
        for number, prompt in enumerate(prompts)
    ]
    found = Server(Endpoint(engine.base_url, engine.model), "vllm", streams=1).ask(asked)
    if found.failures:
        raise MeasurementError(f"{engine.arm.name}: {found.failures[0]}")
    return list(found.answers)


def tokens_of(answer: Answer) -> Ints:
    """Return prompt and output of an answer in a row."""
    return np.array([*answer.prompt_token_ids, *answer.token_ids])


def chains(drafts: Sequence[Ints], tokens: Ints) -> Bools:
    """Return whether drafts 1 to k are all right, by place; shape (K, n_tokens - 1).

    Args:
        drafts: By depth, the token drafted at each place; place j has seen tokens up to
            j + 1, so depth k stands for token j + 2 + k.
        tokens: The whole sequence.
    """
    places = len(tokens) - 1
    right = np.zeros((len(drafts), places), dtype=bool)
    for depth, drafted in enumerate(drafts):
        last = min(len(drafted), len(tokens) - 2 - depth)
        right[depth, :last] = drafted[:last] == tokens[2 + depth : 2 + depth + last]
    return np.logical_and.accumulate(right, axis=0)


def walked(accepted: Ints, first: int, last: int) -> Ints:
    """Return the numbers accepted at the steps that a walk over the answer takes.

    Args:
        accepted: Drafts that would be accepted, by place.
        first: Place where the first step begins.
        last: No step begins behind it.
    """
    found = []
    at = first
    while at <= last:
        found.append(int(accepted[at]))
        at += found[-1] + 1
    return np.array(found, dtype=np.int64)


class Replay:
    """The head in PyTorch, in float32.

    Args:
        draft: The head; EAGLE-3.
        target: Folder of its target.
    """

    def __init__(self, draft: Draft, target: Path) -> None:
        import torch  # noqa: PLC0415 - optional, and seconds to import
        from safetensors.torch import load_file  # noqa: PLC0415 - optional

        from draftgate.drafts.heads import new_model  # noqa: PLC0415 - optional
        from draftgate.drafts.recipe import load_recipe  # noqa: PLC0415 - optional

        config = json.loads((draft.folder / "config.json").read_text(encoding="utf-8"))
        weights = load_file(str(draft.folder / "model.safetensors"))
        self._torch = torch
        self.target = target
        self.layer_ids = tuple(config["eagle_aux_hidden_state_layer_ids"])
        self.depth = draft.tokens
        self._to_target = weights["d2t"]
        size = len(self._to_target)
        drafted = torch.zeros(_vocabulary_of(target), dtype=torch.bool)
        drafted[torch.arange(size) + self._to_target] = True
        self.drafted: Bools = drafted.numpy()
        recipe = load_recipe("smollm2-eagle3")
        recipe = replace(recipe, head=replace(recipe.head, draft_vocab_size=size))
        model = new_model(recipe, target, (drafted, self._to_target), self.layer_ids)
        _, unknown = model.load_state_dict(weights, strict=False)
        if unknown:
            raise SpecError(f"draft {draft.folder}: got weights {unknown[:3]} of another head.")
        self._model = model.float().eval()

    def drafts(self, states: States, tokens: Ints) -> list[Ints]:
        """Return the tokens drafted at each place, by depth, if all before them were right."""
        torch = self._torch
        ids = torch.from_numpy(tokens[1:])[None]
        with torch.no_grad():
            found = self._model(
                hidden_states=states.features[:-1][None].float(),
                input_ids=ids,
                document_ids=torch.zeros_like(ids),
                position_ids=torch.arange(1, len(tokens))[None],
                ttt_steps=self.depth,
            )
        # A number of the draft vocabulary plus its offset is the target's.
        return [(row[0] + self._to_target[row[0]]).numpy() for row in found]


def _vocabulary_of(target: Path) -> int:
    return int(json.loads((target / "config.json").read_text(encoding="utf-8"))["vocab_size"])


def found_in(replay: Replay, kind: str, held: Sequence[Answer]) -> Found:
    """Replay the answers of one kind."""
    rows = [tokens_of(answer) for answer in held]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    prompts = np.array([len(answer.prompt_token_ids) for answer in held])
    whole = np.ones(len(held), dtype=bool)
    samples = Samples(
        np.concatenate(rows),
        starts,
        starts[:-1] + prompts,
        whole,
        whole,
        np.array([kind] * len(held)),
    )
    source = Computed(replay.target, replay.layer_ids, samples)
    places, steps, pairs, known = [], [], [], []
    for states, answer in zip(source.states(range(len(held))), held, strict=True):
        tokens = tokens_of(answer)
        accepted = chains(replay.drafts(states, tokens), tokens).sum(axis=0)
        # Steps with room for all K drafts and the bonus token; the first follows the prefill.
        first, last = len(answer.prompt_token_ids) - 1, len(tokens) - 2 - (replay.depth + 1)
        places.append(accepted[first : last + 1])
        steps.append(walked(accepted, first, last))
        pairs.append(_by_step(answer, accepted, last))
        known.append(replay.drafted[np.array(answer.token_ids)])
    both = np.concatenate(pairs)
    return Found(
        kind,
        _length(np.concatenate(places)),
        _length(np.concatenate(steps)),
        _length(both[:, 1]),
        round(float((both[:, 0] == both[:, 1]).mean()), 4),
        len(both),
        round(float(np.concatenate(known).mean()), 4),
    )


def _by_step(answer: Answer, accepted: Ints, last: int) -> Ints:
    """Return (accepted in the replay, accepted by the server) of each step; shape (n, 2)."""
    at = len(answer.prompt_token_ids) + answer.chunks[0] - 2
    found = []
    for size in answer.chunks[1:]:
        if at <= last:
            found.append((int(accepted[at]), size - 1))
        at += size
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _length(accepted: Ints) -> float:
    return round(1.0 + float(accepted.mean()), 3)


def main() -> int:
    """Serve, replay and write what was found; return 0."""
    parser = argparse.ArgumentParser(description="Replay a served EAGLE-3 head.")
    parser.add_argument("--draft", type=Path, default=Path("models/smollm2-eagle3"))
    parser.add_argument("--tokens", type=int, default=3, help="K")
    parser.add_argument("--prompts", type=int, default=20, help="of each kind")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    draft, profile = read_draft(args.draft, tokens=args.tokens), load_profile("cpu-smollm2")
    if draft.method != "eagle3":
        raise SpecError(f"draft {draft.folder}: got {draft.method}, expected an EAGLE-3 head.")
    target = resolve_target(draft.target, log=print)
    with TemporaryDirectory() as logs, EnginePool(Path(logs), print, max_alive=1) as pool:
        (engine,) = pool.require([served(draft, draft.target, profile)])
        version = engine.version()
        spelling = LocalSpelling(str(target))
        asked = [answers(engine, spelling, load_prompts(kind, 1)[: args.prompts]) for kind in KINDS]
    replay = Replay(draft, Path(target))
    found = [found_in(replay, kind, held) for kind, held in zip(KINDS, asked, strict=True)]
    result = {
        "engine": version,
        "hardware": describe(version).hardware,
        "draft": args.draft.name,
        "num_speculative_tokens": draft.tokens,
        "prompts": args.prompts,
        "kinds": [asdict(one) for one in found],
    }
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    for one in found:
        print(one)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftgateError as error:
        sys.exit(f"served: {error}")
