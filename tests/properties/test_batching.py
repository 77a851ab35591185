"""Callers of a batcher: each gets its own outcome, in order, and nobody waits for a caller that is gone."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest

from queue_db.concurrency import batching
from queue_db.concurrency.batching import Batcher, Signal, Threads
from queue_db.errors import PermanentStorageError, QueueDBError, StorageError, TransientStorageError
from tests.patience import PATIENCE


class Watched(Threads):
    """Threads, with a semaphore that counts those that wait."""

    def __init__(self) -> None:
        self.waiting = threading.Semaphore(0)

    def signal(self) -> Signal:
        return _Watched(super().signal(), self.waiting)


class _Watched:
    def __init__(self, inner: Signal, waiting: threading.Semaphore) -> None:
        self._inner, self._waiting = inner, waiting
        self.set = inner.set

    def wait(self) -> None:
        self._waiting.release()
        self._inner.wait()


class Held:
    """A batcher whose first run waits, so that others queue up behind it in a known order; the batches that it ran."""

    def __init__(
        self, run: Callable[[Sequence[Any]], Sequence[Any]] = list, kind: type[Batcher[Any, Any]] = Batcher, **limits: int
    ) -> None:
        self.callers = Watched()
        self.batches: list[list[Any]] = []
        self._run = run
        self._began, self._go_on = threading.Event(), threading.Event()
        self.batcher = kind(self.run, callers=self.callers, size=lambda item: (1, len(str(item))), **limits)
        self._pool = ThreadPoolExecutor(64)

    def run(self, items: Sequence[Any]) -> Sequence[Any]:
        self.batches.append(list(items))
        if len(self.batches) == 1:
            self._began.set()
            assert self._go_on.wait(PATIENCE)
        return self._run(items)

    def submit(self, *items: Any) -> list[Future[Any]]:
        """One caller after the other: the first runs its item, the others wait."""
        futures = []
        for item in items:
            futures.append(self._pool.submit(self.batcher.submit, item))
            assert self._began.wait(PATIENCE) if len(futures) == 1 else self.callers.waiting.acquire(timeout=PATIENCE)
        return futures

    def go_on(self) -> None:
        self._go_on.set()

    def outcomes(self, *items: Any) -> list[Any]:
        futures = self.submit(*items)
        self.go_on()
        return [future.exception(PATIENCE) or future.result() for future in futures]


def refuse(bad: object, error: Exception) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def run(items: Sequence[Any]) -> Sequence[Any]:
        if bad in items:
            raise error
        return [f"did {item}" for item in items]

    return run


# --- batches ----------------------------------------------------------------------------------------------------------


def test_alone_an_item_runs_at_once_and_in_its_own_thread() -> None:
    ran: list[tuple[int, list[str]]] = []
    callers = Watched()
    del callers.waiting  # a signal would need it
    batcher = Batcher(lambda items: ran.append((threading.get_ident(), items)) or items, callers=callers, size=lambda _: (1, 1))
    assert [batcher.submit("a"), batcher.submit("b")] == ["a", "b"]
    assert ran == [(threading.get_ident(), ["a"]), (threading.get_ident(), ["b"])]


def test_what_comes_during_a_run_goes_together_in_the_next_and_in_its_order() -> None:
    held = Held(lambda items: [item * 10 for item in items])
    assert held.outcomes(*range(20)) == [item * 10 for item in range(20)]
    assert held.batches == [[0], list(range(1, 20))]


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({"rows": 2}, [["a"], ["bb", "cc"], ["ddddd", "e"]]),
        ({"characters": 4}, [["a"], ["bb", "cc"], ["ddddd"], ["e"]]),
    ],
)
def test_a_batch_has_limits(limits: dict[str, int], batches: list[list[str]]) -> None:
    held = Held(**limits)
    assert held.outcomes("a", "bb", "cc", "ddddd", "e") == ["a", "bb", "cc", "ddddd", "e"]
    assert held.batches == batches


def test_as_many_runs_as_allowed_begin_at_once_and_what_comes_then_goes_together() -> None:
    begun, go_on = threading.Semaphore(0), {item: threading.Event() for item in "abc"}
    batches: list[list[str]] = []
    callers = Watched()

    def run(items: list[str]) -> Sequence[str]:
        batches.append(items)
        begun.release()
        assert go_on[items[0]].wait(PATIENCE)
        return [f"did {item}" for item in items]

    batcher: Batcher[str, str] = Batcher(run, callers=callers, size=lambda _: (1, 1), at_once=2)
    with ThreadPoolExecutor(8) as pool:
        futures = []
        for item, sign in (("a", begun), ("b", begun), ("c", callers.waiting), ("d", callers.waiting), ("e", callers.waiting)):
            futures.append(pool.submit(batcher.submit, item))
            assert sign.acquire(timeout=PATIENCE)
        assert batches == [["a"], ["b"]]
        go_on["a"].set()
        assert begun.acquire(timeout=PATIENCE)
        go_on["b"].set()
        go_on["c"].set()
        assert [future.result(PATIENCE) for future in futures] == ["did a", "did b", "did c", "did d", "did e"]
    assert batches == [["a"], ["b"], ["c", "d", "e"]]
    assert batcher._leaders == set()


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_bad_item_fails_alone() -> None:
    error = PermanentStorageError("too long")
    held = Held(refuse(3, error))
    assert held.outcomes(*range(6)) == ["did 0", "did 1", "did 2", error, "did 4", "did 5"]
    assert held.batches == [[0], [1, 2, 3, 4, 5], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize(
    "error",
    [
        TransientStorageError("the server is away", server_away=True, sqlstate="57P01"),
        PermanentStorageError("the connection broke during COMMIT", outcome_unknown=True),
    ],
)
def test_an_unknown_outcome_goes_to_the_whole_batch_and_nothing_runs_again(error: TransientStorageError) -> None:
    """A second run could do everything twice."""
    held = Held(refuse(3, error))
    first, *others = held.outcomes(*range(6))
    assert first == "did 0"
    assert {type(one) for one in others} == {type(error)}
    assert {(str(one), one.outcome_unknown, one.sqlstate) for one in others} == {
        (str(error), error.outcome_unknown, error.sqlstate)
    }
    assert len({id(one) for one in others}) == len(others)  # tracebacks of several threads in one exception would mix
    assert held.batches == [[0], [1, 2, 3, 4, 5]]


def test_a_listener_that_raises_after_the_commit_makes_nothing_run_again() -> None:
    error = RuntimeError("after the commit")
    held = Held(refuse(3, error))
    first, *others = held.outcomes(*range(6))
    assert first == "did 0"
    assert [repr(one) for one in others] == [repr(error)] * 5
    assert held.batches == [[0], [1, 2, 3, 4, 5]]


class _Particular(Exception):
    """Cannot be copied."""

    def __init__(self, one: str, *, other: str) -> None:
        super().__init__(one + other)


def test_an_error_that_cannot_be_copied_goes_to_all() -> None:
    error = _Particular("a", other="b")
    assert Held(refuse(3, error)).outcomes(*range(4)) == ["did 0", error, error, error]


@pytest.mark.parametrize(
    "error",
    [
        TransientStorageError("the server is away", server_away=True, sqlstate="57P01"),
        PermanentStorageError("the connection broke during COMMIT", outcome_unknown=True),
    ],
)
def test_a_bad_item_and_a_server_that_goes_away_do_not_make_all_wait_for_it(error: StorageError) -> None:
    """Otherwise the last one waits for the attempts of all before it."""
    bad = PermanentStorageError("too long")

    def run(items: Sequence[int]) -> Sequence[str]:
        if items[0] and (len(items) > 1 or items[0] == 2):
            raise bad
        if items[0] == 3:
            raise error
        return [f"did {item}" for item in items]

    held = Held(run)
    *before, fourth, fifth = held.outcomes(*range(6))
    assert before == ["did 0", "did 1", bad, error]
    for one in (fourth, fifth):
        assert type(one) is TransientStorageError
        assert str(error) in str(one)
        assert (one.outcome_unknown, one.server_away, one.sqlstate) == (False, error.server_away, error.sqlstate)
    assert fourth is not fifth
    assert held.batches == [[0], [1, 2, 3, 4, 5], [1], [2], [3]]


# --- callers that are gone --------------------------------------------------------------------------------------------


class Interrupter:
    """Raises KeyboardInterrupt in its thread at the n-th moment at which Python looks for signals, within the batcher's code."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.moments = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: Any, event: str, called: Any) -> None:
        # At the begin of a function, and after a call of one that is written in C. Not between a lock's __enter__ and the block
        # that releases it: before Python 3.14 no signal is handled there, and since then no program can do anything about it.
        entered = event == "c_return" and called.__name__ == "__enter__"
        if frame.f_code.co_filename == batching.__file__ and event in {"call", "c_return"} and not entered:
            self.moments += 1
            if self.moments == self._at:
                raise KeyboardInterrupt


