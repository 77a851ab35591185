"""The transport: one connection of Kombu to a database."""

from __future__ import annotations

import os
import random
import time
from typing import Any, ClassVar

import sqlalchemy
from kombu.transport import virtual

from queue_db import Arrivals, QueueDB, StorageError, TransientStorageError
from queue_db.contrib.kombu.channel import Channel, QueueSettings
from queue_db.contrib.kombu.databases import Options, opened, options_of
from queue_db.contrib.kombu.event_loop import Bridge
from queue_db.contrib.kombu.topology import Topology
from queue_db.contrib.kombu.upkeep import Upkeep
from queue_db.contrib.kombu.urls import database_url, hide_password, masked
from queue_db.held_jobs import HeldJobs

_Channel = Channel  # a class variable of the transport has the name

#: Seconds between two looks at the other queues while one has messages.
_LOOK_EVERY = 0.1

#: Most messages of queues that go with their consumers, in a row, while others wait.
_URGENT = 10

#: The first and the longest pause, in seconds, when messages are due and cannot be claimed.
_AFTER_A_MISS = (0.002, 0.1)


class Transport(virtual.Transport):
    """Messages are jobs of a database. See :class:`~queue_db.contrib.kombu.databases.Options` for the ``transport_options``."""

    Channel = Channel
    can_parse_url = True
    default_port = None
    driver_type = "queuedb"
    driver_name = "queue_db"

    # Asynchronous: a worker of Celery delivers on its event loop. Otherwise it blocks where it gives a task to its processes, while
    # all of them are busy, and neither prefetches nor answers remote control.
    implements = virtual.Transport.implements.extend(asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]))

    connection_errors: ClassVar[tuple[type[Exception], ...]] = (*virtual.Transport.connection_errors, StorageError)
    recoverable_connection_errors: ClassVar[tuple[type[Exception], ...]] = (ConnectionError, OSError, TransientStorageError)
    channel_errors = virtual.Transport.channel_errors
    recoverable_channel_errors: ClassVar[tuple[type[Exception], ...]] = ()

    db: QueueDB
    topology: Topology
    leases: HeldJobs
    upkeep: Upkeep
    arrivals: Arrivals

    def __init__(self, client: Any, **kwargs: Any) -> None:
        hide_password(client)
        super().__init__(client, **kwargs)
        self.options: Options = options_of(client.transport_options)
        #: What this connection has declared.
        self.queues: dict[str, QueueSettings] = {}
        self._promising: set[str] = set()
        self._looked_at = 0.0
        # What the last wait has found; whether nothing of it could be claimed, and how often since the last message.
        self._found: set[str] = set()
        self._missed = False
        self._misses = 0
        self._turn = 0
        self._urgent = 0
        self._pid = os.getpid()
        self._is_open = False
        self._bridge: Bridge | None = None

    def driver_version(self) -> str:
        """The version of SQLAlchemy."""
        return sqlalchemy.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL of the database for people, with a mask for the password."""
        url = database_url(self.client)
        return url if include_password else masked(url, mask)

    # --- the connection -----------------------------------------------------------------------------------------------

    def establish_connection(self) -> Transport:
        """Open the database.

        :raises SchemaOutOfDateError: the tables are missing; the message has the command that creates them.
        :raises StorageError: the database does not answer.
        """
        self.db = opened(database_url(self.client), self.options)
        self.db.next_due(["celery"])  # it answers now, too
        self.topology = Topology(self.db)
        self.leases = HeldJobs(self.options.visibility_timeout)
        self.upkeep = Upkeep(self.topology, self._redeclare)
        self.arrivals = self.db.arrivals(poll=self.options.polling_interval)
        self._is_open = True
        super().establish_connection()
        return self

    def _redeclare(self, queue: str, expires: float) -> None:
        self.topology.declare(queue, expires)
        for exchange, routing_key, _ in list(self.state.queue_bindings(queue)):
            kind = self.state.exchanges.get(exchange, {"type": "direct"})["type"]
            self.topology.bind(queue, exchange, routing_key, kind)

    def verify_connection(self, connection: Any) -> bool:
        """Whether the connection is open, in the process that opened it."""
        return self._is_open and self._pid == os.getpid()

    def close_connection(self, connection: Any) -> None:
        """Cancel the consumers, and return what they hold to the queues."""
        if self._pid != os.getpid():
            return
        self.unregister_from_event_loop(connection, None)
        super().close_connection(connection)
        if self._is_open:
            self._is_open = False
            self.leases.close()
            self.upkeep.close()
            self.arrivals.close()

    def _collect(self, connection: Any) -> None:
        """Forget a connection. After a fork it is the parent's: nothing is closed or returned."""
        self.close_connection(connection)

    # --- deliver ------------------------------------------------------------------------------------------------------

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks of the consumers, by queue."""
        found: dict[str, Any] = self._callbacks
        return found

    def deliver(self, message: dict[str, Any], queue: str) -> None:
        """Call the consumer of a queue."""
        self._deliver(message, queue)

    def wake(self) -> None:
        """End the wait of :meth:`drain_events`: a consumer may take messages again. Any thread may call this."""
        if self._is_open:
            self.arrivals.wake()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages; wait for them up to ``timeout`` seconds.

        :raises TimeoutError: none came.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_some():
            left = 3600.0 if ends is None else ends - time.monotonic()
            if left <= 0:
                wanted = self.wanted()
                if self._look(wanted) and self._take(wanted):
                    return
                raise TimeoutError
            self._promise(self._bridge.wait(left) if self._bridge is not None else self.wait(self.wanted(), left))

    def deliver_due(self, due: set[str] | None) -> bool:
        """Deliver messages of one queue; whether there were any. This does not wait.

        :param due: what :meth:`wait` has found; None: nobody has waited since the last delivery.
        """
        if due is not None:
            self._promise(due)
        return self._deliver_some()

    def wait(self, queues: list[str], seconds: float) -> set[str]:
        """Wait until some of the queues have messages, and return these; none after ``seconds``, :meth:`wake`, or a pause.

        :raises StorageError: the database does not answer.
        """
        if self._missed:  # perhaps somebody has locked the rows: without a pause this would ask again and again
            self._missed = False
            shortest, longest = _AFTER_A_MISS
            pause = min(shortest * 2.0 ** min(self._misses, 10), longest) * (0.5 + 0.5 * random.random())
            self.arrivals.wait([], min(seconds, pause))
            return set()
        found = self.arrivals.wait(queues, seconds)
        # Perhaps a task woke this process, and what it must not overtake did not: a message for several queues wakes only by polls,
        # or by notifications.
        urgent = self.topology.temporary.intersection(queues)
        return found | self.arrivals.look(urgent) if found and urgent and found.isdisjoint(urgent) else found

    def _promise(self, due: set[str]) -> None:
        """Remember which queues have messages."""
        self._looked_at = time.monotonic()
        self._promising |= due
        self._found = due

    def _deliver_some(self) -> bool:
        wanted = self.wanted()
        if time.monotonic() - self._looked_at >= _LOOK_EVERY and self._promising.intersection(wanted):
            self._look(wanted)
        found, self._found = self._found, set()
        if self._take(wanted):
            self._misses = 0
            return True
        self._missed = bool(found.intersection(wanted))
        self._misses += self._missed
        return False

    def wanted(self) -> list[str]:
        """The queues from which consumers may take messages now: first those of remote control, of replies and of events.

        A task that is published after its revocation must not overtake it.
        """
        queues = list(dict.fromkeys(queue for channel in self._in_turn() for queue in channel.wanted))
        return queues if self._urgent >= _URGENT else sorted(queues, key=lambda queue: queue not in self.topology.temporary)

    def _in_turn(self) -> list[_Channel]:
        """The channels, first the one after the one that was the last to get messages."""
        channels: list[_Channel] = list(self.channels)
        first = self._turn % len(channels) if channels else 0
        return channels[first:] + channels[:first]

    def _look(self, queues: list[str]) -> bool:
        due = self.arrivals.look(queues)
        self._looked_at = time.monotonic()
        self._promising |= due
        return bool(due)

    def _take(self, wanted: list[str]) -> bool:
        """Deliver messages of one queue; whether there were any."""
        if not any(queue in self._promising and queue not in self.topology.temporary for queue in wanted):
            self._urgent = 0  # nothing waits
        for queue in wanted:
            if queue not in self._promising:
                continue
            for channel in self._in_turn():
                if queue in channel.wanted:
                    self._turn = self.channels.index(channel) + 1
                    if channel.take(queue):
                        self._urgent = self._urgent + 1 if queue in self.topology.temporary else 0
                        return True
            self._promising.discard(queue)
        return False

    # --- an event loop ------------------------------------------------------------------------------------------------

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages on an event loop of Kombu."""
        self.unregister_from_event_loop(connection, loop)
        self._bridge = Bridge(self, loop)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """End :meth:`register_with_event_loop`."""
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None
