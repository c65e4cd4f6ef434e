"""Our laws are those of vLLM's own functions, called in this process, and of its grammar engine."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.laws import processors
from draftgate.laws.orders import ORDERS, VERIFYING, law
from draftgate.laws.parameters import LawParameters, Structure
from draftgate.laws.structure import Masks
from draftgate.targets import resolve_target
from draftgate.vllm_plugins.cpu_sampling import expand

pytestmark = [
    pytest.mark.correctness,
    # PyTorch warns of its own use of this when vLLM is imported.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning"),
]

SIZE = 12
PROMPT = (0, 1, 1)
STOP = 2
NEAR = 2e-5
"""Largest difference between log-probabilities in float32 and ours; about 100 roundings."""


@st.composite
def requests(draw: Any, *, speculated: bool = False) -> LawParameters:
    """A request with any mix of the rules that vLLM has, or has under speculation."""
    pairs = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=3)
    return LawParameters(
        temperature=draw(st.sampled_from([0.3, 1.0, 1.7])),
        top_k=draw(st.sampled_from([0, 1, 3, 7])),
        top_p=draw(st.sampled_from([1.0, 0.83, 0.47])),
        min_p=0.0 if speculated else draw(st.sampled_from([0.0, 0.13, 0.41])),
        presence_penalty=draw(st.sampled_from([0.0, 0.7])),
        frequency_penalty=draw(st.sampled_from([0.0, -0.4])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        logit_bias=() if speculated else draw(st.sampled_from([(), ((2, 1.5), (4, -0.5))])),
        bad_words=tuple(draw(pairs)),
        allowed_token_ids=draw(st.sampled_from([(), (1, 2, 3, 5, 7, 11)])),
        min_tokens=draw(st.sampled_from([0, 3])),
        stop_token_ids=(STOP,),
    )


class Engine:
    """The sampler and rejection sampler of vLLM on one request at a time."""

    def __init__(self, torch: Any) -> None:
        """Import what is needed; slow."""
        from vllm.platforms import current_platform
        from vllm.v1.sample.rejection_sampler import RejectionSampler, apply_sampling_constraints
        from vllm.v1.sample.sampler import Sampler

        current_platform.import_kernels()
        self.torch = torch
        self.sampler = Sampler(logprobs_mode="processed_logprobs")
        self.rejection = RejectionSampler(self.sampler)
        self.constrain = apply_sampling_constraints

    def metadata(
        self, asked: LawParameters, output: Sequence[int], drafts: Sequence[int] | None
    ) -> Any:
        """The sampler's own form of a request."""
        from vllm.v1.sample.metadata import SamplingMetadata

        one = self._one
        forbidden = [[t not in asked.allowed_token_ids for t in range(SIZE)]]
        penalties = (asked.presence_penalty, asked.frequency_penalty, asked.repetition_penalty)
        return SamplingMetadata(
            temperature=one(asked.temperature),
            all_greedy=asked.greedy,
            all_random=not asked.greedy,
            top_p=one(asked.top_p) if asked.top_p < 1 else None,
            top_k=one(asked.top_k, "int32") if asked.top_k else None,
            generators={},
            max_num_logprobs=-1,
            no_penalties=penalties == (0, 0, 1),
            prompt_token_ids=self.torch.tensor([PROMPT]),
            presence_penalties=one(penalties[0]),
            frequency_penalties=one(penalties[1]),
            repetition_penalties=one(penalties[2]),
            output_token_ids=[list(output)],
            allowed_token_ids_mask=self.torch.tensor(forbidden)
            if asked.allowed_token_ids
            else None,
            bad_words_token_ids={0: [list(w) for w in asked.bad_words]} if asked.bad_words else {},
            logitsprocs=self._processors(asked, list(output)),
            spec_token_ids=None if drafts is None else [list(drafts)],
        )

    def law(self, logits: Any, asked: LawParameters, output: Sequence[int]) -> Any:
        """Log-probabilities that the sampler without speculation draws from."""
        return self._sampled(logits, self.metadata(asked, output, None), bonus=False)

    def verified(
        self, logits: Any, asked: LawParameters, output: Sequence[int], drafts: Sequence[int]
    ) -> tuple[Any, Any]:
        """Log-probabilities of the positions of a verify step, and of its bonus token."""
        from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

        metadata = self.metadata(asked, output, drafts)
        step = SpecDecodeMetadata.make_dummy([list(drafts)], self.torch.device("cpu"))
        rows = self.torch.tensor(logits[:-1], dtype=self.torch.float32)
        rows = self.rejection.apply_logits_processors(rows, metadata, step)
        rows = self.constrain(rows, step.cu_num_draft_tokens, metadata)
        return rows.log_softmax(dim=-1).numpy(), self._sampled(logits[-1], metadata, bonus=True)

    def _sampled(self, logits: Any, metadata: Any, *, bonus: bool) -> Any:
        rows = self.torch.tensor(logits[None], dtype=self.torch.float32)
        found = self.sampler(rows, metadata, predict_bonus_token=bonus)
        return found.logprobs_tensors.logprobs[0].numpy()

    def _one(self, value: float, dtype: str = "float32") -> Any:
        return self.torch.tensor([value], dtype=getattr(self.torch, dtype))

    def _processors(self, asked: LawParameters, output: list[int]) -> Any:
        from vllm import SamplingParams
        from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS, LogitsProcessors
        from vllm.v1.sample.logits_processor.interface import BatchUpdate

        params = SamplingParams(
            min_tokens=asked.min_tokens,
            max_tokens=64,
            min_p=asked.min_p,
            logit_bias=dict(asked.logit_bias) or None,
            stop_token_ids=list(asked.stop_token_ids),
        )
        config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=1))
        made = [kind(config, "cpu", is_pin_memory=False) for kind in BUILTIN_LOGITS_PROCESSORS]
        for processor in made:
            processor.update_state(BatchUpdate(1, [], [(0, params, list(PROMPT), output)], []))
        return LogitsProcessors(made)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The functions of vLLM; the kernel without a CPU version gets that of our repair."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("vllm", reason="vLLM is not installed")
    with pytest.MonkeyPatch.context() as patch:
        made = Engine(torch)
        patch.setattr("vllm.v1.sample.rejection_sampler._expand", expand)
        yield made


