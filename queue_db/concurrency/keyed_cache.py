"""Objects that are made for names, a limited number of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from queue_db.concurrency.forks import reset_after_fork

_T = TypeVar("_T")

#: Objects that are kept although they are referenced nowhere else.
MOST = 10_000


class KeyedCache(Generic[_T]):
    """One object for each name. Safe to share between threads.

    While an object is referenced, its name leads to it. Of the others only the last :data:`MOST` that were asked for are kept:
    names may come from clients, and a process that runs for months would keep all of them.
    """

    def __init__(self, make: Callable[[str], _T], most: int = MOST) -> None:
        self._make = make
        self._most = most
        self._all: WeakValueDictionary[str, _T] = WeakValueDictionary()
        self._last: OrderedDict[str, _T] = OrderedDict()
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Another thread of the parent may have had the lock."""
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """Number of objects, also of those that are only referenced elsewhere."""
        return len(self._all)

    def __getitem__(self, name: str) -> _T:
        with self._lock:
            last = self._last
            if (value := last.get(name)) is not None:
                last.move_to_end(name)
                return value
            value = self._all.get(name)
            if value is None:
                value = self._make(name)
            return self._keep(name, value)

    def get(self, name: str) -> _T | None:
        """The object if there is one; it does not count as asked for."""
        with self._lock:
            return self._all.get(name)

    def __setitem__(self, name: str, value: _T) -> None:
        with self._lock:
            self._keep(name, value)

    def _keep(self, name: str, value: _T) -> _T:
        self._all[name] = self._last[name] = value
        self._last.move_to_end(name)
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        return value
