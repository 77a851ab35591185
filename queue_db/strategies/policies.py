"""Which queues have claims of another kind than the strategy's: a slice finds and makes them. Their jobs do not wait for others.

A process reads these policies when it opens the database, and while it claims from a queue that has one, once a second. It also
reads them after a claim that has won jobs with a group, and when a worker finds that a queue is fair now. A claim of a queue whose
jobs have no groups does not ask.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from queue_db import slices
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.store.base import Transaction

if TYPE_CHECKING:
    from queue_db.core import Core

#: Seconds for which the policies are believed.
FRESH = 1.0


class Policy(Protocol):
    """How claims choose among the jobs of one queue, before the strategy does."""

    def claim(
        self, tx: Transaction, request: ClaimRequest, strategy: Callable[[Transaction, ClaimRequest], ClaimResult]
    ) -> ClaimResult:
        """Take up to ``request.limit`` jobs, as ``Strategy.claim`` does.

        :param strategy: claims the jobs that have been due longest.
        """

    def wait(self) -> float:
        """Seconds after which a claim may take due jobs that the last one had to leave; infinite: it left none."""


class Policies:
    """The policies of the queues of one store in this process."""

    __slots__ = ("_read_at", "of", "stale")

    def __init__(self) -> None:
        #: The policies by queue; most stores have none.
        self.of: Mapping[str, Policy] = {}
        #: Whether the next claim reads them again.
        self.stale = True
        self._read_at = 0.0

    def due(self) -> bool:
        """Whether it is time to read the policies again."""
        return self.stale or time.monotonic() - self._read_at >= FRESH

    def waits_for_none(self, queue: str) -> bool:
        """Whether no job waits for others of its group; False also if this process has not looked for a while."""
        return queue in self.of and not self.due()

    def wait(self, queue: str) -> float:
        """Seconds after which a claim may take due jobs of this queue that the last one had to leave; infinite: it left none."""
        policy = self.of.get(queue)
        return math.inf if policy is None else policy.wait()

    def suspect(self) -> None:
        """Let the next claim read the policies, unless they are fresh."""
        self.stale = self.due()

    def compare(self, fair: Collection[str], among: Collection[str]) -> None:
        """Let the next claim read the policies if another part of the queues ``among`` is fair than this process knows."""
        self.stale = self.stale or any((queue in self.of) is not (queue in fair) for queue in among)

    def read(self, core: Core) -> None:
        """Read the policies."""
        found = core.read("read_policies", _read, self.of)
        self._read_at = time.monotonic()
        self.of, self.stale = found, False


def _read(tx: Transaction, before: Mapping[str, Policy]) -> dict[str, Policy]:
    return slices.policies(tx, before)
