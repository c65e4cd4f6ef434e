"""A scripted OpenAI-compatible server, to test what measures against known truth.

Speaks HTTP/1.1 over asyncio with the standard library alone; what it says and
at what pace is in `draftgate.engines.fake_model`. It never stands in for a
real engine in a measurement. `python -m draftgate.engines.fake_server` runs it
as a process that prints `listening on 127.0.0.1:PORT`.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from draftgate.engines.fake_law import Sampling, Step
from draftgate.engines.fake_model import (
    FakeConfig,
    FakeCounters,
    greedy_tokens,
    parse_config,
    sampled_tokens,
    scripted_steps,
    token_law,
)
from draftgate.engines.fake_reader import SPELLING, read_by_model, refuse_unknown, spelled
from draftgate.engines.fake_wire import (
    Generation,
    HttpRequest,
    error_document,
    opening_document,
    parse_prompt,
    read_request,
    send,
    send_error,
    send_json,
    step_document,
    usage_document,
    whole_document,
    write_data,
    write_event,
    write_stream_end,
    write_stream_head,
)
from draftgate.errors import SpecError

__all__ = ["FakeConfig", "FakeServer", "main"]

VERSION = "fake-1"

_ACCEPT_TURNS = 5
"""Turns of the loop from accepting a connection to its handler; asyncio needs three."""


class FakeServer:
    """The server; lives on one event loop, between `start` and `stop`.

    Args:
        config: How it behaves.
        on_death: Called when `die_after_requests` strikes; the process ends
            itself here. By default all sockets are dropped.

    Attributes:
        config: As given.
        counters: What it has counted.
        port: Bound port; 0 before `start`.
        connections: Connections accepted so far.
        open_connections: Connections that are open now.
        requests: Generation requests received so far.
        headers: Headers of the latest generation request, names in lower case.
        most_running: Largest number of requests that ran at once.
    """

    def __init__(
        self, config: FakeConfig | None = None, *, on_death: Callable[[], None] | None = None
    ) -> None:
        self.config = config or FakeConfig()
        self.counters = FakeCounters()
        self.port = 0
        self.connections = 0
        self.requests = 0
        self.most_running = 0
        self.headers: dict[str, str] = {}
        self._on_death = on_death or self._drop_everything
        self._jitter = random.Random(self.config.seed)
        self._slots = asyncio.Semaphore(self.config.max_num_seqs)
        self._server: asyncio.Server | None = None
        self._handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def open_connections(self) -> int:
        """Return the number of connections that are open now."""
        return len(self._handlers)

    @property
    def url(self) -> str:
        """Return the base address, without `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind and listen; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._accept, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, drop all connections and wait for their handlers."""
        if self._server is not None:
            # Python 3.11 leaks a connection that was accepted but not yet attached at `close`.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(_ACCEPT_TURNS):
                await asyncio.sleep(0)
            self._server.close()
        handlers = dict(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        for writer in handlers.values():  # of handlers that never began
            writer.transport.abort()
        await asyncio.sleep(0)  # in which aborted transports close their sockets

    def _drop_everything(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._handlers.values():
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        handler = asyncio.create_task(self._serve(reader, writer))
        self._handlers[handler] = writer
        handler.add_done_callback(lambda task: self._handlers.pop(task, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await read_request(reader)) is not None:
                await self._answer(request, reader, writer)
                if writer.is_closing():
                    return
        except ConnectionError:  # the client went away, which is its right
            return
        finally:
            writer.transport.abort()

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        where = (request.method, request.path)
        if where == ("GET", "/health"):
            await send(writer, 200, b"")
        elif where == ("GET", "/version"):
            await send_json(writer, 200, {"version": VERSION})
        elif where == ("GET", "/v1/models"):
            card = {"id": self.config.model, "object": "model", "owned_by": "draftgate"}
            await send_json(writer, 200, {"object": "list", "data": [card]})
        elif where == ("GET", "/metrics"):
            text = self.counters.exposition(self.config).encode()
            await send(writer, 200, text, "text/plain; version=0.0.4; charset=utf-8")
        elif where in {("POST", "/v1/chat/completions"), ("POST", "/v1/completions")}:
            await self._answer_generation(request, reader, writer)
        elif request.path in SPELLING and self.config.model_of_context is not None:
            answer = spelled(request.path, json.loads(request.body), self.config.vocab_size)
            await send_json(writer, 200, answer)
        else:
            await send_error(writer, 404, f"no route {request.method} {request.path}")

    async def _answer_generation(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.requests += 1
        self.headers = request.headers
        given = request.headers.get("authorization", "")
        if self.config.api_key is not None and given != f"Bearer {self.config.api_key}":
            await send_error(writer, 401, f"incorrect API key provided: {given}")
            return
        try:
            work = self._work_out(request)
        except (ValueError, TypeError, KeyError) as error:
            await send_error(writer, 400, f"bad request: {error!r}")
            return
        if work is None:
            await send_error(writer, 404, "The model of this request does not exist.")
        elif "error" in work.faults:
            await send_error(writer, 500, f"planted error on request {work.number}")
        elif work.stream:
            await self._stream(work, reader, writer)
        else:
            await self._whole(work, writer)

    def _work_out(self, request: HttpRequest) -> Generation | None:
        """Return what to generate; None if another model is asked for."""
        body = json.loads(request.body)
        if body["model"] != self.config.model:
            return None
        chat = request.path.endswith("/chat/completions")
        given = body["messages"] if chat else body["prompt"]
        prompt, prompt_tokens = parse_prompt(given)
        options = body.get("stream_options") or {}
        known = read_by_model(given, prompt, body, self.config)
        steps = self._steps(prompt, known.ids, body)
        return Generation(
            number=self.requests,
            model=self.config.model,
            chat=chat,
            stream=bool(body.get("stream", False)),
            include_usage=bool(options.get("include_usage", False)),
            give_ids=bool(body.get("return_token_ids", False)),
            prompt_tokens=prompt_tokens,
            tokens=tuple(token for step in steps for token in step.tokens),
            steps=steps,
            faults=self._faults(self.requests),
            prompt_ids=known.ids,
            prompt_logprobs=known.logprobs,
            tell_accepted=self.config.tell_accepted,
        )

    def _steps(self, prompt: str, ids: tuple[int, ...], body: dict[str, Any]) -> tuple[Step, ...]:
        count, config = int(body.get("max_tokens", 16)), self.config
        if count < 1:
            raise ValueError(f"max_tokens must be >= 1, got {count}")
        seed = body.get("seed")
        chosen = config.seed * 1_000_003 + self.requests if seed is None else int(seed)
        sampling = Sampling(
            temperature=float(body.get("temperature", 1.0)),
            top_k=int(body.get("top_k", 0)),
            top_p=float(body.get("top_p", 1.0)),
        )
        model = config.model_of_context
        if model is not None:
            refuse_unknown(body, config)
            # Apart, so that no request draws what another one's seed stands for.
            source = f"{'request' if seed is None else 'seed'} {chosen}"
            if config.law_fault == "shared_seed":
                source = f"prompt {ids}"
            return model.steps(ids, count, sampling, random.Random(source))
        hard = config.hard_word is not None and config.hard_word in prompt
        mean = 1.0 if hard else config.tokens_per_step
        return scripted_steps(self._tokens(prompt, count, sampling, chosen), mean)

    def _tokens(self, prompt: str, count: int, sampling: Sampling, seed: int) -> tuple[int, ...]:
        vocabulary = self.config.vocab_size
        if sampling.temperature == 0:
            return greedy_tokens(prompt, count, vocabulary)
        law = token_law(
            vocabulary, sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p
        )
        return sampled_tokens(law, count, seed)

    def _faults(self, number: int) -> frozenset[str]:
        config = self.config
        every = {
            "error": config.error_every,
            "in_band_error": config.in_band_error_every,
            "early_close": config.early_close_every,
            "stall": config.stall_every,
            "missing_usage": config.missing_usage_every,
            "wrong_length": config.wrong_length_every,
            "garbage": config.garbage_every,
        }
        faults = {name for name, n in every.items() if n > 0 and number % n == 0}
        if config.die_after_requests is not None and number > config.die_after_requests:
            faults.add("death")
        return frozenset(faults)

    async def _stream(
        self, work: Generation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        write_stream_head(writer)
        given = 0
        async with aclosing(self._generate(work)) as chunks:
            async for tokens in chunks:
                if given == 0 and work.chat:
                    write_event(writer, opening_document(work))
                given += len(tokens)
                write_event(writer, step_document(work, tokens, given))
                await writer.drain()
                if await self._strike(work, given, reader, writer):
                    return
        if work.include_usage and "missing_usage" not in work.faults:
            write_event(writer, usage_document(work))
        await write_stream_end(writer)

    async def _strike(
        self,
        work: Generation,
        given: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Play a planted fault if it is due; return whether the answer ends here."""
        if "stall" in work.faults:
            await reader.read()  # until the client gives up
            return True
        if given < work.halfway:
            return False
        if "death" in work.faults:
            self._on_death()
            return True
        if "early_close" in work.faults:
            writer.close()
            return True
        if "in_band_error" in work.faults:
            error = error_document("planted error in the stream", 500)
            write_event(writer, {"error": error})
            await write_stream_end(writer)
            return True
        if "garbage" in work.faults:
            write_data(writer, b"{garbage")
        return False

    async def _whole(self, work: Generation, writer: asyncio.StreamWriter) -> None:
        async with aclosing(self._generate(work)) as chunks:
            async for _ in chunks:
                pass
        await send_json(writer, 200, whole_document(work))

    async def _generate(self, work: Generation) -> AsyncGenerator[tuple[int, ...], None]:
        """Yield the output chunk by chunk at the configured pace."""
        counters, config = self.counters, self.config
        now = asyncio.get_running_loop().time
        arrived = now()
        counters.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            counters.waiting -= 1
        counters.running += 1
        self.most_running = max(self.most_running, counters.running)
        scheduled = now()
        counters.queue_time_sum_s += scheduled - arrived
        counters.queue_time_count += 1
        counters.prompt_tokens += work.prompt_tokens
        due, wait_s = now(), config.ttft_s
        try:
            for index, step in enumerate(work.sent_steps):
                # A late step delays those after it, except for the timer's own overshoot.
                due = max(due + wait_s * self._factor(), now() - config.step_s)
                await asyncio.sleep(due - now())
                if index > 0 and config.method is not None:
                    counters.verified(step.accepted, config.k)
                if index == 0:
                    counters.prefill_time_sum_s += now() - scheduled
                    counters.prefill_time_count += 1
                counters.generation_tokens += len(step.tokens)
                yield step.tokens
                wait_s = config.step_s + config.step_s_per_stream * counters.running
        finally:
            counters.running -= 1
            self._slots.release()

    def _factor(self) -> float:
        jitter = self.config.jitter
        return self._jitter.uniform(1 - jitter, 1 + jitter) if jitter else 1.0


async def _run(config: FakeConfig, host: str, port: int) -> None:
    server = FakeServer(config, on_death=lambda: os._exit(1))
    await server.start(host, port)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sys.stdout.write(f"listening on {host}:{server.port}\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop()


def main(argv: list[str] | None = None) -> int:
    """Run the server until SIGINT or SIGTERM, or until a planted death.

    Raises:
        SystemExit: If the configuration is wrong, with what is.
    """
    parser = argparse.ArgumentParser(prog="draftgate.engines.fake_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--config", default="{}", help="JSON object, or @FILE that holds one")
    args = parser.parse_args(argv)
    text: str = args.config
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        config = parse_config(json.loads(text))
    except (SpecError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    asyncio.run(_run(config, args.host, args.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
