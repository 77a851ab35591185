"""The network breaks, or a part fails, in the middle of a complete_and_claim: nothing is lost, and the verdicts are true."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import make_url, text

from queue_db import Adaptive, LeasedJob, PermanentStorageError, Queue, QueueDB, State, StorageError, TransientStorageError, Verdict
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.store import Transaction
from tests.faults.conftest import WAITS
from tests.faults.once import Once
from tests.faults.test_network import rows
from tests.servers.proxy import Proxy

SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")

#: How the statement begins with which a completion is over; on PostgreSQL it is the claim too.
COMPLETES = {"postgresql": "EXECUTE", "mysql": "DELETE", "mariadb": "DELETE"}


def one_in_hand(queue: Queue) -> tuple[LeasedJob, int]:
    """A claimed job, and the id of one that waits. The claim has won all, so the next one expects jobs."""
    _, waiting = queue.enqueue_many([("k", 1), ("k", 2)])
    (job,) = queue.claim(lease=60)
    return job, waiting or 0


@SERVERS
def test_the_verdict_survives_a_lost_reply_and_the_job_that_was_claimed_with_it_is_given_back(
    kind: str, db: QueueDB, far: Queue, proxy: Proxy
) -> None:
    job, waiting = one_in_hand(far)
    proxy.swallow(COMPLETES[kind])
    verdicts, won = far.complete_and_claim([job])
    assert proxy.wait_swallowed()
    assert verdicts == [Verdict.APPLIED]
    assert (far.db.counters.applied, far.db.counters.lost) == (1, 0)
    if won:  # the reply was that of the completion alone
        assert [one.id for one in won] == [waiting]
        assert won[0].release()
    (row,) = rows(db, far.name)
    assert (row.id, row.attempts, row.claim_token) == (waiting, 0, None)


@SERVERS
def test_a_lost_reply_to_the_claim_takes_no_verdict_away(kind: str, db: QueueDB, far: Queue, proxy: Proxy) -> None:
    if kind == "postgresql":
        return  # there is one statement
    job, waiting = one_in_hand(far)
    proxy.swallow("UPDATE")
    assert far.complete_and_claim([job]) == ([Verdict.APPLIED], [])
    assert proxy.wait_swallowed()
    (row,) = rows(db, far.name)
    assert (row.id, row.attempts, row.claim_token) == (waiting, 0, None)


@SERVERS
def test_complete_and_claim_cut_at_any_of_its_statements_is_made_again(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    job, _ = one_in_hand(far)
    at = 0
    while True:
        at += 1
        near = db.queue(far.name)
        near.enqueue("k", at)
        cut = Once(far.db.database.engine, "", proxy.cut, at)
        verdicts, won = far.complete_and_claim([job])
        assert verdicts == [Verdict.APPLIED]
        # Once, by the count of attempts too: what the cut-off transaction had done is undone.
        (job,) = won
        assert (job.attempts, job.version) == (1, 1)
        assert len(rows(db, far.name)) == 2
        if not cut.happened:
            break
        cut.left = 0
    assert at > 1


@SERVERS
def test_a_lease_lost_while_complete_and_claim_was_in_doubt_is_lost(kind: str, db: QueueDB, far: Queue, proxy: Proxy) -> None:
    job, waiting = one_in_hand(far)

    def steal() -> None:
        proxy.cut()
        with db.database.engine.begin() as connection:
            connection.execute(text("UPDATE jobs SET version = version + 7 WHERE id = :id"), {"id": job.id})

    stolen = Once(far.db.database.engine, COMPLETES[kind], steal)
    verdicts, won = far.complete_and_claim([job])
    assert stolen.happened
    assert verdicts == [Verdict.LOST]
    assert [one.id for one in won] == [waiting]
    assert {row.id: row.version for row in rows(db, far.name)} == {job.id: 8, waiting: 1}


@SERVERS
def test_a_lost_reply_after_the_lease_is_not_guessed_and_keeps_no_job(
    kind: str, url: str, proxy: Proxy, db: QueueDB, far: Queue, name: str
) -> None:
    job, waiting = one_in_hand(far)
    ends = int(job.lease_expires.timestamp() * 1_000_000)
    now = ends - 1
    address = make_url(proxy.url(url)).update_query_dict(WAITS[kind])
    with QueueDB(address, clock=lambda: now) as settable:
        queue = settable.queue(name)
        queue.enqueue("first", priority=-1)
        assert queue.claim()[0].complete()
        late = LeasedJob(job._row, queue, settable.codec, job.token)
        proxy.swallow(COMPLETES[kind])
        now = ends + 1
        with pytest.raises(StorageError, match="it is unknown whether it took effect") as doubt:
            queue.complete_and_claim([late])
        assert doubt.value.outcome_unknown
        # What the unanswered complete_and_claim had claimed is given back by the next one, although that finds nothing to claim.
        found = queue.complete_and_claim([])[1] or queue.claim()
        assert [one.id for one in found] == [waiting]
        assert found[0].attempts == 1


class Failing(Adaptive):
    """Its claims fail from a given one on."""

    left = 1_000_000

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Fail when it is time."""
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().claim(tx, request)

    error: Exception = PermanentStorageError("the claim is broken", statement_name="claim")


