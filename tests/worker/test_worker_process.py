"""Workers as processes: signals, sudden death, and a database that goes away."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queue_db import State
from queue_db.db import QueueDB
from tests.patience import PATIENCE
from tests.servers import Server, provide
from tests.worker.serving import serving

# Prints when it has begun, and ends on a line of standard input.
HANDLER = """
import sys

def work(job):
    print("begun", job.id, flush=True)
    assert sys.stdin.readline() == "go\\n"
"""


class Process:
    """``queue-db work`` with the handler above."""

    def __init__(self, url: str, queue: str, folder: Path, *options: str) -> None:
        (folder / "handlers.py").write_text(HANDLER)
        command = [sys.executable, "-m", "queue_db", "work", queue, "--handler", "handlers:work", *options]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={"QUEUE_DB_URL": url, "PATH": "/usr/bin:/bin", "PYTHONWARNINGS": "error"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        # No process may hang.
        self.watchdog = threading.Timer(PATIENCE, self.process.kill)
        self.watchdog.start()

    def begun(self) -> None:
        line = self.process.stdout.readline()
        assert line.startswith("begun"), line + self.process.stderr.read()

    def go(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def logged(self, part: str) -> None:
        for line in self.process.stderr:
            if part in line:
                return
        raise AssertionError(f"{part!r} was not logged")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate()
        self.watchdog.cancel()
        return self.process.returncode, out, err


@pytest.fixture
def process(url: str, name: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*options: str) -> Process:
        started.append(Process(url, name, tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.end()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_signal_lets_the_running_job_finish(process, queue, number, status):
    queue.enqueue_many([("n", 1), ("n", 2)])
    worker = process("--json", "--concurrency", "1")
    worker.begun()
    worker.process.send_signal(number)
    worker.logged(f"{number.name}: no more claims, up to 30 s")
    worker.go()
    ended, out, _ = worker.end()
    assert ended == status
    assert '"completed": 1' in out
    assert f'"signal": {int(number)}' in out
    assert queue.stats().available == 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_sigcont_after_a_stop_does_not_let_it_claim_again(process, queue):
    """Service managers send it, so that a stopped process receives the SIGTERM."""
    queue.enqueue_many([("n", 1), ("n", 2)])
    worker = process("--concurrency", "1")
    worker.begun()
    worker.process.send_signal(signal.SIGTERM)
    worker.logged("SIGTERM: no more claims")
    worker.process.send_signal(signal.SIGCONT)
    worker.process.send_signal(signal.SIGUSR1)
    for line in worker.process.stderr:  # the lines before those of SIGUSR1
        assert "claiming again" not in line
        if "stacks of all threads" in line:
            break
    worker.go()
    assert worker.end()[0] == 0
    assert queue.stats().available == 1


def test_a_second_signal_releases_the_job_at_once(process, queue):
    job_id = queue.enqueue("n")
    worker = process()
    worker.begun()
    worker.process.send_signal(signal.SIGTERM)
    worker.logged("no more claims")
    worker.process.send_signal(signal.SIGTERM)
    worker.logged("released 1 unfinished jobs")
    assert worker.end()[0] == 0
    job = queue.get(job_id)
    assert (job.state, job.attempts) == (State.AVAILABLE, 0)


def test_after_sudden_death_the_job_comes_back_with_the_lease(process, queue, open_db):
    job_id = queue.enqueue("n")
    worker = process("--lease", "600")
    worker.begun()
    worker.process.kill()
    assert worker.end()[0] == -signal.SIGKILL
    assert queue.get(job_id).state is State.RUNNING
    assert queue.claim() == []
    later = open_db(clock=lambda: time.time_ns() // 1000 + 3600 * 1_000_000).queue(queue.name)
    (again,) = later.claim()
    assert (again.id, again.attempts) == (job_id, 2)


@pytest.fixture(scope="module")
def private() -> Iterator[Server]:
    server = provide("postgresql")
    yield server
    server.remove()


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_worker_survives_a_restart_of_the_database(kind, private, name, running, log):
    url = private.create_database()
    with QueueDB(url) as db:
        db.migrate()
        queue = db.queue(name)
        queue.enqueue("before")
        started, go, after = threading.Event(), threading.Event(), threading.Event()

        def handler(job):
            if job.kind == "before":
                started.set()
                assert go.wait(PATIENCE)
            else:
                after.set()

        worker = serving(queue, handler, concurrency=2)
        with running(worker):
            assert started.wait(PATIENCE)
            private.kill()
            go.set()
            # One thread cannot report its result, the other cannot claim.
            log.wait("settling <LeasedJob")
            log.wait("claiming from")
            private.start()
            queue.enqueue("after")
            assert after.wait(PATIENCE)
            log.wait("back again after")
        assert log.count("failed, trying again: ") == 1, "each thread has logged the outage"
        assert log.count("back again") == 1
        assert (worker.summary.completed, worker.summary.lost, worker.summary.released) == (2, 0, 0)
        assert queue.stats().by_kind == {}
