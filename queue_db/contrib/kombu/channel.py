"""A channel: publishes messages as jobs, and claims them for its consumers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import TYPE_CHECKING, Any

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from queue_db import ConfigurationError, LeasedJob, PayloadError, Queue, QueueDB, StorageError
from queue_db.contrib.kombu.databases import NotPublishedError, beside
from queue_db.contrib.kombu.topology import Topology
from queue_db.contrib.kombu.upkeep import Upkeep
from queue_db.held_jobs import HeldJobs
from queue_db.publishing import current_transaction

if TYPE_CHECKING:
    from queue_db.contrib.kombu.transport import Transport

log = logging.getLogger("queue_db.kombu")

#: Most messages of one claim.
MOST = 100

#: Most messages of one claim for a consumer without a prefetch count.
MOST_WITHOUT_PREFETCH = 10

#: Seconds after its last consumer until a queue with ``auto_delete`` is deleted, unless it has ``expires``; for an exclusive queue
#: also seconds until its first one.
AUTO_DELETE_AFTER = 300.0

#: Most messages that a declaration counts. A passive one counts all.
_COUNTED = 1000

_PRIORITIES = 9

Message = dict[str, Any]


class QoS(virtual.QoS):
    """Counts what the channel may still prefetch. The leases are with the transport."""

    @property
    def held(self) -> list[str]:
        """The delivery tags of the messages without an answer."""
        self._flush()
        return list(self._delivered)

    def restore_unacked(self) -> list[Any]:
        """Release all messages that this channel holds."""
        tags = self.held
        self._delivered.clear()
        self.channel.release(tags)
        return []


class Channel(virtual.Channel):
    """A channel of a :class:`~queue_db.contrib.kombu.transport.Transport`."""

    QoS = QoS
    supports_fanout = True
    connection: Transport

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._no_ack: set[str] = set()
        self._turn = 0

    # --- the transport's ----------------------------------------------------------------------------------------------

    @property
    def db(self) -> QueueDB:
        """The database of the connection."""
        return self.connection.db

    @property
    def topology(self) -> Topology:
        """The queues and bindings of the database."""
        return self.connection.topology

    @property
    def leases(self) -> HeldJobs:
        """What the connection holds."""
        return self.connection.leases

    @property
    def upkeep(self) -> Upkeep:
        """What keeps the queues of the connection from expiring."""
        return self.connection.upkeep

    # --- exchanges, queues and bindings -------------------------------------------------------------------------------

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **kwargs: Any) -> Mapping[str, Any]:
        """``expires`` and ``message_ttl`` as RabbitMQ names them."""
        prepared: Mapping[str, Any] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return prepared

    def exchange_declare(self, exchange: str | None = None, *args: Any, passive: bool = False, **kwargs: Any) -> None:
        """Declare an exchange. A passive declaration knows those of this connection, and those with a binding.

        :raises ChannelError: the declaration is passive, and there is none.
        """
        if passive and exchange not in self.state.exchanges and any(self.topology.bindings(exchange)):
            return
        super().exchange_declare(exchange, *args, passive=passive, **kwargs)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete an exchange with its bindings; its queues stay."""
        if if_unused and any(self.topology.bindings(exchange)):
            return
        self.topology.delete_exchange(exchange)
        self.state.exchanges.pop(exchange, None)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> queue_declare_ok_t:
        """Declare a queue; the answer has the number of its messages.

        :raises ChannelError: the declaration is passive, and there is no such queue.
        """
        queue = queue or f"amq.gen-{uuid()}"
        if passive:
            if not self.topology.exists(queue):
                raise ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404")
            return queue_declare_ok_t(queue, self._size(queue), 0)
        given = arguments or {}
        expires = _seconds(given.get("x-expires"))
        begins = expires is not None or exclusive  # the time of another one with auto_delete begins with its first consumer
        if expires is None and (auto_delete or exclusive):
            expires = AUTO_DELETE_AFTER
        (self.topology.temporary.add if auto_delete or exclusive else self.topology.temporary.discard)(queue)
        self.connection.queues[queue] = QueueSettings(expires, _seconds(given.get("x-message-ttl")), exclusive)
        beside(lambda: self.topology.declare(queue, expires, begins=begins))
        return queue_declare_ok_t(queue, self.db.queue(queue).stats(most=_COUNTED).available, 0)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        """Delete a queue with its bindings and messages, also those that this connection holds."""
        if (if_empty and self._size(queue)) or (if_unused and queue in self._active_queues):
            return
        self.upkeep.leave(queue)
        self.connection.queues.pop(queue, None)
        self.topology.delete(queue)
        self.state.queue_bindings_delete(queue)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **kwargs: Any
    ) -> None:
        """Bind a queue to an exchange.

        :raises ChannelError: the exchange is not declared.
        """
        exchange = exchange or "amq.direct"
        if exchange not in self.state.exchanges:
            raise ChannelError(f"NOT_FOUND - no exchange {exchange!r}", (50, 20), "Channel.queue_bind", "404")
        self.state.binding_declare(queue, exchange, routing_key, arguments)
        beside(lambda: self.topology.bind(queue, exchange, routing_key, self.typeof(exchange).type))

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **kwargs: Any
    ) -> None:
        """Take a binding back."""
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        self.topology.unbind(queue, exchange, routing_key, self.typeof(exchange).type)

    def list_bindings(self) -> Iterable[tuple[str, str, str]]:
        """Queue, exchange and routing key of all bindings in the database."""
        return self.topology.bindings()

    def get_table(self, exchange: str) -> list[tuple[str, None, str]]:
        """The bindings of an exchange: routing key, None, queue."""
        return [(key, None, queue) for queue, _, key in self.topology.bindings(exchange)]

    def after_reply_message_received(self, queue: str) -> None:
        """Delete the queue of a reply."""
        self.queue_delete(queue)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self.topology.exists(queue)

    def _size(self, queue: str) -> int:
        return self.db.queue(queue).stats().available

    def _purge(self, queue: str) -> int:
        return self.db.queue(queue).purge()

    # --- publish ------------------------------------------------------------------------------------------------------

    def basic_publish(self, message: Message, exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Publish a message: in each queue to which the exchange leads it a job, all or none. They are stored when this returns."""
        self._inplace_augment_message(message, exchange, routing_key)
        queues = self.topology.queues_for(exchange, routing_key) if exchange else [routing_key] if routing_key else []
        if not queues and self.deadletter_queue:
            queues = [self.deadletter_queue]
        self._publish(queues, message)

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Text stays readable in the database; bytes become Base64."""
        if isinstance(body, str):
            return body, "utf-8"
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def _put(self, queue: str, message: Message, **kwargs: Any) -> None:
        self._publish([queue], message)

    def _publish(self, queues: Sequence[str], message: Message) -> None:
        properties, headers = message["properties"], message.get("headers") or {}
        options: dict[str, Any] = {
            "priority": _PRIORITIES - self._get_message_priority(message),
            "max_attempts": self.connection.options.max_deliveries,
        }
        if (delay := properties.get("delay")) is not None:
            options["delay"] = float(delay)
        elif self.connection.options.eta_in_database and (eta := headers.get("eta")):
            options["run_at"] = _aware(eta)
        kind = _kind(headers.get("task"))
        if (using := current_transaction()) is not None:
            try:
                for queue in queues:
                    self.db.queue(queue).enqueue(kind, message, using=using, **options)
            except ConfigurationError as error:
                raise ConfigurationError(f"publishing_in(): {error}") from error
            except (StorageError, OSError) as error:  # Kombu calls some of them recoverable, and would publish again
                raise NotPublishedError(f"not published; roll your transaction back, and repeat it: {error}") from error
        elif len(queues) == 1:
            self.db.queue(queues[0]).enqueue(kind, message, **options)
        elif queues:
            with self.db.queue(queues[0]).transaction() as connection:
                for queue in queues:
                    self.db.queue(queue).enqueue(kind, message, using=connection, **options)

    # --- consume ------------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, callback: Callable[..., Any], consumer_tag: str, **kwargs: Any) -> None:
        """Consume from a queue.

        :param no_ack: a message leaves its queue when it is claimed: at most once.
        """
        if no_ack:
            self._no_ack.add(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        settings = self.connection.queues.get(queue)
        if settings is not None and settings.expires is not None:
            self.topology.used(queue, settings.expires)
            self.upkeep.keep(queue, settings.expires)
        self.upkeep.start_sweeps()
        self.connection.wake()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set the prefetch count; more may be taken at once."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.connection.wake()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Cancel a consumer. An exclusive queue is deleted, another one with ``auto_delete`` expires."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self._no_ack.discard(queue)
        self.upkeep.leave(queue)
        settings = self.connection.queues.get(queue)
        if settings is not None and settings.exclusive and self.upkeep.is_here:
            try:
                self.queue_delete(queue)
            except StorageError as error:
                log.warning("queue %r could not be deleted, so it expires: %s", queue, error)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """A message, or None."""
        for message in self._claim(queue, 1, no_ack=no_ack):
            found = self.Message(message, channel=self)
            if not no_ack:
                self.qos.append(found, found.delivery_tag)
            return found
        return None

    def _get(self, queue: str, timeout: float | None = None) -> Message:
        for message in self._claim(queue, 1, no_ack=queue in self._no_ack):
            return message
        raise Empty

    @property
    def wanted(self) -> list[str]:
        """The queues from which the channel may take messages now; in turn, each is the first one."""
        if not self._consumers or not self.qos.can_consume():
            return []
        queues = list(dict.fromkeys(self._active_queues))
        first = self._turn % len(queues)
        return queues[first:] + queues[:first]

    def take(self, queue: str) -> int:
        """Claim messages of a queue and deliver them; return how many. The turn of the queue is over."""
        self._turn = list(dict.fromkeys(self._active_queues)).index(queue) + 1
        no_ack = queue in self._no_ack
        # A message without an answer is gone when it is claimed: so one at a time.
        most = 1 if no_ack else min(self.qos.can_consume_max_estimate() or MOST_WITHOUT_PREFETCH, MOST)
        messages = self._claim(queue, most, no_ack=no_ack)
        for position, message in enumerate(messages):
            if queue not in self.connection.callbacks:  # a callback has cancelled the consumer
                self.release([one["properties"]["delivery_tag"] for one in messages[position:]])
                return position
            try:
                self.connection.deliver(message, queue)
            except BaseException:
                self.release([one["properties"]["delivery_tag"] for one in messages[position + 1 :]])
                raise
        return len(messages)

    def _claim(self, queue: str, most: int, *, no_ack: bool) -> list[Message]:
        """Messages that have not expired."""
        source = self.db.queue(queue)
        while jobs := source.claim(most, lease=self.leases.lease, delete=no_ack):
            try:
                fresh = self._fresh(source, jobs, no_ack=no_ack)
            except BaseException:
                self._release_claimed(source, jobs, no_ack=no_ack)
                raise
            if fresh:
                return [self._received(job, no_ack=no_ack) for job in fresh]
        return []

    def _fresh(self, source: Queue, jobs: Sequence[LeasedJob], *, no_ack: bool) -> list[LeasedJob]:
        """The jobs that are messages and have not expired. The others leave the queue."""
        fresh, expired = [], []
        for job in jobs:
            if (problem := self._foreign(job)) is not None:
                reason = f"no message of Kombu: {problem}"
                if no_ack:  # it has left the queue
                    log.warning("job %d in %r is dropped: %s", job.id, source.name, reason)
                else:  # which logs a warning
                    source.bury_many([job], reason)
            elif self._expired(job, self.leases.lease):
                expired.append(job)
            else:
                fresh.append(job)
        if expired and not no_ack:
            source.cancel_many(expired)
        return fresh

    def _foreign(self, job: LeasedJob) -> str | None:
        """Why the job is no message, such as one that a program enqueued without Kombu; None: it is one."""
        try:
            message = job.payload
        except PayloadError as error:
            return str(error)
        properties = message.get("properties") if isinstance(message, dict) else None
        if not isinstance(properties, dict):
            return "its payload has no properties"
        if not isinstance(properties.get("delivery_info", {}), dict) or not isinstance(message.get("headers") or {}, dict):
            return "its delivery_info or its headers are no object"
        try:
            self.decode_body(message.get("body"), properties.get("body_encoding"))
        except Exception as error:  # noqa: BLE001 - the codecs of Kombu raise what they like
            return f"its body cannot be decoded: {error!r}"
        return None

    def _received(self, job: LeasedJob, *, no_ack: bool) -> Message:
        message: Message = job.payload
        # Copies of a message in several queues have one payload.
        message["properties"]["delivery_tag"] = job.fence if no_ack else self.leases.add(job)
        message["properties"].setdefault("delivery_info", {})["redelivered"] = job.version > 1  # it was claimed before
        return message

    def _release_claimed(self, source: Queue, jobs: Sequence[LeasedJob], *, no_ack: bool) -> None:
        try:
            if not no_ack:
                source.release_many([job for job in jobs if not job.settled])
        except StorageError as error:
            log.warning("messages return to %r when their leases end, not now: %s", source.name, error)

    def _expired(self, job: LeasedJob, seconds: float) -> bool:
        """Whether a message is older than it may be, by the database's clock."""
        settings = self.connection.queues.get(job.queue)
        limits = [_seconds(job.payload["properties"].get("expiration")), settings.message_ttl if settings else None]
        most = min((limit for limit in limits if limit is not None), default=None)
        if most is None or job.lease_expires is None:
            return False
        return job.lease_expires - timedelta(seconds=seconds) - job.created_at > timedelta(seconds=most)

    # --- settle -------------------------------------------------------------------------------------------------------

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Complete a message's job. If its lease was lost, another consumer has the message; that is logged."""
        if multiple:
            self._settle(self.qos.held, "complete_many")
        else:
            self._settle([delivery_tag], "complete_many")

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return a message to its queue, or cancel its job."""
        self._settle([delivery_tag], "release_many" if requeue else "cancel_many")

    def basic_recover(self, requeue: bool = False) -> None:
        """Return all unacknowledged messages of this channel to their queues."""
        self.qos.restore_unacked()

    def _restore(self, message: Any) -> None:
        self._settle([message.delivery_tag], "release_many")

    def release(self, tags: Iterable[str]) -> None:
        """Return messages to their queues; if the database does not answer, they return when their leases end."""
        try:
            self._settle(list(tags), "release_many")
        except StorageError as error:
            log.warning("messages return to their queues when their leases end, not now: %s", error)

    def _settle(self, tags: Sequence[str], verb: str) -> None:
        by_queue: dict[str, list[LeasedJob]] = {}
        for job in filter(None, map(self.leases.take, tags)):
            by_queue.setdefault(job.queue, []).append(job)
        try:
            for queue, jobs in by_queue.items():
                verdicts = getattr(self.db.queue(queue), verb)(jobs)
                for job, verdict in zip(jobs, verdicts, strict=True):
                    if not verdict:
                        log.warning("message %d in %r was answered after its lease was lost", job.id, queue)
        finally:
            for tag in tags:
                self.qos.ack(tag)
            if self.connection is not None:
                self.connection.wake()


class QueueSettings:
    """What this connection has declared of a queue. Seconds; None: no limit."""

    __slots__ = ("exclusive", "expires", "message_ttl")

    def __init__(self, expires: float | None, message_ttl: float | None, exclusive: bool) -> None:
        self.expires = expires
        self.message_ttl = message_ttl
        self.exclusive = exclusive


def _seconds(milliseconds: Any) -> float | None:
    """Of a property or an argument, which are whole milliseconds, as a number or as text."""
    try:
        return None if milliseconds is None else int(milliseconds) / 1000
    except (TypeError, ValueError):
        return None


def _aware(eta: Any) -> datetime:
    when = eta if isinstance(eta, datetime) else datetime.fromisoformat(str(eta))
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _kind(task: Any) -> str:
    """The kind of the job: the name of the task, if it can be one."""
    text = str(task or "message").strip()
    return text if 0 < len(text) <= 100 and text.isprintable() else "message"
