# Generated from queue_db/leased_job.py, queue_db/resumable.py, queue_db/in_graph.py. Do not change it: `make aio` writes it anew.
"""LeasedJob for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncConnection

from queue_db.aio.bases import LeasedJobTwin
from queue_db.concurrency.greenlets import joined, within
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.leased_job import Payload_co
from queue_db.model import Verdict
from queue_db.outcomes import Outcome
from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from queue_db.graphs.aio import AsyncJobGraph
    from queue_db.graphs.model import Node
else:
    AsyncJobGraph = type_hint("queue_db.graphs.aio", "AsyncJobGraph")
    Node = type_hint("queue_db.graphs.model", "Node")


class AsyncLeasedJob(LeasedJobTwin[Payload_co]):
    """A claimed job: its data, and the verbs that settle it.

    Each verb returns a :class:`Verdict`: APPLIED, or LOST if the lease was lost. A lost lease is a normal outcome: stop, since
    another worker may have the job.
    """

    __slots__ = ()

    @property
    def version(self) -> int:
        """The version of the lease; goes up when the lease is extended. The fence consists of the id and the version."""
        return self.leased.version

    @property
    def payload(self) -> Payload_co:
        """The payload, decoded when it is first read.

        :raises PayloadError: the codec cannot decode the stored text, as after an INSERT by hand; ``payload_text`` has this text.
        """
        return self.leased.payload

    @property
    def payload_text(self) -> str:
        """The payload as it is stored."""
        return self.leased.payload_text

    @property
    def lease_expires(self) -> datetime:
        """End of the lease by the database's clock; aware, UTC."""
        return self.leased.lease_expires

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction for the handler's own SQL that also completes the job: both happen or neither, *exactly-once effect*.

        The end of the block completes the job and commits. An exception rolls back. A coroutine uses ``async with``.

        :raises LeaseLostError: the lease was lost; the block's writes are rolled back.
        """
        async with within(self.leased.transaction()) as connection:
            yield connection

    async def complete(self, using: AsyncUsing | None = None) -> Verdict:
        """The work is done: the job leaves the queue.

        With ``using`` the job leaves in the caller's transaction, together with the caller's own writes: exactly-once effect. Then
        call ``.require()`` on the verdict, so that a lost lease rolls back the writes. A coroutine passes an AsyncConnection or
        AsyncSession, and awaits the verdict.
        """
        return await self._run(self.leased.complete, joined(using))

    def rolled_back(self) -> None:
        """Tell that the transaction of ``complete(using=…)`` was rolled back: the job is leased as before.

        For a handler that goes on after a rollback: verbs, :attr:`state` and steps work again, and a worker extends the lease.
        Otherwise the worker finds it out when the handler has ended. Nothing is sent, so it is safe after a COMMIT without answer:
        if it was committed after all, the next verb returns LOST.
        """
        self.leased.rolled_back()

    async def fail(self, error: BaseException | str, retry_in: float | None = None) -> Verdict:
        """The attempt failed: the job is due again after ``retry_in`` seconds or the backoff. After its last attempt it is dead."""
        return await self._run(self.leased.fail, error, retry_in)

    async def snooze(self, seconds: float) -> Verdict:
        """Make the job due again in ``seconds``; the attempt is not counted."""
        return await self._run(self.leased.snooze, seconds)

    async def release(self) -> Verdict:
        """Make the job due again now; the attempt is not counted."""
        return await self._run(self.leased.release)

    async def extend(self, seconds: float) -> Verdict:
        """Extend the lease to ``seconds`` from now; ``version``, ``fence`` and ``lease_expires`` change."""
        return await self._run(self.leased.extend, seconds)

    async def cancel(self) -> Verdict:
        """Cancel the job: it leaves the queue."""
        return await self._run(self.leased.cancel)

    async def bury(self, error: BaseException | str) -> Verdict:
        """Send the job to the dead table at once. Use this verb if a retry would not help."""
        return await self._run(self.leased.bury, error)

    async def progress(self, fraction: float, note: str | None = None) -> Verdict:
        """Report progress: ``db.get(id).progress`` and ``.progress_note`` show it while this attempt runs.

        A worker writes the latest reports of all its jobs once a second in one statement, so the verdict is based on what the
        worker knows of the lease. Outside a worker each report is written at once.

        :param fraction: 0 to 1.
        :param note: a short text, cut at 200 characters.
        """
        return await self._run(self.leased.progress, fraction, note)

    async def settle(self, outcome: Outcome) -> Verdict:
        """Settle the job as a handler's return value says: None completes it, :class:`Snooze` snoozes it, and so on."""
        return await self._run(self.leased.settle, outcome)

    async def sleep(self, seconds: float, *, name: str = "") -> None:
        """End this run, and run the job again after ``seconds``; then this call returns at once. The attempt is not counted.

        :param name: needed if the job sleeps several times.
        :raises ArgumentError: this run has slept with this name before, or a step of it is under way in another thread or task.
        :raises LeaseLostError: the lease was lost.
        """
        await self._run(self.leased.sleep, seconds, name=name)

    async def wait_for(self, signal: str, *, timeout: float | None = None) -> Any:
        """Return the payload of a signal: of ``db.steps.send(job.id, signal, payload)``, or of a :meth:`callback`.

        If it was not sent yet, this ends the run; the job runs again when it is sent. The attempt is not counted.

        :param timeout: seconds from the first wait; None: no timeout.
        :raises TimeoutError: the signal was not sent in time; one that is sent later is refused.
        :raises ArgumentError: this run has waited for the signal before, or a step of it is under way in another thread or task.
        :raises LeaseLostError: the lease was lost.
        """
        return await self._run(self.leased.wait_for, signal, timeout=timeout)

    async def callback(self, signal: str) -> str:
        """Make a token with which a stranger sends the signal, once: ``POST /api/v1/callbacks/{token}`` of the service.

        Each call makes another one, so call it in the step that hands it over.

        :raises LeaseLostError: the lease was lost.
        """
        return await self._run(self.leased.callback, signal)

    @property
    def graph(self) -> AsyncJobGraph | None:
        """The graph of which the job is a node, to add nodes to it; None: no graph."""
        twin: AsyncJobGraph | None = None if self.leased.graph is None else load("graphs.aio", "AsyncJobGraph")(self.leased.graph)
        return twin

    async def parents(self) -> dict[str, Node]:
        """The parents of the job in its graph, by name, each with its state and result; empty without a graph.

        This reads the database. A coroutine takes an AsyncLeasedJob and awaits it.
        """
        return await self._run(self.leased.parents)

    async def results(self) -> dict[str, Any]:
        """What the handlers of the completed parents in the graph returned, by the name of the parent; as :meth:`parents`."""
        return await self._run(self.leased.results)
