"""Rows of a benchmark's own, on the tables of one of the product's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from queue_db.compare.contestant import Contestant, Target, WorkerContext


@dataclass(frozen=True, kw_only=True)
class Beside(ABC):
    """As the row that it is ``like``, which makes and fills the tables, but for its work and its name."""

    like: Contestant = field(repr=False)
    name: str
    family: str = field(default="benchmark", init=False)

    @property
    def batch(self) -> int:
        """Jobs per claim."""
        return self.like.batch

    @property
    def claim(self) -> str:
        """How jobs are won."""
        return self.like.claim

    @property
    def removal(self) -> str:
        """How finished jobs leave."""
        return self.like.removal

    @property
    def index(self) -> str:
        """By which index claims find jobs."""
        return self.like.index

    @property
    def pick(self) -> str | None:
        """How jobs are drawn from the window."""
        return self.like.pick

    def window(self, workers: int) -> float | None:
        """Width of the window, in jobs."""
        return self.like.window(workers)

    def configuration(self) -> dict[str, str]:
        """Nothing to tell."""
        return {}

    def refused(self, target: Target) -> str | None:
        """Where the other one is."""
        return self.like.refused(target)

    def set_up(self, target: Target, jobs: int) -> None:
        """Tables with ``jobs`` due jobs."""
        self.like.set_up(target, jobs)

    def tear_down(self, target: Target) -> None:
        """Drop them."""
        self.like.tear_down(target)

    @abstractmethod
    def work(self, target: Target, context: WorkerContext) -> None:
        """In a worker: prepare, ``context.wait_for_start()``, and work until ``context.over``."""
