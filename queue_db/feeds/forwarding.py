"""From a feed to a queue: the jobs of messages, inserted in the transaction that moves the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queue_db import arguments
from queue_db.core import Core
from queue_db.feeds.cursor import Cursor
from queue_db.feeds.message import Message
from queue_db.feeds.settings import OnTrimmed
from queue_db.feeds.store.messages import MessageRow, NewMessage
from queue_db.model import NewJob
from queue_db.store import Transaction, enqueue
from queue_db.store.enqueue import OnDuplicate
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS, KEY_LENGTH, KIND_LENGTH, QUEUE_LENGTH

if TYPE_CHECKING:
    from queue_db.feeds.feed import Feed


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """How a message becomes a job: with its payload and headers.

    :param queue: of the job.
    :param kind: of the job; None: the message's.
    :param group: True: the message's key is the job's group; a text: all jobs are of this group; False: of none.
    """

    queue: str
    kind: str | None = None
    group: bool | str = False

    def __post_init__(self) -> None:
        arguments.name("queue", self.queue, QUEUE_LENGTH)
        if self.kind is not None:
            arguments.name("kind", self.kind, KIND_LENGTH)
        if isinstance(self.group, str):
            arguments.name("group", self.group, KEY_LENGTH)
        elif not isinstance(self.group, bool):
            raise arguments.wrong("group", self.group, ": must be True (the key of each message), a text, or False")

    def job(self, message: MessageRow | NewMessage) -> NewJob:
        """The job of a message."""
        return NewJob(
            queue=self.queue,
            kind=self.kind or message.kind,
            payload=message.payload,
            headers=message.headers,
            priority=0,
            max_attempts=DEFAULT_MAX_ATTEMPTS,
            group_key=self.group if isinstance(self.group, str) else message.message_key if self.group else None,
        )


def forward(core: Core, cursor: Cursor, messages: Sequence[Message], template: JobTemplate) -> None:
    """Enqueue a job for each message and acknowledge them, in one transaction."""
    jobs = [template.job(message.row) for message in messages]

    def enqueue_all(tx: Transaction) -> None:
        enqueue.insert_jobs(tx, jobs, OnDuplicate.RAISE)
        tx.wake(template.queue)

    cursor.transfer(messages, enqueue_all)


def forwarded(
    feed: Feed,
    cursor: str,
    template: JobTemplate,
    *,
    limit: int = 100,
    idle: float | None,
    start: str = "start",
    lease: float = 30.0,
    take_over: bool,
    on_trimmed: OnTrimmed,
) -> Iterator[int]:
    """Forward messages, as :meth:`Feed.forward`; yield how many after each commit."""
    with feed.cursor(cursor, start=start, lease=lease, take_over=take_over, on_trimmed=on_trimmed) as opened:
        for page in opened.pages(limit, idle):
            forward(feed.core, opened, page, template)
            yield len(page)
