"""A topic: a name to publish to. Routes decide where its messages go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from queue_db import arguments
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.dialects.transactions import savepoint
from queue_db.feeds.building import MessageBuilder
from queue_db.feeds.store import publishes
from queue_db.feeds.store.publishes import Keyed
from queue_db.routes.router import Admit, Done, Item, Router
from queue_db.slices import type_hint
from queue_db.store import Transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import Session
else:
    Session = type_hint("sqlalchemy.orm", "Session")


class Topic:
    """One topic. ``db.topic(name)`` returns it; it keeps nothing: a message goes where routes lead, or nowhere.

    :param admit: called in each publish, before anything is written.
    :param only: this route alone has the messages.
    """

    def __init__(self, router: Router, name: str, admit: Admit | None = None, *, only: str | None = None) -> None:
        self.name = name
        self.router = router
        self._admit = admit
        self._only = only
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
        idempotency_key: str | None = None,
        using: Using | None = None,
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
        listed = [(kind, payload, {"key": key, "headers": headers})]
        return self.publish_many(listed, client=client, idempotency_key=idempotency_key, using=using)

    def publish_many(
        self,
        messages: Iterable[Any],
        *,
        client: str | None = None,
        idempotency_key: str | None = None,
        using: Using | None = None,
    ) -> int:
        """Publish messages, all or none, in their order: ``(kind, payload)`` or ``(kind, payload, {"key": …, "headers": …})``.

        Return how many routes acted, over all messages.

        :raises IdempotencyKeyError: the key was used for other messages.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        listed = arguments.members("messages", messages, "messages")
        items = [Item(self.name, message) for message in self._builder.messages(listed, client, {"topic": self.name})]
        if not items:
            return 0
        keyed = None
        if idempotency_key is not None:
            keyed = self._builder.keyed(f"topic {self.name}", idempotency_key, listed, client)
        router, core = self.router, self.router.core
        if using is not None:
            # A savepoint: all or none, also in a transaction that goes on after an error.
            with core.joined(using, "publish") as tx, savepoint(tx.connection):
                done = self._route(tx, items, keyed)
            router.report(done)
        else:
            done = core.run(Run(name="route", repeatable=keyed is not None), self._route, items, keyed)
            router.after_commit(done)
        return done.acted

    def _route(self, tx: Transaction, items: Sequence[Item], keyed: Keyed | None) -> Done:
        if keyed is None:
            return self.router.route(tx, items, admit=self._admit, only=self._only)
        done = Done()

        def publish() -> int:
            nonlocal done
            done = self.router.route(tx, items, admit=self._admit, only=self._only)
            return done.acted

        done.acted = publishes.once(tx, keyed, publish)
        return done
