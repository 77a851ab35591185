"""The workers of a comparison: started once for all runs; a start signal starts each run at the same moment for all.

They are processes, because Python threads share one interpreter; ``--threads`` measures what that costs. The start of a process is
not part of a run. The end of a run is known from counters in shared memory, not from polling the table.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, Self

from queue_db.compare import nodes
from queue_db.compare.contestant import Contestant, Target, WorkerContext
from queue_db.compare.history import History, Notes
from queue_db.compare.protocol import Protocol
from queue_db.errors import QueueDBError

Kind = Literal["processes", "threads"]

#: Time limits for all workers together, seconds: to prepare a run, and to stop after its end.
START_LIMIT = 60.0
STOP_LIMIT = 30.0

#: Interval of the progress reports, seconds.
_PROGRESS_INTERVAL = 0.1


class WorkerPoolError(QueueDBError):
    """A worker of the comparison failed."""


@dataclass(frozen=True)
class Assignment:
    """The task of the workers in one run."""

    contestant: Contestant
    target: Target
    work_seconds: float
    clone: float
    verify: bool


class _SharedTally:
    """The tally in shared memory."""

    def __init__(self, workers: int, array: Callable[[int], Any]) -> None:
        self.begun, self.removed, self.added = array(workers), array(workers), array(workers)
        # Number of jobs at the start; 1 to stop at once.
        self.goal = array(2)

    def reset(self, jobs: int) -> None:
        for numbers in (self.begun, self.removed, self.added):
            for worker in range(len(numbers)):
                numbers[worker] = 0
        self.goal[0], self.goal[1] = jobs, 0

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        # Each worker writes only its own counters.
        self.begun[worker] += begun
        self.removed[worker] += left
        self.added[worker] += added

    @property
    def left(self) -> int:
        return sum(self.removed)

    @property
    def over(self) -> bool:
        return bool(self.goal[1]) or self.left >= self.goal[0] + sum(self.added)

    def stop(self) -> None:
        self.goal[1] = 1


@dataclass
class _Answers:
    """The answers of the workers in one run."""

    busy: list[Connection] = field(default_factory=list)  #: pipes of workers that are still running
    failed: list[str] = field(default_factory=list)
    notes: list[Notes] = field(default_factory=list)

    def add(self, pipe: Connection, answer: tuple[str, Any]) -> None:
        kind, content = answer
        if kind == "ready":
            return
        self.busy.remove(pipe)
        if kind == "failed":
            self.failed.append(content)
        else:
            self.notes.append(content)


class WorkerPool:
    """``workers`` processes or threads for all runs of a comparison. Use it in a ``with`` block.

    :param start_limit: how long they may prepare a run, seconds.
    :param stop_limit: how long they may take to stop after its end, seconds.
    """

    def __init__(
        self, workers: int, kind: Kind = "processes", *, start_limit: float = START_LIMIT, stop_limit: float = STOP_LIMIT
    ) -> None:
        self.workers = workers
        self.kind = kind
        self._start_limit = start_limit
        self._stop_limit = stop_limit
        # Not forked: the child would inherit threads' locks and open connections.
        context = multiprocessing.get_context("spawn")
        self._start_signal: Any
        self._began: Any
        if kind == "processes":
            self._tally = _SharedTally(workers, lambda size: context.RawArray(ctypes.c_longlong, size))
            self._start_signal, self._began = context.Event(), context.RawValue(ctypes.c_double, 0.0)
        else:
            self._tally = _SharedTally(workers, lambda size: (ctypes.c_longlong * size)())
            self._start_signal, self._began = threading.Event(), ctypes.c_double(0.0)
        self._pipes: list[Connection] = []
        self._members: list[Any] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            arguments = (number, theirs, self._tally, self._start_signal, self._began, kind)
            member = (
                context.Process(target=_member, args=arguments, name=f"worker {number}", daemon=True)
                if kind == "processes"
                else threading.Thread(target=_member, args=arguments, name=f"worker {number}", daemon=True)
            )
            member.start()
            self._pipes.append(ours)
            self._members.append(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        self._tally.stop()
        self._start_signal.set()
        for pipe in self._pipes:
            with suppress(OSError, ValueError):
                pipe.send(None)
        for member in self._members:
            member.join(timeout=5.0)
            if self.kind == "processes" and member.is_alive():
                member.kill()
                member.join()
        for pipe in self._pipes:
            pipe.close()

    def run(
        self,
        assignment: Assignment,
        jobs: int,
        *,
        limit: float,
        before: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> History:
        """Let the workers process ``jobs`` enqueued jobs; return when all have left the queue, or after ``limit`` seconds.

        :param before: called when all workers are ready, just before the start signal.
        :param progress: called ten times a second with the number of jobs that have left the queue.
        :raises WorkerPoolError: a worker failed; the others have stopped.
        """
        self._tally.reset(jobs)
        self._start_signal.clear()
        answers = _Answers()
        try:
            for pipe in self._pipes:
                pipe.send(assignment)
                answers.busy.append(pipe)
            self._get_ready(answers)
            before()
            self._began.value = time.monotonic()
            self._start_signal.set()
            self._watch(answers, self._began.value + limit, progress)
        except BaseException:
            self._tally.stop()
            self._start_signal.set()
            self._await_answers(answers.busy)
            raise
        if answers.failed:
            raise WorkerPoolError(answers.failed[0])
        notes = sorted(answers.notes, key=lambda one: one.worker)
        return History(jobs=jobs, began=self._began.value, notes=tuple(notes))

    def _get_ready(self, answers: _Answers) -> None:
        deadline = time.monotonic() + self._start_limit
        late = f"a worker was not ready within {self._start_limit:g} s: --start-limit gives it longer"
        for pipe in list(answers.busy):
            answers.add(pipe, self._receive(pipe, deadline, late))
        # After a failed preparation the other workers are started only to stop.
        if answers.failed:
            self._tally.stop()

    def _watch(self, answers: _Answers, deadline: float, progress: Callable[[int], None]) -> None:
        late = f"a worker did not stop within {self._stop_limit:g} s after the end: --stop-limit gives it longer"
        while answers.busy:
            for pipe in wait(answers.busy, timeout=_PROGRESS_INTERVAL):
                if isinstance(pipe, Connection):
                    answers.add(pipe, self._receive(pipe, time.monotonic() + self._stop_limit, late))
            progress(self._tally.left)
            if time.monotonic() > deadline:
                self._tally.stop()
            if time.monotonic() > deadline + self._stop_limit:
                raise WorkerPoolError(late)

    def _await_answers(self, busy: list[Connection]) -> None:
        """After a failure: wait until all workers have stopped, so that none holds a lock on the tables that are dropped next."""
        deadline = time.monotonic() + self._stop_limit
        for pipe in busy:
            with suppress(WorkerPoolError):
                while self._receive(pipe, deadline, "")[0] == "ready":
                    pass

    def _receive(self, pipe: Connection, deadline: float, late: str) -> tuple[str, Any]:
        try:
            if pipe.poll(max(0.0, deadline - time.monotonic())):
                answer: tuple[str, Any] = pipe.recv()
                return answer
        except (EOFError, OSError):
            raise WorkerPoolError("a worker process died") from None
        raise WorkerPoolError(late)


def _member(number: int, pipe: Connection, tally: _SharedTally, start_signal: Any, began: Any, kind: Kind) -> None:
    """Run one worker: execute assignments until there are no more."""
    if kind == "processes":
        # Ctrl-C reaches the whole process group; only the parent handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nodes.hush()
    while True:
        try:
            assignment = pipe.recv()
        except (EOFError, OSError):
            return
        if assignment is None:
            return
        try:
            answer: tuple[str, Any] = ("done", _execute(assignment, number, pipe, tally, start_signal, began, kind))
        except Exception as error:  # noqa: BLE001 - reported to the parent
            answer = ("failed", f"{type(error).__name__}: {error}" if isinstance(error, QueueDBError) else traceback.format_exc())
            tally.stop()
        with suppress(OSError, ValueError):
            pipe.send(answer)


def _execute(
    assignment: Assignment, number: int, pipe: Connection, tally: _SharedTally, start_signal: Any, began: Any, kind: Kind
) -> Notes:
    def start() -> float:
        if kind == "processes":
            # A full collection looks at all that was imported and compiled: 50 ms, or a second where many workers share a core.
            gc.collect()
            gc.freeze()
        pipe.send(("ready", None))
        start_signal.wait()
        when: float = began.value
        return when

    with _protocol(assignment, number) as write:
        context = WorkerContext(
            number,
            tally,
            start,
            work_seconds=assignment.work_seconds,
            clone=assignment.clone,
            protocol=write,
            cpu_clock=time.process_time if kind == "processes" else time.thread_time,
        )
        try:
            assignment.contestant.work(assignment.target.of_worker(number), context)
        finally:
            if kind == "processes":
                gc.unfreeze()
        notes = context.finish()
    notes.peak_memory = _peak_memory()
    return notes


@contextmanager
def _protocol(assignment: Assignment, number: int) -> Iterator[Callable[[Sequence[int], Sequence[float]], None] | None]:
    if not assignment.verify:
        yield None
        return
    with Protocol(assignment.target).writer(number) as write:
        yield write


def _peak_memory() -> int:
    # In kilobytes; on macOS in bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
