"""A comparison as Markdown for a pull request or a step summary, read in ten seconds.

What is not green comes first, all gates are folded. Text from outside is
escaped and clipped; whatever does not fit into a comment is counted, never
dropped in silence.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from draftgate.compare.gates import title
from draftgate.compare.records import GateResult, Role, StoredComparison
from draftgate.errors import SpecError
from draftgate.report.comparison.answer import (
    effort_text,
    extent,
    headline,
    in_reading_order,
    next_steps,
    not_green,
    notes,
    side_text,
    why,
)
from draftgate.report.comparison.words import (
    bounds_text,
    change_text,
    p_text,
    pairs_text,
    place,
    plain,
    values_text,
)
from draftgate.report.format import count
from draftgate.report.headline import LABELS, SYMBOLS
from draftgate.report.markdown import LIMIT_CHARACTERS, escaped

LONGEST_TEXT = 300
"""Characters of one text from outside, before escaping."""

OPEN_CHARACTERS = LIMIT_CHARACTERS // 3
"""What the table of gates that are not green may take, so that the folded one has room."""

LIST_CHARACTERS = LIMIT_CHARACTERS // 10
"""What the notes may take, and the next steps."""

INTERVALS = (
    "Change: of the metric, candidate against base. In brackets the ends that each hold alone: the "
    "least loss that is shown and the largest that is not ruled out. From stage two (fresh pairs) "
    "where it was taken, else from stage one. Margin: loss that is tolerated; limit: loss that "
    "must be ruled out to pass."
)


def marker(profile_name: str) -> str:
    """Return the hidden first line by which a script finds its own comment again.

    Characters that could end the comment are percent-encoded.
    """
    return f"<!-- draftgate:compare:{quote(profile_name, safe='')} -->"


def comment(comparison: StoredComparison, *, run_url: str | None = None) -> str:
    """Return a pull request comment: hidden marker, answer, what is not green, all gates folded.

    Args:
        comparison: What was asked, taken and found.
        run_url: Where the CI run is; http or https.

    Returns:
        At most LIMIT_CHARACTERS characters.

    Raises:
        SpecError: If `run_url` is no http address.
    """
    first = marker(comparison.header.profile.name)
    return f"{first}\n{_body(comparison, run_url, LIMIT_CHARACTERS - len(first) - 1)}"


def step_summary(comparison: StoredComparison, *, run_url: str | None = None) -> str:
    """Return the same as `comment` without the marker.

    Raises:
        SpecError: If `run_url` is no http address.
    """
    return _body(comparison, run_url, LIMIT_CHARACTERS)


def _body(comparison: StoredComparison, run_url: str | None, limit: int) -> str:
    parts = [*_answer(comparison, run_url), *_open(comparison), *_lists(comparison)]
    text = "\n".join(parts) + "\n"
    return text + _all_gates(comparison, limit - len(text))


def _answer(comparison: StoredComparison, run_url: str | None) -> Iterable[str]:
    header = comparison.header
    yield f"### {SYMBOLS[comparison.result.outcome]} {_text(headline(comparison))}"
    yield ""
    base, candidate = (_text(side_text(comparison, role)) for role in (Role.BASE, Role.CANDIDATE))
    where = f"profile {_text(header.profile.name)} on {_text(header.environment.hardware)}"
    yield f"Base {base}, candidate {candidate}; {where}."
    said = " ".join((effort_text(comparison), *extent(comparison)))
    yield _text(said) + (f" [Run](<{_address(run_url)}>)" if run_url else "")


def _open(comparison: StoredComparison) -> Iterable[str]:
    """Yield the table of what is not green, nothing where all is."""
    gates = not_green(comparison)
    if not gates:
        return
    rows, left = _fitting((_open_row(gate) for gate in gates), OPEN_CHARACTERS)
    yield ""
    yield _row(("", "Gate", "Change", "Margin / limit", "Why"))
    yield "| :-- | :-- | --: | --: | :-- |"
    yield from rows
    if left:
        yield ""
        yield f"Not listed here: {count(left, 'more gate')} that {_are(left)} not green."


def _open_row(result: GateResult) -> str:
    gate = result.gate
    return _row(
        (
            f"{SYMBOLS[result.outcome]} {LABELS[result.outcome]}",
            f"**{_text(place(gate))}**, {_text(title(gate.metric))}",
            _bracketed(change_text(result)),
            bounds_text(gate),
            _text(why(result)),
        )
    )


def _lists(comparison: StoredComparison) -> Iterable[str]:
    for heading, lines in (("Next", next_steps(comparison)), ("Notes", notes(comparison))):
        if lines:
            yield ""
            yield f"**{heading}**"
            yield ""
            kept, left = _fitting((f"- {_text(line)}" for line in lines), LIST_CHARACTERS)
            yield from kept
            if left:
                yield f"- and {left} more"


def _all_gates(comparison: StoredComparison, room: int) -> str:
    gates = in_reading_order(comparison)
    if not gates:
        return ""
    head = [
        "",
        f"<details><summary>All {count(len(gates), 'gate')}</summary>",
        "",
        INTERVALS,
        "",
        _row(_HEADINGS),
        "| :-- | :-- | --: | :-- | --: | --: | --: | --: | --: | --: |",
    ]
    frame = "\n".join((*head, *_left_out(len(gates)), "", "</details>", ""))
    rows, left = _fitting((_gate_row(gate) for gate in gates), room - len(frame))
    return "\n".join((*head, *rows, *(_left_out(left) if left else ()), "", "</details>", ""))


_HEADINGS = (
    "Outcome",
    "Arm",
    "Streams",
    "Metric",
    "Base",
    "Candidate",
    "Change",
    "Margin / limit",
    "Pairs",
    "p, corrected",
)


def _gate_row(result: GateResult) -> str:
    gate = result.gate
    return _row(
        (
            f"{SYMBOLS[result.outcome]} {LABELS[result.outcome]}",
            _text(gate.arm),
            str(gate.concurrency),
            _text(title(gate.metric)),
            *values_text(result),
            _bracketed(change_text(result)),
            bounds_text(gate),
            pairs_text(result),
            _bracketed(p_text(result.adjusted_p)),
        )
    )


def _left_out(lines: int) -> tuple[str, str]:
    told = f"{count(lines, 'more gate')} left out here: a comment can't hold them. The run has all."
    return "", told


def _fitting(rows: Iterable[str], room: int) -> tuple[Sequence[str], int]:
    """Return the first rows, as many as fit with their line ends, and how many are left."""
    lines = list(rows)
    ends = itertools.accumulate(len(line) + 1 for line in lines)
    kept = sum(1 for _ in itertools.takewhile(lambda end: end <= room, ends))
    return lines[:kept], len(lines) - kept


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _are(amount: int) -> str:
    return "is" if amount == 1 else "are"


def _bracketed(numbers: str) -> str:
    """Return numbers of our own with `<` and `>` that open no tag; brackets stay as they are."""
    return numbers.replace("<", "&lt;").replace(">", "&gt;")


def _text(text: str) -> str:
    """Return outside text that is nothing but text, in a table cell and anywhere else.

    A backslash does not stop GitHub from mentioning people, linking issues or
    setting mathematics: an empty character or a tag between does.
    """
    safe = escaped(plain(text, LONGEST_TEXT))
    safe = re.sub(r"\\([@#])", r"\1&#8203;", safe)
    return safe.replace("$", "<span>$</span>")


def _address(url: str) -> str:
    if not re.match(r"https?://[^/\s]", url):
        raise SpecError(
            f"run URL: got {url!r}, expected an address that starts with http:// or https://. "
            "Leave it out where there is none."
        )
    return quote(url, safe="%/:?#[]@!$&'*+,;=~")
