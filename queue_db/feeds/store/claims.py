"""Claims on single messages: claim, extend, release, delete under the claim.

Each function locks the rows of ``claims`` by number, and then checks their token and time. So a claim that has ended changes
nothing, whatever others have done meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, Table, and_, case, func, or_, select, update

from queue_db.errors import ClaimExpiredError, MessageClaimedError, MessageNotClaimedError, UnknownClaimError
from queue_db.feeds.store import message_jobs
from queue_db.feeds.store.claim_rows import remove
from queue_db.feeds.store.message_jobs import MessageJob
from queue_db.feeds.store.messages import MessageRow
from queue_db.feeds.store.rows import FeedRow, by_id
from queue_db.feeds.tables import feed_tables
from queue_db.model import Capability, DeathReason
from queue_db.notifications.deaths import Death, UnleasedJob
from queue_db.store.base import Transaction, attempt_before


class Terms(NamedTuple):
    """How a claim is made."""

    token: str
    limit: int
    lease: int  #: microseconds
    grace: int  #: microseconds after its end before which none of the messages expires


class Claimed(NamedTuple):
    """The messages of a claim."""

    found: list[MessageRow]
    attempts: list[int]  #: how often each was claimed
    until: int
    epoch: int  #: of the feed at that time
    removed: int = 0  #: messages that expired or became dead jobs, so that others may be free


class Counts(NamedTuple):
    """The messages of a feed that have not expired."""

    total: int
    claimed: int
    delayed: int
    oldest: MessageRow | None
    newest: MessageRow | None


# --- claim ----------------------------------------------------------------------------------------------------------


def claim(tx: Transaction, feed: FeedRow, terms: Terms, bury: Callable[[MessageRow, int], MessageJob]) -> Claimed:
    """Claim the first messages that are free. One that was claimed too often becomes the dead job that ``bury`` makes of it."""
    free = tx.connection.execute(_free(tx, feed.id, terms.limit), tx.time()).all()
    expired = [row.seq for row in free if row.expires_at is not None and row.expires_at <= row.now]
    spent = {
        row.seq: row.attempts for row in free if feed.max_attempts and row.attempts >= feed.max_attempts and row.seq not in expired
    }
    if spent:
        _bury(tx, [bury(one, spent[one.seq]) for one in _messages(tx, feed.id, list(spent))])
    gone = {*expired, *spent}
    if gone:
        remove(tx, feed.id, sorted(gone))
    mine = {row.seq: row.attempts + 1 for row in free if row.seq not in gone}
    if not mine:
        return Claimed([], [], 0, 0, len(gone))
    changed = {"token": terms.token, "attempts": _claims(tx).c.attempts + 1}
    _lease(tx, feed.id, list(mine), terms.lease, terms.grace, changed)
    until, epoch = _until(tx, feed.id, next(iter(mine))), _epoch(tx, feed)
    return Claimed(_messages(tx, feed.id, list(mine)), list(mine.values()), until, epoch, len(gone))


def _bury(tx: Transaction, dying: Sequence[MessageJob]) -> None:
    """Messages that were claimed too often become dead jobs."""
    for job_id, one in zip(message_jobs.add(tx, dying), dying, strict=True):
        if tx.deaths is not None:
            job = UnleasedJob(job_id, one.job.queue, one.job.kind, one.attempts, one.job.max_attempts)
            tx.deaths[job_id] = Death(job, DeathReason.EXHAUSTED, one.error or "")


def pop(tx: Transaction, feed: FeedRow, limit: int) -> Claimed:
    """Delete the first messages that are free and return them."""
    free = tx.connection.execute(_free(tx, feed.id, limit), tx.time()).all()
    expired = [row.seq for row in free if row.expires_at is not None and row.expires_at <= row.now]
    found = _messages(tx, feed.id, [row.seq for row in free if row.seq not in expired])
    if free:
        remove(tx, feed.id, [row.seq for row in free])
    return Claimed(found, [], 0, _epoch(tx, feed), len(expired))


def _free(tx: Transaction, feed: int, limit: int) -> Select[Any]:
    """The first messages that nobody has claimed and that are not delayed; no two transactions get the same."""
    claims, now = _claims(tx), tx.now
    # No other condition: by another index than the primary key all rows would be locked.
    query = (
        select(claims.c.seq, claims.c.attempts, claims.c.expires_at, now.label("now"))
        .where(claims.c.feed == feed, claims.c.until <= now)
        .order_by(claims.c.seq)
        .limit(limit)
    )
    return tx.dialect.lock_rows(query, skip=Capability.SKIP_LOCKED in tx.store.capabilities)


# --- under a claim --------------------------------------------------------------------------------------------------


def delete(tx: Transaction, feed: FeedRow, seqs: Sequence[int], token: str | None) -> int:
    """Delete messages; return how many: under a claim all of them or none, without one those that are there.

    :raises ClaimError: nothing was deleted.
    """
    rows = _locked(tx, feed.id, seqs)
    if token is None:
        claimed = [row.seq for row in rows if row.token is not None and row.until > row.now]
        if claimed:
            raise MessageClaimedError(f"message {claimed[0]} of feed {feed.name!r} is claimed: delete it with the id of its claim")
    elif len(rows) < len(set(seqs)) or not all(_is_held(row, token) for row in rows):
        held = {row.seq for row in rows if _is_held(row, token)}
        raise _refused(tx, feed, token, [seq for seq in seqs if seq not in held])
    if rows:
        remove(tx, feed.id, [row.seq for row in rows])
    return len(rows)


def finish(tx: Transaction, feed: FeedRow, token: str) -> int:
    """Delete all messages that are left of a claim; return how many.

    :raises ClaimError: nothing was deleted.
    """
    seqs = _of_claim(tx, feed, token)
    remove(tx, feed.id, seqs)
    return len(seqs)


def extend(tx: Transaction, feed: FeedRow, token: str, lease: int, grace: int) -> int:
    """The claim ends ``lease`` microseconds from now; return when.

    :raises ClaimError: nothing was changed.
    """
    seqs = _of_claim(tx, feed, token)
    _lease(tx, feed.id, seqs, lease, grace, {})
    return _until(tx, feed.id, seqs[0])


def release(tx: Transaction, feed: FeedRow, token: str) -> int:
    """Anybody may claim the messages now, and this claim does not count; return how many.

    :raises ClaimError: nothing was changed.
    """
    claims, seqs = _claims(tx), _of_claim(tx, feed, token)
    mine = and_(claims.c.feed == feed.id, claims.c.seq.in_(seqs))
    tx.connection.execute(update(claims).where(mine).values(token=None, until=0, attempts=attempt_before(claims)))
    return len(seqs)


def find_claim(tx: Transaction, feed: FeedRow, token: str) -> Claimed:
    """What is left of a claim.

    :raises ClaimError: it is unknown or expired.
    """
    rows = _by_token(tx, feed.id, token)
    held = {row.seq: row.attempts for row in rows if _is_held(row, token)}
    if not held:
        raise _refused(tx, feed, token, ())
    found = _messages(tx, feed.id, list(held))
    return Claimed(found, list(held.values()), rows[0].until, _epoch(tx, feed))


def _is_held(row: Row[Any], token: str) -> bool:
    """The fence: whether the message is under this claim, and the claim has not ended."""
    return bool(row.token == token and row.until > row.now)


def _of_claim(tx: Transaction, feed: FeedRow, token: str) -> list[int]:
    """Lock the messages of a claim; return their numbers."""
    # Two statements: by the index of the token the rows would be locked in another order than a claim locks them.
    seqs = [row.seq for row in _by_token(tx, feed.id, token)]
    held = [row.seq for row in _locked(tx, feed.id, seqs) if _is_held(row, token)] if seqs else []
    if not held:
        raise _refused(tx, feed, token, ())
    return held


def _refused(
    tx: Transaction, feed: FeedRow, token: str, seqs: Sequence[int]
) -> ClaimExpiredError | UnknownClaimError | MessageNotClaimedError:
    """Why a claim does not allow this."""
    rows = _by_token(tx, feed.id, token)
    if not rows:
        return UnknownClaimError(
            f"feed {feed.name!r} has no claim {token}: it never existed, was released, others have claimed its messages, "
            "or all of them are deleted"
        )
    if all(row.until <= row.now for row in rows):
        return ClaimExpiredError(f"claim {token} of feed {feed.name!r} has ended: others may have its messages")
    which = ", ".join(str(seq) for seq in seqs[:3])
    return MessageNotClaimedError(f"claim {token} of feed {feed.name!r} does not have message {which}")


# --- read -----------------------------------------------------------------------------------------------------------


def get(tx: Transaction, feed: FeedRow, seqs: Sequence[int]) -> list[MessageRow]:
    """The messages with these numbers that are there, by number."""
    return _messages(tx, feed.id, seqs)


def open_claims(tx: Transaction, feed: int) -> list[tuple[str, int, int]]:
    """The claims that have not ended: id, how many messages are left, end. Those that end first come first."""
    claims, now = _claims(tx), tx.now
    query = (
        select(claims.c.token, func.count(), claims.c.until)
        .where(claims.c.feed == feed, claims.c.token.is_not(None), claims.c.until > now)
        .group_by(claims.c.token, claims.c.until)
        .order_by(claims.c.until, claims.c.token)
    )
    return [(row[0], row[1], row[2]) for row in tx.connection.execute(query, tx.time())]


def count(tx: Transaction, feed: int) -> Counts:
    """Count the messages of a feed."""
    claims, now = _claims(tx), tx.now
    hidden, taken = claims.c.until > now, claims.c.token.is_not(None)

    def number(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

    query = select(
        func.count(), number(and_(hidden, taken)), number(and_(hidden, ~taken)), func.min(claims.c.seq), func.max(claims.c.seq)
    ).where(claims.c.feed == feed, or_(claims.c.expires_at.is_(None), claims.c.expires_at > now))
    total, claimed, delayed, oldest, newest = tx.connection.execute(query, tx.time()).one()
    ends = {row.seq: row for row in _messages(tx, feed, [oldest, newest])} if total else {}
    return Counts(total, int(claimed), int(delayed), ends.get(oldest), ends.get(newest))


# --- parts ----------------------------------------------------------------------------------------------------------


def _claims(tx: Transaction) -> Table:
    return feed_tables(tx.tables).claims


def _locked(tx: Transaction, feed: int, seqs: Sequence[int]) -> Sequence[Row[Any]]:
    claims = _claims(tx)
    query = _state(tx).where(claims.c.feed == feed, claims.c.seq.in_(seqs)).order_by(claims.c.seq)
    return tx.connection.execute(tx.dialect.lock_rows(query, skip=False), tx.time()).all()


def _by_token(tx: Transaction, feed: int, token: str) -> Sequence[Row[Any]]:
    claims = _claims(tx)
    # Sorted here: with ORDER BY seq SQLite would read all rows of the feed in this order.
    query = _state(tx).where(claims.c.feed == feed, claims.c.token == token)
    return sorted(tx.connection.execute(query, tx.time()), key=lambda row: int(row.seq))


def _state(tx: Transaction) -> Select[Any]:
    claims = _claims(tx)
    return select(claims.c.seq, claims.c.token, claims.c.until, claims.c.attempts, tx.now.label("now"))


def _lease(tx: Transaction, feed: int, seqs: Sequence[int], lease: int, grace: int, more: Mapping[str, Any]) -> None:
    claims, now = _claims(tx), tx.now
    end = now + lease + grace
    values = {
        "until": now + lease,
        "expires_at": case((claims.c.expires_at < end, end), else_=claims.c.expires_at),
        **more,
    }
    mine = and_(claims.c.feed == feed, claims.c.seq.in_(seqs))
    tx.connection.execute(update(claims).where(mine).values(values), tx.time())


def _until(tx: Transaction, feed: int, seq: int) -> int:
    claims = _claims(tx)
    query = select(claims.c.until).where(claims.c.feed == feed, claims.c.seq == seq)
    until: int = tx.connection.execute(query).scalar_one()
    return until


def _epoch(tx: Transaction, feed: FeedRow) -> int:
    """The epoch now: a later purge deletes the claimed messages."""
    row = by_id(tx, feed.id)
    return feed.epoch if row is None else row.epoch


def _messages(tx: Transaction, feed: int, seqs: Sequence[int]) -> list[MessageRow]:
    if not seqs:
        return []
    messages = feed_tables(tx.tables).messages
    found = select(*(messages.c[name] for name in MessageRow._fields)).where(messages.c.feed == feed, messages.c.seq.in_(seqs))
    return [MessageRow(*row) for row in tx.connection.execute(found.order_by(messages.c.seq))]
