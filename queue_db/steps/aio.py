# Generated from queue_db/steps/registry.py. Do not change it: `make aio` writes it anew.
"""Steps for asyncio."""

from __future__ import annotations

from typing import Any

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.steps.registry import Step, Steps


class AsyncSteps(Twin[Steps]):
    """The steps of the jobs of one database."""

    async def list(self, job_id: int, *, using: AsyncUsing | None = None) -> list[Step]:
        """The steps of a job, live or dead, in the order of their last changes; empty if it has none, or has left.

        :param using: a transaction of yours, in which they are read.
        """
        return await run(self._sync.list, job_id, using=joined(using))

    async def send(self, job_id: int, signal: str, payload: Any = None, *, using: AsyncUsing | None = None) -> bool:
        """Send a signal to a job: it runs again if it waits for it, and finds it if it waits later. The first one counts.

        :param payload: JSON of at most 64 KB, which ``job.wait_for(signal)`` returns.
        :param using: a transaction of yours: the signal is sent if it is committed.
        :return: False: the signal was sent before, or the job has waited for it in vain.
        :raises ArgumentError: the payload is no JSON, or too long.
        :raises JobNotFoundError: the job was completed, cancelled or purged, or never existed.
        """
        return await run(self._sync.send, job_id, signal, payload, using=joined(using))

    async def call_back(self, token: str, payload: Any = None) -> int | None:
        """Send the signal of ``job.callback(signal)``, once; return the id of the job.

        :return: None: the token was used, its job has left or has the signal already, or it is no token.
        :raises ArgumentError: the payload is no JSON, or too long.
        """
        return await run(self._sync.call_back, token, payload)
