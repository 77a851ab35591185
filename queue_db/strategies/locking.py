"""The strategies with row locks: wait for locked rows (pessimistic), or skip them (skip locked)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from queue_db.model import Capability, ClaimRequest, ClaimResult, Seen
from queue_db.store import lease
from queue_db.store.base import Transaction
from queue_db.strategies.base import Strategy, named

log = logging.getLogger("queue_db.strategies.locking")

_HEAD_WITH_WAIT = lease.CandidateWindow(lock=lease.Lock.WAIT)


@named("pessimistic")
@dataclass
class Pessimistic:
    """SELECT … FOR UPDATE: every worker waits for the head. On SQLite the lock of the whole file replaces row locks."""

    name: str = field(default="pessimistic", init=False)
    needs: frozenset[Capability] = field(default=frozenset(), init=False, repr=False)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Lock the head, then take it."""
        won = lease.claim(tx, request, _HEAD_WITH_WAIT)
        if not won.rows and not won.missed and won.seen is Seen.ALL and lease.anything_due(tx, request):
            # A job is due, but none was won: another claim took the rows while this claim waited for their locks. The result does
            # not show these rows, so count one miss.
            return replace(won, missed=1)
        return won

    def observe(self, result: ClaimResult) -> None:
        """Do nothing: this strategy learns nothing from results."""


@named("skip_locked")
@dataclass
class SkipLocked:
    """SELECT … FOR UPDATE SKIP LOCKED: every worker takes the first unlocked rows."""

    name: str = field(default="skip_locked", init=False)
    needs: frozenset[Capability] = field(default=frozenset({Capability.SKIP_LOCKED}), init=False, repr=False)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Lock the first jobs that no other transaction has locked, then take them."""
        return lease.claim(tx, request, lease.HEAD_UNLOCKED)

    def observe(self, result: ClaimResult) -> None:
        """Do nothing: this strategy learns nothing from results."""


def warn_of_other_nodes(strategy: Strategy, capabilities: frozenset[Capability]) -> None:
    """Log a warning if ``strategy`` relies on row locks in a cluster whose other nodes do not see them."""
    if Capability.SEVERAL_WRITERS in capabilities and isinstance(strategy, Pessimistic | SkipLocked):
        log.warning(
            "strategy=%r in a cluster with several writers: the nodes do not see each other's row locks, so claims on different "
            "nodes take the same jobs and are rolled back; use strategy='adaptive', or connect all workers to one node",
            strategy.name,
        )
