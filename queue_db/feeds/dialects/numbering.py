"""Messages that move from an inbox and get consecutive numbers: the statements, which never bring a payload into this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from sqlalchemy import (
    BigInteger,
    Delete,
    Integer,
    Select,
    Table,
    Text,
    TextClause,
    any_,
    bindparam,
    column,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
)


@dataclass(frozen=True, slots=True)
class NumberedMove:
    """The first rows of a feed in ``inbox``, by id, move to ``messages`` with the next numbers.

    The caller has locked the feed, so nobody else moves them. Others insert meanwhile, also with lower ids.
    """

    inbox: Table
    messages: Table
    #: What stays the same.
    columns: tuple[str, ...]

    @property
    def target(self) -> list[str]:
        """The columns of ``messages``."""
        return ["feed", "seq", *self.columns]


def first_few(waiting: Sequence[Sequence[int]], largest: int) -> list[int]:
    """The ids of the first rows whose sizes together are at most ``largest``; at least one.

    :param waiting: (id, size) of each.
    """
    upto = accumulate(size for _, size in waiting)
    return [one for at, ((one, _), total) in enumerate(zip(waiting, upto, strict=True)) if not at or total <= largest]


@lru_cache(maxsize=64)
def waiting(inbox: Table) -> Select[Any]:
    """Id and size of the first ``most`` rows of ``of_feed``."""
    size = func.length(inbox.c.payload)
    mine = select(inbox.c.id, size).where(inbox.c.feed == bindparam("of_feed"))
    return mine.order_by(inbox.c.id).limit(bindparam("most", type_=Integer))


@lru_cache(maxsize=64)
def copy(move: NumberedMove) -> Any:
    """Insert the rows with the ids ``of_ids`` into ``messages``, with numbers from ``first``."""
    inbox = move.inbox
    nth = func.row_number().over(order_by=inbox.c.id)
    rows = select(inbox.c.feed, bindparam("first", type_=BigInteger) - 1 + nth, *(inbox.c[name] for name in move.columns))
    return insert(move.messages).from_select(move.target, rows.where(inbox.c.id.in_(bindparam("of_ids", expanding=True))))


@lru_cache(maxsize=64)
def removal(move: NumberedMove) -> Delete:
    """Delete the rows with the ids ``of_ids``."""
    return delete(move.inbox).where(move.inbox.c.id.in_(bindparam("of_ids", expanding=True)))


# MySQL and MariaDB: the ids as a JSON array, which is read first. With a list of ids they would rather read all of a small table,
# whatever hint there is, MariaDB also a large one for a thousand of them; and a DELETE waits for each row that it reads and that an
# open transaction has inserted.
_GIVEN = "'$[*]' COLUMNS (nth FOR ORDINALITY, id BIGINT PATH '$')"


@lru_cache(maxsize=64)
def copy_given(move: NumberedMove) -> Any:
    """:func:`copy` with ``of_ids`` as a JSON array in their order."""
    inbox, array = move.inbox, bindparam("of_ids", type_=Text())
    columns = (column("nth", BigInteger()), column("id", BigInteger()))
    given = func.json_table(array, literal_column(_GIVEN)).table_valued(*columns, name="given")
    seq = bindparam("first", type_=BigInteger) - 1 + given.c.nth
    rows = select(inbox.c.feed, seq, *(inbox.c[name] for name in move.columns)).prefix_with("STRAIGHT_JOIN")
    return insert(move.messages).from_select(move.target, rows.select_from(given.join(inbox, inbox.c.id == given.c.id)))


@lru_cache(maxsize=64)
def removal_given(table: str) -> TextClause:
    """:func:`removal` with ``of_ids`` as a JSON array; ``table``: as it is written in a statement."""
    given = f"JSON_TABLE(:of_ids, {_GIVEN}) AS given"
    return text(f"DELETE {table} FROM {given} STRAIGHT_JOIN {table} ON {table}.id = given.id")


@lru_cache(maxsize=64)
def in_one_statement(move: NumberedMove) -> Any:
    """Move the first ``most`` rows of ``of_feed``, with numbers from ``first``, and return how many.

    They are at most ``largest`` bytes together, or one. The size of a text that is stored apart is known without reading it.
    """
    inbox, big = move.inbox, BigInteger()
    size = func.octet_length(inbox.c.payload).label("size")
    some = select(inbox.c.id, size).where(inbox.c.feed == bindparam("of_feed", type_=big))
    some_cte = some.order_by(inbox.c.id).limit(bindparam("most", type_=Integer)).cte("waiting")
    upto = func.sum(some_cte.c.size).over(order_by=some_cte.c.id, rows=(None, 0))
    sizes = select(some_cte.c.id, some_cte.c.size, upto.label("upto")).subquery("sizes")
    few = or_(sizes.c.upto <= bindparam("largest", type_=big), sizes.c.upto == sizes.c.size)
    # The array drives the primary key, also with the statistics of a table that was empty a moment ago.
    chosen = inbox.c.id == any_(func.array(select(sizes.c.id).where(few).scalar_subquery()))
    content = [inbox.c[name] for name in move.columns]
    moved = delete(inbox).where(chosen).returning(inbox.c.id, inbox.c.feed, *content).cte("moved")
    seq = bindparam("first", type_=big) - 1 + func.row_number().over(order_by=moved.c.id)
    rows = select(moved.c.feed, seq, *(moved.c[name] for name in move.columns))
    made = insert(move.messages).from_select(move.target, rows).cte("made")
    return select(func.count()).select_from(moved).add_cte(made)
