"""Where a stream stands: offsets, sessions, and the checks that fence off old readers and foreign checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select

from queue_db.errors import CheckpointMismatchError, StreamFencedError
from queue_db.spark.tables import spark_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a stream: a batch, and the token of its claim."""

    batch: int
    claim: str


@dataclass(frozen=True, slots=True)
class Part:
    """A partition of a batch: jobs with ids from ``low`` to ``high``."""

    batch: int
    low: int
    high: int
    jobs: int
    #: Deliveries of the batch before this one: attempts of its jobs in addition to those of their rows.
    again: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A reader's session on a stream, valid until another reader opens it."""

    stream: int
    name: str
    queue: str
    epoch: int


def locked(tx: Transaction, name: str) -> Row[Any] | None:
    """The row of a stream, locked until the transaction ends; None: no such stream."""
    return by_key.lock(tx, spark_tables(tx.tables).streams, {"name": name})


def held_by(tx: Transaction, session: Session) -> Row[Any]:
    """The locked row of a session's stream.

    :raises StreamFencedError: another reader has opened it, or it was released.
    """
    row = locked(tx, session.name)
    if row is None or row.id != session.stream:
        raise mismatch(session.name, "the stream is not there any more")
    if row.epoch != session.epoch:
        raise StreamFencedError(
            f"stream {session.name!r} was taken over or released (epoch {row.epoch}, this reader has {session.epoch}; now held by "
            f"{row.holder or 'nobody'}): one query reads a stream at a time; give the other one a stream of its own"
        )
    return row


def batches_between(tx: Transaction, stream: int, low: int, high: int) -> Sequence[Row[Any]]:
    """The batches from ``low`` to ``high``, by number."""
    batches = spark_tables(tx.tables).batches
    query = select(batches).where(batches.c.stream == stream, batches.c.batch.between(low, high)).order_by(batches.c.batch)
    return tx.connection.execute(query).all()


def check(tx: Transaction, row: Row[Any], offset: Offset) -> None:
    """Refuse an offset that this database has not issued or no longer has.

    :raises CheckpointMismatchError: with both positions.
    """
    if not row.acked <= offset.batch <= row.allocated:
        raise mismatch(
            row.name, f"it is at batch {offset.batch}, the database has {row.acked} completed and {row.allocated} claimed"
        )
    known = row.acked_claim if offset.batch == row.acked else batches_between(tx, row.id, offset.batch, offset.batch)[0].claim
    if offset.claim != known:
        raise mismatch(row.name, f"its batch {offset.batch} is not the one that the database knows by this number")


def mismatch(name: str, what: str) -> CheckpointMismatchError:
    """The error for a checkpoint of another history; ``what`` differs."""
    return CheckpointMismatchError(
        f"the checkpoint and stream {name!r} do not belong together: {what}. The checkpoint or the database was restored from a "
        "backup, the stream was released, or the checkpoint is another stream's. Jobs were neither lost nor repeated; to go on "
        "from what the database knows, start with a new checkpoint location, and with a new output folder or txnAppId: sinks that "
        "know batches by their number would take the new ones for old"
    )