def interrupted_everywhere(kind: type[Batcher[Any, Any]], which: int, **limits: int) -> int:
    """Of some callers interrupt one, each time a moment later: all others come to an end, and so do later ones; how often."""
    for at in range(1, 1000):
        held, interrupter = Held(kind=kind, **limits), Interrupter(at)

        def interrupted(held: Held = held, interrupter: Interrupter = interrupter) -> Any:
            with interrupter:
                return held.batcher.submit("interrupted")

        futures: list[Future[Any]] = []
        for number in range(4):
            began = held._began.is_set()
            futures.append(held._pool.submit(interrupted) if number == which else held._pool.submit(held.batcher.submit, number))
            # Until it runs, waits, or was interrupted before.
            while not (futures[-1].done() or (held._began.is_set() and not began) or held.callers.waiting.acquire(timeout=0.01)):
                pass
        held.go_on()
        for number, future in enumerate(futures):
            outcome = future.exception(PATIENCE) or future.result()
            if number == which:
                assert outcome == "interrupted" or isinstance(outcome, KeyboardInterrupt)
            else:
                assert outcome == number or (isinstance(outcome, TransientStorageError) and outcome.outcome_unknown)
        assert held._pool.submit(held.batcher.submit, "later").result(PATIENCE) == "later"
        assert held.batcher._leaders == set()
        assert held.batcher._queue == []
        if interrupter.moments < at:
            return at
    raise AssertionError("still interrupted")


