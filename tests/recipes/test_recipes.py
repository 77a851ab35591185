"""The dialects in docs/dialects: each passes a part of the conformance suite on a server of ours whose protocol it speaks.

    QUEUE_DB_TEST_COCKROACHDB_URL='cockroachdb://…/empty_database' pytest tests/recipes

runs all of the suite there instead; each recipe has such a variable.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from sqlalchemy import make_url, select

from queue_db import QueueDB
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for
from queue_db.dialects.nodes import Role
from queue_db.store.schema.tables import tables
from queue_db.testing import suite
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB
from tests.conformance.pool import on_pool
from tests.conftest import server_of


class Recipe(NamedTuple):
    """A dialect."""

    name: str
    module: str
    kind: str  #: the server that stands in for the database

    @property
    def url(self) -> str | None:
        """The database of a user."""
        return os.environ.get(f"QUEUE_DB_TEST_{self.name.upper()}_URL")

    def load(self) -> None:
        """Register it: not for tests of other files, which may list what is registered."""
        importlib.import_module(f"docs.dialects.{self.module}")


RECIPES = [
    Recipe("aurorapostgresql", "aurora", "postgresql"),
    Recipe("cockroachdb", "cockroachdb", "postgresql"),
    Recipe("yugabytedb", "yugabytedb", "postgresql"),
    Recipe("auroramysql", "aurora", "mysql"),
    Recipe("tidb", "tidb", "mysql"),
    Recipe("vitess", "vitess", "mysql"),
]
YOURS = [one for one in RECIPES if one.url]

#: What the recipes change: claims, inserts, a caller's transaction, the numbers of messages, groups.
PART = ("TestClaim", "TestEnqueueMany", "TestEnqueueUsing", "TestFeeds", "TestGroups")

if not YOURS:
    for test in [name for name in suite.__all__ if name.startswith("Test") and name not in PART]:
        del globals()[test]

_REST = pytest.mark.rest("the server has its own dialect in make test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "recipe" in metafunc.fixturenames:
        chosen = [pytest.param(one, id=one.name, marks=_REST) for one in YOURS or RECIPES]
        metafunc.parametrize("recipe", chosen, scope="session")


@pytest.fixture(scope="session")
def migrated(recipe: Recipe) -> Iterator[QueueDB]:
    recipe.load()
    url = recipe.url or make_url(server_of(recipe.kind).create_database()).set(drivername=recipe.name)
    with QueueDB(url) as db:
        db.migrate()
        yield db


@pytest.fixture
def open_db(migrated: QueueDB) -> OpenDB:
    def open_it(**options: object) -> QueueDB:
        db = QueueDB(migrated.database.engine, **options)  # type: ignore[arg-type]
        assert type(db.database.dialect) is type(migrated.database.dialect)
        return on_pool(db, migrated)

    return open_it


@pytest.mark.parametrize("number", range(len(RECIPES)), ids=[one.name for one in RECIPES])
def test_a_url_leads_to_the_dialect(number: int) -> None:
    RECIPES[number].load()
    dialect = dialect_for(parse_url(f"{RECIPES[number].name}://user@host/shop").get_backend_name())
    assert type(dialect).names == (RECIPES[number].name,)


def test_without_notifications_nobody_listens(migrated: QueueDB) -> None:
    listener = migrated.database.listen("jobs")
    assert (listener is not None) is migrated.database.dialect.notifies
    if listener is not None:
        listener.close()


def test_a_server_says_that_it_takes_changes(migrated: QueueDB) -> None:
    with migrated.database.engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert migrated.database.dialect.server.nodes.role(driver) == Role(standby=False, read_only=False)


def test_the_database_notes_when_a_job_failed(migrated: QueueDB, recipe: Recipe) -> None:
    queue = migrated.queue(f"failing-{recipe.name}")
    queue.enqueue("mail", 1)
    (job,) = queue.claim()
    job.fail("broken")
    failed_at = migrated.store.tables.errors.c.failed_at
    with migrated.database.engine.connect() as connection:
        (found,) = connection.execute(select(failed_at).where(migrated.store.tables.errors.c.job_id == job.id)).scalars()
    assert abs(found / 1e6 - time.time()) < 60


def test_tidb_is_never_asked_for_skip_locked() -> None:
    importlib.import_module("docs.dialects.tidb")
    tidb = dialect_for("tidb")
    sql = parse_url("tidb://user@host/shop").get_dialect()()
    rows = tidb.lock_rows(select(tables().jobs), skip=True)
    assert str(rows.compile(dialect=sql)).endswith("FOR UPDATE")
