"""Real workers of Taskiq, with the module of docs/integrations/taskiq.md: they run, stop, and are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.aio.loop import for_asyncio
from tests.patience import PATIENCE, wait_for

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "taskiq.md"

MORE = """
@broker.task
async def work(folder: str, number: int) -> None:
    import asyncio
    import os
    import pathlib

    if "HOLD" in os.environ:
        (pathlib.Path(folder) / f"begun-{number}").write_text(str(os.getpid()))
        await asyncio.sleep(1000)
    (pathlib.Path(folder) / f"done-{number}").touch()


async def send(folder: str, numbers: int) -> None:
    await broker.startup()
    for number in range(numbers):
        await work.kiq(folder, number)
    await broker.shutdown()
"""


class Shop:
    """Workers and calls of the module, in a queue of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[3]}"}
        self._workers: list[subprocess.Popen[str]] = []

    def worker(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start a worker with one process, beside its parent; return when it listens."""
        worker = subprocess.Popen(
            [sys.executable, "-m", "taskiq", "worker", "shop:broker", "--workers", "1", *options],
            cwd=self._folder,
            env=self._environment | environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._workers.append(worker)
        lines: list[str] = []
        threading.Thread(target=lambda: lines.extend(iter(worker.stderr.readline, "")), daemon=True).start()
        wait_for(lambda: any("Listening started" in line for line in lines) or worker.poll() is not None)
        assert worker.poll() is None, "".join(lines)
        return worker

    def call(self, code: str) -> None:
        """Run code with the module."""
        program = f"import asyncio, shop\nFOLDER = {str(self._folder)!r}\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):  # children outlive a parent that was killed
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@pytest.fixture
def shop(url: str, db: QueueDB, name: str, tmp_path: Path) -> Iterator[Shop]:
    """With the database of the test in the place of the page's."""
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code, number = re.subn(r'QueueBroker\("[^"]*"', f'QueueBroker("{for_asyncio(url)}", ["{name}"], lease=2', block[1])
    assert number == 1
    (tmp_path / "shop.py").write_text(code + MORE)
    started = Shop(tmp_path)
    yield started
    started.close()


def done(folder: Path) -> int:
    return len([*folder.glob("done-*")])


def begun(folder: Path) -> int:
    return len([one for one in folder.glob("begun-*") if one.read_text()])


@pytest.mark.rest("processes of Taskiq; test_taskiq_broker.py runs tasks")
def test_a_worker_runs_tasks_and_stops(shop, name, db, tmp_path):
    worker = shop.worker()
    shop.call("asyncio.run(shop.send(FOLDER, 5))")
    wait_for(lambda: db.next_due([name]) == {name: None})
    assert done(tmp_path) == 5
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


@pytest.mark.rest("processes of Taskiq; test_taskiq_broker.py loses a lease")
def test_nothing_is_lost_when_a_worker_is_killed(shop, name, db, tmp_path):
    first = shop.worker("--max-async-tasks", "2", HOLD="1")
    shop.call("asyncio.run(shop.send(FOLDER, 6))")
    wait_for(lambda: begun(tmp_path) == 2)
    assert db.queue(name).stats().running >= 2
    os.killpg(first.pid, signal.SIGKILL)
    shop.worker()
    wait_for(lambda: db.next_due([name]) == {name: None})
    assert done(tmp_path) == 6
    assert db.dead.count(name) == 0


@pytest.mark.rest("processes of Taskiq; the control of the one above")
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_what_is_acknowledged_early_is_lost_with_its_worker(shop, name, db, tmp_path):
    first = shop.worker("--max-async-tasks", "2", "--ack-type", "when_received", HOLD="1")
    shop.call("asyncio.run(shop.send(FOLDER, 6))")
    wait_for(lambda: begun(tmp_path) == 2)
    os.killpg(first.pid, signal.SIGKILL)
    shop.worker()
    wait_for(lambda: db.next_due([name]) == {name: None})
    assert done(tmp_path) == 4


@pytest.mark.rest("processes of Taskiq")
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_what_a_worker_does_not_finish_returns_at_its_stop(shop, name, db, tmp_path):
    worker = shop.worker("--max-async-tasks", "1", "--wait-tasks-timeout", "0.1", HOLD="1")
    shop.call("asyncio.run(shop.send(FOLDER, 3))")
    wait_for(lambda: begun(tmp_path) == 1)
    os.kill(worker.pid, signal.SIGTERM)
    worker.wait(PATIENCE)
    jobs = db.queue(name).peek()
    assert [job.attempts for job in jobs] == [0, 0, 0]
