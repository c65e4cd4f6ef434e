"""A tokenizer of a given vocabulary size, made of nothing but bytes and invented words.

Every byte of a prompt is one token, so the length of a prompt in tokens is its
length in bytes. Ids beyond the 256 bytes decode to invented words, so whatever
random weights sample has a text. Written as JSON; needs no package.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOKENIZER_VERSION = 1
# 1: bytes first, then words of at least four letters, special tokens at the config's ids.

_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write_tokenizer(folder: Path, config: Mapping[str, Any]) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    Args:
        folder: Where.
        config: `vocab_size` >= 512, `eos_token_id`, and optionally `bos_token_id` and
            `pad_token_id`, all below it; `max_position_embeddings`.

    Raises:
        OSError: As raised by the file system.
    """
    special = special_tokens(config)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, text) for token, text in sorted(special.items())],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary(config["vocab_size"], special),
            "merges": [],
        },
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    ends = _ids(config, "eos_token_id")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": special[ends[0]],
        "chat_template": _TEMPLATE,
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    for key in ("bos", "pad"):
        for token in _ids(config, f"{key}_token_id"):
            settings[f"{key}_token"] = special[token]
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def special_tokens(config: Mapping[str, Any]) -> dict[int, str]:
    """Return the text of each special token by id, as the config names the ids."""
    found: dict[int, str] = {}
    for kind in ("eos", "bos", "pad"):
        for number, token in enumerate(_ids(config, f"{kind}_token_id")):
            found.setdefault(token, f"<|{kind}{number or ''}|>")
    return found


def vocabulary(size: int, special: Mapping[int, str]) -> dict[str, int]:
    """Return token texts by id, in byte-level spelling: 0..255 the bytes, then words.

    Args:
        size: Number of ids; each from 0 to size - 1 has one text.
        special: Texts of special tokens by id; none of them below 256.
    """
    texts = {spelling: byte for byte, spelling in enumerate(_byte_spellings())}
    for token in range(256, size):
        texts[special.get(token) or f"\u0120{_word(token)}"] = token
    return texts


def _ids(config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    held = config.get(key)
    if held is None:
        return ()
    return tuple(held) if isinstance(held, list | tuple) else (held,)


def _added(token: int, text: str) -> dict[str, Any]:
    off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": text, "special": True, **off}


def _byte_spellings() -> list[str]:
    """Return the character that stands for each byte in byte-level BPE.

    Printable ones stand for themselves, the others for characters from 256 on.
    Source: Radford et al., GPT-2, `bytes_to_unicode`; our own writing.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spellings, others = [], 0
    for byte in range(256):
        spellings.append(chr(byte if byte in printable else 256 + others))
        others += byte not in printable
    return spellings


def _word(number: int) -> str:
    """Return an invented word of four letters or more, another for each number."""
    letters = ""
    while number or len(letters) < 4:
        number, digit = divmod(number, 26)
        letters += chr(ord("a") + digit)
    return letters
