"""Receives messages with Kombu, as these tests do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import kombu

from tests.patience import PATIENCE


class Received(list[Any]):
    """The messages that a consumer has got, and its connection."""

    def __init__(self, connection: kombu.Connection) -> None:
        super().__init__()
        self.connection = connection

    def until(self, number: int) -> list[Any]:
        """Wait for so many messages; return their payloads."""
        while len(self) < number:
            self.connection.drain_events(timeout=PATIENCE)
        return [message.payload for message in self]

    def no_more(self) -> bool:
        """Whether nothing is due for this consumer."""
        before = len(self)
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0)
        return len(self) == before


@contextmanager
def consuming(connection: kombu.Connection, *queues: kombu.Queue, **options: Any) -> Iterator[Received]:
    """Consume without an answer to the messages."""
    received = Received(connection)
    with connection.channel() as channel:
        consumer = kombu.Consumer(channel, list(queues), on_message=received.append, **options)
        with consumer:
            yield received


def publish(connection: kombu.Connection, body: Any, queue: kombu.Queue | None = None, **options: Any) -> None:
    """Publish to the exchange of a queue, which is declared; or to ``exchange`` with ``routing_key``."""
    with connection.channel() as channel:
        producer = kombu.Producer(channel)
        if queue is not None:
            options = {"exchange": queue.exchange, "routing_key": queue.routing_key or queue.name, "declare": [queue], **options}
        producer.publish(body, **options)
