"""An error of the database says which transaction has failed: a verb, or a function of a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import ProgrammingError

from queue_db import Queue, QueueDB, StorageError
from tests.idle import release

VERBS: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue("k"),
    "enqueue_many": lambda queue: queue.enqueue_many([("k", 1), ("k", 2)]),
    "enqueue_batch": lambda queue: queue.enqueue_batch([("k", 1)], ("k", 2)),
    "claim": lambda queue: queue.claim(),
    "pop": lambda queue: queue.pop(),
    "get": lambda queue: queue.get(1),
    "purge": lambda queue: queue.purge(),
    "next_due": lambda queue: queue.db.next_due([queue.name]),
    "rescue": lambda queue: queue.db.rescue("nobody"),
    "sweep": lambda queue: queue.db.sweep(),
    "controls.change": lambda queue: queue.pause(),
    "controls.read": lambda queue: queue.controls(),
    "administration.prune_finished": lambda queue: queue.db.prune(),
    "worker_registry.all_workers": lambda queue: queue.db.workers(),
    "monitoring.due_jobs": lambda queue: queue.peek(),
    "monitoring.stats": lambda queue: queue.stats(),
    "monitoring.queues": lambda queue: queue.db.queues(),
    "monitoring.errors_of": lambda queue: queue.db.errors(1),
    "monitoring.finished": lambda queue: queue.db.finished(1),
    "dead.page_of_dead_jobs": lambda queue: queue.db.dead.list(),
    "dead.redrive": lambda queue: queue.db.dead.redrive(),
    "dead.purge": lambda queue: queue.db.dead.purge(),
    "schedules.all_schedules": lambda queue: queue.db.schedules.list(),
    "schedules.put": lambda queue: queue.db.schedules.set("s", "q", "k", every=60),
    "schedules.due": lambda queue: queue.db.schedules.tick(),
    "streams.listed": lambda queue: queue.db.streams.list(),
}


def test_the_name_is_that_of_the_transaction(kind: str, fresh_url: str) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        db.queue("mail").claim()  # reads which queues are fair
        with db.database.engine.begin() as connection:
            connection.execute(text("DROP VIEW IF EXISTS jobs_state"))
            for table in reversed(db.store.tables.metadata.sorted_tables):
                table.drop(connection)
        for name, act in VERBS.items():
            with pytest.raises(StorageError, match=f"^{name}: ") as refused:
                act(db.queue("mail"))
            assert refused.value.statement_name == name
        with pytest.raises(StorageError) as refused, db.queue("mail").transaction() as connection:
            connection.execute(text("SELECT nothing FROM nowhere"))
        assert refused.value.statement_name == "transaction"
        with pytest.raises(StorageError) as refused, db.queue("mail").transaction() as connection:
            db.queue("mail").enqueue("k", using=connection)
        assert refused.value.statement_name == "enqueue"


def test_without_a_statement_it_is_the_transaction_that_was_to_run(tmp_path: Path) -> None:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        queue = db.queue("mail")
        queue.claim()  # reads which queues are fair

        def refuse(_connection: object) -> None:
            raise ProgrammingError("BEGIN", {}, Exception("refused"))

        event.listen(db.database.engine, "engine_connect", refuse)
        release(db)
        for name in ("claim", "enqueue", "monitoring.due_jobs", "controls.change"):
            with pytest.raises(StorageError) as refused:
                VERBS[name](queue)
            assert refused.value.statement_name == name
