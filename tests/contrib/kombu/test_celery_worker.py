"""Real workers of Celery, with the module of docs/integrations/celery.md: tasks, remote control, and kills."""

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
from sqlalchemy import make_url

from queue_db import QueueDB
from tests.patience import PATIENCE, wait_for

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "celery.md"

MORE = """
app.conf.broker_transport_options = {"visibility_timeout": 2}

import os

if "BLOCKING" in os.environ:
    from queue_db.contrib.kombu.transport import Transport

    Transport.implements = Transport.implements.extend(asynchronous=False)


@app.task
def work(folder, number):
    import pathlib
    import time

    if "HOLD" in os.environ:
        (pathlib.Path(folder) / f"begun-{number}").write_text(str(os.getpid()))
        time.sleep(1000)
    (pathlib.Path(folder) / f"done-{number}").touch()
"""


@pytest.fixture
def shop(url: str, tmp_path: Path) -> Path:
    """The folder of the module ``shop``."""
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code = re.sub(r'^URL = "[^"]*".*$', f'URL = "{url}"', block[1], flags=re.MULTILINE)
    (tmp_path / "shop.py").write_text(code + MORE)
    return tmp_path


class Shop:
    """Workers and calls of the module, in a queue of their own."""

    def __init__(self, folder: Path, queue: str) -> None:
        self._folder, self._queue = folder, queue
        self._environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[3]}"}
        self._workers: list[subprocess.Popen[str]] = []

    def worker(self, name: str, pool: str = "prefork", **environment: str) -> subprocess.Popen[str]:
        """Start a worker; return when it is ready."""
        options = ["--pool", pool, "-c", "2", "-Q", self._queue, "-n", f"{name}-{self._queue}@here", "-l", "info"]
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "worker", *options],
            cwd=self._folder,
            env=self._environment | environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._workers.append(worker)
        ready = threading.Event()
        threading.Thread(target=self._read, args=(worker, ready), daemon=True).start()
        assert ready.wait(PATIENCE)
        return worker

    @staticmethod
    def _read(worker: subprocess.Popen[str], ready: threading.Event) -> None:
        for line in worker.stderr:
            if " ready." in line:
                ready.set()

    def call(self, code: str) -> str:
        """Run code with the module; return what it prints."""
        program = f"import shop\nQUEUE = {self._queue!r}\nFOLDER = {str(self._folder)!r}\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):  # children outlive a parent that was killed
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@pytest.fixture
def celery(shop: Path, name: str) -> Iterator[Shop]:
    started = Shop(shop, name)
    yield started
    started.close()


@pytest.mark.rest("processes of Celery; test_kombu_leases.py kills a consumer")
def test_a_worker_runs_tasks_and_answers(celery, url):
    run_and_answer(celery, url)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("pool", ["threads", "solo"])
@pytest.mark.rest("processes of Celery; test_kombu_event_loop.py has the loop")
def test_other_pools_run_tasks_and_answer(celery, url, pool):
    run_and_answer(celery, url, pool)


def run_and_answer(celery: Shop, url: str, pool: str = "prefork") -> None:
    celery.worker("a", pool)
    said = celery.call(
        "from celery import chord, group\n"
        "print(shop.add.apply_async((2, 3), queue=QUEUE).get(timeout=60))\n"
        "print(group(shop.add.s(n, n).set(queue=QUEUE) for n in range(3))().get(timeout=60))\n"
        "here = f'a-{QUEUE}@here'\n"
        "asked = shop.app.control.inspect([here], timeout=60)\n"
        "print(asked.ping()[here])\n"
        "print(asked.stats()[here]['broker']['hostname'])\n"
    )
    broker = make_url(f"queuedb+{url}").set(query={}).render_as_string(hide_password=True)
    assert said.splitlines() == ["5", "[0, 2, 4]", "{'ok': 'pong'}", broker]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
@pytest.mark.parametrize(
    "loop",
    [
        pytest.param("asynchronous", marks=pytest.mark.rest("processes of Celery; test_kombu_event_loop.py has the loop")),
        pytest.param("blocking", marks=pytest.mark.nightly("the negative control waits for an answer that never comes")),
    ],
)
def test_a_worker_prefetches_and_answers_while_its_processes_are_busy(celery, name, url, loop):
    blocking = {"BLOCKING": "1"} if loop == "blocking" else {}
    celery.worker("a", HOLD="1", **blocking)
    publish = "for number in range({}, {}):\n    shop.work.apply_async((FOLDER, number), queue=QUEUE)"
    ping = (
        f"here = f'a-{{QUEUE}}@here'\nasked = shop.app.control.inspect([here], timeout={2 if blocking else 60})\n"
        "print((asked.ping() or {}).get(here))"
    )
    with QueueDB(url) as db:
        queue = db.queue(name)
        celery.call(publish.format(0, 3))  # a blocking worker waits for a process that takes the third
        wait_for(lambda: queue.stats().running == 3)
        celery.call(publish.format(3, 6))
        if not blocking:
            wait_for(lambda: queue.stats().running == 6)
        assert celery.call(ping) == ("None\n" if blocking else "{'ok': 'pong'}\n")
        assert queue.stats().running == (3 if blocking else 6)


@pytest.mark.rest("processes of Celery; test_kombu_leases.py kills a consumer")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
@pytest.mark.parametrize("killed", ["child and parent", "parent"])
def test_nothing_is_lost_when_a_worker_is_killed(celery, name, url, tmp_path, killed):
    first = celery.worker("a", HOLD="1")
    celery.call("for number in range(6):\n    shop.work.apply_async((FOLDER, number), queue=QUEUE)")
    with QueueDB(url) as db:
        queue = db.queue(name)
        wait_for(lambda: len([one for one in tmp_path.glob("begun-*") if one.read_text()]) == 2)
        wait_for(lambda: queue.stats().running == 6)  # two begun, and four that the parent has prefetched
        if killed == "parent":
            os.kill(first.pid, signal.SIGKILL)
        else:
            os.killpg(first.pid, signal.SIGKILL)
        celery.worker("b")
        wait_for(lambda: db.next_due([name]) == {name: None})
        assert len([*tmp_path.glob("done-*")]) == 6
        assert db.dead.count(name) == 0
