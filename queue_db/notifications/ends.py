"""Tells listeners in this process which jobs have ended: were completed or cancelled by their worker, or have died."""

from __future__ import annotations

from collections.abc import Callable, Collection

Listener = Callable[[Collection[int]], None]
"""Called with the ids of jobs that have ended, in the thread that ended them. It returns at once, and raises nothing."""


class Ends:
    """The listeners of one :class:`QueueDB`. A listener may miss an end, such as that of a purged job: so it also looks."""

    def __init__(self) -> None:
        #: Those who listen. Without any of them nothing needs to be told.
        self.listeners: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        """Call ``listener`` from now on."""
        self.listeners = (*self.listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self.listeners = tuple(one for one in self.listeners if one != listener)

    def tell(self, ids: Collection[int]) -> None:
        """After the commit: these jobs have ended."""
        for listener in self.listeners:
            listener(ids)
