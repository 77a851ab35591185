"""Loads of messages: what tasks have staged becomes messages of a feed, all or none, and once.

The protocol is that of :mod:`queue_db.spark.staging.store`, with the same ledger and the same chunks. The messages
are published by the feed's own ordering, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from queue_db.errors import NoSuchFeedError
from queue_db.feeds.settings import ordering_of
from queue_db.feeds.store.messages import NewMessage, timed
from queue_db.feeds.store.rows import FeedRow
from queue_db.spark.staging import store as staging
from queue_db.store.base import Transaction


@dataclass(frozen=True, slots=True)
class MessageLoad:
    """What is published to a feed in one go."""

    feed: FeedRow
    app: str
    version: int
    #: Fields that the chunks have, of :class:`queue_db.feeds.store.messages.NewMessage`.
    fields: tuple[str, ...]
    kind: str  #: of the messages that have none
    #: Whether the same (app, version) may come again to this feed, however late.
    kept: bool
    noun: ClassVar[str] = "messages"

    @property
    def queue(self) -> str:
        """The feed in the ledger. No queue has a name like this, which begins with a blank; no other feed has this token."""
        return f" feed {self.feed.token}"

    @property
    def into(self) -> str:
        """Where it goes, for errors."""
        return f"feed {self.feed.name!r}"


def publish(
    tx: Transaction,
    load: MessageLoad,
    parts: Sequence[int | bytes],
    attempts: Mapping[int, int],
    messages: int,
) -> staging.Published | None:
    """Publish what was staged: all of it, or, if ``(app, version)`` was published to this feed before, nothing (None).

    :param parts: the attempts, and small chunks that were not staged, in the order of their messages.
    :param attempts: attempt → number of its chunks.
    :param messages: in all parts.
    :raises StagingError: as :func:`queue_db.spark.staging.store.publish`.
    :raises NoSuchFeedError: the feed was deleted.
    """
    if not staging.enter(tx, load, messages):
        return None
    found = sum(append(tx, load, columns) for columns in staging.columns_of(tx, load.fields, parts))
    staging.take_away(tx, load, attempts, found, messages)
    return staging.Published(found, 0)


def append(tx: Transaction, load: MessageLoad, columns: Mapping[str, Sequence[Any]]) -> int:
    """Publish messages without staging them; return how many.

    :param columns: field (``load.fields``) → values, all of the same length.
    :raises NoSuchFeedError: the feed was deleted.
    """
    count = len(columns["payload"])
    given: dict[str, Iterable[Any]] = {name: columns.get(name, [None] * count) for name in NewMessage._fields}
    given["kind"] = [load.kind if kind is None else kind for kind in given["kind"]]
    new = [NewMessage(*row) for row in zip(*given.values(), strict=True)]
    try:
        ordering_of(load.feed).append(tx, load.feed, timed(load.feed, new))
    except LookupError:
        raise NoSuchFeedError(f"feed {load.feed.name!r} was deleted: nothing was published, run the load again") from None
    return count
