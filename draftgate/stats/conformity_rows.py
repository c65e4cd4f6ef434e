"""What is kept of the places of verify steps: a row of numbers for each token emitted.

A place is one token of a step's chunk: an accepted proposal, a recovered token or the
bonus token. The rows hold what the stated rule says of it and what other rules would
say, so that evidence can be gathered, stored and simulated without whole laws. Numbers
in, numbers out; knows no models and no servers.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.rejection import (
    Scheme,
    acceptance_chances,
    chain_weights,
    draft_ratios,
    residuals,
)

POWERS = (0.5, 0.8, 1.25, 2.0)
"""Powers of a law that stand for a wrong temperature: T / T', hotter below 1."""

TILTS = (-0.5, 1.0)
"""Powers of (p - q) / p that a recovered token's law is tilted by: to p below 0, from q above."""

SLACK = 1e-6
"""Share of p(token) below which no rejection is counted: about float32's rounding of p and q."""

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Verify steps in the order in which they ran, with the laws along their proposals.

    Attributes:
        proposals: Draft tokens; shape (S, K); -1 at the end where a step had fewer.
        emitted: The chunk of tokens; shape (S, K + 1); -1 at the end.
        target: Probabilities of all tokens at each place, given the proposals before it;
            shape (S, K + 1, V).
        ahead: Whether `target` holds also the places that were not reached. The standard
            rule can do without them, block verification cannot. To be stated for all
            steps alike: laws known only after an acceptance would count as evidence.
        draft: Probabilities that the proposals were drawn from; shape (S, K, V). None if
            the drafts were not drawn, or their probabilities are not used.
        cut: Whether the chunk was cut short by max_tokens or a stop; shape (S,). Its last
            token may then be an accepted proposal.
        request: Number of the request; shape (S,).
        twin: Earlier step with the same laws and proposals, which this one may have copied;
            -1 for none; shape (S,).
    """

    proposals: Ints
    emitted: Ints
    target: Floats
    ahead: bool
    draft: Floats | None
    cut: Bools
    request: Ints
    twin: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Emitted tokens in order; log-probabilities in nats; NaN says "not known" or "not asked".

    Attributes:
        step: Index of the step.
        request: Number of the request.
        position: Place in the chain, from 0.
        bonus: Whether every proposal had been accepted before it.
        accepted: Whether the token is an accepted proposal.
        broken: Whether no rule allows it: another token than the accepted proposal, a
            rejected proposal emitted all the same, or a token after the bonus token.
        token: Its id.
        chance: P(accepted) under the rule; NaN for the bonus token.
        floor: Log of slack x p(token), which P(rejected and this token) is raised to; -inf
            for the bonus token.
        rejected_logp: Log of that P, or of P(this bonus token), under the rule, raised to
            the floor and times (1 + slack); NaN where accepted.
        token_logp: Log of P(this token | not accepted); NaN where accepted.
        token_norm: Log of the sum over tokens of that law ** power; shape (n, len(POWERS)).
        token_top: Whether the token is the most likely one of that law.
        tilts: Log ratios of that law tilted by TILTS to itself; shape (n, len(TILTS)).
        logp: Log-probability of the token under the target's law.
        draft_law: That under the draft's law; of the last place for the bonus token.
        before: That under the target's law one place earlier in the step.
        after: That under the target's law one place later.
        ratio: p(d) / q(d) of the proposal.
        draft_logp: Log p(d).
        draft_logq: Log q(d); 0 for drafts without probabilities.
        draft_norm: Log of the sum over tokens of p ** power; shape (n, len(POWERS)).
        draft_top: Log p(d) minus that of the most likely token.
        draft_before: Log-probability of the proposal under the law one place earlier.
        draft_after: That one place later.
        twin_accepted: What a copy of the twin's step would do: 1, 0, NaN if there is none.
        twin_token: The token that a copy would emit; -1 if there is none.
    """

    step: Ints
    request: Ints
    position: Ints
    bonus: Bools
    accepted: Bools
    broken: Bools
    token: Ints
    chance: Floats
    floor: Floats
    rejected_logp: Floats
    token_logp: Floats
    token_norm: Floats
    token_top: Bools
    tilts: Floats
    logp: Floats
    draft_law: Floats
    before: Floats
    after: Floats
    ratio: Floats
    draft_logp: Floats
    draft_logq: Floats
    draft_norm: Floats
    draft_top: Floats
    draft_before: Floats
    draft_after: Floats
    twin_accepted: Floats
    twin_token: Ints

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self.token)

    def take(self, rows: Any) -> "Places":
        """Return the rows that a numpy index picks, in its order."""
        return Places(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def joined_places(parts: "list[Places]") -> Places:
    """Return the rows of all parts, in order, with steps numbered on from part to part.

    Raises:
        ValueError: If there are no parts.
    """
    if not parts:
        raise ValueError("no places to join")
    columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Places)}
    ends = np.cumsum([0, *(int(p.step.max(initial=-1)) + 1 for p in parts[:-1])])
    columns["step"] += np.repeat(ends, [len(p) for p in parts])
    return Places(**columns)


