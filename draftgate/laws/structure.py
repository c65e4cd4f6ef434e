"""Structured output as masks: which tokens may come next, given the output so far.

The grammar engine is xgrammar, which vLLM, SGLang and TensorRT-LLM use by default; the
grammars are built as vLLM builds them. A form that is complete allows its stop tokens
only, and nothing is forbidden after one of them. Knows no models and no servers.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from draftgate.errors import SpecError
from draftgate.laws.parameters import Structure
from draftgate.laws.processors import Mask

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


class Masks:
    """The masks of one structure over one vocabulary.

    Args:
        structure: Form of the output.
        tokenizer: Of the model, as transformers loads it.
        size: Number of logits, which may exceed the number of tokens.
        stop_token_ids: Tokens that may end a complete form; () takes those that the
            tokenizer has.

    Raises:
        SpecError: If xgrammar is missing or takes the structure for wrong.
    """

    __slots__ = ("_matcher", "_size", "_xgrammar")

    def __init__(
        self, structure: Structure, tokenizer: Any, size: int, stop_token_ids: Sequence[int] = ()
    ) -> None:
        self._xgrammar = _xgrammar()
        self._size = size
        info = self._xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size)
        compiled = _compiled(self._xgrammar.GrammarCompiler(info), structure)
        self._matcher = self._xgrammar.GrammarMatcher(
            compiled, override_stop_tokens=list(stop_token_ids) or None
        )

    def along(self, output_ids: Sequence[int]) -> tuple[Mask, ...]:
        """Return the mask before each token of an output, and the one after its last.

        Args:
            output_ids: From the first token on.

        Returns:
            One mask a token and one more, shape (size,) each. If a token breaks the form, the
            masks end with the one that forbids it: no law is defined after it.
        """
        self._matcher.reset()
        masks = [self._next()]
        for token in output_ids:
            if not self._matcher.is_terminated() and not self._matcher.accept_token(token):
                break
            masks.append(self._next())
        return tuple(masks)

    def _next(self) -> Mask:
        if self._matcher.is_terminated():
            return np.ones(self._size, dtype=bool)
        words = self._xgrammar.allocate_token_bitmask(1, self._size)
        self._matcher.fill_next_token_bitmask(words)
        bits = np.unpackbits(words.numpy().view(np.uint8), bitorder="little")
        return bits[: self._size].astype(bool)


def _compiled(compiler: Any, structure: Structure) -> Any:
    """Return the compiled grammar, built as `XgrammarBackend.compile_grammar` of vLLM 0.32.0."""
    try:
        match structure.kind:
            case "choice":
                return compiler.compile_grammar(_choices(structure.texts))
            case "regex":
                return compiler.compile_regex(structure.texts[0])
            case "json":
                return compiler.compile_json_schema(structure.texts[0])
            case "json_object":
                return compiler.compile_json_schema('{"type": "object"}')
    except (RuntimeError, ValueError) as error:
        raise SpecError(
            f"structure {structure.kind!r}: xgrammar cannot compile {structure.texts}: {error}. "
            "Check the pattern or schema."
        ) from error


def _choices(texts: Sequence[str]) -> str:
    quoted = (f'"{text.translate(_ESCAPES)}"' for text in texts)
    return f"root ::= {' | '.join(quoted)}"


def _xgrammar() -> ModuleType:
    try:
        return importlib.import_module("xgrammar")
    except ModuleNotFoundError as error:
        raise SpecError(
            "structured output needs the package xgrammar for its reference law, which is not "
            "installed. Install the one that comes with vLLM (`pip install xgrammar==0.2.8`), or "
            "leave structures out of the check."
        ) from error
