"""The entry of an operation in the action log: it is written in the transaction that changes something."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from typing import Any

from queue_db.core import beside
from queue_db.db import QueueDB
from queue_db.monitoring.actions import MAX_DETAIL, checked
from queue_db.monitoring.store import actions
from queue_db.operations.actor import Actor
from queue_db.store import Store, Transaction

log = logging.getLogger("queue_db.operations")

# Of a detail that is too long: characters of its texts and items of its lists that stay.
_SHOWN_TEXT, _SHOWN_ITEMS = 500, 20

# Most items of a list of what was changed.
_MOST_ITEMS = 100


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

    So the entry tells what was changed, also if the operation ends early. An operation that finds nothing to change writes no
    entry. One that asks for the present state, such as a pause of a paused queue, is logged as asked.

    :param store: of the database that the entry is for: user code inside the operation may change another one.
    :param of: the name of the transactions that count; None: all changes.
    :param number: see :func:`changed`.
    :param items: what a change did, by the answer of its function: for the list in the detail.
    """

    def __init__(
        self,
        store: Store,
        values: Callable[[list[Any]], Mapping[str, Any]],
        of: str | None,
        number: Callable[[Any], int | None],
        items: Callable[[Any], list[Any]] | None,
    ) -> None:
        self._store = store
        # Checked where the entry is written: the verb has looked at what was given before, and its errors name it.
        self._values = values
        self._of = of
        self._number = number
        self._items = items
        self._found: list[Any] = []
        self._id: int | None = None
        #: How much was changed, or None if it was not counted; and whether anything was changed.
        self.number: int | None = None
        self.written = False
        #: Whether the operation goes on. A task that was made inside it may go on longer.
        self.open = True

    def write(self, tx: Transaction, name: str, answer: object) -> None:
        """Write the entry, or count more in it, in the transaction of a change."""
        if not self.open or tx.store is not self._store or self._of not in {None, name}:
            return
        number = self._number(answer)
        if number == 0:
            return
        found = self._found if self._items is None else [*self._found, *self._items(answer)][: _MOST_ITEMS + 1]
        if self._id is None:
            written = actions.add(tx, {**self._values(found), "number": number})
            # Only a commit makes it known: a transaction that runs again inserts its entry again.
            tx.after_commit(partial(self._committed, written, number, found))
        elif number is not None:
            actions.count_more(tx, self._id, number, None if self._items is None else self._values(found)["detail"])
            tx.after_commit(partial(self._committed, self._id, number, found))

    def _committed(self, written: int, number: int | None, found: list[Any]) -> None:
        self._id, self._found = written, found
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
    items: tuple[str, Callable[[Any], list[Any]]] | None = None,
) -> Iterator[Entry]:
    """Let the changes in the ``with`` block write an entry in the action log, each in its own transaction.

    :param word: the verb: ``pause``, ``redrive``.
    :param target: what is changed: ``queue mail``, ``job 17``.
    :param detail: more; what is None there is left out, and what is too long is cut.
    :param of: the name of the transactions that count; None: all changes.
    :param number: how much a change did, by the answer of its function.
    :param items: the name of a list in the detail, and what a change adds to it, by the answer of its function.
    """
    if actor.confirm is not None:
        actor.confirm(f"{word} {target}")
    given = {name: value for name, value in (detail or {}).items() if value is not None}

    def values(found: list[Any]) -> Mapping[str, Any]:
        more = {} if items is None else {items[0]: found[:_MOST_ITEMS] + ["…"] * (len(found) > _MOST_ITEMS)}
        return checked(actor.name, word, target, None, _fitting({**given, **more}) or None)

    one = Entry(db.core.store, values, of, number, None if items is None else items[1])
    before = beside.set(one.write)
    try:
        yield one
    finally:
        beside.reset(before)
        one.open = False
        if one.written:
            source = f" ({actor.source})" if actor.source else ""
            counted = "" if one.number is None else f": {one.number:,}"
            fields = {"who": actor.name, "action": word, "target": target, "number": one.number, "request": actor.request}
            log.info("%s: %s %s%s%s", actor.name, word, target, counted, source, extra=fields)


def _fitting(detail: Mapping[str, Any]) -> dict[str, Any]:
    """The detail, cut where it is too long: no change is refused for the size of its entry."""
    if _size(detail) <= MAX_DETAIL:
        return dict(detail)
    cut = {name: _short(value) for name, value in detail.items()}
    for longest in sorted(cut, key=lambda name: _size(cut[name]), reverse=True):
        if _size(cut) <= MAX_DETAIL:
            break
        cut[longest] = "…"
    return cut


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > _SHOWN_TEXT:
        return value[:_SHOWN_TEXT] + "…"
    if isinstance(value, list | tuple):
        return [_short(one) for one in value[:_SHOWN_ITEMS]] + ["…"] * (len(value) > _SHOWN_ITEMS)
    return value


def _size(value: object) -> int:
    return len(json.dumps(value, default=str))
