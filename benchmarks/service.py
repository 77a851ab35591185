"""``python -m benchmarks service``: jobs claimed and completed over HTTP, compared with a Python program that calls the library."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.running import add_options, own_tables, parsed, run, say
from queue_db import QueueDB

_EPILOG = """\
sections:
  claims  connections claim 1, and 100 jobs at a time, and complete them in one request, until the queue is empty; beside it
          threads of a Python program do the same with the library. In a third row each connection gives a worker name of its own.
          The floor: as many requests, to a server that answers each with nothing
  idle    clients wait in long polls for a job; then jobs come, one for each

how it measures:
  The service is one process, or --processes of them on one port, with a token; the clients are another one. Rows run in turns,
  figures are medians. p50 and p99 are those of a claim. CPU is that of the service or the program, without the database; client
  CPU is that of the clients. Where service, clients and database have few cores, the sum of what they use is what counts.
  memory is the service's resident set at the end. Each job must be completed once: lost and repeated must be 0. Conflicts are
  verdicts other than applied, errors are answers other than 2xx.
"""

_SECTIONS = ("claims", "idle")
_JOBS = {1: 20_000, 100: 200_000}
_QUEUE = "bench"

# Rows of a table.
_NAMED, _FLOOR, _LIBRARY = "over HTTP, own names", "floor: answers of nothing", "library"


@dataclass
class Drained:
    """One drain."""

    jobs: int
    seconds: float
    requests: int = 0
    #: Seconds of each claim.
    claims: list[float] = field(default_factory=list)
    #: Megabytes of the service.
    memory: float = 0.0
    #: Seconds of processors that the service, or the program, has used, and the clients.
    cpu: float = 0.0
    client_cpu: float = 0.0
    #: Verdicts other than ``applied``, and answers other than 2xx.
    conflicts: int = 0
    errors: int = 0
    #: Jobs that were not completed, or more than once.
    wrong: int = 0

    @property
    def cpu_of_a_job(self) -> tuple[float, float]:
        """Seconds of processors for a job: of the service, or the program, and of the clients."""
        return self.cpu / self.jobs, self.client_cpu / self.jobs

    def at(self, share: float) -> float:
        """Milliseconds within which this share of the claims ended."""
        return sorted(self.claims)[min(len(self.claims) - 1, int(share * len(self.claims)))] * 1000


# --- the service ------------------------------------------------------------------------------------------------------


def _serve(url: str, table: str, shared_by: int, listening: socket.socket, ready: Connection) -> None:
    from queue_db.service import Settings, service
    from queue_db.service.http.server import BACKLOG, collect_less, server
    from queue_db.service.processes import AT_ONCE, SharedSocket

    with QueueDB(url, table=table, pool_size=20) as db, SharedSocket(fileno=listening.detach()) as shared:
        running = server(service(db, Settings()), at_once=AT_ONCE if shared_by > 1 else BACKLOG)
        running.on_start = lambda: ready.send(True)
        collect_less()
        running.run(sockets=[shared])


def _serve_nothing(listening: socket.socket, ready: Connection) -> None:
    import uvicorn
    from starlette.responses import Response

    from queue_db.service.http.server import collect_less

    config = uvicorn.Config(Response(), ws="none", lifespan="off", loop="asyncio", log_config=None, access_log=False)
    collect_less()
    ready.send(True)
    uvicorn.Server(config).run(sockets=[listening])


def _service(url: str, table: str, number: int) -> AbstractContextManager[tuple[int, list[psutil.Process]]]:
    """A service in processes of its own: its port, and its processes."""
    return _serving(_serve, number, url, table, number)


@contextmanager
def _serving(serve: Callable[..., None], number: int, *given: object) -> Iterator[tuple[int, list[psutil.Process]]]:
    spawn, made = multiprocessing.get_context("spawn"), []
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        for _ in range(number):
            ready, theirs = multiprocessing.Pipe(duplex=False)
            process = spawn.Process(target=serve, args=(*given, listening, theirs))
            process.start()
            made.append((process, ready))
        try:
            for _, ready in made:
                if not ready.poll(60):
                    raise TimeoutError("the service did not start within a minute")
            yield listening.getsockname()[1], [psutil.Process(process.pid) for process, _ in made]
        finally:
            for process, _ in made:
                process.terminate()
            for process, _ in made:
                process.join(30)
                process.kill()


def _used(processes: Sequence[psutil.Process]) -> float:
    """Seconds of processors that these have used."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


class AnswerError(Exception):
    """An answer that is not 2xx."""


