"""Workers of a comparison: started once, let go together, and told when all is done.

Processes by default, since Python threads share one interpreter; threads to see what that costs. Workers are there before the gun,
so that nobody's start-up time is measured; the end is known from counting, not from looking at the table now and then.
"""

from __future__ import annotations

import ctypes
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

from queue_db.compare.contestant import Contestant, Desk, Place
from queue_db.compare.history import History, Notes
from queue_db.compare.protocol import Protocol
from queue_db.errors import QueueDBError

Kind = Literal["processes", "threads"]

#: Seconds that all workers together have to get ready, and to stop after the end.
_READY_LIMIT = 60.0
_STOP_LIMIT = 30.0

#: Seconds between two looks at the tally, for the progress display only.
_GLANCE = 0.1


class CrewError(QueueDBError):
    """A worker of the comparison could not do its part."""


@dataclass(frozen=True)
class Assignment:
    """What the workers are to do in one run."""

    contestant: Contestant
    place: Place
    work_seconds: float
    clone: float
    verify: bool


class _Board:
    """The tally, in memory that all workers share."""

    def __init__(self, workers: int, array: Callable[[int], Any]) -> None:
        self.begun, self.gone, self.more = array(workers), array(workers), array(workers)
        # jobs at the start, and whether to stop at once
        self.goal = array(2)

    def reset(self, jobs: int) -> None:
        for numbers in (self.begun, self.gone, self.more):
            for place in range(len(numbers)):
                numbers[place] = 0
        self.goal[0], self.goal[1] = jobs, 0

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        # Only the worker itself writes to its place.
        self.begun[worker] += begun
        self.gone[worker] += left
        self.more[worker] += added

    @property
    def left(self) -> int:
        return sum(self.gone)

    @property
    def over(self) -> bool:
        return bool(self.goal[1]) or self.left >= self.goal[0] + sum(self.more)

    def stop(self) -> None:
        self.goal[1] = 1


@dataclass
class _Answers:
    """What the workers have said in one run."""

    busy: list[Connection] = field(default_factory=list)  #: who is still at it
    failed: list[str] = field(default_factory=list)
    notes: list[Notes] = field(default_factory=list)

    def take(self, pipe: Connection, answer: tuple[str, Any]) -> None:
        kind, what = answer
        if kind == "ready":
            return
        self.busy.remove(pipe)
        if kind == "failed":
            self.failed.append(what)
        else:
            self.notes.append(what)


