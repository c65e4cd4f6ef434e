"""Outcomes, directions and numbers of a check as its page and its summary write them.

Short plain text; escapes nothing, decides nothing.
"""

import math
import unicodedata

from draftgate.checks.outcome import (
    CheckOutcome,
    CheckResult,
    ConditionEvidence,
    JointEvidence,
)
from draftgate.report.format import MINUS, MISSING, fixed

SYMBOLS = {
    CheckOutcome.PASS: "✓",
    CheckOutcome.LOSSY: "✕",
    CheckOutcome.NONCONFORMING: "✕",
    CheckOutcome.MISMATCH: "✕",
    CheckOutcome.INCONCLUSIVE: "?",
}
"""A second sign beside colour, so that no outcome is told by colour alone."""

TONES = {
    CheckOutcome.PASS: "pass",
    CheckOutcome.LOSSY: "regression",
    CheckOutcome.NONCONFORMING: "regression",
    CheckOutcome.MISMATCH: "regression",
    CheckOutcome.INCONCLUSIVE: "inconclusive",
}
"""Class of the page's badge."""

FAMILIES = {
    "temperature": ("temperature", "the law hotter or colder than asked"),
    "greedy": ("too greedy", "the most likely token comes too often"),
    "garbage": ("garbage", "any token of the vocabulary, however unlikely"),
    "special": ("special tokens", "special tokens where none was likely"),
    "unfiltered": ("filters dropped", "top-k, top-p or penalties were not applied"),
    "neighbour row": ("neighbour's row", "drawn from the law of the place before"),
    "draft": (
        "towards the draft",
        "the proposal, or the draft's law, weighs too much or too little",
    ),
    "acceptance": ("acceptance", "drafts are accepted too easily, too seldom or too sharply"),
    "cells": ("kinds of drafts", "acceptance differs between likely and too frequent proposals"),
    "rest": ("recovered token", "the most likely token of the rest (p - q)+ comes too often"),
    "chain": ("luck along the chain", "acceptance depends on the luck of earlier places"),
    "ranks": ("flat tail", "unlikely tokens by their rank come too often"),
    "copy": ("copied neighbour", "a token of another request with the same prefix"),
    "repeat": ("repeated surprise", "surprising tokens come again"),
    "quantile": ("reused quantile", "the random number of the step before was used again"),
}
"""A family's name on plots, and what its tokens look like."""

SCOPES = {
    "everywhere": "all\ntokens",
    "all but the bonus token": "all but\nbonus",
    "verified places": "verified\nplaces",
    "first place of the chain": "first\nplace",
    "later places of the chain": "later\nplaces",
    "bonus token": "bonus\ntoken",
}
"""A part of the chain as the head of a narrow column; "verified places" is an older one."""


def family_name(family: str) -> str:
    """Return a family's short name; of one that is not known here, its key."""
    return FAMILIES[family][0] if family in FAMILIES else family


def family_meaning(family: str) -> str:
    """Return what a family's tokens look like; empty for one that is not known here."""
    return FAMILIES[family][1] if family in FAMILIES else ""


def bound_of(entry: ConditionEvidence | JointEvidence) -> float:
    """Return the log e-value at which an e-process alarms."""
    return -math.log(entry.alpha)


def log_value(value: float) -> str:
    """Return a log e-value with one decimal and a sign where negative; infinity as a sign."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    shown = fixed(round(value, 1), 1)
    return shown.removeprefix(MINUS) if shown == f"{MINUS}0.0" else shown


def nats(value: float) -> str:
    """Return a size in nats a token with two digits; a dash where it is not known."""
    return f"{value:.2g}" if math.isfinite(value) else MISSING


def chance(probability: float) -> str:
    """Return a probability with two digits."""
    return f"{probability:.2g}"


def token_words(token: int, text: str | None) -> str:
    """Return a token's text between quotes, or its id where nobody can spell it."""
    return f"token {token}" if text is None else repr(text)


def margin(result: CheckResult) -> tuple[ConditionEvidence, float]:
    """Return the condition that came nearest to its bound, and how far below it stayed, nats.

    Negative where it went over.
    """
    nearest = result.findings.strongest
    return nearest, bound_of(nearest) - nearest.peak_log_e


def tokens_after(alarm_at: int | None) -> str:
    """Return after how many tokens an alarm came; a dash for none."""
    return MISSING if alarm_at is None else f"{alarm_at:,}"


def visible(text: str) -> str:
    """Return text in which control characters but tab and end of line became a sign of their own.

    Terminal escapes, NUL, halves of characters and marks that turn the direction of
    writing neither reach a file nor a reader.
    """
    hidden = ("Cc", "Cf", "Cs")
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if c not in "\n\t" and unicodedata.category(c) in hidden else c
        for c in text
    )
