"""The traffic of the benchmark: streams that ask one after the other, in phases.

What is asked in a phase is the same in every run and the same in every order, so answers can
be compared text by text. Knows no arms.
"""

import hashlib
import http.client
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from draftgate.datasets import load_prompts

HARD_PROMPTS = Path(__file__).with_name("hard.txt")

CHAT = "/v1/chat/completions"

TOKENS = 64

USUAL, HARD = "usual", "hard"


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of one kind of traffic.

    Attributes:
        kind: USUAL or HARD.
        seconds: Its length, > 0; requests that begin in it belong to it.
    """

    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Asked:
    """One request and what became of it.

    Attributes:
        phase: Number of its phase.
        kind: Kind of that phase.
        prompt: Number of its prompt among those of the kind.
        began_s: Since the traffic began.
        took_s: Until its last byte.
        status: HTTP status; 0 where the connection broke.
        tokens: Output tokens by usage; 0 where it failed.
        text: Hash of its text; "" where it failed.
    """

    phase: int
    kind: str
    prompt: int
    began_s: float
    took_s: float
    status: int
    tokens: int
    text: str

    @property
    def whole(self) -> bool:
        """Whether all of it came."""
        return self.status == 200 and self.tokens == TOKENS


def bodies(kind: str, model: str) -> tuple[bytes, ...]:
    """Return the chats of one kind, in order: prompts of `mixed`, or those of hard.txt.

    The hard ones are of our own writing, in Russian and Chinese. The target answers in kind,
    in tokens that the head's draft vocabulary hardly has.
    """
    if kind == USUAL:
        chats = [
            [{"role": role, "content": text} for role, text in prompt.messages]
            for prompt in load_prompts("mixed", 1)
        ]
    else:
        lines = HARD_PROMPTS.read_text(encoding="utf-8").splitlines()
        chats = [[{"role": "user", "content": line}] for line in lines]
    common = {"model": model, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    return tuple(json.dumps({"messages": chat, **common}).encode() for chat in chats)


@dataclass(slots=True)
class Traffic:
    """Streams at one address.

    Attributes:
        url: Address without `/v1`.
        phases: In order.
        streams: How many ask at once.
        model: Name that requests carry.
        asked: What came of them.
    """

    url: str
    phases: Sequence[Phase]
    streams: int
    model: str
    asked: list[Asked] = field(default_factory=list)
    _next: dict[str, int] = field(default_factory=lambda: {USUAL: 0, HARD: 0})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Ask until the last phase is over and its last answer has come."""
        known = {kind: bodies(kind, self.model) for kind in (USUAL, HARD)}
        start_s = time.monotonic()
        threads = [
            threading.Thread(target=self._stream, args=(start_s, known))
            for _ in range(self.streams)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _stream(self, start_s: float, known: dict[str, tuple[bytes, ...]]) -> None:
        while (at := self._phase(time.monotonic() - start_s)) is not None:
            kind = self.phases[at].kind
            with self._lock:
                number = self._next[kind] % len(known[kind])
                self._next[kind] += 1
            began_s = time.monotonic() - start_s
            status, tokens, text = self._ask(known[kind][number])
            took_s = time.monotonic() - start_s - began_s
            self.asked.append(Asked(at, kind, number, began_s, took_s, status, tokens, text))

    def _phase(self, elapsed_s: float) -> int | None:
        for number, phase in enumerate(self.phases):
            elapsed_s -= phase.seconds
            if elapsed_s < 0:
                return number
        return None

    def _ask(self, body: bytes) -> tuple[int, int, str]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=300)
        try:
            connection.request("POST", CHAT, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            document = answer.read()
        except (OSError, http.client.HTTPException):
            return 0, 0, ""
        finally:
            connection.close()
        if answer.status != 200:
            return answer.status, 0, ""
        found = json.loads(document)
        text = found["choices"][0]["message"]["content"]
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return 200, int(found["usage"]["completion_tokens"]), digest
