"""Triggers: one fires for the messages of a feed, one when a job is done."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from typing import Any, Literal

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamProducer

from queue_db import Job, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.contrib.airflow.connections import DEFAULT, database
from queue_db.contrib.airflow.feed_stream import PAGE, Broadcast, FeedReader, watchers_of
from queue_db.contrib.airflow.outages import Outage
from queue_db.errors import (
    ArgumentError,
    JobDeadError,
    JobNotFinishedError,
    JobNotFoundError,
    PayloadError,
    StorageError,
)
from queue_db.feeds import Message

log = logging.getLogger("queue_db.airflow")


class FeedTrigger(BaseEventTrigger):
    """Fires for each message of a feed, in their order, at least once. For ``AssetWatcher``.

    Its position is a cursor, which moves when Airflow has stored the event. If the triggerer is killed before, the event is fired
    again, with the same ``position``: that is the key for those who must not act twice. All triggers of a triggerer that watch one
    feed share its reader. The triggerer that Airflow gives the trigger to takes the cursor over from the earlier one.

    The payload of an event has ``feed``, ``position``, ``kind``, ``key``, ``payload``, ``headers`` and ``published_at``; and
    ``error`` if the payload cannot be read, and so is None.

    :param feed: the name of the feed.
    :param cursor: the name of the cursor, for this trigger alone.
    :param kinds: only messages of these kinds; None: all.
    :param batch: one event for up to 100 messages, with ``feed`` and ``messages``.
    :param start: where a new cursor begins: ``start``, the first message that is there, or ``end``, after the last one.
    :param poll: seconds between two looks at the feed. Triggers with the same ``poll`` share a reader.
    :param conn_id: the id of the Airflow connection.
    :raises ArgumentError: ``kinds`` is a text, or ``poll`` is not above 0.
    """

    def __init__(
        self,
        *,
        feed: str,
        cursor: str,
        kinds: Iterable[str] | None = None,
        batch: bool = False,
        start: Literal["start", "end"] = "start",
        poll: float = 1.0,
        conn_id: str = DEFAULT,
    ) -> None:
        super().__init__()
        if isinstance(kinds, str):
            raise ArgumentError(argument="kinds", problem=f" must be a list of names: [{kinds!r}]")
        check_poll(poll)
        self.feed = feed
        self.cursor = cursor
        self.kinds = None if kinds is None else sorted(set(kinds))
        self.batch = batch
        self.start = start
        self.poll = poll
        self.conn_id = conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments of this trigger, as JSON has them."""
        names = ("feed", "cursor", "kinds", "batch", "start", "poll", "conn_id")
        return f"{__name__}.FeedTrigger", {name: getattr(self, name) for name in names}

    def shared_stream_key(self) -> Hashable:
        """What triggers have in common that share a reader."""
        return ("queue-db", self.conn_id, self.feed, self.poll)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """The reader that all triggers with this key share."""
        trigger = cls(**kwargs)
        return FeedReader(trigger.shared_stream_key(), trigger.conn_id, trigger.feed, trigger.poll)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Broadcast]) -> AsyncIterator[TriggerEvent]:
        """The events of this trigger, from the pages of the shared reader."""
        async with database(self.conn_id) as db:
            cursor = await self._open(db)
            with watchers_of(self.shared_stream_key()).joined(cursor, self.cursor) as watcher:
                async for broadcast in shared_stream:
                    for event in self._events(broadcast.new_to(watcher)):
                        yield event
                    broadcast.passed(watcher)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The same without a shared reader: for tests, and for who drives triggers by hand.

        A message is acknowledged when the next event is asked for. The triggerer does not call this.
        """
        async with database(self.conn_id) as db, await self._open(db) as cursor:
            while True:
                messages = await cursor.read(PAGE)
                for event in self._events(messages):
                    yield event
                if messages:
                    (await cursor.ack(messages[-1])).require()
                else:
                    await asyncio.sleep(self.poll)

    async def _open(self, db: AsyncQueueDB) -> Any:
        # Airflow has given the trigger to this triggerer; the earlier one may be dead.
        return await db.feed(self.feed).cursor(self.cursor, start=self.start, take_over=True, on_trimmed="skip")

    def _events(self, messages: Sequence[Message]) -> list[TriggerEvent]:
        wanted = [_described(message) for message in messages if self.kinds is None or message.kind in self.kinds]
        if self.batch:
            return [TriggerEvent({"feed": self.feed, "messages": wanted})] if wanted else []
        return [TriggerEvent({"feed": self.feed, **one}) for one in wanted]


def _described(message: Message) -> dict[str, Any]:
    described: dict[str, Any] = {}
    try:
        described["payload"] = message.payload
    except PayloadError as error:
        # The trigger would fail at it for ever, and nobody would get the messages behind it.
        log.warning("%r is handed over without its payload: %s", message, error)
        described |= {"payload": None, "error": str(error)}
    return {
        "position": message.position,
        "kind": message.kind,
        "key": message.key,
        **described,
        "headers": dict(message.headers),
        "published_at": message.published_at.isoformat(),
    }


class JobTrigger(BaseTrigger):
    """Fires once, when a job is done. All it knows is the id, so another triggerer can go on.

    The payload of the event has ``job_id`` and ``status``: ``completed``, with the ``result``; ``dead``, with the ``error``; or
    ``gone``: nothing is left of the job. It was cancelled, or completed by a handler without ``result_ttl``.

    :param job_id: the id of the job.
    :param poll: seconds before the first look at the job, and between two.
    :param conn_id: the id of the Airflow connection.
    :raises ArgumentError: ``poll`` is not above 0.
    """

    def __init__(self, *, job_id: int, poll: float = 5.0, conn_id: str = DEFAULT) -> None:
        super().__init__()
        check_poll(poll)
        self.job_id = job_id
        self.poll = poll
        self.conn_id = conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments of this trigger, as JSON has them."""
        return f"{__name__}.JobTrigger", {"job_id": self.job_id, "poll": self.poll, "conn_id": self.conn_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The one event.

        :raises StorageError: the database has not answered for ten minutes, or refuses the login or the tables.
        """
        pause, outage = self.poll, Outage(f"job {self.job_id}", self.poll)
        while True:
            # Also before the first look: Airflow fails a task that is resumed before its scheduler has seen that it waits.
            await asyncio.sleep(_about(pause))
            try:
                async with database(self.conn_id) as db:
                    while (found := await _look(db, self.job_id)) is None:
                        outage.over()
                        await asyncio.sleep(_about(self.poll))
            except StorageError as error:
                pause = outage.pause(error)
            else:
                yield TriggerEvent({"job_id": self.job_id, **found})
                return


async def _look(db: AsyncQueueDB, job_id: int) -> dict[str, Any] | None:
    """What became of a job; None: it is not done."""
    try:
        return {"status": "completed", "result": (await db.finished(job_id)).result}
    except JobNotFinishedError:
        return None
    except JobDeadError:
        pass
    except JobNotFoundError:
        return {"status": "gone"}
    try:
        return _outcome_of_dead(await db.get(job_id))
    except JobNotFoundError:
        return None  # redriven meanwhile, or purged: the next look says which


def look(db: QueueDB, job_id: int) -> dict[str, Any] | None:
    """The same without an event loop."""
    try:
        return {"status": "completed", "result": db.finished(job_id).result}
    except JobNotFinishedError:
        return None
    except JobDeadError:
        pass
    except JobNotFoundError:
        return {"status": "gone"}
    try:
        return _outcome_of_dead(db.get(job_id))
    except JobNotFoundError:
        return None


def _outcome_of_dead(job: Job) -> dict[str, Any] | None:
    """The error of a dead job; None: it was redriven meanwhile."""
    return {"status": "dead", "error": job.last_error, "attempts": job.attempts} if job.state == "dead" else None


def _about(seconds: float) -> float:
    """These seconds, or a tenth more or less: triggers that began together do not all ask at once."""
    return seconds * random.uniform(0.9, 1.1)


def check_poll(poll: float) -> None:
    """Refuse a ``poll`` that is not above 0."""
    if not poll > 0:
        raise ArgumentError(argument="poll", problem=f" must be above 0 seconds, and is {poll!r}")
