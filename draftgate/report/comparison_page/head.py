"""The top of the page: who was compared, where, for how long, with which error rate."""

from draftgate.compare.records import Role, StoredComparison
from draftgate.report.comparison.answer import engines
from draftgate.report.comparison.words import minutes_text
from draftgate.report.format import count, minute, percent

ENDED = {
    "decided": "ran to its end",
    "budget": "the time budget ended it",
    "running": "still running",
    "interrupted": "interrupted, can be resumed",
}
"""Why a comparison ended, in words."""

Facts = tuple[tuple[str, str], ...]


def side_facts(comparison: StoredComparison) -> Facts:
    """Return what was compared and where as (name, value) pairs."""
    return (
        ("Base", _side(comparison, Role.BASE)),
        ("Candidate", _side(comparison, Role.CANDIDATE)),
        ("Machine", _machine(comparison)),
        ("Profile", _profile(comparison)),
    )


def effort_facts(comparison: StoredComparison) -> Facts:
    """Return how it was compared as (name, value) pairs."""
    header, result = comparison.header, comparison.result
    return (
        ("Pairs", _pairs(comparison)),
        ("Measuring", f"{minutes_text(result.minutes)}; {ENDED[result.ended]}"),
        ("Error rate", _error_rate(comparison)),
        ("Date", minute(header.started_at)),
        *((("Confirms", header.confirms),) if header.confirms else ()),
    )


def plan_facts(comparison: StoredComparison) -> Facts:
    """Return the plan and the load as (name, value) pairs."""
    plan, sent = comparison.header.plan, comparison.header.profile.workload
    budget = "none" if plan.max_minutes is None else minutes_text(plan.max_minutes)
    return (
        ("Looks", f"after {', '.join(map(str, plan.looks))} pairs"),
        ("Stage two", f"{count(plan.confirm_pairs, 'fresh pair')} for a suspect"),
        ("Time budget", budget),
        ("Seed of orders", str(plan.seed)),
        ("Dataset", sent.dataset),
        ("Load", f"closed loop, {', '.join(map(str, sent.concurrencies))} streams"),
        ("Output", count(sent.sampling.max_tokens, "token") + " per request"),
        ("Window", f"at least {sent.window_s:g} s and {count(sent.min_requests, 'request')}"),
        ("Prefix cache", sent.prefix_cache.value),
    )


def _side(comparison: StoredComparison, role: Role) -> str:
    header = comparison.header
    side = header.base if role is Role.BASE else header.candidate
    known = ", ".join(engines(comparison, role)) or "engine not known yet"
    started = "" if side.restarts else ", not restarted between pairs"
    return f"{side.label} ({side.kind}{started}): {known}"


def _machine(comparison: StoredComparison) -> str:
    environment = comparison.header.environment
    hosts = dict.fromkeys((environment.host, *(pair.host for pair in comparison.pairs)))
    return f"{environment.hardware}; host {', '.join(hosts)}"


def _profile(comparison: StoredComparison) -> str:
    profile = comparison.header.profile
    return f"{profile.name}: {profile.description}" if profile.description else profile.name


def _pairs(comparison: StoredComparison) -> str:
    pairs = comparison.pairs
    if not pairs:
        return "none taken yet"
    counts: dict[str, int] = {}
    for pair in pairs:
        if not pair.invalid:
            counts[pair.arm] = counts.get(pair.arm, 0) + 1
    lost = sum(1 for pair in pairs if pair.invalid)
    by_arm = ", ".join(f"{arm} {number}" for arm, number in counts.items())
    used = f"{sum(counts.values())} used" + (f" ({by_arm})" if by_arm else "")
    return f"{used}, {lost} left out" if lost else used


def _error_rate(comparison: StoredComparison) -> str:
    result = comparison.result
    gates = count(len(result.gates), "gate")
    return f"at most {percent(result.family_level)} false REGRESSION over all {gates} together"