def agree(found: Any, ours: Any) -> None:
    """Log-probabilities are the same, and the same tokens cannot be drawn."""
    assert np.isfinite(found).tolist() == np.isfinite(ours).tolist()
    np.testing.assert_allclose(found[np.isfinite(found)], ours[np.isfinite(ours)], atol=NEAR)


@settings(deadline=None, max_examples=300)
@given(asked=requests(), output=st.lists(st.integers(0, SIZE - 1), max_size=4), seed=st.integers(0))
def test_the_law_is_that_of_the_sampler(
    engine: Engine, asked: LawParameters, output: list[int], seed: int
) -> None:
    """Without speculation vLLM draws from the law of our table, with any mix of rules."""
    logits = np.random.default_rng(seed).normal(0, 2, SIZE)
    ours = law(logits, asked, PROMPT, output, "vllm").log_probs

    agree(engine.law(logits, asked, output), ours)


@settings(deadline=None, max_examples=300)
@given(
    asked=requests(speculated=True),
    output=st.lists(st.integers(0, SIZE - 1), max_size=4),
    drafts=st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=3),
    seed=st.integers(0),
)
def test_the_law_is_that_of_the_verify_step(
    engine: Engine, asked: LawParameters, output: list[int], drafts: list[int], seed: int
) -> None:
    """Each position has the law of our table given the drafts before it, and so has the bonus.

    Left out is the step that reaches min_tokens, whose bonus token has a test of its own.
    """
    logits = np.random.default_rng(seed).normal(0, 2, (len(drafts) + 1, SIZE))
    rows, bonus = engine.verified(logits, asked, output, drafts)
    texts = [[*output, *drafts[:position]] for position in range(len(drafts) + 1)]
    ours = [law(logits[i], asked, PROMPT, t, VERIFYING["vllm"]) for i, t in enumerate(texts)]

    for found, expected in zip(rows, ours[:-1], strict=True):
        agree(found, expected.log_probs)
    if not len(output) < asked.min_tokens <= len(output) + len(drafts):
        agree(bonus, ours[-1].log_probs)


def test_the_bonus_token_cannot_stop_in_the_step_that_reaches_min_tokens(engine: Engine) -> None:
    """The difference that docs/sampling-order.md names is there: the stop token is forbidden."""
    asked = LawParameters(min_tokens=3, stop_token_ids=(STOP,))
    _, bonus = engine.verified(np.zeros((3, SIZE)), asked, [4, 5], [6, 7])
    promised = law(np.zeros(SIZE), asked, PROMPT, [4, 5, 6, 7], "vllm").log_probs

    assert np.isneginf(bonus[STOP])
    assert np.isfinite(promised[STOP])


@pytest.mark.parametrize("seed", range(5))
def test_greedy_takes_the_same_token(engine: Engine, seed: int) -> None:
    """The token that a greedy request gets has all of the law, after penalties."""
    logits = np.random.default_rng(seed).normal(0, 2, SIZE)
    asked = LawParameters(temperature=0, presence_penalty=1.5)
    rows = engine.torch.tensor(logits[None], dtype=engine.torch.float32)
    found = engine.sampler(rows, engine.metadata(asked, [3, 7], None)).sampled_token_ids

    assert law(logits, asked, PROMPT, [3, 7], "vllm").log_probs[int(found[0, 0])] == 0


