"""Which claims of the adaptive strategy use SKIP LOCKED: a rule of the dialect, where the database has it and claims race."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from queue_db import Adaptive, Queue
from queue_db.dialects import Dialect
from queue_db.dialects.mysql import MySQL
from queue_db.dialects.postgresql import PostgreSQL
from queue_db.dialects.sqlite import SQLite
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import Transaction, lease
from queue_db.store.lease import CandidateWindow, Lock
from tests.patience import PATIENCE


def locked(
    monkeypatch: pytest.MonkeyPatch, dialect: type[Dialect], limit: int, *, but: Capability | None = None, **settings: Any
) -> bool:
    """Whether a claim of ``limit`` jobs locks them while it reads them. ``but``: the server lacks it, or has it besides."""
    taken: list[bool] = []

    def claim(_tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> ClaimResult:
        taken.append(window.lock is Lock.SKIP)
        return ClaimResult(request.queue, request.limit)

    monkeypatch.setattr(lease, "claim", claim)
    store = SimpleNamespace(capabilities=PostgreSQL.capabilities ^ ({but} if but else set()))
    tx: Any = SimpleNamespace(store=store, dialect=dialect())
    Adaptive(**settings).claim(tx, ClaimRequest(queue="q", limit=limit, lease=1, worker="w", token="t", ranges=()))
    return taken == [True]


def test_postgresql_locks_batches_of_about_ten_and_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (1, 7, 8, 31, 32, 1000)
    assert [locked(monkeypatch, PostgreSQL, limit) for limit in limits] == [False, False, True, True, False, False]
    for dialect in (MySQL, SQLite, Dialect):
        assert not any(locked(monkeypatch, dialect, limit) for limit in limits)


@pytest.mark.parametrize("but", [Capability.SKIP_LOCKED, Capability.CONCURRENT_WRITERS, Capability.SEVERAL_WRITERS])
def test_without_skip_locked_or_races_or_with_several_writers_there_are_windows_only(
    monkeypatch: pytest.MonkeyPatch, but: Capability
) -> None:
    assert not locked(monkeypatch, PostgreSQL, 10, but=but)


def test_who_wants_windows_only_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not locked(monkeypatch, PostgreSQL, 10, skip_locked=False)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("combined", [False, True], ids=["claim", "complete_and_claim"])
@pytest.mark.parametrize(("limit", "locks"), [(10, True), (40, False)])
@pytest.mark.usefixtures("no_second_look")
def test_the_limit_of_a_call_decides_for_all_its_rounds(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, limit: int, locks: bool, combined: bool
) -> None:
    """Not the number of jobs that a round still wants: half of each of these limits is on the other side of the rule."""
    rounds: list[tuple[int, bool]] = []
    claim = lease.claim

    def noting(tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> ClaimResult:
        rounds.append((request.limit, window.lock is Lock.SKIP))
        return claim(tx, request, window)

    queue.enqueue_many([("work", number) for number in range(limit + limit // 2)])
    first = queue.claim(limit)
    assert len(first) == limit
    monkeypatch.setattr(lease, "claim", noting)
    # Of a call that expects jobs, the first round finds less than it wants, and a second one looks whether that is all.
    rest = queue.complete_and_claim(first, limit)[1] if combined else queue.claim(limit)
    assert len(rest) == limit // 2
    assert rounds == [(limit, locks), (limit // 2, locks)]


def test_what_locks_win_or_lose_does_not_move_the_window() -> None:
    strategy, rows = Adaptive(), (None,) * 5
    for _ in range(100):
        strategy.observe(ClaimResult("q", 10, rows, missed=5, window=0))  # type: ignore[arg-type]
    assert strategy.window("q") == 1
    strategy.observe(ClaimResult("q", 10, rows, missed=5))  # type: ignore[arg-type]
    assert strategy.window("q") > 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_no_lock() -> None:
    strategy = Adaptive()
    with strategy._lock:
        child = os.fork()
        if not child:
            signal.alarm(int(PATIENCE))
            strategy.observe(ClaimResult("q", 1, (), missed=1))
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
