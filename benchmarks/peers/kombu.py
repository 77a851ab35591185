"""kombu's SQLAlchemy transport: SELECT … FOR UPDATE without SKIP LOCKED; taken messages stay in the table, hidden."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import make_url

from benchmarks.peers.common import Peer
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.engines import autocommitting
from queue_db.dialects import dialect_for

_TABLES = ("kombu_message", "kombu_queue")


@dataclass(frozen=True)
class Kombu(Peer):
    """``Queue.get`` and ``ack``. Its consumers use the same calls, but sleep for a second after each empty result."""

    name: str = "kombu"
    claim: str = "FOR UPDATE, head of the queue"
    removal: str = "hidden with the claim, never deleted"
    index: str = "(visible), (timestamp), (timestamp, id)"

    databases = ("mysql", "mariadb")
    packages = ("kombu", "pymysql")

    def configuration(self) -> dict[str, str]:
        """Return its settings: defaults, the server's isolation level, one connection per process."""
        return {"transport": "sqlalchemy+pymysql", "isolation": "the server's default", "promise": "at most once after a crash"}

    def set_up(self, target: Target, jobs: int) -> None:
        """Create its two tables and publish one message at a time, its only way."""
        from kombu.transport.sqlalchemy import metadata

        self.tear_down(target)
        with self._channel(target) as (channel, queue):
            # It creates them itself, but only once per process.
            metadata.create_all(channel.session.get_bind())
            producer = channel.Producer()
            queue.declare()
            for number in range(jobs):
                producer.publish(number, routing_key=queue.name, serializer="json")

    def work(self, target: Target, context: WorkerContext) -> None:
        """Get and acknowledge single messages."""
        from sqlalchemy.exc import DBAPIError

        with self._channel(target) as (channel, queue):
            queue.declare()
            dialect = dialect_for(make_url(target.url).get_backend_name())
            context.wait_for_start()
            while not context.over:
                asked = time.monotonic()
                try:
                    message = queue.get()
                except DBAPIError as error:
                    context.notes.faults[dialect.errors.fault(error)] += 1
                    channel.session.rollback()
                    continue
                if message is None:
                    context.record_empty_claim()
                    continue
                context.record_claim(asked, [message.payload])
                message.ack()
                context.record_removal(1)

    def tear_down(self, target: Target) -> None:
        """Drop the two tables."""
        with autocommitting(target.url) as engine, engine.connect() as connection:
            quote = connection.dialect.identifier_preparer.quote
            for table in _TABLES:
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quote(target.schema or '')}.{table}")

    @contextmanager
    def _channel(self, target: Target) -> Iterator[tuple[Any, Any]]:
        from kombu import Connection, Queue

        url = make_url(target.url).set(database=target.schema).render_as_string(hide_password=False)
        limits = {"connect_args": {"connect_timeout": 10, "read_timeout": 60, "write_timeout": 60}}
        with Connection(f"sqlalchemy+{url}", transport_options=limits) as connection, connection.channel() as channel:
            try:
                yield channel, Queue("race", routing_key="race")(channel)
            finally:
                # It never disposes its engines.
                engine = channel.session.get_bind()
                channel.session.close()
                engine.dispose()
