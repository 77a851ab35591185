"""Of two workers that settle one job, one after the lease of the other, at most one is told APPLIED, whatever the network loses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, make_url

from queue_db import LeasedJob, PermanentStorageError, QueueDB, State, StorageError, Verdict
from queue_db.store import settle
from queue_db.testing import SettableClock
from queue_db.verbs import doubts
from tests.faults.conftest import WAITS
from tests.faults.once import Once
from tests.patience import wait_for
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")

Settle = Callable[[LeasedJob], Verdict]

#: How A settles its job, the options of the job, the removal, and the statement that A's server never gets.
REMOVED: dict[str, tuple[Settle, dict[str, Any], str, str]] = {
    "complete": (lambda job: job.complete(), {"group": "g"}, "delete", "COMMIT"),
    "complete in one statement": (lambda job: job.complete(), {}, "delete", ""),
    "lock then delete": (lambda job: job.complete(), {}, "lock_then_delete", "COMMIT"),
    "cancel": (lambda job: job.cancel(), {"group": "g"}, "delete", "COMMIT"),
    "bury": (lambda job: job.bury("no use"), {}, "delete", "COMMIT"),
    "fail for good": (lambda job: job.fail("no luck"), {"max_attempts": 1}, "delete", "COMMIT"),
}


class Two:
    """A, at the other end of a network that breaks, and B, with one clock."""

    def __init__(self, kind: str, url: str, proxy: Proxy, name: str, removal: str = "delete") -> None:
        self.clock = SettableClock()
        far = make_url(proxy.url(url)).update_query_dict(WAITS[kind])
        # B is there first: MySQL lets a password in without TLS only once it has seen it with TLS.
        self.b_db = QueueDB(url, clock=self.clock, removal=removal)
        self.a_db = QueueDB(far, clock=self.clock, removal=removal)
        self.a, self.b = self.a_db.queue(name), self.b_db.queue(name)

    def close(self) -> None:
        self.a_db.close()
        self.b_db.close()

    def b_claims(self) -> LeasedJob:
        """It waits until the server has noticed that A is gone, and undone what was not committed."""
        return wait_for(self.b.claim)[0]


@pytest.fixture
def two(kind: str, url: str, proxy: Proxy, name: str) -> Iterator[Callable[..., Two]]:
    opened: list[Two] = []

    def make(removal: str = "delete") -> Two:
        opened.append(Two(kind, url, proxy, name, removal))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def verdict_of(settle: Settle, job: LeasedJob) -> Verdict | StorageError:
    try:
        return settle(job)
    except StorageError as error:
        return error


def check_that_one_is_applied(kind: str, two: Two, proxy: Proxy, settle: Settle, options: dict[str, Any], lost: str) -> None:
    """A's statement is lost, B claims the job after the lease and completes it, and only then A looks."""
    two.a.enqueue("k", **{"max_attempts": 5} | options)
    (job,) = two.a.claim(lease=10)
    theirs: list[Verdict] = []

    def b_is_faster() -> None:
        proxy.cut()
        two.clock.advance(11)
        if job.max_attempts == 1:
            more_attempts(two.b_db, job.id)
        theirs.append(two.b_claims().complete())

    cut = Once(two.a_db.database.engine, lost or ("EXECUTE" if kind == "postgresql" else "DELETE"), b_is_faster)
    ours = verdict_of(settle, job)
    assert cut.happened
    assert theirs == [Verdict.APPLIED]
    assert ours is not Verdict.APPLIED
    assert ours is Verdict.LOST or ours.outcome_unknown  # type: ignore[union-attr]
    assert verdict_of(settle, job) is Verdict.LOST


def more_attempts(db: QueueDB, job_id: int) -> None:
    """So that the next claim does not bury the job."""
    jobs = db.core.store.tables.jobs
    with db.database.engine.begin() as connection:
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(max_attempts=5))


@pytest.mark.parametrize("how", REMOVED)
def test_a_commit_that_never_arrived_is_not_proved_by_what_another_worker_did(
    kind: str, two: Callable[..., Two], proxy: Proxy, how: str
) -> None:
    settle, options, removal, lost = REMOVED[how]
    check_that_one_is_applied(kind, two(removal), proxy, settle, options, lost)