class Crew:
    """``workers`` processes or threads, kept for all runs of a comparison. Use it in a ``with`` block."""

    def __init__(self, workers: int, kind: Kind = "processes") -> None:
        self.workers = workers
        self.kind = kind
        # Not forked: a copy of a process with threads and open connections is none.
        context = multiprocessing.get_context("spawn")
        self._gun: Any
        self._began: Any
        if kind == "processes":
            self._board = _Board(workers, lambda size: context.RawArray(ctypes.c_longlong, size))
            self._gun, self._began = context.Event(), context.RawValue(ctypes.c_double, 0.0)
        else:
            self._board = _Board(workers, lambda size: (ctypes.c_longlong * size)())
            self._gun, self._began = threading.Event(), ctypes.c_double(0.0)
        self._pipes: list[Connection] = []
        self._members: list[Any] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            arguments = (number, theirs, self._board, self._gun, self._began, kind)
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
        """Send everybody home."""
        self._board.stop()
        self._gun.set()
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
        """Let the workers work off ``jobs`` jobs, which are there; return when they are done or after ``limit`` seconds.

        :param before: called when all are ready, right before the gun.
        :param progress: called ten times a second with the number of jobs that have left.
        :raises CrewError: when a worker failed; the others have stopped then.
        """
        self._board.reset(jobs)
        self._gun.clear()
        answers = _Answers()
        try:
            for pipe in self._pipes:
                pipe.send(assignment)
                answers.busy.append(pipe)
            self._get_ready(answers)
            before()
            self._began.value = time.monotonic()
            self._gun.set()
            self._watch(answers, self._began.value + limit, progress)
        except BaseException:
            self._board.stop()
            self._gun.set()
            self._await_answers(answers.busy)
            raise
        if answers.failed:
            raise CrewError(answers.failed[0])
        notes = sorted(answers.notes, key=lambda one: one.worker)
        return History(jobs=jobs, began=self._began.value, notes=tuple(notes))

    def _get_ready(self, answers: _Answers) -> None:
        deadline = time.monotonic() + _READY_LIMIT
        for pipe in list(answers.busy):
            answers.take(pipe, self._receive(pipe, deadline))
        # One whose preparation failed has said so instead of "ready": the others are let go only to stop.
        if answers.failed:
            self._board.stop()

    def _watch(self, answers: _Answers, deadline: float, progress: Callable[[int], None]) -> None:
        while answers.busy:
            for pipe in wait(answers.busy, timeout=_GLANCE):
                if isinstance(pipe, Connection):
                    answers.take(pipe, self._receive(pipe, time.monotonic() + _STOP_LIMIT))
            progress(self._board.left)
            if time.monotonic() > deadline:
                self._board.stop()
            if time.monotonic() > deadline + _STOP_LIMIT:
                raise CrewError(f"a worker did not stop within {_STOP_LIMIT:.0f} s after the end")

    def _await_answers(self, busy: list[Connection]) -> None:
        """After a failure: let everybody stop, so that nobody holds a lock on what is removed next."""
        deadline = time.monotonic() + _STOP_LIMIT
        for pipe in busy:
            with suppress(CrewError):
                while self._receive(pipe, deadline)[0] == "ready":
                    pass

    def _receive(self, pipe: Connection, deadline: float) -> tuple[str, Any]:
        try:
            if pipe.poll(max(0.0, deadline - time.monotonic())):
                answer: tuple[str, Any] = pipe.recv()
                return answer
        except (EOFError, OSError):
            raise CrewError("a worker process has ended without a word") from None
        raise CrewError(f"a worker did not answer within {_READY_LIMIT:.0f} s")


def _member(number: int, pipe: Connection, board: _Board, gun: Any, began: Any, kind: Kind) -> None:
    """One worker's life: an assignment after the other, until there is none."""
    if kind == "processes":
        # Ctrl-C reaches the whole group; the parent decides what happens.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            assignment = pipe.recv()
        except (EOFError, OSError):
            return
        if assignment is None:
            return
        try:
            answer: tuple[str, Any] = ("done", _do(assignment, number, pipe, board, gun, began, kind))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent has to know
            answer = ("failed", f"{type(error).__name__}: {error}" if isinstance(error, QueueDBError) else traceback.format_exc())
            board.stop()
        with suppress(OSError, ValueError):
            pipe.send(answer)


def _do(assignment: Assignment, number: int, pipe: Connection, board: _Board, gun: Any, began: Any, kind: Kind) -> Notes:
    def start() -> float:
        pipe.send(("ready", None))
        gun.wait()
        when: float = began.value
        return when

    with _protocol(assignment, number) as write:
        desk = Desk(
            number,
            board,
            start,
            work_seconds=assignment.work_seconds,
            clone=assignment.clone,
            protocol=write,
            cpu_clock=time.process_time if kind == "processes" else time.thread_time,
        )
        assignment.contestant.work(assignment.place, desk)
        notes = desk.finish()
    notes.peak_memory = _peak_memory()
    return notes


@contextmanager
def _protocol(assignment: Assignment, number: int) -> Iterator[Callable[[Sequence[int], Sequence[float]], None] | None]:
    if not assignment.verify:
        yield None
        return
    with Protocol(assignment.place).writer(number) as write:
        yield write


def _peak_memory() -> int:
    # Kilobytes, but bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
