"""The queue and its slices: it works without them in its imports, and they have all that it asks of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import queue_db
from queue_db.dialects import Dialect, dialect_for
from queue_db.dialects.postgresql import PostgreSQL
from queue_db.feeds.dialects import FeedDialect
from queue_db.slices import NAMES, slices, tasks
from queue_db.spark.dialects import SparkDialect
from queue_db.store.schema.tables import tables
from queue_db.worker.maintenance import maintenance
from queue_db.worker.options import Options
from queue_db.worker.registration import Registration

_OTHERS = ("administration", "compare", "processes", "tasks")


@pytest.mark.parametrize("module", ["queue_db", "queue_db.aio", "queue_db.worker"])
def test_an_import_of_the_queue_imports_no_slice(module: str) -> None:
    """Also not at run time, by its name, where the linter sees nothing."""
    program = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    loaded = {name.split(".")[1] for name in run.stdout.split() if name.startswith("queue_db.")}
    assert "db" in loaded
    assert not loaded & {*NAMES, *_OTHERS}


@pytest.mark.parametrize(("feeds", "loaded"), [({}, "False"), ({"orders:mailers": 1}, "True")])
def test_only_a_worker_with_slots_of_feeds_imports_them(tmp_path: Path, feeds: dict[str, int], loaded: str) -> None:
    """Its maintenance trims feeds, which a database has without a worker."""
    program = f"""
import sys
from queue_db import QueueDB
from queue_db.worker import Worker

with QueueDB("sqlite:///{tmp_path}/slices.db") as db:
    db.migrate()
    db.queue("mail").enqueue("n")
    worker = Worker(db, "mail", feeds={feeds!r})
    worker.handles("n")(lambda job: None)
    assert worker.run(until_empty=True).completed == 1
print("queue_db.feeds.worker.slots" in sys.modules or "queue_db.feeds.worker" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert run.stdout.split() == [loaded]


@pytest.mark.parametrize(("executor", "loaded"), [("thread", "False"), ("process", "True")])
def test_only_a_worker_with_handlers_in_processes_imports_these(tmp_path: Path, executor: str, loaded: str) -> None:
    program = f"""
import operator, sys
from queue_db import QueueDB
from queue_db.worker import Worker

with QueueDB("sqlite:///{tmp_path}/slices.db") as db:
    db.migrate()
    db.queue("mail").enqueue("n")
    worker = Worker(db, "mail")
    worker.handles("n", executor={executor!r})(operator.truth)
    assert worker.run(until_empty=True).completed == 1
print("queue_db.processes.pool" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert run.stdout.split() == [loaded]


@pytest.mark.parametrize(
    ("control", "loaded"),
    [
        ("resume()", "False"),
        ("limit(per_group=2)", "False"),
        ("limit(concurrency=3)", "True"),
        ("limit(rate=3)", "True"),
    ],
)
def test_only_a_worker_with_a_limited_queue_imports_the_limiter(tmp_path: Path, control: str, loaded: str) -> None:
    program = f"""
import sys
from queue_db import QueueDB
from queue_db.worker import Worker

with QueueDB("sqlite:///{tmp_path}/slices.db") as db:
    db.migrate()
    db.queue("mail").{control}
    db.queue("mail").enqueue("n")
    worker = Worker(db, ["paused", "mail"])
    db.queue("paused").pause()
    worker.handles("n")(lambda job: None)
    assert worker.run(until_empty=True).completed == 1
print("queue_db.limits.limiter" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert run.stdout.split() == [loaded]


def test_the_maintenance_of_slices_is_that_of_a_worker(tmp_path: Path) -> None:
    with queue_db.QueueDB(f"sqlite:///{tmp_path}/slices.db") as db:
        own = Registration(db, {}, lambda: ("working", 0, {}))
        options = Options(queues="mail", dead_for=60)
        names = {task.name for task in maintenance(db, options, own)}
        of_slices = {task.name for task in tasks(db, options)}
        expected = (
            "enqueueing the jobs of schedules",
            "deleting dead jobs",
            "trimming feeds",
            "expiring streams",
            "writing metrics",
        )
        assert {*expected} == of_slices <= names


def test_the_packages_of_public_slices_are_attributes() -> None:
    packages = ("dead", "feeds", "routes", "schedules")
    program = f"import queue_db; print(*(getattr(queue_db, name).__name__ for name in {packages}), 'Feed' in dir(queue_db))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert run.stdout.split() == [*(f"queue_db.{name}" for name in packages), "True"]


def test_what_is_found_later_is_there() -> None:
    for name in queue_db.__all__:
        assert getattr(queue_db, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Streem'"):
        _ = queue_db.Streem  # type: ignore[attr-defined]


def test_the_tables_of_each_slice_stand_beside_the_others() -> None:
    known = tables("shop")
    assert set(known.slices) == {name for name, part in slices().items() if part.tables is not None} == {*NAMES} - {"dead"}
    for name in ("shop", "shop_schedules", "shop_feeds", "shop_routes", "shop_held", "shop_metrics", "shop_tokens"):
        assert name in known.metadata.tables


def test_a_companion_is_found_by_the_name_of_the_dialect() -> None:
    for name in ("postgresql", "mysql", "sqlite"):
        assert name in SparkDialect.of(dialect_for(name)).names
    assert type(FeedDialect.of(dialect_for("sqlite"))) is FeedDialect


def test_a_companion_of_a_companion_is_found_too() -> None:
    class Cousin(PostgreSQL):
        names = ("cousin",)

    class CousinForSpark(type(SparkDialect.of(dialect_for("postgresql")))):  # type: ignore[misc]
        names = ("cousin",)

    assert type(SparkDialect.of(Cousin())) is CousinForSpark


def test_a_subclass_of_a_companion_without_names_of_its_own_replaces_nothing() -> None:
    ours = type(SparkDialect.of(dialect_for("postgresql")))

    class Helper(ours):  # type: ignore[misc, valid-type]
        pass

    assert Helper.names == ours.names
    assert type(SparkDialect.of(dialect_for("postgresql"))) is ours


def test_a_dialect_without_a_companion_has_that_of_its_base_or_the_default() -> None:
    class Cousin(PostgreSQL):
        pass

    class Stranger(Dialect):
        pass

    assert "postgresql" in SparkDialect.of(Cousin()).names
    assert type(SparkDialect.of(Stranger())) is SparkDialect
