"""How well a head's drafts are accepted, on its own target and on the target's next version.

Real servers, greedy, every prompt of the built-in kinds once; none of them is ever
trained on. On two targets the texts differ, but the prompts pair them: the loss on
the next version is judged by kind, as acceptance is judged against a baseline.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.datasets import load_prompts
from draftgate.datasets.builtin import KINDS
from draftgate.drafts.steps import Say
from draftgate.drift.family import Family
from draftgate.drift.judge import judge_traffic, result_line
from draftgate.engines.pool import EnginePool
from draftgate.errors import MeasurementError, SpecError
from draftgate.measure import Traffic, measure_traffic
from draftgate.records import TrafficAcceptance
from draftgate.specs import Arm, Profile, SpeculativeConfig
from draftgate.verdict import Outcome, Verdict, worst

MAX_TOKENS = 64
CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Draft:
    """A head in Speculators' format, as it is served.

    Attributes:
        folder: Its folder.
        method: `eagle3` or `peagle`.
        tokens: K.
        target: Name or folder of the target that it was trained for.
    """

    folder: Path
    method: str
    tokens: int
    target: str


@dataclass(frozen=True, slots=True)
class DraftCheck:
    """What was measured and decided.

    Attributes:
        own: Acceptance on the target that the head was trained for, by kind.
        new: Acceptance on the target's next version, by kind; empty without one.
        verdicts: One per kind; empty without a next version.
    """

    own: tuple[TrafficAcceptance, ...]
    new: tuple[TrafficAcceptance, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst verdict; PASS if there was nothing to judge."""
        return worst(self.verdicts) if self.verdicts else Outcome.PASS


def read_draft(folder: Path, *, tokens: int | None = None) -> Draft:
    """Return the head in a folder.

    Args:
        folder: Holds `config.json` and `model.safetensors`.
        tokens: K; None for what its config proposes.

    Raises:
        SpecError: If the folder holds no head in Speculators' format.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        method = str(config["speculators_model_type"])
        about = config["speculators_config"]
        proposed = int(about["proposal_methods"][0]["speculative_tokens"])
        target = str(about["verifier"]["name_or_path"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise SpecError(
            f"draft {folder}: got no head in Speculators' format ({path.name}: "
            f"{type(error).__name__} {error}). Give the folder that `draftgate drafts train` "
            "printed, or one that Speculators saved."
        ) from error
    if method not in ("eagle3", "peagle"):
        raise SpecError(f"draft {folder}: got type {method!r}, expected eagle3 or peagle.")
    if not (folder / "model.safetensors").is_file():
        raise SpecError(f"draft {folder}: got no model.safetensors beside config.json. Add it.")
    return Draft(folder.absolute(), method, proposed if tokens is None else tokens, target)


def check_draft(
    draft: Draft, profile: Profile, *, target: str | None, prompts: int, logs: Path, say: Say
) -> DraftCheck:
    """Measure a head by kind of traffic, and judge what it loses on another target.

    Args:
        draft: The head.
        profile: Its reference arm says how servers are started.
        target: The target's next version, a name or folder; None to measure alone.
        prompts: Most prompts of each kind.
        logs: Folder for the servers' logs.
        say: Takes lines of progress.

    Raises:
        MeasurementError: If a measurement on the head's own target cannot be used.
        EngineError: If a server does not start.
    """
    with EnginePool(logs, say, max_alive=1) as pool:
        own = tuple(by_kind(draft, draft.target, profile, prompts, pool, say))
        broken = [one.invalid[0] for one in own if one.invalid]
        if broken:
            raise MeasurementError(f"draft {draft.folder}: {broken[0]}")
        if target is None:
            return DraftCheck(own, (), ())
        new = tuple(by_kind(draft, target, profile, prompts, pool, say))
    return DraftCheck(own, new, judged(own, new))


def judged(
    own: Sequence[TrafficAcceptance], new: Sequence[TrafficAcceptance]
) -> tuple[Verdict, ...]:
    """Return a verdict per kind; the target is what was changed, so it may differ."""
    family = Family(len(own), "kinds of traffic")
    return tuple(
        judge_traffic(
            before,
            replace(now, setting=replace(now.setting, target=before.setting.target)),
            family=family,
        )
        for before, now in zip(own, new, strict=True)
    )


def by_kind(
    draft: Draft, target: str, profile: Profile, prompts: int, pool: EnginePool, say: Say
) -> Iterator[TrafficAcceptance]:
    """Serve a head on a target and yield its acceptance on each built-in kind.

    Raises:
        EngineError: If the server does not start.
    """
    (engine,) = pool.require([served(draft, target, profile)])
    for kind in KINDS:
        sent = load_prompts(kind, profile.workload.seed)[:prompts]
        found = measure_traffic(engine, Traffic(kind, sent, MAX_TOKENS, CONCURRENCY))
        say(f"{target}: {result_line(found)}")
        yield found


def served(draft: Draft, target: str, profile: Profile) -> Arm:
    """Return the server of a head on a target, started as the profile's reference."""
    reference = profile.arm("none").engine
    config = SpeculativeConfig(draft.method, draft.tokens, str(draft.folder))
    return Arm(draft.method, replace(reference, target=target, speculative=config))
