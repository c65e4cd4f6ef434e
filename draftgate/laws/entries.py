"""Rows of evidence from reported log-probabilities, whoever reported them.

What a law's bounds leave unknown is NaN, and directions that need it say nothing. Knows no
servers; `teacher` and `own` fetch the entries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from draftgate.errors import MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.laws.partial import LogprobEntry, PartialLaw, Setting
from draftgate.laws.proposals import Drafter, proposals_of
from draftgate.laws.reference import RECENT, refuse_greedy
from draftgate.laws.rows import known_columns, places_of, siblings_of, steps_of
from draftgate.stats.scores import POWERS, Scores, blank, joined

BOUNDED = ("temperature", "top_k", "top_p", "stop_token_ids", "ignore_eos")
"""Parameters under which bounds can be given: those that leave the order of tokens alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryScorer:
    """Turns entries into rows.

    Attributes:
        setting: Whose law it is.
        special_ids: Ids that count as special tokens.
        drafter: What proposed the drafts, if that is known; fills the columns about the draft.
    """

    setting: Setting
    special_ids: frozenset[int] = field(default=frozenset())
    drafter: Drafter | None = None

    def score(
        self, answers: Sequence[Answer], entries: Sequence[Sequence[LogprobEntry]], k: int | None
    ) -> Scores:
        """Return one row for every token but the first of each answer.

        Args:
            answers: In the order in which the evidence is gathered.
            entries: Per answer one entry a token, the first included.
            k: Draft tokens proposed per verify step; None without speculation.

        Raises:
            MeasurementError: If entries and tokens do not belong together.
        """
        siblings = siblings_of(answers)
        parts = [blank(0)]
        for answer, reported, sibling in zip(answers, entries, siblings, strict=True):
            _check(answer, reported)
            steps, draft = steps_of(answer, k), None
            if self.drafter:
                proposals = proposals_of(answer, k, self.drafter)
                steps, draft = proposals.steps, proposals.draft
            known = known_columns(answer, places_of(answer, steps), sibling, self.special_ids)
            laws = [PartialLaw(entry, answer.parameters, self.setting) for entry in reported]
            known |= _by_laws(answer, laws)
            if draft is not None:
                known |= _about_draft(answer, laws, draft.tolist())
            parts.append(_filled(len(known["token"]), known))
        return joined(parts)


def entry_of(token: int, logprobs: Mapping[int, float], top_n: int) -> LogprobEntry:
    """Return the entry of a place from what a server sends: the n likeliest and the token itself.

    Args:
        token: The token that stands there.
        logprobs: Of the n most likely tokens, and of the token if it is none of them.
        top_n: How many were asked for, >= 0.

    Raises:
        KeyError: If the token's own is missing.
    """
    others = {t: v for t, v in logprobs.items() if t != token}
    # One more than asked for: the token itself is not among the likeliest.
    listed = logprobs if len(logprobs) <= top_n else others
    ranked = sorted(listed.items(), key=lambda pair: -pair[1])
    return LogprobEntry(token, logprobs[token], tuple(ranked))


def refuse_unbounded(answers: Sequence[Answer]) -> None:
    """Refuse parameters whose law cannot be had from a few log-probabilities.

    Raises:
        SpecError: Naming the first such request.
    """
    refuse_greedy(answers)
    plain = LawParameters()
    for answer in answers:
        wrong = [
            f.name
            for f in fields(LawParameters)
            if f.name not in BOUNDED
            and getattr(answer.parameters, f.name) != getattr(plain, f.name)
        ]
        if wrong:
            raise SpecError(
                f"request {answer.request}: got {', '.join(wrong)}, which need the whole law; "
                f"log-probabilities of a few tokens give {', '.join(BOUNDED[:3])} only. Give the "
                "model's folder as the reference."
            )


def _by_laws(answer: Answer, laws: Sequence[PartialLaw]) -> dict[str, Any]:
    """Return the columns that come from the laws."""
    rows = list(zip(answer.token_ids[1:], laws[:-1], laws[1:], strict=True))
    logp = [law.highest(token) for token, _, law in rows]
    ratios = [[law.lowest_ratio(token, power) for power in POWERS] for token, _, law in rows]
    # `directions.powered` takes (power - 1) * logp - log_norm for the ratio: solved for log_norm.
    with np.errstate(invalid="ignore"):
        norms = np.outer(logp, np.array(POWERS) - 1) - np.reshape(ratios, (-1, len(POWERS)))
    return {
        "token": answer.token_ids[1:],
        "logp": logp,
        "top": [
            max(law.highest_of_all(), own) for own, (_, _, law) in zip(logp, rows, strict=True)
        ],
        "is_top": [law.is_top(token) for token, _, law in rows],
        "rank": [law.highest_rank(token) for token, _, law in rows],
        "log_norm": norms,
        # Without filters the two laws are one, and a bound could only lose.
        "unfiltered": [
            law.lowest_unfiltered(token) if law.filtered else np.nan for token, _, law in rows
        ],
        "before": [before.lowest(token) for token, before, _ in rows],
        "recent": [
            _mean([law.lowest(token) for law in laws[max(row + 1 - RECENT, 0) : row + 1]])
            for row, token in enumerate(answer.token_ids[1:])
        ],
    }


def _mean(values: Sequence[float]) -> float:
    """Return the log of the mean of numbers given by their logs."""
    return float(np.logaddexp.reduce(values) - np.log(len(values)))


def _about_draft(
    answer: Answer, laws: Sequence[PartialLaw], draft: Sequence[int]
) -> dict[str, Any]:
    """Return the columns about proposals that are one token for sure; -1 is none.

    A draft's probability has to be exact: towards the draft an upper bound is on the safe
    side, away from it a lower one. What is left without it has no known place among the ids.
    """
    rows = list(zip(answer.token_ids[1:], laws[1:], draft, strict=True))
    own = np.array(
        [law.highest(d) if law.exact and law.listed(d) else np.nan for _, law, d in rows]
    )
    leads = np.array([law.is_top(d) for _, law, d in rows])
    return {
        "draft": draft,
        "draft_logp": own,
        "draft_law": [
            np.nan if d < 0 else (0.0 if d == token else -np.inf) for token, _, d in rows
        ],
        # The draft's law is 1 at the proposal: that is where it lies above the target's.
        "overlap": own,
        "over": np.where(own >= 0, -np.inf, own),
        "far_over": np.where(own >= -np.log(2), -np.inf, own),
        "top_level": leads * ((own < 0) * 1 + (own < -np.log(2))),
        "rest_top": [law.is_top_without(token, d) for token, law, d in rows] & (own < 0),
    }


def _filled(n: int, columns: dict[str, Any]) -> Scores:
    row = blank(n)
    return replace(
        row, **{name: np.asarray(v, dtype=getattr(row, name).dtype) for name, v in columns.items()}
    )


def _check(answer: Answer, reported: Sequence[LogprobEntry]) -> None:
    if tuple(entry.token for entry in reported) != answer.token_ids:
        raise MeasurementError(
            f"request {answer.request}: got log-probabilities of {len(reported)} tokens, expected "
            f"those of the {len(answer.token_ids)} tokens of the answer. Ask for both at once."
        )
    if answer.parameters.filtered and not all(entry.top for entry in reported):
        raise MeasurementError(
            f"request {answer.request}: got no list of the most likely tokens, which top-k and "
            "top-p need. Ask for top log-probabilities."
        )
