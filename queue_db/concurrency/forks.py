"""Resets objects in the child after a fork: a lock that another thread of the parent held would stay locked in the child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Resettable(Protocol):
    """An object with locks of its own."""

    def after_fork(self) -> None:
        """Replace the locks by new ones. Called in the child, which has one thread."""


_all: weakref.WeakSet[Resettable] = weakref.WeakSet()


def reset_after_fork(resettable: Resettable) -> None:
    """Call ``after_fork`` of the object in each forked child of this process, as long as the object exists."""
    _all.add(resettable)


def _after() -> None:
    for resettable in list(_all):
        resettable.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after)
