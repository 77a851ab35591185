"""How many functions of the package a worker calls for each job whose handler does nothing, all its threads counted.

Figures without time: results are collected for so long that the speed of the machine does not matter, and of some stretches of jobs
the one with the fewest calls counts. With the 2 ms of a worker one statement completes three to six jobs that come one at a time,
which makes 7 to 12 calls more for each.

When each result had its own ticket, log line and count, and seven functions were asked after each job, these were on PostgreSQL,
with the 2 ms, 138, 49 and 37.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

from queue_db import Queue, QueueDB
from queue_db.dialects import prepared, raw_cursor
from queue_db.store import low_water_marks
from queue_db.worker import Worker, completer
from tests.patience import HOURS, PATIENCE, wait_for

ROOT = Path(__file__).parents[2]

#: Options of a worker → database → most calls for each job. Only ever lowered.
MOST: dict[str, dict[str, float]] = {
    "one at a time": {"sqlite": 66, "postgresql": 68, "mysql": 84, "mariadb": 84},
    "ten at a time": {"sqlite": 16.2, "postgresql": 16, "mysql": 19, "mariadb": 19},
    "prefetch": {"sqlite": 9.8, "postgresql": 9.6, "mysql": 11, "mariadb": 11},
}

OPTIONS: dict[str, dict[str, Any]] = {
    "one at a time": {"concurrency": 1},
    "ten at a time": {"concurrency": 10},
    "prefetch": {"concurrency": 10, "prefetch": 100},
}

#: Jobs in one stretch, and how many stretches. The first one is not counted: it prepares what is prepared once.
JOBS, STRETCHES = 200, 8


class Calls:
    """Counts calls in the threads that start while it is installed. Comprehensions and generator expressions do not count."""

    def __init__(self) -> None:
        #: By thread: without a lock, each writes its own.
        self.numbers: list[list[int]] = []
        self.names: list[tuple[str, Counter[str]]] = []

    def __enter__(self) -> Self:
        threading.setprofile(self._begin)
        return self

    def __exit__(self, *exc: object) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]

    def _begin(self, frame: FrameType, event: str, argument: Any) -> None:
        """The first event of a thread."""
        number, names = [0], Counter[str]()
        self.numbers.append(number)
        self.names.append((threading.current_thread().name, names))

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event != "call" or not str(frame.f_globals.get("__name__", "")).startswith("queue_db."):
                return
            code = frame.f_code
            if code.co_name == "read_packet":  # PyMySQL calls it for each packet
                return
            if not code.co_name.startswith("<") or code.co_name == "<lambda>":
                number[0] += 1
                names[code.co_qualname] += 1

        sys.setprofile(note)

    def total(self) -> int:
        return sum(number for (number,) in list(self.numbers))

    def text(self) -> str:
        return "\n".join(
            f"{thread}: {', '.join(f'{name} {number}' for name, number in names.most_common(60))}" for thread, names in self.names
        )


@pytest.mark.parametrize("how", MOST)
def test_a_job_costs_few_calls(kind: str, db: QueueDB, queue: Queue, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((low_water_marks, "SHORTEST_RESCAN_INTERVAL"), (prepared, "BUSY_PLAN_AGE"), (raw_cursor, "_FORGOTTEN")):
        monkeypatch.setattr(module, name, HOURS)
    monkeypatch.setattr(completer, "WITHIN", 0.05)
    queue.enqueue_many([("n", None)] * JOBS * (STRETCHES + 1), ids=False)
    worker = Worker(db, queue.name, schedules=False, **OPTIONS[how])
    calls, numbers, totals, done = Calls(), itertools.count(), list[int](), threading.Event()

    @worker.handles("n")
    def handler(job: object) -> None:
        number = next(numbers)
        if number % JOBS == 0:
            totals.append(calls.total())
        if number == JOBS * STRETCHES:
            done.set()

    with calls, worker:
        assert done.wait(PATIENCE)
    stretches = [(after - before) / JOBS for before, after in itertools.pairwise(totals)][1:]
    assert min(stretches) <= MOST[how][kind], f"{stretches} calls for each job:\n{calls.text()}"


class Ways:
    """Notes the functions that each thread calls while it is installed: file and name, by the thread's part in a worker."""

    def __init__(self) -> None:
        self.by_thread: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def __enter__(self) -> Self:
        threading.setprofile(self._begin)
        return self

    def __exit__(self, *exc: object) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]

    def _begin(self, frame: FrameType, event: str, argument: Any) -> None:
        # "queue_db handler 3 of 'mail'"
        calls = self.by_thread[threading.current_thread().name.removeprefix("queue_db ").split()[0]]

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                code = frame.f_code
                calls.append((code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname))

        sys.setprofile(note)


_ROW = re.compile(r"^(queue_db/[\w/]+\.py) +([\w.]+) +(fetcher|handler|completer) ", re.MULTILINE)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_way_in_contributing_is_that_of_the_code(kind: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last job, backwards: what is prepared once has been prepared for the jobs before it."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Follow one worker's job\n")
    told: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file, function, thread in _ROW.findall(section.partition("\n## ")[0]):
        told[thread].append((file, function))
    assert {"fetcher", "handler", "completer"} == told.keys()
    worker = Worker(queue.db, queue.name, concurrency=1, schedules=False)
    worker.handles("n")(lambda job: None)
    with Ways() as ways, worker:
        for number in range(3):
            queue.enqueue("n")
            wait_for(lambda number=number: worker.summary.completed > number)
    for thread, steps in told.items():
        went = reversed(ways.by_thread[thread])
        assert [step for step in reversed(steps) if step not in went] == [], f"the {thread} does not call these before the others"
