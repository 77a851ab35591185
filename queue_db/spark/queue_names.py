"""The option ``queues``: names of queues, and patterns such as ``mail.*``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlalchemy import select

from queue_db import QueueDB, arguments
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.store.base import Transaction
from queue_db.store.schema import QUEUE_LENGTH

#: Queues that one DataFrame reads or writes. Each costs statements of its own, and a stream a position.
MOST_QUEUES = 1000


def names_and_patterns(name: str, value: str) -> tuple[str, ...]:
    """Names and patterns, separated by commas; ``*`` stands for any characters, also for none."""
    found = {arguments.name(name, one.strip(), QUEUE_LENGTH) for one in value.split(",")}
    if len(found) > MOST_QUEUES:
        raise ArgumentError(f"{name} has {len(found):,} names; {MOST_QUEUES:,} is the limit")
    return tuple(sorted(found))


def existing(db: QueueDB, wanted: Iterable[str], *, completed: bool = False) -> list[str]:
    """The names among ``wanted``, and the queues that its patterns match now.

    :param completed: also queues that have nothing but completed jobs.
    :raises ConfigurationError: too many queues.
    """
    names = {name for name in wanted if "*" not in name}
    patterns = [_compiled(name) for name in wanted if "*" in name]
    if patterns:
        known = {*db.queues(), *(db.core.read("finished_queues", _finished_queues) if completed else ())}
        names |= {name for name in known if any(pattern.fullmatch(name) for pattern in patterns)}
    if len(names) > MOST_QUEUES:
        raise ConfigurationError(
            f"queues={','.join(wanted)!r} matches {len(names):,} queues, such as {', '.join(map(repr, sorted(names)[:3]))}; "
            f"{MOST_QUEUES:,} is the limit: choose a narrower pattern, or several DataFrames"
        )
    return sorted(names)


def matches(queue: str, wanted: Iterable[str]) -> bool:
    """Whether ``queue`` is one of the names, or one of the patterns matches it."""
    return any(queue == one or ("*" in one and _compiled(one).fullmatch(queue) is not None) for one in wanted)


def _compiled(pattern: str) -> re.Pattern[str]:
    # Equal to or shorter than a name, so that it takes no long time: stars that follow each other are one.
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))), re.DOTALL)


def _finished_queues(tx: Transaction) -> list[str]:
    return list(tx.connection.execute(select(tx.tables.finished.c.queue).distinct()).scalars())
