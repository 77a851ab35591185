"""A topic: a name to publish to. Routes decide where its messages go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from queue_db.dialects.transactions import savepoint
from queue_db.feeds.building import MessageBuilder
from queue_db.routes.router import Admit, Item, Router

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Topic:
    """One topic. ``db.topic(name)`` returns it; it keeps nothing: a message goes where routes lead, or nowhere.

    :param admit: called in each publish, before anything is written.
    """

    def __init__(self, router: Router, name: str, admit: Admit | None = None) -> None:
        self.name = name
        self.router = router
        self._admit = admit
        self._builder = MessageBuilder(router.core, name)

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"

    def publish(
        self,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        client: str | None = None,
        using: Connection | Session | None = None,
    ) -> int:
        """Publish one message: its routes act in one transaction, all or none. Return how many acted; 0: no route has it.

        :param key: what the message is about, such as ``order-7``.
        :param headers: ``topic`` is added, and is reserved, as ``via`` is.
        :param client: who publishes it.
        :param using: a connection or session with a transaction: the routes act when it commits.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        return self.publish_many([(kind, payload, {"key": key, "headers": headers})], client=client, using=using)

    def publish_many(self, messages: Iterable[Any], *, client: str | None = None, using: Connection | Session | None = None) -> int:
        """Publish messages, all or none, in their order: ``(kind, payload)`` or ``(kind, payload, {"key": …, "headers": …})``.

        Return how many routes acted, over all messages.

        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        items = [Item(self.name, message) for message in self._builder.messages(messages, client, {"topic": self.name})]
        if not items:
            return 0
        router, core = self.router, self.router.core
        if using is not None:
            # A savepoint: all or none, also in a transaction that goes on after an error.
            with core.joined(using, "publish") as connection, savepoint(connection):
                done = router.route(connection, core.store, items, own=False, admit=self._admit)
            router.report(done)
        else:
            done = core.write(router.route, items, admit=self._admit)
            router.after_commit(done)
        return done.acted
