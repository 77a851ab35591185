# Generated from queue_db/routes/topic.py, queue_db/routes/registry.py. Do not change it: `make aio` writes it anew.
"""Topic, Routes for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.feeds.settings import OnTrimmed
from queue_db.routes.patterns import PatternForm
from queue_db.routes.plan import Dry
from queue_db.routes.registry import Counted, Definitions, Infos, Routes
from queue_db.routes.topic import Topic


class AsyncTopic(Twin[Topic]):
    """One topic. ``db.topic(name)`` returns it; it keeps nothing: a message goes where routes lead, or nowhere."""

    async def publish(
        self,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        client: str | None = None,
        idempotency_key: str | None = None,
        using: AsyncUsing | None = None,
    ) -> int:
        """Publish one message: its routes act in one transaction, all or none. Return how many acted; 0: no route has it.

        :param key: what the message is about, such as ``order-7``.
        :param headers: ``topic`` is added, and is reserved, as ``via`` is.
        :param client: who publishes it.
        :param idempotency_key: a text that names this publish: a publish with the same key within a day does nothing and returns
            the same number.
        :param using: a connection or session with a transaction: the routes act when it commits.
        :raises IdempotencyKeyError: the key was used for another message.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        return await run(
            self._sync.publish,
            kind,
            payload,
            key=key,
            headers=headers,
            client=client,
            idempotency_key=idempotency_key,
            using=joined(using),
        )

    async def publish_many(
        self,
        messages: Iterable[Any],
        *,
        client: str | None = None,
        idempotency_key: str | None = None,
        using: AsyncUsing | None = None,
    ) -> int:
        """Publish messages, all or none, in their order: ``(kind, payload)`` or ``(kind, payload, {"key": …, "headers": …})``.

        Return how many routes acted, over all messages.

        :raises IdempotencyKeyError: the key was used for other messages.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        return await run(self._sync.publish_many, messages, client=client, idempotency_key=idempotency_key, using=joined(using))


class AsyncRoutes(Twin[Routes]):
    """The routes of one database. A route is a name for a definition; patterns subscribe it to topics."""

    async def define(
        self,
        *,
        feed: str | None = None,
        enqueue: str | tuple[str, str] | None = None,
        forward: str | None = None,
        webhook: str | None = None,
        count: str | None = None,
        drop: bool = False,
        group: bool | str = False,
        where: str | None = None,
        matched: bool = False,
        by: str | None = None,
    ) -> str:
        """Store a definition with one action, and return the SHA-256 of its content, by which :meth:`assign` finds it.

        :param feed: publish the message to this feed.
        :param enqueue: a queue, or (queue, kind): enqueue a job with the payload and headers of the message.
        :param forward: route the message as one of this topic.
        :param webhook: an address, ``https://…``: send the message there, by a job of the queue ``webhooks``, for a worker with the
            handler ``queue_db.service.webhooks.deliver``.
        :param count: add 1 to this counter.
        :param by: with ``count``, a count for each value of this JMESPath expression, such as ``topic`` or ``payload.customer``.
            :meth:`top` returns them.
        :param drop: do nothing.
        :param group: of the jobs, as in :meth:`Feed.forward <queue_db.Feed.forward>`.
        :param where: act only for messages for which this JMESPath expression holds, over ``topic``, ``kind``, ``key``, ``client``,
            ``headers`` and ``payload``: ``payload.celsius > `70` && headers.site == 'north'``.
        :param matched: write the patterns that led the message here into the header ``matched``.
        :raises ConfigurationError: there is a condition, or ``by`` is more than ``topic``, ``kind``, ``key`` or ``client``, and the
            package jmespath is not installed.
        """
        return await run(
            self._sync.define,
            feed=feed,
            enqueue=enqueue,
            forward=forward,
            webhook=webhook,
            count=count,
            drop=drop,
            group=group,
            where=where,
            matched=matched,
            by=by,
        )

    async def set(
        self,
        name: str,
        *,
        feed: str | None = None,
        enqueue: str | tuple[str, str] | None = None,
        forward: str | None = None,
        webhook: str | None = None,
        count: str | None = None,
        drop: bool = False,
        group: bool | str = False,
        where: str | None = None,
        matched: bool = False,
        by: str | None = None,
    ) -> str:
        """:meth:`define`, and assign the definition to the route; a new route is created. Return the definition's SHA-256."""
        return await run(
            self._sync.set,
            name,
            feed=feed,
            enqueue=enqueue,
            forward=forward,
            webhook=webhook,
            count=count,
            drop=drop,
            group=group,
            where=where,
            matched=matched,
            by=by,
        )

    async def assign(self, name: str, definition: str) -> None:
        """Point a route at a definition that is stored. From then on it does that for each message that is published.

        :param definition: its SHA-256, or the first six or more digits.
        :raises RouteError: there is no such route or definition.
        """
        await run(self._sync.assign, name, definition)

    async def subscribe(self, pattern: str, name: str, form: PatternForm = "glob") -> bool:
        """Lead the messages of matching topics to a route. False: it has this subscription already.

        :param form: ``exact``; ``glob``: ``*``, ``?``, ``[a-z]``, ``[^a]`` and a backslash before what stands for itself; ``amqp``:
            words with dots between them, ``*`` for one word, ``#`` for any number of words; ``headers``: a JSON object of headers
            and their values (null: any), which a message must have, or with ``"x-match": "any"`` one of them; ``"topic"`` is the
            only topic, otherwise all are.
        :raises RouteError: there is no such route.
        """
        return await run(self._sync.subscribe, pattern, name, form)

    async def unsubscribe(self, pattern: str, name: str, form: PatternForm = "glob") -> bool:
        """Take a subscription back. False: there is none."""
        return await run(self._sync.unsubscribe, pattern, name, form)

    async def list(self) -> Infos:
        """All routes by name."""
        return await run(self._sync.list)

    async def definitions(self) -> Definitions:
        """All definitions, oldest first."""
        return await run(self._sync.definitions)

    async def pause(self, name: str) -> None:
        """The route does nothing until :meth:`resume`; messages that are published meanwhile are not kept for it.

        :raises RouteError: there is no such route.
        """
        await run(self._sync.pause, name)

    async def resume(self, name: str) -> None:
        """End a :meth:`pause`.

        :raises RouteError: there is no such route.
        """
        await run(self._sync.resume, name)

    async def remove(self, name: str, *, using: AsyncUsing | None = None) -> bool:
        """Delete a route with its subscriptions; its definition stays. False: there is none.

        :param using: a connection or session with a transaction: the route is deleted when it commits.
        """
        return await run(self._sync.remove, name, using=joined(using))

    async def top(self, counter: str, *, limit: int = 10) -> Counted:
        """The keys that a counter has counted most, with their numbers of messages, the largest first.

        :param counter: of a route with ``count=`` and ``by=``.
        """
        return await run(self._sync.top, counter, limit=limit)

    async def reset(self, counter: str, *, key: str | None = None) -> bool:
        """Delete a counter; it begins at 0 again. False: it has counted nothing.

        :param key: delete the count of this key alone.
        """
        return await run(self._sync.reset, counter, key=key)

    async def run(
        self,
        name: str,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        client: str | None = None,
        using: AsyncUsing | None = None,
    ) -> int:
        """Let one route act for a message, whatever patterns it has; return how many routes acted: 1, or those it is forwarded to.

        The topic of the message is the name of the route. 0: the route is paused, or its condition does not hold.

        :param using: a connection or session with a transaction: the route acts when it commits.
        :raises RouteError: there is no such route.
        :raises ArgumentError: nothing was done.
        :raises PayloadError: nothing was done.
        """
        return await run(self._sync.run, name, kind, payload, key=key, headers=headers, client=client, using=joined(using))

    async def test(
        self,
        topic: str,
        *,
        kind: str = "message",
        payload: Any = None,
        key: str | None = None,
        client: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Dry:
        """What a publish of this message to a topic would do now; nothing is done."""
        return await run(self._sync.test, topic, kind=kind, payload=payload, key=key, client=client, headers=headers)

    async def relay(
        self,
        feed: str,
        cursor: str,
        *,
        topic: str | None = None,
        limit: int = 100,
        idle: float | None = 0.0,
        start: str = "start",
        lease: float = 30.0,
        take_over: bool = False,
        on_trimmed: OnTrimmed = "raise",
    ) -> int:
        """Route the messages of a feed, each once; return how many. What routes do and the position are committed together.

        A message is never routed back to a feed from which it came.

        :param cursor: its name; one process at a time follows by it. ``start``, ``lease``, ``take_over`` and ``on_trimmed`` are
            those of :meth:`Feed.cursor <queue_db.Feed.cursor>`.
        :param topic: of the messages; None: the header ``topic`` of each, which it has if it was published to a topic, or else the
            name of the feed, a dot, and the kind.
        :param limit: most messages in one transaction.
        :param idle: seconds to wait for another message; 0: end when none is left; None: never end.
        :raises CursorHeldError: another process holds the cursor.
        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted. What was committed stays.
        :raises TrimmedError: messages were trimmed before they were routed.
        """
        return await run(
            self._sync.relay,
            feed,
            cursor,
            topic=topic,
            limit=limit,
            idle=idle,
            start=start,
            lease=lease,
            take_over=take_over,
            on_trimmed=on_trimmed,
        )
