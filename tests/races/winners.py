"""What the winner of a race has done and not yet committed, as functions of the store on an open transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from queue_db import LeasedJob, Queue
from queue_db.model import ClaimRequest, NewJob
from queue_db.store import Transaction, enqueue, lease, settle

Winner = Callable[[Connection, Queue, LeasedJob], None]

_LATER = 1_000_000_000  # microseconds


def _claim(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    store = queue.db.store
    request = ClaimRequest(
        queue=queue.name,
        limit=1,
        lease=_LATER,
        worker="winner",
        token=secrets.token_hex(16),
        ranges=(),
        now=store.clock() if store.clock else None,
    )
    assert [row.id for row in lease.claim(Transaction(connection, store), request, lease.CandidateWindow()).rows] == [job.id]


def _complete(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    assert settle.delete(Transaction(connection, queue.db.store), [(job.id, job.version)]) == {job.id}


def _mark(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    assert settle.mark(Transaction(connection, queue.db.store), [(job.id, job.version)]) == {job.id}


def _extend(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    assert set(settle.extend(Transaction(connection, queue.db.store), [(job.id, job.version)], _LATER)) == {job.id}


def _fail(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    changed = settle.requeue(
        Transaction(connection, queue.db.store),
        [(job.id, job.version)],
        delays={job.id: _LATER},
        errors={job.id: "winner"},
        attempted=True,
    )
    assert changed == {job.id}


def _snooze(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    pairs = [(job.id, job.version)]
    assert settle.requeue(Transaction(connection, queue.db.store), pairs, delays={job.id: _LATER}, attempted=False) == {job.id}


def _bury(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    assert settle.bury(Transaction(connection, queue.db.store), [(job.id, job.version)], {job.id: "winner"}) == {job.id}


def _replace(connection: Connection, queue: Queue, job: LeasedJob) -> None:
    new = NewJob(
        queue=queue.name,
        kind="replaced",
        payload="null",
        headers=None,
        priority=0,
        max_attempts=25,
        unique_key=job.unique_key,
        after=_LATER,
    )
    assert enqueue.insert_jobs(Transaction(connection, queue.db.store), [new], enqueue.OnDuplicate.REPLACE) == [job.id]


#: Each leaves the job where no claim finds it.
WINNERS: dict[str, Winner] = {
    "claim": _claim,
    "complete": _complete,
    "mark": _mark,
    "extend": _extend,
    "fail": _fail,
    "snooze": _snooze,
    "bury": _bury,
    "replace": _replace,
}

#: After a rollback the job is as it was, whatever the winner did.
_OTHERS = pytest.mark.rest("one winner that changes the row and one that deletes it stand for the others")
ROLLED_BACK = [name if name in {"extend", "complete"} else pytest.param(name, marks=_OTHERS) for name in WINNERS]
