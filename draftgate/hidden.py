"""What may be a secret, taken out of whatever is stored or shown.

A value counts as secret by the name beside it: a variable, key or flag that holds
TOKEN, KEY, SECRET, PASSWORD or CREDENTIAL as a word; and so do user and query of an
address. Knows no record: it works on texts, command lines and encoded documents.
The server is still started with the real values.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

HIDDEN = "(hidden)"
"""Stands in the place of a value that is not told."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET = frozenset({"key", "secret", "password", "passwd", "passphrase", "credential"})
_ENDINGS = ("token", "apikey", "secret", "password", "credential")
"""Of words written together, as in PGPASSWORD. Not "key", which ends monkey and turkey, and not
"tokens": num_speculative_tokens and max_tokens are counts."""

_COUNTED = frozenset({"budget", "count", "id", "ids", "limit", "size", "threshold"})
"""After "token" these make it a piece of text, as in vLLM's --long-prefill-token-threshold."""

_SHORTEST = 6
"""Characters from which a value that is known to be secret is also looked for inside other texts;
a shorter one would be found in words that have nothing to do with it."""

_NAME = r"[A-Za-z_][\w.-]*"
_QUOTED = r'"(?:\\.|[^"\\])*"|' + r"'[^']*'"
_TEXTS = (
    re.compile(r"""(?P<head>://)(?P<value>[^\s/"'@]+)(?=@)"""),
    re.compile(r"""(?P<head>://[^\s?"']*\?)(?P<value>[^\s"']+)"""),
    # "NAME=value", quoted as a whole: all up to the closing quote
    re.compile(rf"""(?P<head>(?P<q>["'])-*(?P<name>{_NAME})=)(?P<value>[^"'][^"'\n]*)(?=(?P=q))"""),
    # NAME = "value", NAME=value, --name=value, {"name": "value"}
    re.compile(
        rf"""(?P<head>(?<!\w)-*["']?(?P<name>{_NAME})(?:["']?\s*=(?!=)|\\?["']\s*:)\s*)"""
        rf'''(?P<value>"{{3}}.*?"{{3}}|\'{{3}}.*?\'{{3}}|{_QUOTED}|\\"[^"\\]*\\"'''
        rf"""|\[[^\]]*\]|[^\s;,}}\]&"']+)""",
        re.DOTALL,
    ),
    # --name value, and "--name", "value" of a list
    re.compile(
        rf"""(?P<head>(?<![\w-])--?(?P<name>{_NAME})(?:[ \t]+|["']\s*,(?:\s*\#[^\n]*\n)*\s*))"""
        rf"""(?P<value>{_QUOTED}|[^\s"',\]-][^\s"',\]]*)"""
    ),
)
"""Where a text has secrets; each pattern has what stands before the value, and its name if any."""


def is_secret(name: str) -> bool:
    """Whether the value of a variable, key or flag of this name is not to be told.

    Words end at `_`, `-`, `.` and where a capital follows: HF_TOKEN, api-key and
    clientSecret are secret; TOKENIZER, KVCACHE and per_token_s are not, nor is
    `api_key_env`, which holds the name of a variable.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    return any(_tells(words, place) for place in range(len(words)))


def hide(value: Any) -> Any:
    """Return `value` with `HIDDEN` in the place of what may be a secret.

    A value that is found secret in one place is taken out of every other text of
    the document too.

    Args:
        value: A text; a command line as a list or tuple of texts; or a document
            as `draftgate.codec.encode` returns it, in which lists of texts are
            taken for command lines and lists of two texts also for name and value.

    Returns:
        The same kind of thing; a list for a tuple.

    Source:
        Own derivation.
    """
    known = {text for text in _secrets(value) if len(text) >= _SHORTEST and text != HIDDEN}
    return _hidden(value, sorted(known, key=len, reverse=True))


def _tells(words: Sequence[str], place: int) -> bool:
    word = words[place].removesuffix("s")
    following = words[place + 1] if place + 1 < len(words) else ""
    if following == "env" or words[place].endswith("tokens"):
        return False
    if word not in _SECRET and not word.endswith(_ENDINGS):
        return False
    counted = following in _COUNTED or (place > 0 and words[place - 1] == "per")
    return not (word == "token" and counted)


def _hidden(value: Any, known: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _text(value, known)
    if isinstance(value, dict):
        return {
            key: _struck(item) if is_secret(key) else _hidden(item, known)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        secret = set(_secret_places(value))
        return [
            _argument(item) if place in secret else _hidden(item, known)
            for place, item in enumerate(value)
        ]
    return value


def _secrets(value: Any) -> Iterator[str]:
    """Yield the values that the structure of a document tells to be secret."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from [item] if is_secret(key) and isinstance(item, str) else _secrets(item)
    elif isinstance(value, (list, tuple)):
        for place in _secret_places(value):
            _, equals, after = value[place].partition("=")
            yield after if equals and _assigned(value[place]) else value[place]
        for item in value:
            if not isinstance(item, str):
                yield from _secrets(item)


def _secret_places(items: Sequence[Any]) -> Iterator[int]:
    """Yield where a list of texts holds a secret: after its flag or name, or NAME=VALUE."""
    if not all(isinstance(item, str) for item in items):
        return
    for place, item in enumerate(items):
        follows = place > 0 and _names_next(items, place - 1) and not item.startswith("-")
        if follows or _assigned(item):
            yield place


def _names_next(items: Sequence[str], place: int) -> bool:
    """Whether the text there is a flag, or the name of a pair, whose value comes next."""
    name = items[place]
    is_name = name.startswith("-") or (len(items) == 2 and place == 0)
    return is_name and re.fullmatch(rf"-*{_NAME}", name) is not None and is_secret(name)


def _assigned(text: str) -> bool:
    """Whether a text as a whole is NAME=VALUE of a secret that is not hidden yet."""
    found = re.match(rf"-*({_NAME})=(?!{re.escape(HIDDEN)})", text)
    return found is not None and ";" not in text and is_secret(_last(found[1]))


def _argument(text: str) -> str:
    return f"{text.partition('=')[0]}={HIDDEN}" if _assigned(text) else HIDDEN


def _struck(value: Any) -> Any:
    """Return what stands for the value of a secret name: numbers and empty values stay."""
    if isinstance(value, str):
        return HIDDEN if value else value
    if isinstance(value, (list, tuple)):
        return [_struck(item) for item in value]
    return _hidden(value, ())


def _text(text: str, known: Sequence[str]) -> str:
    for secret in known:
        text = text.replace(secret, HIDDEN)
    for pattern in _TEXTS:
        text = pattern.sub(_replaced, text)
    return text


def _replaced(found: re.Match[str]) -> str:
    groups = found.groupdict()
    name, value = groups.get("name"), groups["value"]
    if name is not None and (not is_secret(_last(name)) or found[0].startswith("KEY=VALUE")):
        return found[0]
    opening = value[: 2 if value[0] == "\\" else 1]
    quote = opening if name is not None and opening[-1] in "\"'" else ""
    return f"{groups['head']}{quote}{HIDDEN}{quote}"


def _last(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]
