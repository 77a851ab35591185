"""Group commit: the items that callers submit while a run is under way go together in the next run.

While fewer runs are under way than allowed, a caller runs its own item at once. So a single caller never waits. After a run, the
first waiting caller runs the next batch, for itself and for the callers behind it. There is no extra thread and no timer.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Generic, Protocol, TypeVar, cast

from queue_db.concurrency.forks import reset_after_fork
from queue_db.errors import QueueDBError, StorageError, TransientStorageError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Signal(Protocol):
    """A signal for which one caller waits."""

    def wait(self) -> None:
        """Wait until :meth:`set` has been called."""

    def set(self) -> None:
        """End the wait, or prevent it if it has not begun. May be called several times."""


Detach = Callable[[Callable[[], None], Callable[[], None]], None]


class Callers(Protocol):
    """The callers of a batcher: threads, or the tasks of an event loop."""

    def signal(self) -> Signal:
        """A new signal for the current caller."""

    def current(self) -> Hashable:
        """The current caller."""

    @property
    def detach(self) -> Detach | None:
        """A function that runs two functions, one after the other. None: callers of this kind cannot be cancelled.

        The first function runs to its end even if this caller is cancelled. The second one runs even if the first one never began.
        """


class Threads:
    """The callers of a batcher are threads."""

    #: None, because threads cannot be cancelled. A KeyboardInterrupt is raised within the work itself.
    detach = None

    def signal(self) -> Signal:
        """A new signal for the current thread."""
        return _ThreadSignal()

    #: The current thread.
    current = staticmethod(threading.get_ident)


class _ThreadSignal:
    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # A bare lock: a threading.Event takes ten times as long.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        self._lock.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # already set
            self._lock.release()


class _Entry(Generic[Item, Result]):
    """An item with its caller and its outcome."""

    __slots__ = ("batch", "detached", "error", "item", "left", "result", "settled", "signal")

    def __init__(self, item: Item) -> None:
        self.item = item
        #: The signal for which the caller waits; None: the item runs at once.
        self.signal: Signal | None = None
        self.settled = False
        self.result: Result | None = None
        self.error: BaseException | None = None
        #: The entries that the caller of this entry runs.
        self.batch: Sequence[_Entry[Item, Result]] = ()
        #: Whether the run continues even if the caller is cancelled.
        self.detached = False
        #: Whether the entry has been removed from the queue and from the leaders.
        self.left = False

    def fail(self, error: Exception) -> None:
        self.error, self.settled = error, True


class Batcher(Generic[Item, Result]):
    """Runs the items of concurrent callers in batches, in the order in which they come.

    If ``run`` refuses a batch because of its items, the items run one by one, so that each caller gets its own result or error. If
    one of these runs ends with a transient error or an unknown outcome, the remaining items are not run. Any other error of a batch
    goes to all its callers: it may have come after the commit, and then a second run would do everything twice.

    :param run: takes items and returns their results in the same order. Either all items take effect or none.
    :param size: returns the number of rows and the number of characters of an item.
    :param at_once: the most runs at the same time. With 1, the items run in the order of their submission.
    :param rows: the most rows of one batch. A single item may have more.
    :param characters: the most characters of one batch. A single item may have more.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Result]],
        *,
        callers: Callers,
        size: Callable[[Item], tuple[int, int]],
        at_once: int = 1,
        rows: int = 1000,
        characters: int = 1 << 20,
    ) -> None:
        self._run = run
        self._callers = callers
        self._size = size
        self._at_once = at_once
        self._most = (rows, characters)
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Begin without callers: the threads of the parent process do not exist in the child."""
        self._lock = threading.Lock()
        #: Waiting entries. There are none while fewer runs are under way than allowed.
        self._queue: list[_Entry[Item, Result]] = []
        #: Entries whose callers run a batch, or are about to.
        self._leaders: set[_Entry[Item, Result]] = set()
        self._inside: set[Hashable] = set()

    def submit(self, item: Item) -> Result:
        """Run ``item``, alone or with others, and return its result.

        A caller that is interrupted here does not know whether its item ran.
        """
        caller = self._callers.current()
        if caller in self._inside:
            # The item comes from a signal handler, or from code that ``run`` calls. The run of this caller waits for the item, so
            # the item must not wait for this run.
            return self._run([item])[0]
        entry: _Entry[Item, Result] = _Entry(item)
        # The cleanup is there twice: a KeyboardInterrupt may come at any moment, even within the first cleanup.
        try:
            try:
                self._inside.add(caller)
                with self._lock:
                    if len(self._leaders) < self._at_once:
                        self._leaders.add(entry)
                    else:
                        entry.signal = self._callers.signal()
                        self._queue.append(entry)
                if entry.signal is None:
                    return self._run([item])[0]
                entry.signal.wait()
                if entry in self._leaders:
                    self._lead(entry)
            finally:
                if not (entry.left or entry.detached):
                    self._leave(entry)
                # Do this after the entry has left. Until then, an item from a signal handler must not wait for this entry.
                self._inside.discard(caller)
        finally:
            if not (entry.left or entry.detached):
                self._leave(entry)
            self._inside.discard(caller)
        if entry.error is not None:
            raise entry.error
        return cast("Result", entry.result)

    def _lead(self, entry: _Entry[Item, Result]) -> None:
        """Run the item of a caller that has waited, together with the items of callers behind it."""
        detach = self._callers.detach
        if detach is not None and self._queue:
            entry.detached = True
            detach(partial(self._work_detached, entry), partial(self._end, entry))
            return
        try:
            try:
                self._work(entry)
            finally:
                self._end(entry)
        finally:
            self._end(entry)

    def _work(self, entry: _Entry[Item, Result]) -> None:
        with self._lock:
            count = self._fitting(entry)
            entry.batch, self._queue = [entry, *self._queue[:count]], self._queue[count:]
        self._settle(entry.batch)

    def _work_detached(self, entry: _Entry[Item, Result]) -> None:
        caller = self._callers.current()  # the detached task, not the caller of the entry
        self._inside.add(caller)
        try:
            self._work(entry)
        finally:
            self._inside.discard(caller)

    def _fitting(self, leader: _Entry[Item, Result]) -> int:
        """The number of waiting entries that fit into the batch of the leader."""
        if not self._queue:
            return 0
        sizes = [self._size(entry.item) for entry in (leader, *self._queue)]
        most_rows, most_characters = self._most
        totals = zip(accumulate(rows for rows, _ in sizes), accumulate(length for _, length in sizes), strict=True)
        return max(1, sum(rows <= most_rows and length <= most_characters for rows, length in totals)) - 1

    def _settle(self, batch: Sequence[_Entry[Item, Result]]) -> None:
        try:
            results = self._run([entry.item for entry in batch])
        except Exception as error:  # noqa: BLE001 - it goes to the callers
            if len(batch) == 1:
                batch[0].fail(error)
            elif _refuses(error):
                self._settle_one_by_one(batch)
            else:
                for entry in batch:
                    # A copy for each caller: each thread adds its own traceback.
                    entry.fail(_copied(error))
        else:
            for entry, result in zip(batch, results, strict=True):
                entry.result, entry.settled = result, True

    def _settle_one_by_one(self, batch: Sequence[_Entry[Item, Result]]) -> None:
        for at, entry in enumerate(batch, 1):
            self._settle([entry])
            error = entry.error
            if isinstance(error, StorageError) and not _refuses(error):
                # Do not let the remaining items go through all their retries as well.
                for waiting in batch[at:]:
                    waiting.fail(_not_run(error))
                return

    def _end(self, entry: _Entry[Item, Result]) -> None:
        """Let the next waiting entry run, and wake the callers whose items were in the batch of ``entry``."""
        if not entry.left:
            self._leave(entry)
        for item in entry.batch:
            if not item.settled:
                problem = "the caller that ran this batch was interrupted, so it is unknown whether it took effect"
                item.error, item.settled = TransientStorageError(problem, outcome_unknown=True), True
            item.left = True
            if item.signal is not None:
                item.signal.set()
        entry.batch = ()

    def _leave(self, entry: _Entry[Item, Result]) -> None:
        """Remove the entry from the queue or from the leaders, and make the first waiting entries leaders while runs are free."""
        with self._lock:
            self._leaders.discard(entry)
            if self._queue:
                others = [waiting for waiting in self._queue if waiting is not entry]
                free = max(0, self._at_once - len(self._leaders))
                # Change both in one assignment: an interrupt may come before or after it, and then this method runs again.
                self._leaders, self._queue = self._leaders.union(others[:free]), others[free:]
            for leader in self._leaders:
                if leader.signal is not None and not leader.batch:
                    leader.signal.set()  # a second call does no harm
        entry.left = True


def _refuses(error: Exception) -> bool:
    """Whether ``error`` means that nothing took effect, and that one or all of the items are the cause."""
    if isinstance(error, StorageError):
        return not (error.outcome_unknown or isinstance(error, TransientStorageError))
    return isinstance(error, QueueDBError)


def _not_run(error: StorageError) -> TransientStorageError:
    """The error of an item that was not run because the run of an earlier item ended with ``error``."""
    problem = f"nothing was done for this caller, because another one's turn ended with: {error}"
    same = TransientStorageError(
        problem, sqlstate=error.sqlstate, statement_name=error.statement_name, server_away=error.server_away
    )
    same.__cause__ = error.__cause__
    return same


def _copied(error: Exception) -> Exception:
    try:
        same = copy.copy(error)
    except Exception:  # noqa: BLE001 - the class may be the application's
        return error
    same.__cause__ = error.__cause__
    return same
