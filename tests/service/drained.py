"""Programs in another language drain a queue through the service, while they and the service are killed.

``python -m tests.service.drained --jobs 10000`` does so on a new SQLite file, or with ``--url`` on another database.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO

import httpx2

from queue_db import QueueDB
from queue_db.service import service
from tests.patience import PATIENCE
from tests.service.node_client import built

_CLIENTS = 2

# ``queue-db serve`` that ends with the process that has started it, however that ends: its standard input is closed then.
_SERVE = """
import os, runpy, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
runpy.run_module("queue_db", run_name="__main__", alter_sys=True)
"""


class Drain:
    """A service and its clients, as processes of their own."""

    def __init__(self, db: QueueDB, queue: str, program: Path, folder: Path) -> None:
        self.db = db
        self.queue = queue
        self.program = program
        self.folder = folder
        self.secret = db.tokens.create(f"drain {queue}", ["work"], queues=[queue])
        # Bound, and never listening: the service, which sets SO_REUSEADDR, may listen there again and again, and nobody else.
        self.held = socket.socket()
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held.bind(("127.0.0.1", 0))
        self.port = self.held.getsockname()[1]
        self.service: subprocess.Popen[bytes] | None = None
        self.clients: list[subprocess.Popen[bytes]] = []
        self.started = 0
        self.kills: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_service(self) -> None:
        """Start the service on its port, and wait until it answers."""
        url = self.db.database.engine.url.render_as_string(hide_password=False)
        command = [sys.executable, "-c", _SERVE, "serve", "--port", str(self.port)]
        with (self.folder / "service.log").open("ab") as log:
            self.service = _started(command, {"QUEUE_DB_URL": url}, log)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(httpx2.TransportError):
                if httpx2.get(f"{self.url}/readyz", timeout=PATIENCE).status_code == 200:
                    return
            assert self.service.poll() is None, (self.folder / "service.log").read_text()
            time.sleep(0.02)
        raise AssertionError("the service does not answer")

    def start_client(self) -> None:
        """Start one more client, with a journal of its own."""
        self.started += 1
        journal = self.folder / f"journal-{self.started}"
        command = ["node", str(self.program), self.url, self.queue, str(journal)]
        with (self.folder / "clients.log").open("ab") as log:
            self.clients.append(_started(command, {"QUEUE_DB_TOKEN": self.secret}, log))

    def kill_client(self) -> None:
        """Kill the oldest client, and start another."""
        client = self.clients.pop(0)
        _kill(client)
        self.kills["client"] += 1
        self.start_client()

    def kill_service(self) -> None:
        """Kill the service, and start another on its port."""
        assert self.service is not None
        _kill(self.service)
        self.kills["service"] += 1
        self.start_service()

    def end(self) -> None:
        """End what runs, as it does when this process is killed: nothing is left."""
        running = [process for process in (*self.clients, self.service) if process is not None]
        try:
            for process in running:
                assert process.stdin is not None
                process.stdin.close()
            for process in running:
                process.wait(PATIENCE)
        finally:
            for process in running:
                _kill(process)
            self.held.close()

    def completed(self) -> int:
        """How many completions clients know of."""
        return sum(journal.read_bytes().count(b"\n") for journal in self.folder.glob("journal-*"))

    def check(self, enqueued: set[int]) -> None:
        """No job was lost, and each has the one completion that a client was told of."""
        finished = {}
        last = None
        while page := self.db.finished_jobs(self.queue, limit=1000, after=last):
            finished |= {one.id: one.result for one in page}
            last = page[-1]
        assert set(finished) == enqueued, "jobs were lost"
        told: dict[int, str] = {}
        for journal in self.folder.glob("journal-*"):
            for line in journal.read_text().splitlines():
                job_id, _, result = line.partition(" ")
                assert int(job_id) not in told, "a completion was confirmed twice"
                told[int(job_id)] = result
        assert {one: finished[one] for one in told} == told, "a client was told of a completion that another's has replaced"
        assert live(self.db, self.queue) == 0
        assert self.db.queue(self.queue).stats().dead == 0


def _started(command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process that ends when its standard input is closed."""
    return subprocess.Popen(command, env=os.environ | environment, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


def live(db: QueueDB, queue: str) -> int:
    """How many jobs have not left."""
    stats = db.queue(queue).stats()
    return stats.available + stats.scheduled + stats.running + stats.blocked


def drain(db: QueueDB, queue: str, jobs: int, folder: Path, kills: int = 4) -> Drain:
    """Enqueue jobs, complete them over REST with clients that were generated, kill clients and service, and check.

    Half of the jobs are enqueued after the last kill.
    """
    program = built(service(db).openapi(), folder)
    half = jobs // 2
    enqueued = set(db.queue(queue).enqueue_many([("k", number) for number in range(half)]))
    run = Drain(db, queue, program, folder)
    try:
        run.start_service()
        for _ in range(_CLIENTS):
            run.start_client()
        marks = [half * one // (kills + 1) for one in range(1, kills + 1)]
        last, until = half, time.monotonic() + PATIENCE
        while ((left := live(db, queue)) or marks) and time.monotonic() < until:
            if left != last:
                last, until = left, time.monotonic() + PATIENCE
            assert all(client.poll() is None for client in run.clients), (folder / "clients.log").read_text()
            if marks and half - left >= marks[0]:
                marks.pop(0)
                if len(marks) % 2:
                    run.kill_client()
                else:
                    run.kill_service()
                if not marks:
                    enqueued |= set(db.queue(queue).enqueue_many([("k", number) for number in range(half, jobs)]))
            time.sleep(0.1)
    finally:
        run.end()
    run.check(enqueued)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=8, help="of clients and the service by turns")
    parser.add_argument("--url")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, QueueDB(given.url or f"sqlite:///{folder}/queue.db") as db:
        db.migrate()
        began = time.monotonic()
        run = drain(db, "drained", given.jobs, Path(folder), given.kills)
        took = time.monotonic() - began
        print(f"{given.jobs:,} jobs in {took:.1f} s, killed: {dict(run.kills)}; confirmed to clients: {run.completed():,}")


if __name__ == "__main__":
    main()
