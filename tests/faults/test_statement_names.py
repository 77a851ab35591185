"""An error of the database says which function was running."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import ProgrammingError

from queue_db import Queue, QueueDB, StorageError, store, verbs

#: Packages of slices with a store of their own.
OF_SLICES = ("administration", "dead", "feeds", "groups", "monitoring", "schedules", "spark.streams")


def functions_with_statements() -> set[str]:
    """Those of stores, with their room; those of verbs, alone."""
    modules = [(module.name, f"{store.__name__}.{module.name}") for module in pkgutil.iter_modules(store.__path__)]
    for package in OF_SLICES:
        room, of_slice = package.rpartition(".")[2], import_module(f"queue_db.{package}.store")
        modules += [(room, of_slice.__name__)]
        modules += [
            (room, f"{of_slice.__name__}.{module.name}") for module in pkgutil.iter_modules(getattr(of_slice, "__path__", []))
        ]
    found = {
        name.strip("_")
        for module in pkgutil.iter_modules(verbs.__path__)
        for name, _ in inspect.getmembers(import_module(f"{verbs.__name__}.{module.name}"), inspect.isfunction)
    }
    for of, place in modules:
        module = import_module(place)
        found |= {f"{of}.{name}" for name, _ in inspect.getmembers(module, inspect.isfunction)}
        for name, one in inspect.getmembers(module, inspect.isclass):
            found |= {f"{of}.{name}.{method}" for method, _ in inspect.getmembers(one, inspect.isfunction)}
    return found


VERBS: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue("k"),
    "enqueue_many": lambda queue: queue.enqueue_many([("k", 1), ("k", 2)]),
    "enqueue_batch": lambda queue: queue.enqueue_batch([("k", 1)], ("k", 2)),
    "claim": lambda queue: queue.claim(),
    "pop": lambda queue: queue.pop(),
    "get": lambda queue: queue.get(1),
    "peek": lambda queue: queue.peek(),
    "stats": lambda queue: queue.stats(),
    "pause": lambda queue: queue.pause(),
    "controls": lambda queue: queue.controls(),
    "purge": lambda queue: queue.purge(),
    "queues": lambda queue: queue.db.queues(),
    "next_due": lambda queue: queue.db.next_due([queue.name]),
    "errors": lambda queue: queue.db.errors(1),
    "finished": lambda queue: queue.db.finished(1),
    "rescue": lambda queue: queue.db.rescue("nobody"),
    "workers": lambda queue: queue.db.workers(),
    "sweep": lambda queue: queue.db.sweep(),
    "prune": lambda queue: queue.db.prune(),
    "dead.list": lambda queue: queue.db.dead.list(),
    "dead.redrive": lambda queue: queue.db.dead.redrive(),
    "dead.purge": lambda queue: queue.db.dead.purge(),
    "schedules.list": lambda queue: queue.db.schedules.list(),
    "schedules.set": lambda queue: queue.db.schedules.set("s", "q", "k", every=60),
    "schedules.tick": lambda queue: queue.db.schedules.tick(),
    "streams.list": lambda queue: queue.db.streams.list(),
}


def test_the_name_is_a_function_with_statements_whatever_the_verb(kind: str, fresh_url: str) -> None:
    known = functions_with_statements()
    with QueueDB(fresh_url) as db:
        db.migrate()
        db.check()
        with db.database.engine.begin() as connection:
            connection.execute(text("DROP VIEW IF EXISTS jobs_state"))
            for table in reversed(db.store.tables.metadata.sorted_tables):
                table.drop(connection)
        named: dict[str, str] = {}
        for verb, act in VERBS.items():
            with pytest.raises(StorageError) as refused:
                act(db.queue("mail"))
            named[verb] = refused.value.statement_name
        # Of a verb whose functions stand beside it, the name is that of the verb.
        assert {verb: name for verb, name in named.items() if name not in known | {verb}} == {}
        with pytest.raises(StorageError) as refused, db.queue("mail").transaction() as connection:
            connection.execute(text("SELECT nothing FROM nowhere"))
        assert refused.value.statement_name == "transaction"


def test_without_a_statement_it_is_the_function_that_was_to_run(tmp_path: Path) -> None:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        db.check()
        queue = db.queue("mail")

        def refuse(_connection: object) -> None:
            raise ProgrammingError("BEGIN", {}, Exception("refused"))

        event.listen(db.database.engine, "engine_connect", refuse)
        db.database.connections.release()
        named = {}
        for verb in ("claim", "enqueue", "peek", "pause"):
            with pytest.raises(StorageError) as refused:
                VERBS[verb](queue)
            named[verb] = refused.value.statement_name
    assert named == {"claim": "claim", "enqueue": "enqueue", "peek": "monitoring.due_jobs", "pause": "controls.change"}
