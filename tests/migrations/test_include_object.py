"""An application in the same database has migrations of its own: its Alembic does not propose to drop the queue's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, String, Table, inspect

from queue_db import ConfigurationError, QueueDB
from queue_db.administration.migrate import include_object
from tests.migrations.conftest import run

pytestmark = pytest.mark.rest("test_alembic.py has it as a step of an application")

#: A table that the application has, one that it has forgotten, and one that it forgot whose name begins as ours do.
THEIRS = "CREATE TABLE customers (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))"
FORGOTTEN = (
    "CREATE TABLE old_things (id INTEGER NOT NULL PRIMARY KEY)",
    "CREATE TABLE jobs_advertised (id INTEGER NOT NULL PRIMARY KEY)",
)


def application() -> MetaData:
    metadata = MetaData()
    Table("customers", metadata, Column("id", Integer, primary_key=True), Column("name", String(20)))
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    return metadata


def proposed(db: QueueDB, schema: str | None = None, **options: Any) -> set[tuple[str, str]]:
    """What ``alembic revision --autogenerate`` would write down: (what, name)."""

    def ours(name: str | None, type_: str, parents: object) -> bool:
        return type_ != "schema" or name in (None, schema)  # the server has databases of other tests too

    options |= {"include_schemas": schema is not None, "include_name": ours}
    with db.database.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts=options), application())
    flat = [one for change in found for one in (change if isinstance(change, list) else [change])]
    return {(one[0], one[1].name) for one in flat if one[0] in ("add_table", "remove_table")}


@pytest.fixture
def shared(empty: QueueDB) -> Iterator[QueueDB]:
    run(empty, THEIRS, *FORGOTTEN)
    return empty


OWN = {("add_table", "orders"), ("remove_table", "old_things"), ("remove_table", "jobs_advertised")}


def test_tables_that_a_later_step_of_ours_drops_are_left_to_it(shared: QueueDB) -> None:
    shared.migrate(revision="0012")
    assert proposed(shared, include_object=include_object()) == OWN
    assert ("remove_table", "jobs_ticks") in proposed(shared)


def test_only_the_applications_own_tables_are_proposed(shared: QueueDB) -> None:
    shared.migrate()
    run(shared, "CREATE VIEW jobs_seen AS SELECT id, queue FROM jobs")  # views are not looked at
    assert proposed(shared, include_object=include_object()) == OWN


def test_without_it_every_table_of_the_queue_would_be_dropped(shared: QueueDB) -> None:
    shared.migrate()
    with shared.database.engine.connect() as connection:
        there = {("remove_table", name) for name in inspect(connection).get_table_names() if name != "customers"}
    assert proposed(shared) == there | OWN
    assert ("remove_table", "jobs") in there


def test_under_other_names_and_together_with_another_filter(shared: QueueDB, fresh_url: str) -> None:
    shared.migrate()
    with QueueDB(fresh_url, table="mail") as mail:
        mail.migrate()

    def mine(found: object, name: str | None, type_: str, reflected: bool, compare_to: object) -> bool:
        return name != "old_things"

    both = include_object("mail", also=include_object(also=mine))
    assert proposed(shared, include_object=both) == OWN - {("remove_table", "old_things")}
    assert ("remove_table", "mail_dead") in proposed(shared, include_object=include_object())


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")  # a file has no other schema beside it
def test_in_a_schema_of_their_own(shared: QueueDB, fresh_url: str, side_by_side: str) -> None:
    with QueueDB(fresh_url, schema=side_by_side) as side:
        side.migrate()
    assert proposed(shared, side_by_side, include_object=include_object(schema=side_by_side)) == OWN
    assert ("remove_table", "jobs") in proposed(shared, side_by_side, include_object=include_object())


def test_a_table_that_the_application_has_in_its_own_metadata_is_compared(shared: QueueDB) -> None:
    assert include_object()(Table("jobs", MetaData()), "jobs", "table", False, None)


def test_a_name_that_no_table_of_a_queue_can_have() -> None:
    with pytest.raises(ConfigurationError, match="use 1 to 40 lower-case letters"):
        include_object("My Jobs")