def places(steps: Steps, scheme: Scheme = Scheme.STANDARD, slack: float = SLACK) -> Places:
    """Return the rows of all emitted tokens, steps in order.

    A token that is its proposal counts as accepted, and under both schemes it can be
    nothing else: the law of recovered tokens has no weight there. So the flag is known
    also where a chunk was cut; where it was not, a last token that is its proposal is
    a rejected proposal that was emitted.

    Args:
        steps: What was proposed and emitted, with laws.
        scheme: The rule that the engine states.
        slack: Relative error that p and q may have; a rejection with a given token
            never counts as less likely than slack x p(token).

    Raises:
        ValueError: If shapes do not fit, a law that is read is not normalised within
            1e-4, or a twin is not an earlier step.
    """
    check_steps(steps, scheme)
    step, position = _reached(steps)
    parts = _flags(steps, scheme, step, position) | _laws(steps, step, position)
    parts |= _endings(steps, scheme, step, position, parts) | _twins(steps, step, position)
    accepted = parts["accepted"]
    floor = np.where(parts["bonus"], -np.inf, _log(slack) + parts["logp"])
    with np.errstate(divide="ignore"):
        refused = np.where(parts["bonus"], 0.0, np.log1p(-parts["chance"]))
    joint = np.maximum(refused + parts["token_logp"], floor)
    parts["floor"] = floor
    parts["rejected_logp"] = np.where(accepted, np.nan, joint + np.log1p(slack))
    return Places(step=step, request=steps.request[step], position=position, **parts)


def _reached(steps: Steps) -> tuple[Ints, Ints]:
    """Return (step, position) of all emitted tokens, up to the first broken one of each step."""
    width = steps.proposals.shape[1]
    length = (steps.emitted >= 0).sum(axis=1)
    drafts = (steps.proposals >= 0).sum(axis=1)
    differs = steps.emitted[:, :width] != steps.proposals
    wrong = differs & (np.arange(width) < np.minimum(length - 1, drafts)[:, None])
    first = np.where(wrong.any(axis=1), wrong.argmax(axis=1) + 1, drafts + 2)
    step, position = np.nonzero(np.arange(width + 1) < np.minimum(length, first)[:, None])
    return step, position


def _flags(steps: Steps, scheme: Scheme, step: Ints, position: Ints) -> dict[str, Any]:
    drafts = (steps.proposals >= 0).sum(axis=1)[step]
    last = position == (steps.emitted >= 0).sum(axis=1)[step] - 1
    token = steps.emitted[step, position]
    proposal = _at(steps.proposals, step, position, -1)
    same = (token == proposal) & (position < drafts)
    accepted = (position < drafts) & (~last | (same & steps.cut[step]))
    ended = last & (position < drafts) & ~accepted
    with np.errstate(invalid="ignore"):
        chances = acceptance_chances(steps.target, steps.draft, steps.proposals, scheme)
        ratios = draft_ratios(steps.target, steps.draft, steps.proposals)
    return {
        "token": token,
        "bonus": position == drafts,
        "accepted": accepted,
        "broken": (accepted & ~same) | (ended & same) | (position > drafts),
        "chance": np.where(position < drafts, _at(chances, step, position, np.nan), np.nan),
        "ratio": _at(ratios, step, position, np.nan),
    }


def _laws(steps: Steps, step: Ints, position: Ints) -> dict[str, Any]:
    token = steps.emitted[step, position]
    proposal = _at(steps.proposals, step, position, -1)
    asked = np.maximum(proposal, 0)
    rows = np.arange(len(step))
    here = steps.target[step, position]
    ahead = steps.target if steps.ahead else steps.target[:, :0]
    drafts = (steps.proposals >= 0).sum(axis=1)
    q_place = np.minimum(position, np.maximum(drafts[step] - 1, 0))
    drawn = drafts[step] > 0
    if steps.draft is None:
        closest = _at(steps.proposals, step, q_place, -1)
        draft_law = np.where(token == closest, 0.0, -np.inf)
        logq: Floats = np.zeros(len(step))
    else:
        draft_law = _log(_at(steps.draft, step, q_place, np.nan, token))
        logq = _log(_at(steps.draft, step, q_place, np.nan, asked))
    logp = _log(here[rows, token])
    none = proposal < 0
    columns = {
        "draft_logp": _log(here[rows, asked]),
        "draft_logq": logq,
        "draft_top": _log(here[rows, asked]) - _log(here.max(axis=1)),
        "draft_before": _near(steps.target, step, position - 1, asked),
        "draft_after": _near(ahead, step, position + 1, asked),
    }
    found = {name: np.where(none, np.nan, column) for name, column in columns.items()}
    return found | {
        "logp": logp,
        "draft_law": np.where(drawn, draft_law, np.nan),
        "before": _near(steps.target, step, position - 1, token),
        "after": _near(ahead, step, position + 1, token),
        "draft_norm": np.where(none[:, None], np.nan, _norms(here)),
    }


