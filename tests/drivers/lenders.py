"""Connections of drivers and of Django as an application opens them, for each database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from sqlalchemy import make_url


def _arguments(url: str, *names: str) -> dict[str, Any]:
    """The address in ``url`` as keyword arguments, with these names for the database and the password."""
    parsed = make_url(url)
    database, password = names
    found = {
        "host": parsed.host,
        "port": parsed.port,
        "user": parsed.username,
        password: parsed.password,
        database: parsed.database,
    }
    return {name: value for name, value in found.items() if value is not None}


def psycopg(url: str, **options: Any) -> Any:
    import psycopg

    return psycopg.connect(**_arguments(url, "dbname", "password"), **options)


def psycopg2(url: str, **options: Any) -> Any:
    import psycopg2

    return psycopg2.connect(**_arguments(url, "dbname", "password"), **options)


def pymysql(url: str, **options: Any) -> Any:
    import pymysql

    return pymysql.connect(**_arguments(url, "database", "password"), **options)


def sqlite(url: str, **options: Any) -> Any:
    return sqlite3.connect(str(make_url(url).database), timeout=5, **options)


def mysqlclient(url: str, **options: Any) -> Any:
    from tests.drivers.mysqlclient import module

    return module().connect(**_arguments(url, "database", "password"), **options)


class Lender(NamedTuple):
    """A driver, the databases that it is for, and how the application uses it."""

    name: str
    kinds: tuple[str, ...]
    connect: Callable[..., Any]
    #: Options with which each statement commits alone, and options of an application with its own wishes.
    autocommit: Mapping[str, Any]
    wishes: Callable[[], Mapping[str, Any]]


def _rows_as_dicts() -> Mapping[str, Any]:
    import psycopg

    return {"row_factory": psycopg.rows.dict_row, "cursor_factory": psycopg.ClientCursor, "prepare_threshold": 0}


def _real_dicts() -> Mapping[str, Any]:
    from psycopg2.extras import RealDictCursor

    return {"cursor_factory": RealDictCursor}


def _dict_cursor() -> Mapping[str, Any]:
    from pymysql.cursors import DictCursor

    return {"cursorclass": DictCursor}


def _client_dict_cursor() -> Mapping[str, Any]:
    from tests.drivers.mysqlclient import module

    module()
    from MySQLdb.cursors import DictCursor  # type: ignore[import-not-found]

    return {"cursorclass": DictCursor}


_MYSQLS = ("mysql", "mariadb")

LENDERS = (
    Lender("psycopg", ("postgresql",), psycopg, {"autocommit": True}, _rows_as_dicts),
    Lender("psycopg2", ("postgresql",), psycopg2, {}, _real_dicts),
    Lender("pymysql", _MYSQLS, pymysql, {"autocommit": True}, _dict_cursor),
    Lender("mysqlclient", _MYSQLS, mysqlclient, {"autocommit": True}, _client_dict_cursor),
    Lender("sqlite3", ("sqlite",), sqlite, {"isolation_level": None}, dict),
)


@contextmanager
def opened(lender: Lender, url: str, **options: Any) -> Iterator[Any]:
    with closing(lender.connect(url, **options)) as connection:
        yield connection


def ask(connection: Any, sql: str) -> list[Any]:
    """The rows of a query, by a cursor of the application."""
    cursor = connection.cursor()
    cursor.execute(sql)
    rows = list(cursor.fetchall())
    cursor.close()
    return rows
