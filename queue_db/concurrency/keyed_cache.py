"""A cache of a limited number of objects, each made for one name."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from queue_db.concurrency.forks import reset_after_fork

_T = TypeVar("_T")

#: The most objects that are kept although nothing else references them.
MOST = 10_000


class KeyedCache(Generic[_T]):
    """One object for each name. Safe to share between threads.

    An object stays in the cache while it is referenced elsewhere. In addition, the ``most`` objects that were used last are kept.
    The limit is needed because names may come from clients, and the process may run for months.
    """

    def __init__(self, make: Callable[[str], _T], most: int = MOST) -> None:
        self._make = make
        self._most = most
        self._each: list[Callable[[_T], None]] = []
        self._all: WeakValueDictionary[str, _T] = WeakValueDictionary()
        self._last: OrderedDict[str, _T] = OrderedDict()
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Make a new lock: another thread of the parent may have held the old one."""
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """The number of objects, including objects that exist only because they are referenced elsewhere."""
        return len(self._all)

    def __getitem__(self, name: str) -> _T:
        with self._lock:
            last = self._last
            if (value := last.get(name)) is not None:
                last.move_to_end(name)
                return value
            value = self._all.get(name)
            made = value is None
            if value is None:
                value = self._make(name)
            # Before the hooks, which may ask for it.
            self._all[name] = last[name] = value
            if made:
                self._show(name, value)
            if len(last) > self._most:
                last.popitem(last=False)
            return value

    def _show(self, name: str, value: _T) -> None:
        """Give a new object to the hooks. If one raises, the object is forgotten: the next one of this name goes to them again."""
        try:
            for hook in list(self._each):
                hook(value)
        except BaseException:
            self._all.pop(name, None)
            self._last.pop(name, None)
            raise

    def values(self) -> list[_T]:
        """The objects that exist now. This does not count as a use."""
        with self._lock:
            return list(self._all.values())

    def each(self, hook: Callable[[_T], None]) -> None:
        """Call ``hook`` with each object: now with those that exist, and with others when they are made.

        If it raises now, it is not called again.
        """
        with self._lock:
            there = list(self._all.values())
            # Before the calls, which may make others.
            self._each.append(hook)
            try:
                for value in there:
                    hook(value)
            except BaseException:
                self._each.remove(hook)
                raise

    def get(self, name: str) -> _T | None:
        """The object of this name, or None. This does not count as a use."""
        with self._lock:
            return self._all.get(name)
