"""New messages: arguments checked, payloads encoded."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from queue_db import arguments
from queue_db.core import Core
from queue_db.errors import ArgumentError
from queue_db.feeds.store.messages import NewMessage
from queue_db.feeds.store.publishes import Keyed
from queue_db.feeds.tables import CLIENT_LENGTH
from queue_db.store.schema import KEY_LENGTH
from queue_db.verbs.new_jobs import JobBuilder

#: Most messages of one page, and of one chunk of ``publish_many``.
MOST = 10_000

#: The header with the patterns that led a message to where it is.
MATCHED = "matched"

#: Headers that publishers do not write: a topic writes the first, routers the first two, routes the last.
RESERVED = ("topic", "via", MATCHED)

#: Longest idempotency key, in characters.
IDEMPOTENCY_LENGTH = 1000

# Numbers that a BIGINT has beside those of the messages of one publish.
_UIDS = (1 << 63) - MOST

_TRIPLE = 3
_OPTIONS = ("key", "headers")
_DELAYS = ("delay", "expires_in")


class MessageBuilder:
    """Builds the messages of one feed or topic.

    :param delays: whether messages may have a delay and a lifetime.
    """

    def __init__(self, core: Core, name: str, *, delays: bool = False) -> None:
        self._known = _OPTIONS + _DELAYS if delays else _OPTIONS
        self._core = core
        self._builder = JobBuilder(name, core.codec, core.max_payload, item="message")

    def messages(self, messages: Iterable[Any], client: str | None, fixed: Mapping[str, Any] | None = None) -> list[NewMessage]:
        """Messages from ``(kind, payload)`` or ``(kind, payload, options)``; ``fixed``: headers of all of them.

        :raises ArgumentError, PayloadError: the message names the wrong argument.
        """
        if client is not None:
            arguments.name("client", client, CLIENT_LENGTH)
        provided = self._core.headers()
        listed = arguments.members("messages", messages, "messages")
        new = [
            self._new(f"message {at}: " if len(listed) > 1 else "", one, client, provided, fixed) for at, one in enumerate(listed)
        ]
        if len(new) > MOST:
            raise ArgumentError(f"{len(new):,} messages: at most {MOST:,} can be published at once")
        return new

    def with_uids(self, new: Sequence[NewMessage]) -> list[NewMessage]:
        """The messages of a feed, each with a random number that finds it before it has its own."""
        first = secrets.randbelow(_UIDS)
        return [message._replace(uid=first + at) for at, message in enumerate(new)]

    def keyed(self, place: str, key: str, messages: Sequence[Any], client: str | None) -> Keyed:
        """What a publish with an idempotency key is known by.

        :param place: where it is published.
        """
        arguments.name("idempotency_key", key, IDEMPOTENCY_LENGTH)
        # Without what is added to each publish, such as the ids of a trace.
        new = [self._new("", one, client, None, None) for one in messages]
        return Keyed(_digest([place, key]), _digest([message[:-1] for message in new]))

    def _new(
        self, at: str, item: Any, client: str | None, provided: Mapping[str, Any] | None, fixed: Mapping[str, Any] | None
    ) -> NewMessage:
        if not isinstance(item, tuple | list) or not 1 <= len(item) <= _TRIPLE:
            raise ArgumentError(
                f"{at or 'message: '}must be (kind, payload) or (kind, payload, options), not {arguments.shown(item)}"
            )
        kind, payload, options = (*item, None, None)[:_TRIPLE]
        options = {} if options is None else options
        if not isinstance(options, Mapping) or set(options) - set(self._known):
            known = f"{', '.join(self._known[:-1])} and {self._known[-1]}"
            raise ArgumentError(f"{at or 'message: '}its options may be {known}, not {arguments.shown(options)}")
        key, headers = options.get("key"), arguments.headers(options.get("headers"))
        headers = _headers(at, {**(provided or {}), **(headers or {})} if provided else headers, fixed)
        delay, lifetime = (
            None if options.get(name) is None else arguments.seconds(name, options[name]) for name in ("delay", "expires_in")
        )
        if delay and lifetime and delay >= lifetime:
            raise ArgumentError(f"{at}the message expires before its delay is over: delay must be less than expires_in")
        job = self._builder.job(kind, payload, headers=headers)
        return NewMessage(
            kind=job.kind,
            payload=job.payload,
            headers=job.headers,
            message_key=None if key is None else arguments.name("key", key, KEY_LENGTH),
            client=client,
            delay=delay,
            lifetime=lifetime,
        )


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _headers(at: str, given: Mapping[str, Any] | None, fixed: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The headers of a message.

    :param at: which of several it is, as errors begin.
    :raises ArgumentError: the publisher gives one that is reserved.
    """
    for name in RESERVED:
        if given and name in given:
            raise ArgumentError(f"{at}the header {name!r} is reserved for topics and routers: give it another name")
    return {**(given or {}), **fixed} if fixed else given
