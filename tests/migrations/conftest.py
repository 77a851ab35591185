"""An empty database for each test, and what stands in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, make_url, text

from queue_db import QueueDB


@pytest.fixture
def empty(fresh_url: str) -> Iterator[QueueDB]:
    """An open database without tables."""
    with QueueDB(fresh_url) as db:
        yield db


@pytest.fixture
def side_by_side(kind: str, fresh_url: str, shared_urls: Callable[[str], str]) -> Iterator[str]:
    """A schema prefix beside the database's own: a schema on PostgreSQL, another database on MySQL and MariaDB."""
    name = f"{make_url(fresh_url).database}_side"
    with QueueDB(fresh_url) as db:
        if kind == "postgresql":
            run(db, f"CREATE SCHEMA {name}")
            yield name
            return  # it goes with its database
        run(db, f"CREATE DATABASE {name} CHARACTER SET latin1")
        yield name
        run(db, f"DROP DATABASE {name}")


def run(db: QueueDB, *statements: str) -> None:
    with db.database.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def ask(db: QueueDB, query: str) -> Any:
    with db.database.engine.connect() as connection:
        return connection.execute(text(query)).scalar()


def describe(connection: Connection, *names: str, schema: str | None = None) -> dict[str, Any]:
    """What the database says of tables: columns, keys, indexes and options, in a form that compares."""
    look = inspect(connection)
    found: dict[str, Any] = {}
    for name in names:
        found[name] = {
            "columns": [
                (column["name"], str(column["type"]), column["nullable"], str(column["default"]))
                for column in look.get_columns(name, schema=schema)
            ],
            "key": look.get_pk_constraint(name, schema=schema)["constrained_columns"],
            "indexes": sorted(
                (index["name"], tuple(index["column_names"]), bool(index["unique"]), _plain(index.get("dialect_options", {})))
                for index in look.get_indexes(name, schema=schema)
            ),
            "options": sorted((name, value) for name, value in look.get_table_options(name, schema=schema).items()),
        }
    return found


def _plain(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in sorted(options.items()))
