"""Draws situations for a server, puts it into them and says what it did wrong.

A situation is a `draftgate.checks.cases.Case`. Every time one is tried it is sampled
afresh, also while a failure is being shrunk, so that a case survives only if it fails
again and again.
"""

import http.client
import itertools
import json
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from draftgate.checks.cases import Case, Manner, Neighbour, answers_of, body, neighbour_body
from draftgate.checks.exact import Terms, answer_findings
from draftgate.checks.greedy import NEAR_TIE_LOGITS
from draftgate.checks.regret import regrets
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError
from draftgate.laws.answer import Answer
from draftgate.laws.forward import ForwardReference
from draftgate.laws.parameters import LawParameters
from draftgate.stats.directions import Direction, directions
from draftgate.stats.eprocess import evidence
from draftgate.stats.scores import Scores, joined

CASE_ALPHA = 2e-7
"""Bound on false alarms of one try; the 40 tries of a search at most make 8e-6."""

PATIENCE_TRIES = 20
"""Tries that shrinking may take."""

Ids = tuple[int, ...]


@dataclass(slots=True)
class Examiner:
    """Puts a server into situations.

    Attributes:
        engine: The server.
        reference: Laws of its target.
        eos: EOS tokens, which end an output unless it ignores them.
        scores: Rows of all sampled tokens of all tries, for evidence over the whole run.
        tries: Situations tried.
        dead: Whether a situation killed the server; then nothing more is found.
        found: What was found in each situation tried.
    """

    engine: RunningEngine
    reference: ForwardReference
    eos: Ids
    scores: list[Scores] = field(default_factory=list)
    tries: int = 0
    dead: bool = False
    found: dict[Case, list[str]] = field(default_factory=dict)
    _seeds: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _family: tuple[Direction, ...] = ()

    def __post_init__(self) -> None:
        self._family = directions(self.reference.vocabulary, len(self.reference.special_ids))

    def __call__(self, case: Case) -> list[str]:
        """Return what the server did wrong in a situation; [] if nothing."""
        if self.dead:
            return []  # nothing more can be learned from it
        self.tries += 1
        try:
            self.found[case] = self._examined(case)
        except EngineError as error:
            self.dead = _is_dead(self.engine)
            self.found[case] = [f"the server died: {error}" if self.dead else str(error)]
        return self.found[case]

    def _examined(self, case: Case) -> list[str]:
        whole = replace(case, parameters=self._with_stops(case.parameters))
        answers: list[Answer] = []
        for _ in range(case.times):
            answers += self._sent(whole, len(answers))
        terms = Terms(max_tokens=case.max_tokens, stop_strings=bool(case.stop))
        found = [str(f) for answer in answers for f in answer_findings(answer, terms)]
        return found or self._against_the_law(answers)

    def _with_stops(self, parameters: LawParameters) -> LawParameters:
        return replace(parameters, stop_token_ids=() if parameters.ignore_eos else self.eos)

    def _sent(self, case: Case, first: int) -> list[Answer]:
        """Send the request and its neighbours at once; return the outputs of the request."""
        seed = next(self._seeds) if case.seed is not None else None
        with ThreadPoolExecutor(1 + len(case.neighbours)) as pool:
            beside = [pool.submit(self._neighbour, neighbour) for neighbour in case.neighbours]
            document = self.engine.post("/v1/completions", body(case, self.engine.model, seed))
            for waiting in beside:
                waiting.result()
        return answers_of(case, document, first)

    def _neighbour(self, neighbour: Neighbour) -> None:
        asked = neighbour_body(neighbour, self.engine.model, seed=7)
        if neighbour.manner == "aborted":
            hang_up(self.engine.base_url, asked)
        else:
            self.engine.post("/v1/completions", asked)

    def _against_the_law(self, answers: list[Answer]) -> list[str]:
        long = [answer for answer in answers if len(answer.token_ids) > 1]
        if not long:
            return []
        if long[0].parameters.greedy:
            return self._regretted(long)
        rows = self.reference.score(long, None)
        self.scores.append(rows)
        alarm = evidence(rows, self._family)
        at = alarm.alarm_at(CASE_ALPHA)
        label = self._family[alarm.best[0]].label
        return [] if at is None else [f"tokens do not follow the law after {at} tokens: {label}"]

    def _regretted(self, answers: list[Answer]) -> list[str]:
        limit = NEAR_TIE_LOGITS[self.engine.spec.dtype]
        found = []
        for answer in answers:
            if not answer.parameters.depends_on_output:
                flips = regrets(answer, self.reference.logits(answer)).flips
                found += [str(flip) for flip in flips if flip.regret > limit]
        return found

    def all_scores(self) -> Scores:
        """Return the rows of all tries, in order."""
        return joined(self.scores)


