"""``using=`` in a caller's transaction that looks at an old snapshot: the lease is lost or the caller is told to run it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from queue_db import DuplicateJobError, Queue, QueueDB, TransientStorageError, Verdict
from queue_db.database.connections import Connections
from queue_db.testing import SettableClock
from tests.conftest import server_of
from tests.races.interleaving import between
from tests.races.test_claim_loses import expired, state

REMOVALS = ("delete", "lock_then_delete", "delete_mark")


@pytest.fixture
def caller(url: str, differs: Callable[[str], None]) -> Iterator[Engine]:
    """A caller that runs at REPEATABLE READ."""
    differs("one snapshot")
    engine = create_engine(url, isolation_level="REPEATABLE READ")
    yield engine
    engine.dispose()


def refuses_to_lock_what_it_cannot_see(caller: Engine) -> bool:
    """Whether this server gives up a transaction that locks a row which its snapshot does not show, or shows otherwise."""
    if caller.dialect.name == "postgresql":
        return True
    with caller.connect() as connection:
        # MariaDB: on by default since 11.6.2. MySQL does not know it.
        return connection.execute(text("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")).all() == [
            ("innodb_snapshot_isolation", "ON")
        ]


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("jobs", [1, 3])
def test_complete_with_an_old_snapshot_loses_the_lease(
    open_db: Callable[..., QueueDB], clock: SettableClock, name: str, theirs: Queue, caller: Engine, removal: str, jobs: int
) -> None:
    ours = open_db(removal=removal, clock=clock).queue(name)
    ours.enqueue_many([("mail", number) for number in range(jobs)])
    leased = ours.claim(limit=jobs, lease=1)
    clock.advance(2)
    with caller.connect() as connection:
        connection.execute(text("SELECT count(*) FROM jobs")).all()  # the snapshot: the lease still holds in it
        assert len(theirs.claim(limit=jobs)) == jobs
        before = [state(theirs, job) for job in leased]
        try:
            verdicts = ours.complete_many(leased, using=connection)
        except TransientStorageError:
            connection.rollback()
        else:
            assert verdicts == [Verdict.LOST] * jobs
            connection.commit()
    assert [state(theirs, job) for job in leased] == before


@pytest.mark.parametrize("removal", REMOVALS)
def test_complete_with_an_old_snapshot_that_still_holds_is_applied(
    open_db: Callable[..., QueueDB], clock: SettableClock, name: str, theirs: Queue, caller: Engine, removal: str
) -> None:
    ours = open_db(removal=removal, clock=clock).queue(name)
    ours.enqueue_many([("mail", number) for number in range(3)])
    leased = ours.claim(limit=3)
    with caller.connect() as connection:
        connection.execute(text("SELECT count(*) FROM jobs")).all()
        theirs.enqueue("another")
        assert ours.complete_many(leased, using=connection) == [Verdict.APPLIED] * 3
        connection.commit()
    assert ours.stats().running == 0


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_enqueue_with_an_old_snapshot_loses_to_a_key_that_it_cannot_see(
    ours: Queue, theirs: Queue, caller: Engine, policy: str
) -> None:
    with caller.connect() as connection:
        connection.execute(text("SELECT count(*) FROM jobs")).all()
        first = theirs.enqueue("first", unique_key="k")
        try:
            got = ours.enqueue("second", unique_key="k", on_duplicate=policy, using=connection)
        except DuplicateJobError:
            assert policy == "raise"
            connection.rollback()
        except TransientStorageError:
            assert refuses_to_lock_what_it_cannot_see(caller)
            connection.rollback()
            policy = "skip"
        else:
            assert got == (None if policy == "skip" else first)
            connection.commit()
    assert [job.kind for job in ours.peek()] == ["second" if policy == "replace" else "first"]


def test_enqueue_with_an_old_snapshot_loses_to_the_time_of_a_key_that_it_cannot_see(
    ours: Queue, theirs: Queue, caller: Engine
) -> None:
    with caller.connect() as connection:
        connection.execute(text("SELECT count(*) FROM jobs")).all()
        theirs.enqueue("first", unique_key="k", unique_for=60)
        (job,) = theirs.claim()
        assert job.complete()
        try:
            assert ours.enqueue("second", unique_key="k", unique_for=60, on_duplicate="skip", using=connection) is None
        except TransientStorageError:
            assert refuses_to_lock_what_it_cannot_see(caller)
            connection.rollback()
        else:
            connection.commit()
    assert ours.peek() == []


def test_enqueue_of_megabytes_with_an_old_snapshot_loses_one_key_and_keeps_the_rest(
    ours: Queue, theirs: Queue, caller: Engine
) -> None:
    # More than the driver sends in one statement: the part that meets the key must not leave the part before it behind.
    text_of = "x" * 600_000
    with caller.connect() as connection:
        connection.execute(text("SELECT count(*) FROM jobs")).all()
        theirs.enqueue("first", unique_key="k")
        jobs = [("a", text_of, {}), ("b", text_of, {}), ("c", text_of, {"unique_key": "k"})]
        try:
            ids = ours.enqueue_many(jobs, on_duplicate="skip", using=connection)
        except TransientStorageError:
            assert refuses_to_lock_what_it_cannot_see(caller)
            connection.rollback()
            return
        connection.commit()
    assert [job_id is None for job_id in ids] == [False, False, True]
    assert [job.kind for job in ours.peek()] == ["first", "a", "b"]


class TestSnapshotIsolation:
    """MariaDB with ``innodb_snapshot_isolation=ON``: a lost version check is error 1020 and the whole transaction rolled back."""

    @pytest.fixture(scope="class")
    @staticmethod
    def strict_url() -> str:
        url = server_of("mariadb", "--innodb-snapshot-isolation=ON").create_database()
        with QueueDB(url) as db:
            db.migrate()
        return url

    @pytest.fixture
    @staticmethod
    def pair(strict_url: str, clock: SettableClock, name: str) -> Iterator[tuple[Queue, Queue]]:
        with QueueDB(strict_url, "optimistic", clock=clock) as ours, QueueDB(strict_url, "optimistic", clock=clock) as theirs:
            yield ours.queue(name), theirs.queue(name)

    def test_the_caller_is_told_to_run_its_transaction_again(
        self, strict_url: str, pair: tuple[Queue, Queue], clock: SettableClock
    ) -> None:
        ours, theirs = pair
        job = expired(ours, clock)
        engine = create_engine(strict_url, isolation_level="REPEATABLE READ")
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM jobs")).all()
            (taken,) = theirs.claim()
            before = state(theirs, job)
            with pytest.raises(TransientStorageError) as caught:
                job.complete(using=connection)
            assert caught.value.sqlstate == "1020"
            connection.rollback()
        engine.dispose()
        assert state(theirs, job) == before
        assert ours.db.counters.retried == 0
        assert taken.complete()

    def test_our_own_transaction_is_run_again(self, pair: tuple[Queue, Queue], clock: SettableClock) -> None:
        ours, theirs = pair
        ours.enqueue("mail")
        engine = theirs.db.database.engine.execution_options(isolation_level="REPEATABLE READ")
        theirs.db.database.connections = Connections(engine, theirs.db.database.dialect, 0, lambda: None)
        with between(engine, "UPDATE", ours.claim) as done:
            assert theirs.claim() == []
        assert done[0]
        assert (theirs.db.counters.retried, theirs.db.counters.claimed) == (1, 0)

    def test_at_our_isolation_level_a_miss_is_a_miss(self, pair: tuple[Queue, Queue], clock: SettableClock) -> None:
        ours, theirs = pair
        job = expired(ours, clock)
        with between(theirs.db.database.engine, "UPDATE", lambda: job.extend(1000)) as done:
            assert theirs.claim() == []
        assert done[0]
        assert (theirs.db.counters.retried, theirs.db.counters.missed, theirs.db.counters.contended) == (0, 1, 1)
