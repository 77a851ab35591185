"""Rows of benchmarks that use the tables of another row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from queue_db.compare.contestant import Contestant, Target, WorkerContext


@dataclass(frozen=True, kw_only=True)
class Beside(ABC):
    """A row that differs from ``like``, which creates and fills the tables, only in its name and its work."""

    like: Contestant = field(repr=False)
    name: str
    family: str = field(default="benchmark", init=False)

    @property
    def batch(self) -> int:
        """Jobs per claim."""
        return self.like.batch

    @property
    def claim(self) -> str:
        """How jobs are claimed."""
        return self.like.claim

    @property
    def removal(self) -> str:
        """How finished jobs are removed."""
        return self.like.removal

    @property
    def index(self) -> str:
        """Which index claims use."""
        return self.like.index

    def window(self, workers: int) -> float | None:
        """Width of the window, in jobs."""
        return self.like.window(workers)

    def configuration(self) -> dict[str, str]:
        """Return no settings."""
        return {}

    def refused(self, target: Target) -> str | None:
        """Return why the other row is not supported."""
        return self.like.refused(target)

    def set_up(self, target: Target, jobs: int) -> None:
        """Create tables with ``jobs`` due jobs."""
        self.like.set_up(target, jobs)

    def tear_down(self, target: Target) -> None:
        """Drop the tables."""
        self.like.tear_down(target)

    @abstractmethod
    def work(self, target: Target, context: WorkerContext) -> None:
        """Run in a worker: prepare, call ``context.wait_for_start()``, and work until ``context.over``."""
