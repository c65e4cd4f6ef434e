"""The least that a client on uvloop can do: wait, read with stamps, append. A bound, no tool.

`python -m benchmarks.loadgen.bare JOB CORES` (both JSON) runs one closed-loop job and
writes one line of JSON. It finds the end of an answer by its last bytes, checks
nothing, times nothing out and would not survive a connection that breaks.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from benchmarks.loadgen.figures import true_figures
from benchmarks.loadgen.foreign import ForeignRun
from benchmarks.loadgen.job import Cores, Job
from draftgate.calibration.engine import NullEngineProcess
from draftgate.clock import RECEIVE_STAMP_BYTES, SYSTEM_CLOCK, stamp_receives
from draftgate.codec import decode, encode
from draftgate.load.health import cpu_time_s
from draftgate.load.wire import WireRead

_END = b"0\r\n\r\n"
_READ_BYTES = 65_536


def main() -> None:
    """Run the job of the command line and write its result to standard output."""
    job = decode(Job, json.loads(sys.argv[1]), "job")
    cores = decode(Cores, json.loads(sys.argv[2]), "cores")
    with tempfile.TemporaryDirectory(prefix="loadgen-") as name:
        engine = NullEngineProcess((*job.engine, "--cpu", str(cores.engine)), Path(name))
        try:
            os.sched_setaffinity(0, {cores.client})
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                start_ns = SYSTEM_CLOCK.now_ns()
                cpu_s = runner.run(_streams(job, engine.url))
                wall_s = (SYSTEM_CLOCK.now_ns() - start_ns) / 1e9
        finally:
            engine.stop()
        sent = engine.sent()
    result = ForeignRun(
        ended=True,
        wall_s=wall_s,
        loaded_s=wall_s,
        cpu_s=cpu_s,
        cpu_to_end_s=cpu_s,
        sent_tokens=sum(int(stream.step_tokens.sum()) for stream in sent),
        requests=len(sent),
        reported=None,
        true=true_figures(sent),
    )
    sys.stdout.write(json.dumps(encode(result)) + "\n")


async def _streams(job: Job, url: str) -> float:
    """Run all streams to their end and return the CPU seconds that it took."""
    address, body = urlsplit(url), _body(job)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: mock\r\nContent-Length: {len(body)}\r\n"
    message = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
    sockets = [
        socket.create_connection((address.hostname, address.port)) for _ in range(job.streams)
    ]
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    left = [(job.requests or 0) - job.streams]
    running = [job.streams]

    def ended(sock: socket.socket) -> None:
        if left[0] > 0:
            left[0] -= 1
            sock.send(message)
            return
        running[0] -= 1
        if not running[0]:
            over.set()

    before_s = cpu_time_s()
    for sock in sockets:
        sock.setblocking(False)  # noqa: FBT003 - the library's own signature
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamp_receives(sock)
        loop.add_reader(sock.fileno(), _reader(sock, ended))
        sock.send(message)
    await over.wait()
    used_s = cpu_time_s() - before_s
    for sock in sockets:
        loop.remove_reader(sock.fileno())
        sock.close()
    return used_s


def _body(job: Job) -> bytes:
    messages = [{"role": "user", "content": "bare"}]
    wanted = {"model": "mock", "messages": messages, "max_tokens": job.tokens, "stream": True}
    return json.dumps({**wanted, "return_token_ids": True}).encode()


def _reader(sock: socket.socket, ended: Callable[[socket.socket], None]) -> Callable[[], None]:
    reads: list[WireRead] = []
    now_ns = SYSTEM_CLOCK.now_ns

    def readable() -> None:
        data, ancillary, _, _ = sock.recvmsg(_READ_BYTES, RECEIVE_STAMP_BYTES)
        reads.append((now_ns(), ancillary[0][2] if ancillary else None, data))
        if data.endswith(_END):
            ended(sock)

    return readable


if __name__ == "__main__":
    main()
