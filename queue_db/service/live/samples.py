"""The task that keeps the numbers of the queues up to date while a service runs, for where no worker does it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from queue_db.errors import ConfigurationError, QueueDBError
from queue_db.monitoring.registration import METRICS_EVERY
from queue_db.service.http.requests import Service
from queue_db.service.live.incidents import IncidentType

# Seconds until the next call after an error.
_AFTER_ERROR = 60.0


class Samples:
    """A thread that calls ``db.metrics.take()``; it begins with the application, or with the first page where that is mounted.

    :param writes: False: the service makes no changes, and workers count.
    """

    def __init__(self, service: Service, *, writes: bool) -> None:
        self._service = service
        self._writes = writes
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun, or nothing may be written."""
        with self._lock:
            if self._writes and self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="queue_db samples", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = METRICS_EVERY
            if self._service.outage.read_only:
                continue
            try:
                self._service.db.metrics.take()
            except ConfigurationError:
                return  # closed
            except QueueDBError as error:
                self._service.incidents.record(IncidentType.SAMPLE_NOT_TAKEN, f"{type(error).__name__}: {error}")
                self._service.outage.note(error)
                wait = _AFTER_ERROR


def lifespan(service: Service, samples: Samples) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Take samples while the application runs; then log what is not logged yet."""

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        samples.start()
        yield
        await asyncio.to_thread(samples.stop)
        service.outage.close()
        service.incidents.close()

    return running
