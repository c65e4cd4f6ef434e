"""Traffic for a real server, and a place in front of two of them that can be switched."""

import itertools
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from draftgate.datasets import Prompt

RETRY_S = 0.5
ANSWER_S = 120.0


@contextmanager
def busy(
    url: str, model: str, prompts: Sequence[Prompt], *, streams: int, max_tokens: int
) -> Iterator[dict[str, int]]:
    """Keep a server busy with greedy answers; yield how many ended and how many failed.

    Greedy, since verifying sampled drafts is three times as slow on vLLM's CPU build.

    Args:
        url: Address without `/v1`.
        model: Name that requests carry.
        prompts: Sent in turn, again and again.
        streams: Requests at once.
        max_tokens: Length of every answer.
    """
    counts = {"ended": 0, "failed": 0}
    done, lock = threading.Event(), threading.Lock()
    numbers = itertools.count()

    def ask(number: int) -> None:
        prompt = prompts[number % len(prompts)]
        body = {
            "model": model,
            "messages": [{"role": role, "content": text} for role, text in prompt.messages],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        connection = HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            name = "ended" if answer.status == 200 else "failed"
        except (OSError, HTTPException):  # a server that is being replaced
            name = "failed"
            done.wait(RETRY_S)
        finally:
            connection.close()
        with lock:
            counts[name] += 1

    def client() -> None:
        while not done.is_set():
            with lock:
                number = next(numbers)
            ask(number)

    with ThreadPoolExecutor(streams) as pool:
        clients = [pool.submit(client) for _ in range(streams)]
        try:
            yield counts
        finally:
            done.set()
    for one in clients:
        one.result()


class Switch:
    """A port that hands every new connection on to the server that stands behind it now.

    Attributes:
        url: Its address.
        to: Address of the server behind it; may be replaced at any time.
    """

    def __init__(self, to: str) -> None:
        self.to = to
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:  # closed
                return
            far_end = urlsplit(self.to)
            far = socket.create_connection((far_end.hostname or "", far_end.port or 0))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Hand bytes on until one side ends; the other side is told."""
    with suppress(OSError):  # the other direction has ended and closed both
        while data := source.recv(65_536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
