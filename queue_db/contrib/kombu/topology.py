"""Exchanges, queues and bindings, as routes of the database: every process sees them at once.

A queue is a route that does nothing. Its subscriptions are its bindings: the topic of a message is ``EXCHANGE/.ROUTING-KEY``. A
publisher asks which routes match, and enqueues a job in the queue of each. So it needs to know neither the type of the exchange nor
the bindings. The default exchange has an empty name.

A queue that expires has a delayed job in the queue :data:`EXPIRY`. Who consumes the queue delays it again. When it is due, any
consumer deletes the queue: so nothing is left of a process that was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Literal

from queue_db import ArgumentError, Job, LeasedJob, LeaseLostError, PayloadError, QueueDB

log = logging.getLogger("queue_db.kombu")

#: The queue with the jobs that delete expired queues.
EXPIRY = "kombu.expiry"

_ROUTE = "kombu:"

#: Most characters of a queue's name: its route has 100.
LONGEST_NAME = 100 - len(_ROUTE)

_CUT = "/."

# Seconds for which a job that deletes a queue is leased, and most of them at once.
_LEASE, _MOST = 60.0, 20

# The definition of the routes of queues that expire: what `routes.define(drop=True, matched=True)` returns, and writes.
_EXPIRING = "9a5042f4ddf7babfb598633cc6c165a54aa4da63b6da2ea9804588aa6f842666"

# A queue lives longer than it may, by up to this share of its time: so a declaration soon after another one need not write.
_MARGIN = 1 / 3

# Seconds until a job is due that only takes the place of another one. A process that is killed then leaves it.
_LATER = 60.0


class Topology:
    """The queues and bindings in one database."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db
        #: Queues of replies, of events and of remote control, and others that go with their consumers: it is no news if they do.
        self.temporary: set[str] = set()

    # --- queues -----------------------------------------------------------------------------------------------------

    def declare(self, queue: str, expires: float | None, *, begins: bool = True) -> None:
        """Make a queue known. What is so already is not written: on SQLite a write waits for each transaction.

        :param expires: seconds without a consumer after which it is deleted; None: never.
        :param begins: whether this time begins now; if not, it begins at the first :meth:`used`.
        :raises ArgumentError: the name is too long.
        """
        if len(queue) > LONGEST_NAME:
            raise ArgumentError(f"the name of the queue {queue!r} has {len(queue)} characters; {LONGEST_NAME} is the limit")
        left = None if expires is None else self._left(queue)
        found = self._definition(queue)  # after that: a sweep that deletes the queue in between is seen
        if expires is None:
            done = found not in {None, _EXPIRING}
        else:
            lasts = not begins if left is None else expires <= left <= expires * (1 + _MARGIN)
            done = found == _EXPIRING and lasts
        if done:
            return
        # First the job: a sweep that looks at the queue now has lost its lease. While the time does not run there is none, not even
        # one to cancel: a process that is killed would leave it.
        if expires is None:
            self._db.queue(EXPIRY).cancel(self.used(queue, _LATER))
        elif begins or left is not None:
            self.used(queue, expires)
        # The two definitions differ, so that an expiry tells a queue that was declared again without one.
        self._db.routes.set(_ROUTE + queue, drop=True, matched=expires is not None)
        self._db.routes.subscribe(_topic("", queue), _ROUTE + queue, "exact")

    def _left(self, queue: str) -> float | None:
        """Seconds until the queue is deleted, 0 also for one that a sweep deletes now; None: its time does not run."""
        for state in ("scheduled", "available", "running"):  # in this order a job changes its state
            for job in self._expiries(state):
                if _queue_of(job) == queue:
                    return (job.available_at - self._db.now()).total_seconds() if state == "scheduled" else 0.0
        return None

    def _expiries(self, state: Literal["scheduled", "available", "running"]) -> Iterator[Job]:
        after = None
        while True:
            page = self._db.queue(EXPIRY).jobs(state, after=after, limit=1000)
            yield from page.jobs
            if (after := page.after) is None:
                return

    def exists(self, queue: str) -> bool:
        """Whether the queue is declared."""
        return queue in self.queues_for("", queue)

    def _definition(self, queue: str) -> str | None:
        """The definition of the queue's route; None: the queue is not declared."""
        steps = self._db.routes.test(_topic("", queue)).steps
        return next((step.definition for step in steps if step.route == _ROUTE + queue), None)

    def used(self, queue: str, expires: float) -> int:
        """Begin the time until a queue expires anew; return the id of the job that ends it.

        :param expires: seconds. It lives for as long, and up to a third longer.
        """
        expiry = self._db.queue(EXPIRY)
        payload = {"queue": queue, "temporary": queue in self.temporary}
        return expiry.enqueue("queue", payload, delay=expires * (1 + _MARGIN), unique_key=queue, on_duplicate="replace")

    def delete(self, queue: str) -> None:
        """Delete a queue, with its bindings and the messages that nobody holds."""
        self.temporary.discard(queue)
        self._db.routes.remove(_ROUTE + queue)
        self._db.queue(queue).purge()

    def sweep(self) -> int:
        """Delete the queues that have expired; return how many were looked at."""
        jobs = self._db.queue(EXPIRY).claim(_MOST, lease=_LEASE)
        for job in jobs:
            if (queue := _queue_of(job)) is None:
                job.bury("no expiry of a queue")
                continue
            if self._definition(queue) not in {None, _EXPIRING}:
                job.complete()
                continue
            try:
                deleted = self._expire(job, queue)
            except LeaseLostError:
                continue  # it was declared or used again meanwhile, so it stays with its messages
            if deleted:
                level = logging.INFO if job.payload.get("temporary") else logging.WARNING
                log.log(level, "queue %r expired without a consumer: %d messages were deleted", queue, deleted)
        return len(jobs)

    def _expire(self, job: LeasedJob, queue: str) -> int:
        """Delete a queue that has expired, unless it was declared or used again; return the number of messages deleted.

        :raises LeaseLostError: it was; nothing was changed.
        """
        left = self._db.next_due([queue])[queue]
        with self._db.queue(EXPIRY).transaction() as connection:
            job.complete(using=connection).require(job)
            self._db.routes.remove(_ROUTE + queue, using=connection)
            deleted = self._db.queue(queue).purge(using=connection)
            if left is not None:  # perhaps a consumer that was killed holds messages: look again
                expiry, wait = self._db.queue(EXPIRY), max(1.0, left)
                expiry.enqueue("queue", job.payload, delay=wait, unique_key=queue, on_duplicate="skip", using=connection)
        return deleted

    # --- bindings ---------------------------------------------------------------------------------------------------

    def bind(self, queue: str, exchange: str, routing_key: str, kind: str) -> None:
        """Lead the messages of an exchange to a queue.

        :param kind: the type of the exchange: ``direct``, ``topic`` or ``fanout``.
        """
        pattern, form = _pattern(exchange, routing_key, kind)
        # A read, which waits for no writer. It compares patterns: a routing key that matches may do so by another one of the queue.
        if not any(route.name == _ROUTE + queue and (form, pattern) in route.patterns for route in self._db.routes.list()):
            self._db.routes.subscribe(pattern, _ROUTE + queue, form)

    def unbind(self, queue: str, exchange: str, routing_key: str, kind: str) -> None:
        """Take a binding back."""
        pattern, form = _pattern(exchange, routing_key, kind)
        self._db.routes.unsubscribe(pattern, _ROUTE + queue, form)

    def queues_for(self, exchange: str, routing_key: str) -> list[str]:
        """The queues to which an exchange leads a message with this routing key, by name."""
        steps = self._db.routes.test(_topic(exchange, routing_key)).steps
        return sorted({step.route.removeprefix(_ROUTE) for step in steps if step.route.startswith(_ROUTE) and not step.cut})

    def bindings(self, exchange: str | None = None) -> Iterator[tuple[str, str, str]]:
        """Queue, exchange and routing key of all bindings, or those of one exchange."""
        for route in self._db.routes.list():
            if route.name.startswith(_ROUTE):
                for _, pattern in route.patterns:
                    source, _, key = pattern.partition(_CUT)
                    if source and exchange in {None, source}:
                        yield route.name.removeprefix(_ROUTE), source, key

    def delete_exchange(self, exchange: str) -> None:
        """Delete the bindings of an exchange. Its queues stay."""
        for route in self._db.routes.list():
            if route.name.startswith(_ROUTE):
                for form, pattern in route.patterns:
                    if pattern.partition(_CUT)[0] == exchange:
                        self._db.routes.unsubscribe(pattern, route.name, form)  # type: ignore[arg-type]


def _queue_of(job: Job | LeasedJob) -> str | None:
    """The queue that the job deletes; None: another program has enqueued it."""
    try:
        queue = job.payload.get("queue") if isinstance(job.payload, dict) else None
    except PayloadError:
        return None
    return queue if isinstance(queue, str) else None


def _topic(exchange: str, routing_key: str) -> str:
    return f"{exchange}{_CUT}{routing_key}"


def _pattern(exchange: str, routing_key: str, kind: str) -> tuple[str, Literal["exact", "amqp"]]:
    """The pattern and its form of a binding."""
    if kind == "fanout":
        return _topic(exchange, "#"), "amqp"
    return _topic(exchange, routing_key), "amqp" if kind == "topic" else "exact"