class Client:
    """One connection."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._head = port, f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)

    async def post(self, path: str, content: object) -> object:
        """Send a request and return the answer."""
        body = json.dumps(content).encode()
        self._writer.write(f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        if "transfer-encoding: chunked" in head:
            answer = b""
            while size := int(await self._reader.readline(), 16):
                answer += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        else:
            answer = await self._reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        if status >= 300:
            raise AnswerError(f"{path}: {status} {answer[:300]!r}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


async def _drain_by_http(port: int, token: str, connections: int, batch: int, done: list[int], *, named: bool = False) -> Drained:
    clients = [Client(port, token) for _ in range(connections)]
    await asyncio.gather(*(client.open() for client in clients))
    result, began = Drained(0, 0.0), time.perf_counter()

    async def answer(client: Client, path: str, content: object) -> Any:
        while True:
            result.requests += 1
            try:
                return await client.post(f"/api/v1/queues/{_QUEUE}/{path}", content)
            except AnswerError as error:
                result.errors += 1
                if result.errors == 1:
                    say(f"error: {error}")
                await asyncio.sleep(0.1)

    async def work(client: Client, number: int) -> None:
        wanted = {"limit": batch, **({"worker": f"client-{number}"} if named else {})}
        while True:
            started = time.perf_counter()
            jobs = (await answer(client, "claims", wanted))["jobs"]
            result.claims.append(time.perf_counter() - started)
            if not jobs:
                return
            settled = [{"lease": job["lease"], "verb": "complete"} for job in jobs]
            verdicts = (await answer(client, "settlements", {"settlements": settled}))["verdicts"]
            applied = [int(one["id"]) for one in verdicts if one["verdict"] == "applied"]
            done.extend(applied)
            result.conflicts += len(jobs) - len(applied)

    await asyncio.gather(*map(work, clients, range(connections)))
    result.seconds = time.perf_counter() - began
    for client in clients:
        client.close()
    return result


async def _ask_for_nothing(port: int, connections: int, requests: int) -> Drained:
    clients = [Client(port, "") for _ in range(connections)]
    await asyncio.gather(*(client.open() for client in clients))
    each = max(2, requests // connections)
    result, began = Drained(0, 0.0, requests=each * connections), time.perf_counter()

    async def ask(client: Client) -> None:
        for _ in range(each):
            started = time.perf_counter()
            await client.post("/", {"limit": 1})
            result.claims.append(time.perf_counter() - started)

    await asyncio.gather(*map(ask, clients))
    result.seconds = time.perf_counter() - began
    for client in clients:
        client.close()
    return result


def _measured(drain: Coroutine[Any, Any, Drained], processes: Sequence[psutil.Process]) -> Drained:
    """What clients do to a server, with what both use."""
    used, own = _used(processes), time.process_time()
    found = asyncio.run(drain)
    found.cpu, found.client_cpu = _used(processes) - used, time.process_time() - own
    found.memory = sum(one.memory_info().rss for one in processes) / 1e6
    return found


def _drain_by_library(db: QueueDB, threads: int, batch: int, done: list[int]) -> Drained:
    queue, result, began, used = db.queue(_QUEUE), Drained(0, 0.0), time.perf_counter(), time.process_time()

    def work(_: int) -> None:
        while True:
            started = time.perf_counter()
            jobs = queue.claim(batch)
            result.claims.append(time.perf_counter() - started)
            if not jobs:
                return
            applied = [job.id for job, verdict in zip(jobs, queue.complete_many(jobs), strict=True) if verdict]
            done.extend(applied)
            result.conflicts += len(jobs) - len(applied)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    result.seconds, result.cpu = time.perf_counter() - began, time.process_time() - used
    return result


def _run_of(name: str, db: QueueDB, url: str, table: str, token: str, batch: int, size: int, asked: argparse.Namespace) -> Drained:
    """A run of a row of the table."""
    if name == _FLOOR:
        with _serving(_serve_nothing, 1) as (port, processes):
            found = _measured(_ask_for_nothing(port, asked.connections, 2 * size // batch), processes)
        found.jobs = found.requests * batch // 2
        return found
    ids = db.queue(_QUEUE).enqueue_many(("n", None) for _ in range(size))
    done: list[int] = []
    if name == _LIBRARY:
        found = _drain_by_library(db, asked.threads, batch, done)
    else:
        with _service(url, table, asked.processes) as (port, processes):
            drain = _drain_by_http(port, token, asked.connections, batch, done, named=name == _NAMED)
            found = _measured(drain, processes)
    found.jobs, found.wrong = size, len(set(ids) - set(done)) + len(done) - len(set(done))
    return found


def _claims(db: QueueDB, url: str, table: str, token: str, asked: argparse.Namespace) -> None:
    for batch, whole in _JOBS.items():
        size = max(asked.connections, round(whole * asked.scale))
        runs: dict[str, list[Drained]] = {"over HTTP": [], _NAMED: [], _FLOOR: [], _LIBRARY: []}
        for turn in range(asked.repeat):
            for name, found in runs.items():
                say(f"{db.database.server}: claims of {batch}, {name}, {turn + 1} of {asked.repeat}")
                found.append(_run_of(name, db, url, table, token, batch, size, asked))
        wrong = sum(run.wrong for found in runs.values() for run in found)
        _show(f"{db.database.server}: {size:,} jobs, claims of {batch}; lost and repeated: {wrong}", runs, asked)


def _show(title: str, runs: dict[str, list[Drained]], asked: argparse.Namespace) -> None:
    shown = Table(title=title)
    for column in (
        *("", "jobs/s", "÷ library", "requests/s", "claim p50 ms", "p99 ms", "CPU µs/job", "client CPU", "memory MB"),
        *("conflicts", "errors"),
    ):
        shown.add_column(column, justify="right" if column else "left")
    base = statistics.median(run.jobs / run.seconds for run in runs[_LIBRARY])
    for name, found in runs.items():
        rate = statistics.median(run.jobs / run.seconds for run in found)
        asks = statistics.median(run.requests / run.seconds for run in found)
        p50, p99 = (statistics.median(run.at(share) for run in found) for share in (0.5, 0.99))
        cpu, clients = (statistics.median(one) * 1e6 for one in zip(*[run.cpu_of_a_job for run in found], strict=True))
        memory = statistics.median(run.memory for run in found)
        who = f"{name}, {asked.connections if asks else asked.threads} {'connections' if asks else 'threads'}"
        shown.add_row(
            *(who, f"{rate:,.0f}", f"{rate / base:.2f}", f"{asks:,.0f}" if asks else "", f"{p50:.1f}", f"{p99:.1f}", f"{cpu:.0f}"),
            *(f"{clients:.0f}" if asks else "", f"{memory:.0f}" if memory else ""),
            *(f"{sum(one.conflicts for one in found)}", f"{sum(one.errors for one in found)}"),
        )
    Console(width=150).print(shown)


async def _wait_idle(
    db: QueueDB, port: int, token: str, clients: int, processes: Sequence[psutil.Process]
) -> tuple[float, list[float]]:
    """Let clients wait, then give each a job: the service's share of a core while they wait, seconds from enqueue to answer."""
    found = [Client(port, token) for _ in range(clients)]
    await asyncio.gather(*(client.open() for client in found))

    async def wait(client: Client) -> float:
        while True:
            answer = await client.post(f"/api/v1/queues/{_QUEUE}/claims", {"limit": 1, "wait": 50})
            if answer["jobs"]:  # type: ignore[index]
                return time.time() - answer["jobs"][0]["payload"]  # type: ignore[index,no-any-return]

    waiting = [asyncio.get_running_loop().create_task(wait(client)) for client in found]
    await asyncio.sleep(3)
    before, began = _used(processes), time.perf_counter()
    await asyncio.sleep(10)
    share = (_used(processes) - before) / (time.perf_counter() - began)

    def enqueue() -> None:
        for _ in range(clients):
            db.queue(_QUEUE).enqueue("n", time.time())
            time.sleep(0.005)

    await asyncio.to_thread(enqueue)
    took = await asyncio.wait_for(asyncio.gather(*waiting), 120)
    for client in found:
        client.close()
    return share, took