def _endings(
    steps: Steps, scheme: Scheme, step: Ints, position: Ints, parts: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns of tokens that end a chain: recovered and bonus tokens."""
    n = len(step)
    found: dict[str, Any] = {
        "token_logp": np.full(n, np.nan),
        "token_norm": np.full((n, len(POWERS)), np.nan),
        "token_top": np.zeros(n, dtype=bool),
        "tilts": np.full((n, len(TILTS)), np.nan),
    }
    ends = np.flatnonzero(~parts["accepted"] & ~parts["broken"])
    if not ends.size:
        return found
    at, rows, place = step[ends], np.arange(ends.size), position[ends]
    token = parts["token"][ends]
    draft = None if steps.draft is None else steps.draft[at]
    target, proposals = steps.target[at], steps.proposals[at]
    weights = chain_weights(target, draft, proposals, scheme)
    left = residuals(target, draft, proposals, weights, place)
    total = left.sum(axis=1, keepdims=True)
    law = np.where(total > 0, left, target[rows, place])
    law = law / law.sum(axis=1, keepdims=True)
    kept = law / np.where(target[rows, place] > 0, target[rows, place], 1.0)
    kept = kept / kept.max(axis=1, keepdims=True)
    found["token_logp"][ends] = _log(law[rows, token])
    found["token_norm"][ends] = _norms(law)
    found["token_top"][ends] = law[rows, token] >= law.max(axis=1)
    for column, power in enumerate(TILTS):
        weight = np.where(kept > 0, kept, 1.0) ** power
        norm = (law * weight).sum(axis=1)
        tilt = np.log(weight[rows, token]) - np.log(norm)
        found["tilts"][ends, column] = np.where(parts["bonus"][ends], np.nan, tilt)
    return found


def _twins(steps: Steps, step: Ints, position: Ints) -> dict[str, Any]:
    twin = steps.twin[step]
    token = np.where(twin >= 0, steps.emitted[np.maximum(twin, 0), position], -1)
    alike = np.cumprod(steps.emitted[steps.twin] == steps.emitted, axis=1, dtype=bool)
    so_far = (position == 0) | alike[step, np.maximum(position - 1, 0)]
    token = np.where(so_far, token, -1)
    same = token == _at(steps.proposals, step, position, -2)
    return {"twin_token": token, "twin_accepted": np.where(token >= 0, same, np.nan)}


def _at(values: Any, step: Ints, position: Ints, outside: float, token: Ints | None = None) -> Any:
    """Return values[step, position] or values[step, position, token]; `outside` past the end."""
    width = values.shape[1]
    if not width:
        return np.full(len(step), outside)
    inside = np.clip(position, 0, width - 1)
    found = values[step, inside] if token is None else values[step, inside, token]
    return np.where((position >= 0) & (position < width), found, outside)


def _near(target: Floats, step: Ints, position: Ints, token: Ints) -> Floats:
    return _log(_at(target, step, position, np.nan, token))


def _norms(laws: Floats) -> Floats:
    logs = _log(laws)
    return np.stack([_log(np.exp(power * logs).sum(axis=1)) for power in POWERS], axis=1)


def _log(values: Any) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values), dtype=float)


def check_steps(steps: Steps, scheme: Scheme) -> None:
    """Refuse steps that make no sense.

    Raises:
        ValueError: As said in `places`.
    """
    count, width = steps.proposals.shape
    shapes = {
        "emitted": (steps.emitted.shape, (count, width + 1)),
        "target": (steps.target.shape[:2], (count, width + 1)),
        "cut": (steps.cut.shape, (count,)),
        "request": (steps.request.shape, (count,)),
        "twin": (steps.twin.shape, (count,)),
    }
    if steps.draft is not None:
        shapes["draft"] = (steps.draft.shape, (count, width, steps.target.shape[2]))
    for name, (got, expected) in shapes.items():
        if got != expected:
            raise ValueError(f"{name} has shape {got}, expected {expected} from the proposals")
    if not count or not (steps.emitted[:, 0] >= 0).all():
        raise ValueError("a verify step emits at least one token; leave empty steps out")
    if (steps.twin >= np.arange(count)).any():
        raise ValueError("a step's twin must be an earlier step")
    if scheme is Scheme.BLOCK and not steps.ahead:
        raise ValueError("block verification is judged by the laws of all places, also beyond")
    length = width + 1 if steps.ahead else (steps.emitted >= 0).sum(axis=1)[:, None]
    drafts = (steps.proposals >= 0).sum(axis=1)[:, None]
    read = np.arange(width + 1) < np.minimum(length, drafts + 1)
    total = steps.target.sum(axis=2)[read]
    if not (np.abs(total - 1) < 1e-4).all():
        raise ValueError(f"a law's probabilities add up to {total[np.abs(total - 1).argmax()]}")
