"""Situations drawn at random: prompts, parameters, lengths, neighbours, a crowded server.

What fails is stored; `--case FILE` puts the server into that situation again.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.checks.cases import Case, Neighbour, curl, load, store
from draftgate.datasets import load_prompts
from draftgate.engines.running import RunningEngine
from draftgate.laws.forward import ForwardReference, special_token_ids
from draftgate.laws.parameters import LawParameters
from draftgate.plugin.session import GateSession
from draftgate.specs import Arm, Profile
from draftgate.stats.directions import directions
from draftgate.stats.eprocess import evidence
from draftgate.targets import resolve_target
from tests.correctness.conftest import in_float32
from tests.support.situations import Examiner, cases, search

pytestmark = pytest.mark.correctness

EXAMPLES = 12
PROMPTS = 12
RUN_ALPHA = 5e-6
"""Bound on false alarms of the evidence over all tries; each try has its own (`CASE_ALPHA`)."""

PIECE_TOKENS = 64
"""Tokens of all requests that one step computes; what is left of a prompt waits."""

SEEDED_TOKENS = 0
"""Longest prompt that is sent with a seed. On the CPU build of vLLM a seeded request whose
prompt comes in pieces kills the server (docs/findings/0001), and here any prompt may.
Seeds are asked for in `test_exact.py`."""

CROWDED = (
    "--enable-chunked-prefill",
    f"--max-num-batched-tokens={PIECE_TOKENS}",
    "--block-size=32",
    "--num-gpu-blocks-override=12",
    "--max-model-len=256",
)
"""Prompts come in pieces, and there are so few blocks that requests wait for each other, or
give their blocks up and begin anew."""

CROWD = 4
CROWD_TOKENS = 64
"""Neighbours and length of every output in the situation that makes requests give way: seven
outputs of 64 tokens behind prompts of 30 and more need twice the 12 blocks of 32."""


@pytest.fixture(scope="module")
def crowded(serve: Callable[[Arm], RunningEngine], profile: Profile) -> RunningEngine:
    """A server with a draft model, chunked prefill and hardly any KV cache."""
    arm = in_float32(profile.arm("draft_model"))
    args = (*arm.engine.args, *CROWDED)
    return serve(Arm(f"{arm.name}-crowded", replace(arm.engine, args=args)))


@pytest.fixture(scope="module")
def examiner(crowded: RunningEngine, draftgate_session: GateSession) -> Examiner:
    """Puts the crowded server into situations."""
    folder = Path(resolve_target(crowded.spec.target, log=draftgate_session.say))
    law = ForwardReference(folder, special_ids=special_token_ids(folder))
    eos = json.loads((folder / "config.json").read_text())["eos_token_id"]
    return Examiner(crowded, law, eos=(eos,))


@pytest.fixture(scope="module")
def prompts(examiner: Examiner) -> list[tuple[int, ...]]:
    """The project's own prompts in token ids, as the server reads them."""
    post, model = examiner.engine.post, examiner.engine.model
    read = []
    for prompt in load_prompts("mixed", seed=5)[:PROMPTS]:
        messages = [{"role": role, "content": text} for role, text in prompt.messages]
        read.append(post("/tokenize", {"model": model, "messages": messages}))
    return [tuple(answer["tokens"]) for answer in read]


def test_no_situation_breaks_the_text(
    examiner: Examiner,
    prompts: list[tuple[int, ...]],
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    """Whatever is asked for, beside whatever else, comes out exactly and by the target's law."""
    drafts = examiner.engine.spec.speculative
    assert drafts is not None

    drawn = cases(prompts, drafts.num_speculative_tokens, SEEDED_TOKENS)
    broken = search(examiner, drawn, EXAMPLES)

    if broken is not None:
        fail(examiner, broken, request)
    rows = examiner.all_scores()
    family = directions(examiner.reference.vocabulary, len(examiner.reference.special_ids))
    whole = evidence(rows, family)
    record_property("tries", examiner.tries)
    record_property("sampled_tokens", len(rows))
    record_property("log_e_value", float(whole.path.max()))
    assert whole.alarm_at(RUN_ALPHA) is None, family[whole.best[0]].label


def test_requests_that_gave_way_go_on_right(
    examiner: Examiner,
    prompts: list[tuple[int, ...]],
    request: pytest.FixtureRequest,
) -> None:
    """Requests that lost their cache to others (preemption) are computed anew, by the law."""
    before = preemptions(examiner.engine)
    beside = [Neighbour(prompt=p, manner="sampled", max_tokens=CROWD_TOKENS) for p in prompts[1:]]
    crowd = Case(
        prompt=prompts[0],
        parameters=LawParameters(temperature=0.8, ignore_eos=True),
        max_tokens=CROWD_TOKENS,
        n=3,
        neighbours=tuple(beside[:CROWD]),
    )

    if examiner(crowd):
        fail(examiner, crowd, request)
    assert preemptions(examiner.engine) > before


def test_stored_case(examiner: Examiner, request: pytest.FixtureRequest) -> None:
    """The situation in the file of `--case` breaks nothing any more."""
    path = request.config.getoption("--case")
    if path is None:
        pytest.skip("no --case FILE was given")
    case = load(path)

    if examiner(case):
        fail(examiner, case, request)


def preemptions(engine: RunningEngine) -> float:
    """Return how often the server put a running request back."""
    page = engine.scrape() or ""
    lines = [line for line in page.splitlines() if line.startswith("vllm:num_preemptions_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def fail(examiner: Examiner, broken: Case, request: pytest.FixtureRequest) -> None:
    """Store a case with what was found, and fail the test with what to do."""
    found = examiner.found[broken]
    engine = examiner.engine
    path = Path(request.config.getoption("--runs")) / "cases" / f"{engine.arm.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    store(path, broken, server=engine.command.argv if engine.command else (), found=found)
    again = f"pytest {Path(__file__).relative_to(request.config.rootpath)} --case {path}"
    told = [*found, curl(broken, engine.base_url, engine.model), f"try it again: {again}"]
    pytest.fail("\n".join(told), pytrace=False)