def _idle(db: QueueDB, url: str, table: str, token: str, asked: argparse.Namespace) -> None:
    say(f"{db.database.server}: {asked.idle:,} clients wait")
    with _service(url, table, asked.processes) as (port, processes):
        share, took = asyncio.run(_wait_idle(db, port, token, asked.idle, processes))
        memory = sum(one.memory_info().rss for one in processes) / 1e6
    db.queue(_QUEUE).purge()
    took.sort()
    shown = Table(title=f"{db.database.server}: {asked.idle:,} idle clients in long polls, then a job for each, 200 a second")
    for column in ("service, share of a core while idle", "enqueued → received p50 ms", "p99 ms", "memory MB"):
        shown.add_column(column, justify="right")
    shown.add_row(f"{share:.1%}", f"{took[len(took) // 2] * 1e3:.1f}", f"{took[int(len(took) * 0.99)] * 1e3:.1f}", f"{memory:.0f}")
    Console(width=110).print(shown)


def _measure(url: str, asked: argparse.Namespace) -> None:
    table = f"bench_service_{os.getpid()}"
    with own_tables(url, table) as db:
        token = db.tokens.create("benchmark", ("work",))
        if "claims" in asked.only:
            _claims(db, url, table, token, asked)
        if "idle" in asked.only:
            _idle(db, url, table, token, asked)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks service",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, 3)
    parser.add_argument("--connections", type=int, default=200, metavar="N", help="clients that claim (default 200)")
    parser.add_argument("--threads", type=int, default=10, metavar="N", help="threads of the library's program (default 10)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="processes of the service (default 1)")
    parser.add_argument("--idle", type=int, default=1000, metavar="N", help="clients that wait (default 1000)")
    return parsed(parser, arguments, _SECTIONS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    return run(_measure, _parse(arguments))


if __name__ == "__main__":
    sys.exit(main())