@pytest.mark.parametrize("which", [0, 1, 2, 3], ids=["alone", "leads others", "follows", "comes last"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_caller_that_is_interrupted_at_any_moment_leaves_nobody_waiting(which: int, at_once: int) -> None:
    assert interrupted_everywhere(Batcher, which, at_once=at_once) > 5


class Submitter(Interrupter):
    """Submits at that moment, as a signal handler that enqueues."""

    def __init__(self, at: int, batcher: Batcher[Any, Any]) -> None:
        super().__init__(at)
        self._batcher = batcher

    def _look(self, frame: Any, event: str, called: Any) -> None:
        try:
            super()._look(frame, event, called)
        except KeyboardInterrupt:
            sys.setprofile(None)
            assert self._batcher.submit("handler") == "handler"
            sys.setprofile(self._look)


@pytest.mark.parametrize("at_once", [1, 2])
def test_what_a_signal_handler_submits_at_any_moment_waits_for_nobody(at_once: int) -> None:
    for at in range(1, 1000):
        batcher: Batcher[Any, Any] = Batcher(list, callers=Threads(), size=lambda _: (1, 1), at_once=at_once)
        submitter, answers = Submitter(at, batcher), []

        def submit(batcher: Batcher[Any, Any] = batcher, within: Submitter = submitter, answers: list[Any] = answers) -> None:
            with within:
                answers.append(batcher.submit("outer"))

        thread = threading.Thread(target=submit, daemon=True)  # one that waits for ever must not keep the suite from ending
        thread.start()
        thread.join(PATIENCE)
        assert answers == ["outer"], at
        assert batcher._leaders == set()
        if submitter.moments < at:
            assert at > 5
            return
    raise AssertionError("still submitted")


def test_a_caller_that_is_interrupted_while_it_waits_is_not_run() -> None:
    held = Held()
    held.submit("first")
    left: list[object] = []

    def leave() -> None:
        class Leaves(_Watched):
            def wait(self) -> None:
                raise KeyboardInterrupt

        held.callers.signal = lambda: Leaves(Threads().signal(), held.callers.waiting)  # type: ignore[method-assign]
        try:
            held.batcher.submit("gone")
        except KeyboardInterrupt as error:
            left.append(error)

    leave()
    del held.callers.signal
    follower = held._pool.submit(held.batcher.submit, "stays")
    assert held.callers.waiting.acquire(timeout=PATIENCE)
    held.go_on()
    assert follower.result(PATIENCE) == "stays"
    assert len(left) == 1
    assert held.batches == [["first"], ["stays"]]


def test_what_a_run_itself_submits_does_not_wait_for_it() -> None:
    """As a signal handler, or a listener on the engine that publishes."""

    def run(items: Sequence[int]) -> Sequence[int]:
        return [batcher.submit(item - 1) if item else 0 for item in items]

    batcher = Batcher(run, callers=Threads(), size=lambda _: (1, 1))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(batcher.submit, 3).result(PATIENCE) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_nobody() -> None:
    held = Held()
    futures = held.submit("first", "second")
    child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE))
        held._run = list
        held.batches.append([])
        os._exit(0 if held.batcher.submit("child") == "child" else 1)
    _, status = os.waitpid(child, 0)
    held.go_on()
    assert [future.result(PATIENCE) for future in futures] == ["first", "second"]
    assert os.waitstatus_to_exitcode(status) == 0


