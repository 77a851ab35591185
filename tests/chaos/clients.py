"""The process of a client, in its role."""

from __future__ import annotations

import datetime as dt
import faulthandler
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event as events
from sqlalchemy.pool import Pool

from queue_db import QueueDB, StorageError
from tests.chaos import broken, feeds, jobs
from tests.chaos.client import Client, Order

ROLES: dict[str, Callable[[Client], None]] = {
    "producer": jobs.produce,
    "consumer": jobs.consume,
    "worker": jobs.work,
    "overtaken": jobs.overtaken,
    "drainer": jobs.drain,
    "publisher": feeds.publish,
    "reader": feeds.read,
    "cursor": feeds.acknowledge,
    "spans": feeds.share,
}


def main(order: Order) -> None:
    """Be a client until SIGTERM, or until its operations are done."""
    client = Client(order)
    # A thread waits for it: a handler of the main thread may itself be interrupted while it holds the lock of the event.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_stop_at_the_signal, args=(client,), daemon=True).start()
    signal.signal(signal.SIGALRM, client.interrupt)
    signal.signal(signal.SIGUSR2, client.interrupt_some)
    threading.Thread(target=_end_with_the_round, daemon=True).start()
    output = (Path(order.folder) / f"{order.name}.stderr").open("a")
    os.dup2(output.fileno(), sys.stderr.fileno())
    faulthandler.register(signal.SIGUSR1)
    if order.skew:
        _shift_clock(order.skew)
    events.listen(Pool, "connect", _do_not_wait_for_the_disk)
    try:
        while not client.stopping.is_set():
            try:
                client.db = QueueDB(order.url, removal=broken.removal(order.broken))
            except StorageError:
                client.stopping.wait(0.1)  # the server is away
                continue
            with client.db:
                _play(client)
            return
    except BaseException:
        traceback.print_exc()
        raise


def _stop_at_the_signal(client: Client) -> None:
    signal.sigwait({signal.SIGTERM})
    client.stopping.set()


def _end_with_the_round() -> None:
    """Whoever kills the round does not leave its clients behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _play(client: Client) -> None:
    while not client.stopping.is_set():
        try:
            ROLES[client.order.role](client)
        except StorageError:
            client.stopping.wait(0.1)  # outside an operation: the server was away when a worker began, for example
        else:
            return


def _do_not_wait_for_the_disk(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _shift_clock(skew: float) -> None:
    real, real_ns, real_datetime = time.time, time.time_ns, dt.datetime

    class Skewed(real_datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real_datetime.now(tz) + dt.timedelta(seconds=skew)

    time.time = lambda: real() + skew
    time.time_ns = lambda: real_ns() + int(skew * 1e9)
    dt.datetime = Skewed  # type: ignore[misc]