def _is_dead(engine: RunningEngine) -> bool:
    try:
        engine.check_alive()
    except EngineError:
        return True
    return False


def hang_up(base_url: str, asked: dict[str, Any]) -> None:
    """Begin a streamed request and close the connection once its answer has begun."""
    address = urllib.parse.urlsplit(base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        text = json.dumps(asked | {"stream": True})
        connection.request("POST", "/v1/completions", text, {"Content-Type": "application/json"})
        connection.getresponse().readline()
    finally:
        connection.close()


def cases(prompts: list[Ids], k: int, seeded: int) -> st.SearchStrategy[Case]:
    """Return situations around prompts.

    Args:
        prompts: Token ids.
        k: Drafts that the server proposes a step.
        seeded: Longest prompt that is sent with a seed, tokens (`docs/findings/0001`).
    """
    drawn = st.lists(st.integers(100, 40_000), min_size=2, max_size=30)
    # What was just said comes again: every kind of drafter then proposes something.
    repeated = st.lists(st.integers(100, 40_000), min_size=2, max_size=5).map(lambda ids: ids * 4)
    prompt = st.one_of(st.sampled_from(prompts), drawn.map(tuple), repeated.map(tuple))
    short = st.integers(1, k + 2)
    return st.builds(
        Case,
        prompt=prompt,
        parameters=parameters(),
        max_tokens=st.one_of(short, st.integers(k + 3, 24)),
        n=st.sampled_from([1, 1, 2, 3]),
        stop=st.sampled_from([(), (), (".",), (" the", "\n")]),
        seed=st.sampled_from([None, None, 1]),
        times=st.integers(1, 3),
        neighbours=st.lists(neighbours(prompts, k), max_size=4).map(tuple),
    ).map(lambda case: _allowed(_one_draw_each(_without_long_seeds(case, seeded))))


def parameters() -> st.SearchStrategy[LawParameters]:
    """Return parameters that vLLM honours under speculation, mostly with few of them set."""
    return st.builds(
        LawParameters,
        temperature=st.sampled_from([1.0, 0.0, 0.3, 0.8, 1.5]),
        top_k=st.sampled_from([0, 0, 1, 5, 40]),
        top_p=st.sampled_from([1.0, 1.0, 0.95, 0.5]),
        presence_penalty=st.sampled_from([0.0, 0.0, 0.0, 0.7]),
        frequency_penalty=st.sampled_from([0.0, 0.0, 0.0, 0.5]),
        repetition_penalty=st.sampled_from([1.0, 1.0, 1.0, 1.3]),
        min_tokens=st.sampled_from([0, 0, 0, 1, 3]),
        ignore_eos=st.booleans(),
    )


def neighbours(prompts: list[Ids], k: int) -> st.SearchStrategy[Neighbour]:
    """Return requests to run beside the one under test."""
    manners: list[Manner] = ["sampled", "seeded", "greedy", "aborted"]
    return st.builds(
        Neighbour,
        prompt=st.sampled_from(prompts),
        manner=st.sampled_from(manners),
        max_tokens=st.integers(1, 4 * k),
    )


def search(
    found: Callable[[Case], list[str]], drawn: st.SearchStrategy[Case], examples: int
) -> Case | None:
    """Return the smallest situation in which something is found; None if there is none.

    Args:
        found: Puts the server into a situation and returns what it did wrong.
        drawn: Where situations come from.
        examples: Situations to draw.
    """
    known: dict[Case, bool] = {}

    def wrong(case: Case) -> bool:
        # A case is tried once: the search may ask again for one that it knows. Past its
        # patience it keeps what it has, since nothing smaller is accepted.
        if case not in known:
            known[case] = len(known) < examples + PATIENCE_TRIES and bool(found(case))
        return known[case]

    try:
        return find(
            drawn,
            wrong,
            settings=settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
    except NoSuchExample:
        return None


def _without_long_seeds(case: Case, longest: int) -> Case:
    beside = tuple(
        replace(n, manner="sampled") if n.manner == "seeded" and len(n.prompt) > longest else n
        for n in case.neighbours
    )
    seed = case.seed if len(case.prompt) <= longest else None
    return replace(case, seed=seed, neighbours=beside)


def _one_draw_each(case: Case) -> Case:
    """Greedy or seeded outputs repeat themselves: one of them is enough."""
    alike = case.parameters.greedy or case.seed is not None
    return replace(case, n=1) if alike else case


def _allowed(case: Case) -> Case:
    """An engine refuses to give at least more tokens than at most."""
    least = min(case.parameters.min_tokens, case.max_tokens)
    return replace(case, parameters=replace(case.parameters, min_tokens=least))
