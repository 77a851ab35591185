"""The verdicts and the leases of a complete_and_claim hold with locked rows, lost replies, interrupts, and classes of the user."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from queue_db import Adaptive, LeasedJob, Pessimistic, Queue, QueueDB, QueueDBError, SkipLocked, TransientStorageError, Verdict
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.removal import Delete
from queue_db.store import Transaction
from queue_db.strategies import Strategy
from tests.faults.conftest import WAITS
from tests.patience import PATIENCE
from tests.races.interleaving import open_transaction
from tests.servers.proxy import Proxy

APPLIED, LOST = Verdict.APPLIED, Verdict.LOST

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")
BOTH_FORMS = pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")


def in_hand(queue: Queue, number: int, waiting: int) -> list[LeasedJob]:
    """Claimed jobs, and others that wait. The claim has won all, so the next one expects jobs."""
    queue.enqueue_many([("k", payload) for payload in range(number + waiting)])
    jobs = queue.claim(number)
    assert len(jobs) == number
    return jobs


@pytest.mark.usefixtures("no_second_look")
@POSTGRESQL
@pytest.mark.parametrize("size", [1, 2])
def test_a_completion_that_waits_for_a_locked_row_shortens_no_lease(
    open_db: Callable[..., QueueDB], name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leases of the claim begin with its statement, so the wait must not be part of it."""
    queue = open_db(strategy="skip_locked").queue(name)
    jobs = in_hand(queue, size, size)
    dialect, left = queue.core.store.dialect, threading.Event()
    leave = dialect._leave_fast_path  # type: ignore[attr-defined]

    def leaving(*arguments: Any) -> None:
        leave(*arguments)
        left.set()

    monkeypatch.setattr(dialect, "_leave_fast_path", leaving)
    with ThreadPoolExecutor(1) as pool, open_transaction(queue.db) as connection:
        connection.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": jobs[0].id})
        both_done = pool.submit(queue.complete_and_claim, jobs, size, 60)
        gave_up = left.wait(PATIENCE)
        now = Transaction(connection, queue.core.store).read_clock()
        connection.rollback()
        verdicts, won = both_done.result(PATIENCE)
    assert gave_up
    assert verdicts == [APPLIED] * size
    assert len(won) == size
    assert all(job.lease_ends >= now + 60_000_000 for job in won)


@pytest.fixture
def far(kind: str, url: str, db: QueueDB, name: str) -> Iterator[tuple[Queue, Proxy]]:
    """A queue on an engine of the application, where a claim is a transaction with a COMMIT."""
    with Proxy.before(url) as proxy:
        engine = create_engine(make_url(proxy.url(url)).update_query_dict(WAITS[kind]))
        with QueueDB(engine) as remote:
            yield remote.queue(name), proxy
        engine.dispose()


@POSTGRESQL
def test_a_lease_that_was_lost_before_is_lost_although_the_reply_to_commit_was_lost_too(
    db: QueueDB, far: tuple[Queue, Proxy]
) -> None:
    queue, proxy = far
    jobs = in_hand(queue, 3, 3)
    db.queue(queue.name).cancel(jobs[0].id)
    proxy.swallow("COMMIT")
    verdicts, won = queue.complete_and_claim(jobs, 3)
    assert proxy.wait_swallowed()
    assert verdicts == [LOST, APPLIED, APPLIED]
    assert {job.attempts for job in won or queue.claim(3)} == {1}


class Noting(Delete):
    """Notes what it removes."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "removed", [])

    def remove(self, tx: Transaction, pairs: Sequence[tuple[int, int]]) -> set[int]:
        """Delete the rows."""
        self.removed.extend(pairs)  # type: ignore[attr-defined]
        return super().remove(tx, pairs)


@BOTH_FORMS
def test_a_removal_made_from_ours_removes(open_db: Callable[..., QueueDB], name: str) -> None:
    removal = Noting()
    queue = open_db(removal=removal).queue(name)
    jobs = in_hand(queue, 2, 2)
    assert queue.complete_and_claim(jobs, 2)[0] == [APPLIED] * 2
    assert removal.removed == [(job.id, job.version) for job in jobs]  # type: ignore[attr-defined]


class Twice(Adaptive):
    """Claims once more for what is missing, and makes a result of its own."""

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Claim half, then the rest, in one transaction."""
        tx.begin()
        half = super().claim(tx, replace(request, limit=(request.limit + 1) // 2))
        rest = super().claim(tx, replace(request, limit=request.limit - len(half.rows)))
        rows = (*half.rows, *rest.rows)
        return ClaimResult(request.queue, request.limit, rows=rows, missed=half.missed + rest.missed, min_due=rest.min_due)


class Delegating:
    """A strategy that asks another one, and shows all its attributes."""

    def __init__(self, other: Strategy) -> None:
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Pass on what there is to pass on."""
        return self._other.claim(tx, request)

    def observe(self, result: ClaimResult) -> None:
        """Nothing to learn."""


class Ignoring(Delegating):
    """Knows nothing of completions."""

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Claim only."""
        return super().claim(tx, replace(request, completes=None))


STRATEGIES: dict[str, Callable[[], Any]] = {
    "pessimistic": Pessimistic,
    "twice": Twice,
    "delegating": lambda: Delegating(Adaptive()),
    "ignoring": lambda: Ignoring(Adaptive()),
}


@BOTH_FORMS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_verdicts_are_true_with_any_strategy(open_db: Callable[..., QueueDB], name: str, strategy: str) -> None:
    """Also when the queue has fewer jobs than were wanted, or none."""
    queue = open_db(strategy=STRATEGIES[strategy]()).queue(name)
    jobs, verdicts, ids = in_hand(queue, 4, 5), list[Verdict](), list[int]()
    while jobs:
        ids += [job.id for job in jobs]
        settled, jobs = queue.complete_and_claim(jobs, 4)
        verdicts += settled
        jobs = jobs or queue.claim(4)
    assert len(set(ids)) == 9
    assert verdicts == [APPLIED] * 9
    assert queue.complete_and_claim([], 1) == ([], [])


class Interrupted(BaseException):
    """As Ctrl-C."""


@pytest.mark.parametrize("verb", ["claim", "complete_and_claim"])
def test_an_interrupt_between_the_answer_and_its_use_leaves_no_job_in_no_hands(
    open_db: Callable[..., QueueDB], name: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_db().queue(name)
    (job,) = in_hand(queue, 1, 1)

    def interrupt(*_: object, **__: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr("queue_db.verbs.claim.exhausted_in", interrupt)
        with pytest.raises(Interrupted):
            queue.complete_and_claim([job]) if verb == "complete_and_claim" else queue.claim()
    (won,) = queue.claim() or queue.claim()
    assert (won.payload, won.attempts) == (1, 1)


class Failing(SkipLocked):
    """Its first claim asks to try again, the others fail with an error that is not the database's."""

    armed = False
    errors: Iterator[QueueDBError]

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Fail."""
        if self.armed:
            raise next(self.errors)
        return super().claim(tx, request)


@POSTGRESQL
def test_any_error_of_the_claim_takes_no_verdict_away(open_db: Callable[..., QueueDB], name: str) -> None:
    strategy = Failing()
    strategy.errors = iter([TransientStorageError("locked", statement_name="claim"), QueueDBError("broken")])
    queue = open_db(strategy=strategy).queue(name)
    jobs = in_hand(queue, 1, 1)
    strategy.armed = True
    assert queue.complete_and_claim(jobs) == ([APPLIED], [])
    assert next(strategy.errors, None) is None
