"""Periodic tasks share one thread; while one waits, another thread goes on with the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from queue_db.worker import maintenance
from queue_db.worker.maintenance import PeriodicTasks
from tests.patience import HOURS, PATIENCE, wait_for

Make = Callable[..., PeriodicTasks]


@pytest.fixture
def make() -> Iterator[Make]:
    """PeriodicTasks of these, all due at once; its threads end with the test."""
    stopped, made = threading.Event(), []

    def start(run: Callable[[object], None], turn: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=(turn,), daemon=True)
        thread.start()
        return thread

    def make_it(*tasks: Callable[[], float]) -> PeriodicTasks:
        made.append(PeriodicTasks([(0.0, task) for task in tasks], stopped, start))
        made[-1].start()
        return made[-1]

    yield make_it
    stopped.set()
    for upkeep in made:
        for thread in upkeep.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


class Hanging:
    """A task that waits until it may go on, each time that it runs."""

    def __init__(self) -> None:
        self.hangs, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.running = self.most = 0
        self.wait = 0.0

    def __call__(self) -> float:
        self.running += 1
        self.most = max(self.most, self.running)
        self.hangs.release()
        assert self.go_on.acquire(timeout=PATIENCE)
        self.running -= 1
        return self.wait

    def leave(self) -> None:
        """Run once more at most."""
        self.wait = HOURS
        self.go_on.release()


def test_tasks_that_wait_hold_up_no_other(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE", 0.0)
    first, second, ran = Hanging(), Hanging(), threading.Semaphore(0)

    def task() -> float:
        ran.release()
        return 0.001

    upkeep = make(first, second, task)
    for hanging in (first, second):
        assert hanging.hangs.acquire(timeout=PATIENCE)
        upkeep.relieve()
    for _ in range(3):
        assert ran.acquire(timeout=PATIENCE)
    first.go_on.release()
    # By the thread that goes on: that of the first run has ended.
    wait_for(lambda: first.hangs.acquire(blocking=False) or upkeep.relieve())
    assert first.most == second.most == 1, "no task runs twice at once"
    for hanging in (first, second):
        hanging.leave()


def test_no_more_threads_wait_than_connections_can_be_spared(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE", 0.0)
    hanging = [Hanging() for _ in range(maintenance.MOST_THREADS + 2)]
    upkeep = make(*hanging)
    for one in hanging[: maintenance.MOST_THREADS]:
        assert one.hangs.acquire(timeout=PATIENCE)
        upkeep.relieve()
    upkeep.relieve()
    assert len(upkeep.threads) == maintenance.MOST_THREADS
    for one in hanging:
        one.leave()


def test_one_thread_is_enough_while_nothing_waits(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE", HOURS)
    ran = Counter[int]()
    done = threading.Event()

    def task(number: int) -> float:
        ran[threading.get_ident()] += 1
        if ran.total() > 100:
            done.set()
        return 0.0 if number else 0.001

    upkeep = make(lambda: task(0), lambda: task(1))
    while not done.is_set():
        upkeep.relieve()
    assert len(ran) == 1


def test_a_task_that_raises_comes_again(make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(maintenance, "_AFTER_EXCEPTION", 0.0)
    runs = threading.Semaphore(0)

    def broken() -> float:
        runs.release()
        raise RuntimeError("broken")

    make(broken)
    for _ in range(2):
        assert runs.acquire(timeout=PATIENCE)
    assert "broken" in caplog.text
