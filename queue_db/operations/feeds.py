"""Operations on feeds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from queue_db.db import QueueDB
from queue_db.feeds.settings import KEEP_FOR, KEEP_UNREAD, FeedOrdering
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry

#: The settings of a new feed that are not given, as arguments of :meth:`db.feeds.set <queue_db.feeds.registry.Feeds.set>`.
DEFAULTS: dict[str, Any] = {"keep_for": KEEP_FOR / 1_000_000, "keep_rows": 0, "keep_unread": KEEP_UNREAD}

#: Those that only a feed with claims has.
OF_CLAIMS: dict[str, Any] = {"max_attempts": 0, "delay": 0.0, "expires_in": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a feed, as :meth:`db.feeds.set <queue_db.feeds.registry.Feeds.set>` has them; None: not given."""

    ordering: FeedOrdering | None = None
    claims: bool | None = None
    keep_for: float | None = None
    keep_rows: int | None = None
    keep_unread: int | None = None
    max_attempts: int | None = None
    delay: float | None = None
    expires_in: float | None = None


def set(  # noqa: A001 - the word of the log
    db: QueueDB, actor: Actor, feed: str, settings: Settings, *, every: bool = False
) -> bool:
    """Create a feed with these settings, or change them; return whether it is new.

    :param every: what is not given gets its default; ordering and claims of a feed that is there stay. Otherwise it stays as it is.
    """
    actor.check("manage", feed)
    before = next(iter(db.feeds.list([feed])), None)
    given = {name: value for name, value in asdict(settings).items() if value is not None}
    values = given
    if every:
        claims = given.get("claims", before is not None and before.claims)
        values = {**DEFAULTS, **(OF_CLAIMS if claims else {}), **given}
    with entry(db, actor, "set", f"feed {feed}", detail=given or None, of="feeds.set_up", number=_set_up):
        db.feeds.set(feed, **values)
    return before is None


def purge(db: QueueDB, actor: Actor, feed: str, *, retained: bool = False) -> int:
    """Delete all messages of a feed; return how many.

    :param retained: not those that its retention keeps; positions stay valid then.
    """
    actor.check("manage", feed)
    rights.feed(db, feed)
    if retained:
        with entry(db, actor, "purge", f"feed {feed}", detail={"retained": True}, of="feeds.trim"):
            return db.feed(feed).trim()
    with entry(db, actor, "purge", f"feed {feed}", of="feeds.purge", number=_purged):
        return db.feeds.purge(feed)


def remove(db: QueueDB, actor: Actor, feed: str) -> bool:
    """Delete a feed with its messages and cursors; False: there is none."""
    actor.check("manage", feed)
    with entry(db, actor, "remove", f"feed {feed}", of="feeds.remove"):
        return db.feeds.delete(feed)


def restored(db: QueueDB, actor: Actor) -> int:
    """The database was restored from a backup: holders lose their cursors, earlier positions are refused. Return how many feeds."""
    actor.check_all("manage")
    with entry(db, actor, "restored", "all feeds", of="feeds.restored"):
        return db.feeds.restored()


def _set_up(feed: object) -> int | None:
    """None: there is no such feed, and it cannot be new."""
    return 0 if feed is None else None


def _purged(gone: int | None) -> int | None:
    """A purge ends the positions of a feed also where it finds no message."""
    return 0 if gone is None else gone or None