# --- many threads -----------------------------------------------------------------------------------------------------


class _Refused(QueueDBError):
    def __init__(self, items: Sequence[tuple[int, int]]) -> None:
        super().__init__("refused")
        self.items = items


def crowd(kind: type[Batcher[Any, Any]], threads: int = 8, times: int = 300, at_once: int = 1) -> None:
    """Threads submit one item after the other, some of which are bad: each gets its own outcome, and all run once and in order."""
    ran: list[tuple[int, int]] = []
    rng = random.Random(1)
    bad = {(thread, turn) for thread in range(threads) for turn in range(times) if rng.random() < 0.05}

    def run(items: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        time.sleep(0)  # as one waits for a database: others come meanwhile
        if bad.intersection(items):
            raise _Refused(items)
        ran.extend(items)
        return items

    batcher = kind(run, callers=Threads(), size=lambda _: (1, 1), at_once=at_once, rows=5)
    begin = threading.Barrier(threads)

    def caller(thread: int) -> None:
        begin.wait(PATIENCE)
        for turn in range(times):
            item = (thread, turn)
            try:
                outcome = batcher.submit(item)
            except _Refused as error:
                outcome = error.items[0]
                assert item in bad
            assert outcome == item

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(caller, thread) for thread in range(threads)]:
            future.result(PATIENCE)
    for thread in range(threads):
        mine = [turn for other, turn in ran if other == thread]
        assert mine == [turn for turn in range(times) if (thread, turn) not in bad]


@pytest.mark.parametrize("at_once", [1, 3])
def test_many_threads_get_their_own_outcomes_and_keep_their_order(at_once: int) -> None:
    crowd(Batcher, at_once=at_once)


# --- negative controls ------------------------------------------------------------------------------------------------


class _Swaps(Batcher[Any, Any]):
    """Gives the results of a batch to the wrong callers."""

    def _settle(self, batch: Any) -> None:
        super()._settle(batch)
        results = [entry.result for entry in batch]
        for entry, result in zip(batch, reversed(results), strict=True):
            entry.result = result


class _RunsAgain(Batcher[Any, Any]):
    """Runs everything a second time if one item was bad."""

    def _settle(self, batch: Any) -> None:
        super()._settle(batch)
        if any(entry.error for entry in batch) and len(batch) > 1:
            self._run([entry.item for entry in batch if entry.error is None])


@pytest.mark.parametrize("kind", [_Swaps, _RunsAgain])
def test_the_crowd_notices_a_batcher_that_is_wrong(kind: type[Batcher[Any, Any]]) -> None:
    with pytest.raises((AssertionError, _Refused)):
        crowd(kind, times=3000)


class _Forgets(Batcher[Any, Any]):
    """Wakes nobody if it was interrupted, until the end of the test."""

    def _end(self, entry: Any) -> None:
        if sys.exc_info()[0] is not KeyboardInterrupt:
            super()._end(entry)
            return
        entry.left = True
        for one in self._queue:
            one.error, one.settled = AssertionError("still waiting"), True
            one.signal.set()


def test_the_interruptions_notice_a_batcher_that_forgets_others() -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        interrupted_everywhere(_Forgets, 1)
