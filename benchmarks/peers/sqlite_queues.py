"""Queues in an SQLite file: persist-queue, litequeue, huey."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import SQLitePeer, ThreadContexts
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.model import Fault

#: Busy timeout, seconds, as in the product's rows.
_BUSY = 30.0


@dataclass(frozen=True)
class PersistQueue(SQLitePeer):
    """persist-queue's ``SQLiteAckQueue``.

    It reads and marks the head in two statements under a lock of the process, so two processes would take the same job: one worker
    runs as many threads as there are workers, the others are idle.
    """

    name: str = "persist-queue"
    claim: str = "SELECT, UPDATE under a lock of the process, head of the queue"
    removal: str = "UPDATE (acked)"
    index: str = "primary key"

    packages = ("persistqueue",)

    def configuration(self) -> dict[str, str]:
        """Return its settings: WAL, SQLite's default of synchronous."""
        return {
            "processes": "1, with as many threads as there are workers",
            "auto_commit": "yes",
            "synchronous": "as SQLite was built: FULL, as a rule",
        }

    def set_up(self, target: Target, jobs: int) -> None:
        """Enqueue one job at a time, its only way."""
        self.tear_down(target)
        queue = self._open(target)
        try:
            for number in range(jobs):
                queue.put(number)
        finally:
            queue.close()

    def work(self, target: Target, context: WorkerContext) -> None:
        """Get and acknowledge jobs."""
        if context.number:
            context.wait_for_start()
            while not context.over:
                time.sleep(0.01)
            return
        queue = self._open(target)
        crowd = ThreadContexts(context)
        failed: list[BaseException] = []
        try:
            context.wait_for_start()
            threads = [threading.Thread(target=self._thread, args=(queue, crowd, failed)) for _ in range(target.workers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            crowd.close()
            queue.close()
        if failed:
            raise failed[0]

    def _thread(self, queue: Any, crowd: ThreadContexts, failed: list[BaseException]) -> None:
        from persistqueue import Empty

        context = crowd.context
        try:
            while not crowd.over and not failed:
                asked = time.monotonic()
                try:
                    item = queue.get(block=False, raw=True)
                except Empty:
                    context.record_empty_claim()
                    continue
                context.record_claim(asked, [item["data"]])
                queue.ack(id=item["pqid"])
                context.record_removal(1)
        except BaseException as error:  # noqa: BLE001 - reported to the main thread
            failed.append(error)

    def _open(self, target: Target) -> Any:
        from persistqueue import SQLiteAckQueue

        file = self.file(target)
        return SQLiteAckQueue(str(file.parent), db_file_name=file.name, multithreading=True, timeout=_BUSY, auto_resume=False)


@dataclass(frozen=True)
class LiteQueue(SQLitePeer):
    """litequeue with ``pop`` and ``done``."""

    name: str = "litequeue"
    claim: str = "UPDATE … RETURNING in BEGIN IMMEDIATE, head of the queue"
    removal: str = "UPDATE (done)"
    index: str = "(status), (message_id)"

    packages = ("litequeue",)

    def configuration(self) -> dict[str, str]:
        """Return its settings: FULL, like all other rows; its default NORMAL may lose the last commits in a power failure."""
        return {"journal_mode": "WAL", "synchronous": "FULL (its own: NORMAL)", "cache_size": "256 MB, by default"}

    def set_up(self, target: Target, jobs: int) -> None:
        """Enqueue all jobs in one transaction."""
        self.tear_down(target)
        queue = self._open(target)
        try:
            with queue.transaction():
                for number in range(jobs):
                    queue.put(str(number))
            queue.conn.execute("ANALYZE")
        finally:
            queue.close()

    def work(self, target: Target, context: WorkerContext) -> None:
        """Pop and complete jobs."""
        queue = self._open(target)
        try:
            context.wait_for_start()
            while not context.over:
                asked = time.monotonic()
                try:
                    message = queue.pop()
                    if message is None:
                        context.record_empty_claim()
                        continue
                    context.record_claim(asked, [int(message.data)])
                    queue.done(message.message_id)
                except sqlite3.OperationalError as error:
                    _count(context, error)
                    continue
                context.record_removal(1)
        finally:
            queue.close()

    def _open(self, target: Target) -> Any:
        from litequeue import LiteQueue as Queue

        queue = Queue(str(self.file(target)), timeout=_BUSY)
        queue.conn.execute("PRAGMA synchronous = FULL")
        return queue


@dataclass(frozen=True)
class Huey(SQLitePeer):
    """huey with ``dequeue`` and ``execute``, like its workers: a job is deleted when it is taken, so it runs at most once."""

    name: str = "huey"
    claim: str = "BEGIN EXCLUSIVE, SELECT, DELETE, head of the queue"
    removal: str = "with the claim"
    index: str = "(queue, priority DESC, id)"

    packages = ("huey",)

    def configuration(self) -> dict[str, str]:
        """Return its settings: durable commits, no results."""
        return {
            "storage": "SqliteHuey",
            "fsync": "yes",
            "results": "no",
            "promise": "at most once",
            "strict_fifo": "no, by default",
        }

    def set_up(self, target: Target, jobs: int) -> None:
        """Enqueue one job at a time, its only way."""
        self.tear_down(target)
        huey, job = self._open(target, lambda _: None)
        try:
            for number in range(jobs):
                job(number)
        finally:
            huey.storage.close()

    def work(self, target: Target, context: WorkerContext) -> None:
        """Dequeue and execute jobs."""
        logging.getLogger("huey").setLevel(logging.ERROR)
        asked = 0.0
        huey, _ = self._open(target, lambda number: context.record_claim(asked, [number]))
        try:
            huey.pending_count()  # connected before the start
            context.wait_for_start()
            while not context.over:
                asked = time.monotonic()
                try:
                    task = huey.dequeue()
                except sqlite3.OperationalError as error:
                    _count(context, error)
                    continue
                if task is None:
                    context.record_empty_claim()
                    continue
                huey.execute(task)
                context.record_removal(1)
        finally:
            huey.storage.close()

    def _open(self, target: Target, begun: Callable[[int], None]) -> tuple[Any, Any]:
        from huey import SqliteHuey

        huey = SqliteHuey("race", filename=str(self.file(target)), fsync=True, timeout=_BUSY, results=False)

        @huey.task(name="job")
        def job(number: int) -> None:
            begun(number)

        return huey, job


def _count(context: WorkerContext, error: sqlite3.OperationalError) -> None:
    """Ignore errors of concurrent writers, which are measured here; raise all others."""
    if "locked" not in str(error):
        raise error
    context.notes.faults[Fault.LOCK_TIMEOUT] += 1
