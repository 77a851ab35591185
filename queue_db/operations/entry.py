"""The entry of an operation in the action log: it is written in the transaction that changes something."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from typing import Any

from queue_db.core import beside
from queue_db.db import QueueDB
from queue_db.monitoring.actions import checked
from queue_db.monitoring.store import actions
from queue_db.operations.actor import Actor
from queue_db.store import Transaction

log = logging.getLogger("queue_db.operations")


def changed(answer: object) -> int | None:
    """How much a change did, by the answer of its function: a number, the length of a list; None: not counted.

    0 means that nothing was changed; so does False.
    """
    if answer is None or answer is True:
        return None
    if isinstance(answer, int):
        return answer
    return len(answer) if isinstance(answer, Sized) else None


class Entry:
    """One entry. Each transaction of the operation that changes something adds to its number; the first one inserts it.

    So the entry tells what was changed, also if the operation ends early. An operation that changes nothing writes no entry.

    :param of: the name of the transactions that count; None: all changes.
    :param number: see :func:`changed`.
    """

    def __init__(self, values: Callable[[], Mapping[str, Any]], of: str | None, number: Callable[[Any], int | None]) -> None:
        # Checked where the entry is written: the verb has looked at what was given before, and its errors name it.
        self._values = values
        self._of = of
        self._number = number
        self._id: int | None = None
        #: How much was changed, or None if it was not counted; and whether anything was changed.
        self.number: int | None = None
        self.written = False

    def write(self, tx: Transaction, name: str, answer: object) -> None:
        """Write the entry, or count more in it, in the transaction of a change."""
        number = self._number(answer) if self._of in {None, name} else 0
        if number == 0:
            return
        if self._id is None:
            written = actions.add(tx, {**self._values(), "number": number})
            # Only a commit makes it known: a transaction that runs again inserts its entry again.
            tx.after_commit(partial(self._committed, written, number))
        elif number is not None:
            actions.count_more(tx, self._id, number)
            tx.after_commit(partial(self._committed, self._id, number))

    def _committed(self, written: int, number: int | None) -> None:
        self._id = written
        self.written = True
        if number is not None:
            self.number = (self.number or 0) + number


@contextmanager
def entry(
    db: QueueDB,
    actor: Actor,
    word: str,
    target: str,
    *,
    detail: Mapping[str, Any] | None = None,
    of: str | None = None,
    number: Callable[[Any], int | None] = changed,
) -> Iterator[Entry]:
    """Let the changes in the ``with`` block write an entry in the action log, each in its own transaction.

    :param word: the verb: ``pause``, ``redrive``.
    :param target: what is changed: ``queue mail``, ``job 17``.
    :param detail: more; what is None there is left out.
    :param of: the name of the transactions that count; None: all changes.
    :param number: how much a change did, by the answer of its function.
    """
    given = {name: value for name, value in (detail or {}).items() if value is not None}
    one = Entry(partial(checked, actor.name, word, target, None, given or None), of, number)
    before = beside.set(one.write)
    try:
        yield one
    finally:
        beside.reset(before)
        if one.written:
            source = f" ({actor.source})" if actor.source else ""
            counted = "" if one.number is None else f": {one.number:,}"
            fields = {"who": actor.name, "action": word, "target": target, "number": one.number, "request": actor.request}
            log.info("%s: %s %s%s%s", actor.name, word, target, counted, source, extra=fields)
