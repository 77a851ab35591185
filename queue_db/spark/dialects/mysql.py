"""MySQL and MariaDB for Spark: LOAD DATA, rows as one text, and JSON_TABLE."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Table,
    Text,
    column,
    func,
    literal_column,
    select,
    text,
)

from queue_db.dialects import mysql_server as mysql
from queue_db.dialects import server
from queue_db.dialects.copy_stream import Value, written
from queue_db.dialects.transactions import Sender
from queue_db.errors import PermanentStorageError
from queue_db.spark.dialects import mysql_jdbc
from queue_db.spark.dialects.base import SparkDialect
from queue_db.spark.staging.chunks import FIELDS, Unpacked

# Written out, since a server whose sql_mode is NO_BACKSLASH_ESCAPES has other defaults.
_TABBED = "FIELDS TERMINATED BY 0x09 ESCAPED BY 0x5C LINES TERMINATED BY 0x0A"

# Bytes; the limit of the session is a thousand or a million.
_LONGEST_TEXT = 1 << 26


class MySQLForSpark(SparkDialect):
    """Files for LOAD DATA where the server takes them; a page of rows as one value."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        # A publication of millions of jobs is one statement, and a second publication of the same load waits for it.
        longer = {"read_timeout": server.LONG, "write_timeout": server.LONG, "init_command": mysql.lock_waits(60)}
        arguments = self.dialect.server.engine_options(url)["connect_args"] | {"program_name": "queue_db spark"}
        arguments |= {name: value for name, value in longer.items() if name not in url.query}
        return {"connect_args": arguments | ({"local_infile": True} if local_infile else {})}

    def jdbc(self, url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
        return mysql_jdbc.settings(url, driver)

    def delete_held(self, tx: Sender, jobs: Table, held: Table, which: ColumnElement[bool]) -> None:
        # As in by_id: a small table would be read from end to end, and wait for what others have locked. SQLAlchemy has no place
        # for the hint in this form of DELETE.
        table, other = map(tx.connection.dialect.identifier_preparer.format_table, (jobs, held))
        found: Any = which.compile(dialect=tx.connection.dialect)
        order = found.positiontup
        tx.connection.exec_driver_sql(
            f"DELETE {table} FROM {other} STRAIGHT_JOIN {table}{self.dialect.by_id_hint} ON {table}.id = {other}.id WHERE {found}",
            dict(found.params) if order is None else tuple(found.params[name] for name in order),
        )

    def append(
        self, tx: Sender, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        if not _takes_files(tx.connection):
            super().append(tx, table, columns, same)
            return
        # The driver takes several times as long to write texts into a statement as to send a file.
        preparer = tx.connection.dialect.identifier_preparer
        into = f"{preparer.format_table(table)} CHARACTER SET utf8mb4 {_TABBED} ({', '.join(map(preparer.quote, columns))})"
        if same:
            into += f" SET {', '.join(f'{preparer.quote(name)} = %s' for name in same)}"
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".tsv") as file:
            file.write(written(columns, {}))
            file.flush()
            values = (file.name, *(same or {}).values())
            loaded = tx.connection.exec_driver_sql(f"LOAD DATA LOCAL INFILE %s INTO TABLE {into}", values).rowcount
        expected = len(next(iter(columns.values())))
        if loaded != expected:
            # Sent by a client, rows that the server does not like are left out without an error.
            raise PermanentStorageError(f"{loaded} of {expected} rows were loaded into {table.name}", statement_name="LOAD DATA")

    def as_csv(self, tx: Sender, query: Select[Any]) -> bytes | None:
        # All rows as one value: the driver takes a thirtieth of the time that many small ones take it.
        texts = [func.ifnull(_quoted(item) if isinstance(item.type, String) else item, "") for item in query.selected_columns]
        lines = query.with_only_columns(func.concat_ws(",", *texts).label("line")).subquery("lines")
        joined = select(func.aggregate_strings(lines.c.line, "\n"), func.sum(func.length(lines.c.line)), func.count())
        longest = f"group_concat_max_len={_LONGEST_TEXT}"
        mariadb = mysql.is_mariadb(tx.connection.dialect)
        hinted = joined if mariadb else joined.prefix_with(f"/*+ SET_VAR({longest}) */")
        sql: Any = hinted.compile(dialect=tx.connection.dialect, compile_kwargs={"render_postcompile": True})
        order = sql.positiontup
        values = dict(sql.params) if order is None else tuple(sql.params[name] for name in order)
        answer = tx.connection.exec_driver_sql(f"SET STATEMENT {longest} FOR {sql}" if mariadb else str(sql), values).one()
        text, length, count = answer
        if not count:
            return b""
        rows: bytes | None = None if text is None else text.encode()
        # What does not fit into one packet is cut off, or not there at all.
        return None if rows is None or len(rows) != int(length) + count - 1 else rows + b"\n"

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked:
        types = {Integer: "INT", BigInteger: "BIGINT", Text: "LONGTEXT"}
        parts = ", ".join(f"{name} {types[type(FIELDS[name])]} PATH '$[{place}]'" for place, name in enumerate(fields))
        rows = func.json_table(chunk, literal_column(f"'$[*]' COLUMNS ({parts})")).table_valued(
            *(column(name, FIELDS[name]) for name in fields), name="given"
        )
        return Unpacked(rows, {name: rows.c[name] for name in fields})


def _quoted(item: ColumnElement[Any]) -> ColumnElement[str]:
    return func.concat('"', func.replace(item, '"', '""'), '"')


def _takes_files(connection: Connection) -> bool:
    """Whether this connection was opened with ``local_infile``, and the server allows it."""
    takes: bool | None = connection.info.get("queue_db.local_infile")
    if takes is None:
        offers = bool(getattr(connection.connection.driver_connection, "_local_infile", False))
        takes = offers and bool(connection.execute(text("SELECT @@local_infile")).scalar_one())
        connection.info["queue_db.local_infile"] = takes
    return takes