@pytest.mark.parametrize("p", [0.05, 0.3, 0.55, 0.8])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5])
def test_ties_are_cut_alike(engine: Engine, k: int, p: float) -> None:
    """With tied logits vLLM's sort keeps the tokens that our rule keeps."""
    logits = np.log(np.array([2.0, 1.0, 2.0, 1.0, 1.0, 2.0, 0.5, 0.5, 1.0, 2.0, 1.0, 0.5]))
    asked = LawParameters(top_k=k, top_p=p)

    agree(engine.law(logits, asked, ()), law(logits, asked, (), (), "vllm").log_probs)


@pytest.mark.parametrize("width", [1.0, 3.0])
@pytest.mark.parametrize(("k", "p"), [(0, 0.9), (50, 1.0), (50, 0.9)])
def test_filters_of_a_whole_vocabulary_are_alike(
    engine: Engine, k: int, p: float, width: float
) -> None:
    """On 49,152 logits of float32 the kept tokens differ by at most two at the edge of top-p."""
    logits = np.random.default_rng(5).normal(0, width, 49_152).astype(np.float32)
    metadata = replace(
        engine.metadata(LawParameters(top_k=k, top_p=p), (), None),
        prompt_token_ids=None,
    )
    found = np.isfinite(engine._sampled(logits, metadata, bonus=False))
    ours = np.isfinite(law(logits, LawParameters(top_k=k, top_p=p), (), (), "vllm").log_probs)

    assert (found != ours).sum() <= 2


def test_a_wrong_order_is_told_apart(engine: Engine) -> None:
    """Planted: bias after the penalties, as SGLang has it, is not what vLLM does."""
    asked = LawParameters(repetition_penalty=1.5, logit_bias=((1, 3.0),))
    logits = np.linspace(-2, 2, SIZE)
    steps = [s for s in ORDERS["vllm"].steps if s != "logit_bias"]
    steps.insert(steps.index("temperature"), "logit_bias")
    wrong = law(logits, asked, PROMPT, (), replace(ORDERS["vllm"], steps=tuple(steps)))

    with pytest.raises(AssertionError):
        agree(engine.law(logits, asked, ()), wrong.log_probs)


def test_bad_words_are_tokenised_alike() -> None:
    """Our token ids of bad words are those that vLLM makes of them."""
    vllm = pytest.importorskip("vllm", reason="vLLM is not installed")
    tokenizer = tokens_of_the_target()
    words = ("cat", " dog", "New York", "7", "über")
    params = vllm.SamplingParams(bad_words=list(words))
    params.update_from_tokenizer(
        SimpleNamespace(encode=tokenizer.encode, max_token_id=len(tokenizer) - 1)
    )
    ours = processors.bad_word_ids(words, lambda w: tokenizer.encode(w, add_special_tokens=False))

    assert [list(ids) for ids in ours] == params.bad_words_token_ids


def tokens_of_the_target() -> Any:
    """The tokenizer of the default target."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.AutoTokenizer.from_pretrained(
        Path(resolve_target("smollm2-135m-instruct", log=print))
    )


FORMS = [
    (Structure(kind="choice", texts=("yes", 'may"be')), 'may"be', "no"),
    (Structure(kind="regex", texts=(r"[0-9]{3}-[a-f]+",)), "123-abc", "12-abc"),
    (Structure(kind="json_object"), '{"a": [1, 2]}', "[1, 2]"),
    (
        Structure(
            kind="json",
            texts=(
                '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}',
            ),
        ),
        '{"n": 12}',
        '{"m": 12}',
    ),
]


@pytest.mark.parametrize(("form", "good", "bad"), FORMS, ids=[form.kind for form, *_ in FORMS])
def test_masks_let_a_form_through_and_nothing_else(form: Structure, good: str, bad: str) -> None:
    """On the target's own tokens a right text passes to its end, a wrong one meets its mask."""
    pytest.importorskip("xgrammar", reason="xgrammar is not installed")
    tokenizer = tokens_of_the_target()
    end, size = tokenizer.eos_token_id, len(tokenizer)
    masks = Masks(form, tokenizer, size, (end,))
    right = [*tokenizer.encode(good, add_special_tokens=False), end]
    wrong = [*tokenizer.encode(bad, add_special_tokens=False), end]
    along, stopped = masks.along(right), masks.along(wrong)

    assert [bool(m[t]) for m, t in zip(along, right, strict=False)] == [True] * len(right)
    assert all(m.shape == (size,) for m in along)
    assert along[-1].all()
    assert not along[0][end]
    assert len(stopped) <= len(wrong)
    assert not stopped[-1][wrong[len(stopped) - 1]]


@pytest.mark.parametrize(("kind", "text"), [("regex", "("), ("json", "{")])
def test_broken_forms_are_refused(kind: Any, text: str) -> None:
    """A pattern or schema that cannot be compiled is the user's error, with its text."""
    pytest.importorskip("xgrammar", reason="xgrammar is not installed")
    from draftgate.errors import SpecError

    with pytest.raises(SpecError, match=f"structure '{kind}': xgrammar cannot compile"):
        Masks(Structure(kind=kind, texts=(text,)), tokens_of_the_target(), 49_152)