@pytest.mark.parametrize(
    "error", [Failing.error, TransientStorageError("locked", statement_name="claim")], ids=["for good", "once"]
)
def test_a_claim_that_fails_takes_no_verdict_away(
    open_db: Callable[..., QueueDB], name: str, error: StorageError, caplog: pytest.LogCaptureFixture
) -> None:
    """In the statement of both it fails first, and then by itself, after the completion."""
    strategy = Failing()
    strategy.error = error
    queue = open_db(strategy=strategy).queue(name)
    job, waiting = one_in_hand(queue)
    strategy.left = 0
    with caplog.at_level(logging.WARNING, "queue_db.verbs.claim"):
        assert queue.complete_and_claim([job]) == ([Verdict.APPLIED], [])
    assert "the claim of the next ones failed" in caplog.text
    assert (queue.db.counters.applied, queue.db.counters.claimed) == (1, 1)
    assert queue.get(waiting).state is State.AVAILABLE
    with pytest.raises(StorageError):
        queue.complete_and_claim([])
    strategy.left = 1_000_000
    (job,) = queue.claim()
    assert (job.id, job.attempts) == (waiting, 1)


@pytest.mark.usefixtures("no_second_look")
@SERVERS
def test_a_mistake_of_a_strategy_after_the_completion_takes_no_verdict_away(
    kind: str, open_db: Callable[..., QueueDB], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = Failing()
    strategy.error = ValueError("a mistake")
    queue = open_db(strategy=strategy).queue(name)
    queue.enqueue_many([("k", number, {"priority": number}) for number in range(2)])
    jobs = queue.claim()
    # Of two priorities PostgreSQL does not claim in the statement that completes, although the strategy is asked.
    strategy.left = 1 if kind == "postgresql" else 0
    with caplog.at_level(logging.WARNING, "queue_db.verbs.claim"):
        assert queue.complete_and_claim(jobs) == ([Verdict.APPLIED], [])
    assert "the claim of the next ones failed" in caplog.text
    assert queue.stats().available == 1


class Interrupted(BaseException):
    """As Ctrl-C."""


def test_an_interrupt_after_the_statement_leaves_no_job_in_no_hands(
    kind: str, open_db: Callable[..., QueueDB], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_db().queue(name)
    job, waiting = one_in_hand(queue)

    def interrupt(*_: object, **__: object) -> None:
        raise Interrupted

    monkeypatch.setattr("queue_db.verbs.fenced_change.FencedChange._ended", interrupt)
    with pytest.raises(Interrupted):
        queue.complete_and_claim([job])
    monkeypatch.undo()
    found = queue.claim() or queue.claim()
    assert [(one.id, one.attempts) for one in found] == [(waiting, 1)]
