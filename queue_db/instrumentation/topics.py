"""Events of a worker's jobs as messages to topics, so that routes decide who hears of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.store.schema import TOPIC_LENGTH
from queue_db.worker import Worker
from queue_db.worker.events import EventType, JobEvent

#: The events that are published by default: those of jobs that did not succeed.
EVENTS = (EventType.FAILED, EventType.DEAD)

# Characters of an error that a message has.
_ERROR = 2000


def publish_events(worker: Worker, topic: str = "jobs", events: Iterable[str] = EVENTS) -> None:
    """Publish events of the worker's jobs to ``{topic}.{queue}.{event}``, such as ``jobs.mail.dead``.

    The kind of a message is the event, and its key the id of the job. Its payload has ``id``, ``queue``, ``kind``, ``attempts``,
    ``seconds`` (of the handler, or null), ``error`` (or null) and ``reason`` (why the job is dead, or null), not the job's payload.

    Events of jobs that such a message has become, by routes or feeds, are not published: a handler that fails would get ever more
    of them.

    It is published after the commit that settles the job, in the thread of the worker that reports it: each event costs a
    transaction there. A process that dies between the two has published nothing, and an event that cannot be published is logged.

    :param topic: how the topics begin.
    :param events: of :class:`~queue_db.worker.EventType`.
    :raises ArgumentError: there is no such event.
    """
    arguments.name("topic", topic, TOPIC_LENGTH)
    listed = arguments.members("events", events, "events")
    known = {event.value for event in EventType}
    for event in listed:
        if event not in known:
            raise ArgumentError(f"events: there is no event {arguments.shown(event)}; there are {', '.join(sorted(known))}")
    chosen = frozenset(listed)

    def publish(event: JobEvent) -> None:
        if event.type not in chosen:
            return
        job = event.job
        if str(job.headers.get("topic", "")).startswith(f"{topic}."):
            return
        worker.db.topic(f"{topic}.{job.queue}.{event.type}"[:TOPIC_LENGTH]).publish(event.type, _content(event), key=str(job.id))

    worker.on(publish)


def _content(event: JobEvent) -> dict[str, Any]:
    job, outcome = event.job, event.outcome
    return {
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "attempts": job.attempts,
        "seconds": event.seconds,
        "error": f"{type(outcome).__name__}: {outcome}"[:_ERROR] if isinstance(outcome, BaseException) else None,
        "reason": event.reason,
    }
