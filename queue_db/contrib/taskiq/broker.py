"""The broker: sends tasks as jobs, and hands them to the workers of Taskiq."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Sequence

from sqlalchemy import URL
from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from queue_db import ArgumentError
from queue_db.aio import AsyncQueueDB
from queue_db.contrib.taskiq.consumer import Consumer
from queue_db.contrib.taskiq.held import Held
from queue_db.contrib.taskiq.messages import kind_of, label, payload_of
from queue_db.publishing import current_transaction

#: Seconds after which an idle event loop of a worker turns.
_TICK = 0.2


class QueueBroker(AsyncBroker):
    """A broker of Taskiq in a SQL database. Messages are jobs: the kind is the name of the task.

    A worker leases a message, extends the lease while the task runs, and completes the job when Taskiq acknowledges it. It needs
    two drivers: that for asyncio sends, and that for threads receives.

    Labels of a task: ``queue_name``; ``delay``, seconds until it is due; ``priority``, higher ones first; ``max_crashes``.

    :param database: a database URL, or an :class:`~queue_db.aio.AsyncQueueDB` that was made from one.
    :param queues: the queues that workers serve, in turn. Tasks without the label ``queue_name`` go to the first one.
    :param lease: seconds after which the messages of a killed worker come again.
    :param poll: the longest pause between two looks for messages, seconds.
    :param batch: most messages of one claim. More are faster for short tasks, and wait in a busy process while another is idle.
    :param max_crashes: how often a task whose workers die, or drop it, runs again; then it is a dead job.
    :param migrate: create or upgrade the tables at startup.
    :raises ArgumentError: ``queues`` is empty or a text, or a number is out of range.
    """

    def __init__(
        self,
        database: str | URL | AsyncQueueDB,
        queues: Sequence[str] = ("taskiq",),
        *,
        lease: float = 60.0,
        poll: float = 0.5,
        batch: int = 1,
        max_crashes: int = 10,
        migrate: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(queues, str) or not queues:
            raise ArgumentError(argument="queues", problem=f" must be a list of names, and is {queues!r}")
        for argument, value, least in (
            ("lease", lease, 1e-3),
            ("poll", poll, 1e-3),
            ("batch", batch, 1),
            ("max_crashes", max_crashes, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise ArgumentError(argument=argument, problem=f" must be a number from {least} on, and is {value!r}")
        self.db = database if isinstance(database, AsyncQueueDB) else AsyncQueueDB(database)
        self.queues = tuple(queues)
        self._lease, self._poll, self._batch, self._max_crashes = lease, poll, batch, max_crashes
        self._migrate = migrate
        self._opened_here = False
        self._consumers: list[Consumer] = []

    async def startup(self) -> None:
        """Open the database, and check the tables.

        :raises SchemaOutOfDateError: the tables are missing; the message has the command that creates them.
        :raises StorageError: the database does not answer.
        """
        self._opened_here = self._opened_here or self.db.opened_on[0] is None
        await self.db.open()
        if self._migrate:
            await self.db.migrate()
        await self.db.check()
        await super().startup()

    async def shutdown(self) -> None:
        """Give back what was not acknowledged, also what still runs; close the database, if :meth:`startup` has opened it."""
        consumers, self._consumers = self._consumers, []
        await asyncio.gather(*(asyncio.to_thread(consumer.close) for consumer in consumers))
        try:
            await super().shutdown()
        finally:
            if self._opened_here:
                self._opened_here = False
                await self.db.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a message: it is stored when this returns, or with the transaction of ``publishing_in``.

        :raises ArgumentError: a label has a wrong value.
        :raises PayloadError: the message is too large.
        :raises StorageError: the database did not answer.
        """
        labels = message.labels
        await self.db.queue(label(labels, "queue_name", str, self.queues[0])).enqueue(
            kind_of(message.task_name),
            payload_of(message.task_id, message.message),
            delay=label(labels, "delay", float, 0.0),
            priority=-label(labels, "priority", int, 0),
            max_attempts=1 + label(labels, "max_crashes", int, self._max_crashes),
            using=current_transaction(),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Messages, as they come. Those that are claimed when the generator is closed and were not handed over are given back.

        While the database does not answer, it is asked again, with growing pauses; the log has one line.

        :raises ConfigurationError: the tables are missing, there is no driver for threads, or ``database`` has an engine of yours.
        """
        consumer = Consumer(self.db.for_threads, self.queues, self._lease, self._poll, self._batch)
        self._consumers.append(consumer)
        turning = asyncio.create_task(_turn())
        try:
            while True:
                tag, data = await consumer.next()
                yield AckableMessage(data=data, ack=Acknowledgement(consumer.held, tag))
        finally:
            turning.cancel()
            await consumer.stop()


async def _turn() -> None:
    """Let an idle event loop turn: Taskiq's handlers of signals set an event, and do not wake the loop."""
    while True:  # noqa: ASYNC110 - it waits for nothing
        await asyncio.sleep(_TICK)


class Acknowledgement:
    """Completes the job of a message. If nobody can call it any more, the attempt has failed: a middleware raised, for example.

    Taskiq's receiver keeps its last message until it gets the next one.
    """

    def __init__(self, held: Held, tag: str) -> None:
        self._held, self._tag = held, tag
        self._dropped = weakref.finalize(self, held.abandoned, tag)
        self._dropped.atexit = False  # the lease ends

    async def __call__(self) -> None:
        """Return when the job is completed. A lost lease, or a database that stays away, is logged."""
        self._dropped.detach()
        await asyncio.wrap_future(self._held.answer(self._tag, "complete"))
