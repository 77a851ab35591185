"""Vitess 19 and later, an UNSHARDED keyspace. NOT RUN HERE: run the conformance suite on yours before you trust it.

URL: vitess://user:password@vtgate:15306/keyspace

Known from https://vitess.io/docs/reference/compatibility/mysql-compatibility/ and, where it says so, from the source:
- AUTO_INCREMENT is not unique across shards, and a transaction across shards is not atomic by default: hence one shard.
- SET TRANSACTION sets the isolation of a session: the queue asks for READ COMMITTED.
- Window functions are not supported: the messages of feeds are numbered one by one. Spark's streams, the view of failures, and jobs
  that fail more than ten times still send some.
- The time of a transaction and of a statement and the rows of a result are limited (queryserver-config-…): keep batches small.
- Release notes of 19: SKIP LOCKED is passed on.
- The source (vtgate/semantics): JSON_TABLE is refused. (mysql/sqlerror): 1317 ends a statement, 3168 is a server that is away.

Guessed: hints (FORCE INDEX), SAVEPOINT, a stored column and ALTER TABLE … LOCK=SHARED are passed on. While a new primary is
chosen, errors may be 1105, as many others are: the queue does not repeat those.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from sqlalchemy import BigInteger, insert, literal, select
from sqlalchemy.dialects import registry

from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.mysql import MySQL
from queue_db.dialects.transactions import Sender
from queue_db.feeds.dialects import FeedDialect, NumberedMove, numbering
from queue_db.groups.dialects import GroupDialect

for _name in ("vitess", "vitess.pymysql"):
    registry.register(_name, "sqlalchemy.dialects.mysql.pymysql", "MySQLDialect_pymysql")
registry.register("vitess.aiomysql", "sqlalchemy.dialects.mysql.aiomysql", "MySQLDialect_aiomysql")

_E = MySQL.errors


class Vitess(MySQL):
    """MySQL behind vtgate."""

    names: ClassVar[tuple[str, ...]] = ("vitess",)
    title: ClassVar[str] = "Vitess"
    errors: ClassVar[ErrorCodes] = replace(_E, transient=_E.transient | {"3168"}, expired=_E.expired | {"1317"})


class VitessForGroups(GroupDialect):
    """Without JSON_TABLE."""

    names: ClassVar[tuple[str, ...]] = ("vitess",)
    updates_in_order: ClassVar[bool] = True


class VitessForFeeds(FeedDialect):
    """Without JSON_TABLE and window functions."""

    names: ClassVar[tuple[str, ...]] = ("vitess",)

    def move_ids(self, tx: Sender, move: NumberedMove, ids: Sequence[int], first: int) -> None:
        inbox = move.inbox
        for seq, one in enumerate(ids, first):
            row = select(inbox.c.feed, literal(seq, BigInteger), *(inbox.c[name] for name in move.columns))
            tx.connection.execute(insert(move.messages).from_select(move.target, row.where(inbox.c.id == one)))
        tx.execute(numbering.removal(move), {"of_ids": ids})