def test_without_the_lease_as_proof_both_are_applied(
    kind: str, two: Callable[..., Two], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr(doubts, "_holds", lambda job, now: True)
    settle, options, removal, lost = REMOVED["complete"]
    with pytest.raises(AssertionError, match="ours is not|APPLIED"):
        check_that_one_is_applied(kind, two(removal), proxy, settle, options, lost)


def at_the_look(db: QueueDB, act: Callable[[], object]) -> Once:
    return Once(db.database.engine, "SELECT jobs.id, jobs.version, jobs.claim_token, jobs.delete_mark", act)


def test_a_failed_attempt_is_proved_by_its_row_although_others_have_had_the_job_since(
    two: Callable[..., Two], proxy: Proxy
) -> None:
    pair = two()
    pair.a.enqueue("k", group="g")
    (job,) = pair.a.claim(lease=10)
    theirs: list[Verdict] = []
    looked = at_the_look(pair.a_db, lambda: theirs.append(pair.b_claims().complete()))
    proxy.swallow("COMMIT")
    assert job.fail("no luck", retry_in=0) is Verdict.APPLIED
    assert proxy.wait_swallowed()
    assert looked.happened
    assert theirs == [Verdict.APPLIED]


def test_a_burial_is_proved_by_the_dead_job_although_the_lease_is_over(two: Callable[..., Two], proxy: Proxy) -> None:
    pair = two()
    pair.a.enqueue("k")
    (job,) = pair.a.claim(lease=10)
    looked = at_the_look(pair.a_db, lambda: pair.clock.advance(11))
    proxy.swallow("COMMIT")
    assert job.bury("no use") is Verdict.APPLIED
    assert looked.happened
    assert pair.b.get(job.id).state is State.DEAD


def test_one_lease_that_holds_proves_the_completion_of_all_in_its_transaction(two: Callable[..., Two], proxy: Proxy) -> None:
    pair = two()
    pair.a.enqueue_many([("k", number, {"group": str(number)}) for number in range(2)])
    jobs = [*pair.a.claim(lease=10), *pair.a.claim(lease=100)]
    looked = at_the_look(pair.a_db, lambda: pair.clock.advance(11))
    proxy.swallow("COMMIT")
    assert pair.a.complete_many(jobs) == [Verdict.APPLIED] * 2
    assert looked.happened


def test_one_job_that_is_still_there_disproves_the_completion_of_all_in_its_transaction(
    two: Callable[..., Two], proxy: Proxy
) -> None:
    """Another was cancelled meanwhile, and its lease would hold."""
    pair = two()
    pair.a.enqueue_many([("k", number, {"group": str(number)}) for number in range(2)])
    first, second = pair.a.claim(2, lease=100)

    def cancelled() -> None:
        proxy.cut()
        assert pair.b.cancel(first.id)

    cut = Once(pair.a_db.database.engine, "COMMIT", cancelled)
    assert pair.a.complete_many([first, second]) == [Verdict.LOST, Verdict.APPLIED]
    assert cut.happened


def test_two_commits_in_a_row_whose_replies_are_lost_still_have_a_verdict(two: Callable[..., Two], proxy: Proxy) -> None:
    pair = two()
    pair.a.enqueue("k", group="g")
    (job,) = pair.a.claim(lease=10)
    Once(pair.a_db.database.engine, "COMMIT", proxy.cut)
    commits: list[str] = []

    def swallow_the_second(*arguments: Any) -> None:
        if arguments[2] == "COMMIT":
            commits.append("COMMIT")
            if len(commits) == 2:
                proxy.swallow("COMMIT")

    event.listen(pair.a_db.database.engine, "before_cursor_execute", swallow_the_second)
    assert job.complete() is Verdict.APPLIED
    assert len(commits) == 2
    assert pair.b.stats().running == 0


def test_a_look_that_is_refused_for_good_leaves_the_doubt(
    kind: str, two: Callable[..., Two], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = two()
    pair.a.enqueue("k")
    (job,) = pair.a.claim(lease=10)
    Once(pair.a_db.database.engine, "EXECUTE" if kind == "postgresql" else "DELETE", proxy.cut)
    monkeypatch.setattr(settle, "look", lambda tx, *_: tx.connection.exec_driver_sql("SELECT * FROM nowhere"))
    with pytest.raises(PermanentStorageError) as caught:
        job.complete()
    assert caught.value.outcome_unknown
