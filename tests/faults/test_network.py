"""The network breaks in the middle of a verb: the verb is done once or not at all, and says which."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, make_url, text

from queue_db import LeasedJob, Queue, QueueDB, State, StorageError, TransientStorageError, Verdict
from queue_db.dialects import copy_stream, raw_cursor, server
from queue_db.verbs import claim_round
from queue_db.verbs.running import Verbs
from tests.faults.conftest import WAITS
from tests.faults.once import Once
from tests.patience import HOURS, PATIENCE
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")


def rows(db: QueueDB, queue: str) -> list[Any]:
    with db.database.engine.connect() as connection:
        return list(connection.execute(text("SELECT * FROM jobs WHERE queue = :queue ORDER BY id"), {"queue": queue}))


@pytest.mark.usefixtures("no_second_look")
def test_a_claim_cut_at_any_of_its_statements_is_made_again(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    near = db.queue(far.name)
    at = 0
    while True:
        at += 1
        job_id = near.enqueue("k", at)
        cut = Once(far.db.database.engine, "", proxy.cut, at)
        (job,) = far.claim()
        # Once, by the count of attempts too: what the cut-off transaction had done is undone.
        assert (job.id, job.attempts, job.version) == (job_id, 1, 1)
        assert job.complete()
        if not cut.happened:
            break
        cut.left = 0
    assert at > 1
    assert far.db.counters.retried >= at - 1


def test_a_pool_of_connections_that_all_died_is_no_error(far: Queue, proxy: Proxy) -> None:
    engine = far.db.database.engine
    for connection in [engine.connect() for _ in range(3)]:
        connection.close()
    for _ in range(2):  # PostgreSQL sends the second without a transaction
        far.enqueue("k")
    far.purge()
    assert proxy.cut() >= 3
    job_id = far.enqueue("k")
    assert far.get(job_id or 0).state is State.AVAILABLE
    (job,) = far.claim()
    assert proxy.cut() >= 1
    assert job.complete()


def test_a_network_that_is_gone_for_longer_is_a_clear_error_and_loses_nothing(far: Queue, proxy: Proxy) -> None:
    job_id = far.enqueue("k")
    proxy.refuse()
    proxy.cut()
    with pytest.raises(StorageError, match=r"^claim: ") as down:
        far.claim()
    assert not down.value.outcome_unknown
    assert down.value.server_away
    assert down.value.__cause__ is not None
    proxy.forward()
    assert [job.id for job in far.claim()] == [job_id]


def test_a_silent_network_is_noticed(kind: str, url: str, far: Queue, proxy: Proxy) -> None:
    if kind == "postgresql":
        # The kernel at the other end still answers for the silent one; libpq itself only limits how long a log-in takes.
        proxy.silence()
        with pytest.raises(StorageError, match="cannot open .*timeout expired"):
            QueueDB(make_url(proxy.url(url)).update_query_dict(WAITS[kind] | {"connect_timeout": "2"}))
        return
    job_id = far.enqueue("k")
    with far.db.database.connections.one() as connection:  # the one that the next claim uses
        driver: Any = connection.connection.driver_connection
        driver._read_timeout = 2
    proxy.silence()
    event.listen(far.db.database.engine, "handle_error", lambda _: proxy.forward())
    (job,) = far.claim()
    assert (job.id, job.attempts) == (job_id, 1)
    assert far.db.counters.retried == 1


def test_a_dead_network_is_noticed_within_a_third_of_the_default_lease(kind: str, url: str, db: QueueDB) -> None:
    waits = db.database.dialect.server.engine_options(make_url(url))["connect_args"]
    limit = waits["tcp_user_timeout"] / 1000 if kind == "postgresql" else max(waits["read_timeout"], waits["write_timeout"])
    assert 10 < limit < 60 / 3  # longer than a wait for a lock


def only_long_ones_may_take_a_second(db: QueueDB, start: str) -> list[float]:
    """A statement that begins with ``start`` must come within a second, unless it is one of ``long_statements``. PyMySQL only.

    The others have their usual limit: a busy machine may need more than a second for any of them. Return the limits that these
    statements had, as they come.
    """
    engine, usual, limits = db.database.engine, server.GONE_AFTER, []

    def set_limit(old: float, new: float) -> Callable[..., None]:
        def listener(connection: Connection, _: object, statement: str, *__: object) -> None:
            driver: Any = connection.connection.driver_connection
            if statement.startswith(start):
                limits.append(driver._read_timeout)
                if driver._read_timeout == old:
                    driver._read_timeout = new

        return listener

    event.listen(engine, "before_cursor_execute", set_limit(usual, 1))
    event.listen(engine, "after_cursor_execute", set_limit(1, usual))
    return limits


def test_a_migration_may_take_longer_than_other_statements(kind: str, url: str, db: QueueDB) -> None:
    if kind == "postgresql":
        return  # the kernel of the server answers for it
    with QueueDB(url) as hasty:
        limits = only_long_ones_may_take_a_second(hasty, "SELECT SLEEP")
        database = hasty.database

        def sleep(connection: Connection, seconds: float) -> None:
            connection.execute(text(f"SELECT SLEEP({seconds})"))

        def sleep_for_long(connection: Connection) -> None:
            with server.long_statements(connection):
                sleep(connection, 1.5)

        database.run(sleep_for_long, name="sleep", attempts=1)
        with pytest.raises(StorageError):
            database.run(sleep, PATIENCE, name="sleep", attempts=1, write=False)
        assert limits[0] == limits[1] > server.GONE_AFTER == limits[2]


@pytest.mark.parametrize("end", ["purge", "delete"])
def test_a_feed_is_emptied_for_as_long_as_that_takes(kind: str, fresh_url: str, name: str, end: str) -> None:
    if kind == "postgresql":
        return  # the kernel of the server answers for it
    with QueueDB(fresh_url) as db:
        db.migrate()
        db.feeds.set(name, ordering="counter")
        db.feed(name).publish("k")
        db.database.run(
            lambda connection: connection.execute(
                text("CREATE TRIGGER slow BEFORE DELETE ON jobs_messages FOR EACH ROW SET @slept = SLEEP(1.5)")
            ),
            name="trigger",
        )
        limits = only_long_ones_may_take_a_second(db, "DELETE FROM jobs_messages")
        getattr(db.feeds, end)(name)
        assert limits
        assert min(limits) > server.GONE_AFTER
        assert end == "delete" or db.feed(name).read().messages == []


SETTLED: dict[str, tuple[Callable[[LeasedJob], Verdict], State | None]] = {
    "complete": (lambda job: job.complete(), None),
    "cancel": (lambda job: job.cancel(), None),
    "fail": (lambda job: job.fail("no luck", retry_in=60), State.SCHEDULED),
    "fail for good": (lambda job: job.fail("no luck"), State.DEAD),
    "bury": (lambda job: job.bury("no use"), State.DEAD),
    "defer": (lambda job: job.source.retry_unknown_kinds([job], "no handler", grace=600)[0], State.SCHEDULED),
    "defer for good": (lambda job: job.source.retry_unknown_kinds([job], "no handler", grace=0)[0], State.DEAD),
    "snooze": (lambda job: job.snooze(60), State.SCHEDULED),
    "release": (lambda job: job.release(), State.AVAILABLE),
    "extend": (lambda job: job.extend(600), State.RUNNING),
}


def decides(kind: str, verb: str) -> str:
    """How the statement begins after which a verb has happened: its COMMIT, or itself where it is alone."""
    if verb == "complete":
        return "EXECUTE" if kind == "postgresql" else "DELETE"
    return "COMMIT"


def claimed(far: Queue, verb: str) -> LeasedJob:
    far.enqueue("k", max_attempts=1 if verb == "fail for good" else 25)
    (job,) = far.claim(lease=60)
    return job


def check(db: QueueDB, job: LeasedJob, expected: State | None) -> None:
    if expected is None:
        assert rows(db, job.queue) == []
        return
    seen = db.queue(job.queue).get(job.id)
    assert seen.state is expected
    assert seen.version == 2, "it happened twice, or not at all"
    if expected is State.RUNNING:
        assert job.version == 2
        assert job.lease_expires == seen.available_at
        assert job.complete()


@pytest.mark.parametrize("verb", SETTLED)
def test_a_verdict_survives_a_lost_reply(kind: str, db: QueueDB, far: Queue, proxy: Proxy, verb: str) -> None:
    settle, expected = SETTLED[verb]
    job = claimed(far, verb)
    proxy.swallow(decides(kind, verb))
    assert settle(job) is Verdict.APPLIED
    assert proxy.wait_swallowed()
    check(db, job, expected)
    assert (far.db.counters.applied, far.db.counters.lost) == (1, 0) if verb != "extend" else True
    assert far.db.counters.dead == (expected is State.DEAD)


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_a_lost_reply_that_cannot_be_looked_up_is_an_unknown_outcome(
    kind: str, db: QueueDB, far: Queue, proxy: Proxy, verb: str
) -> None:
    settle, expected = SETTLED[verb]
    job = claimed(far, verb)
    proxy.refuse()
    proxy.swallow(decides(kind, verb))
    with pytest.raises(TransientStorageError, match=f"^{verb}: .* it is unknown whether it took effect") as doubt:
        settle(job)
    assert doubt.value.outcome_unknown
    assert doubt.value.server_away
    assert doubt.value.cli.endswith("--unique-key with --on-duplicate skip makes an enqueue safe to repeat")
    check(db, job, expected)
    proxy.forward()
    assert settle(job) is Verdict.LOST


def test_a_publication_whose_reply_is_lost_and_that_cannot_be_repeated_is_an_unknown_outcome(
    db: QueueDB, far: Queue, proxy: Proxy
) -> None:
    """It may run again, since its key is used once. The last run fails, but the first one may have been committed."""
    feed = far.db.feed(far.name)
    feed.publish("k", 1)
    proxy.refuse()
    proxy.swallow("COMMIT")
    with pytest.raises(TransientStorageError, match="it is unknown whether it took effect") as doubt:
        feed.publish("k", 2, idempotency_key="a")
    assert doubt.value.outcome_unknown
    assert [message.payload for message in db.feed(far.name).read().messages] == [1, 2]


@pytest.mark.parametrize(
    ("settle", "statement", "at"),
    [
        (lambda queue, jobs: queue.complete_many(jobs), "SELECT jobs.id, jobs.version, jobs.claim_token", 1),
        (lambda queue, jobs: queue.fail_many(jobs, "no luck", retry_in=60), "BEGIN", 2),
    ],
    ids=["at the look for the rest", "at the change of the rest"],
)
def test_an_error_after_a_part_of_the_jobs_was_changed_is_an_unknown_outcome(
    db: QueueDB, far: Queue, proxy: Proxy, settle: Callable[[Queue, list[LeasedJob]], object], statement: str, at: int
) -> None:
    far.enqueue_many([("k", None)] * 2)
    job, extended = far.claim(2)

    def end_the_network() -> None:
        proxy.refuse()
        proxy.cut()

    with Verbs([extended]):  # a heartbeat that has extended this lease, and has not noted the version yet
        with db.database.engine.begin() as connection:
            connection.execute(text("UPDATE jobs SET version = version + 1 WHERE id = :id"), {"id": extended.id})
        Once(far.db.database.engine, statement, end_the_network, at)
        with pytest.raises(TransientStorageError) as down:
            settle(far, [job, extended])
    assert down.value.outcome_unknown
    assert [row.id for row in rows(db, far.name) if row.claim_token is not None] == [extended.id]


def test_a_mark_survives_a_lost_reply(kind: str, url: str, proxy: Proxy, db: QueueDB, name: str) -> None:
    with QueueDB(make_url(proxy.url(url)).update_query_dict(WAITS[kind]), removal="delete_mark") as remote:
        job = claimed(remote.queue(name), "complete")
        proxy.swallow("EXECUTE" if kind == "postgresql" else "UPDATE")
        assert job.complete() is Verdict.APPLIED
        assert proxy.wait_swallowed()
        assert (remote.counters.applied, remote.counters.lost) == (1, 0)


@pytest.mark.parametrize("verb", SETTLED)
def test_a_change_that_never_arrived_is_made_again(kind: str, db: QueueDB, far: Queue, proxy: Proxy, verb: str) -> None:
    settle, expected = SETTLED[verb]
    job = claimed(far, verb)
    cut = Once(far.db.database.engine, decides(kind, verb), proxy.cut)
    assert settle(job) is Verdict.APPLIED
    assert cut.happened
    check(db, job, expected)
    assert far.db.counters.dead == (expected is State.DEAD)


@pytest.mark.parametrize("verb", SETTLED)
def test_a_lease_lost_while_a_change_was_in_doubt_is_lost(kind: str, db: QueueDB, far: Queue, proxy: Proxy, verb: str) -> None:
    settle, _ = SETTLED[verb]
    job = claimed(far, verb)

    def steal() -> None:
        proxy.cut()
        # It waits until the server has noticed the cut and undone what was not committed.
        with db.database.engine.begin() as connection:
            connection.execute(text("UPDATE jobs SET version = version + 7 WHERE id = :id"), {"id": job.id})

    Once(far.db.database.engine, decides(kind, verb), steal)
    assert settle(job) is Verdict.LOST
    (row,) = rows(db, job.queue)
    assert row.version == 8
    assert far.db.counters.lost == 1
    assert far.db.counters.dead == 0, "it is not dead"


def test_of_several_in_doubt_the_one_that_was_lost_before_stays_lost(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    far.enqueue_many([("k", number) for number in range(3)])
    lost, *others = far.claim(3, lease=60)
    with db.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM jobs WHERE id = :id"), {"id": lost.id})  # as its next worker completes it
    proxy.swallow("COMMIT")
    assert far.bury_many([lost, *others], "no use") == [Verdict.LOST, Verdict.APPLIED, Verdict.APPLIED]
    assert proxy.wait_swallowed()
    assert [job.id for job in db.dead.list(far.name)] == [job.id for job in others]
    assert far.db.counters.dead == 2


def test_a_death_at_claim_is_counted_although_the_reply_was_lost(kind: str, db: QueueDB, far: Queue, proxy: Proxy) -> None:
    if kind != "postgresql":
        return  # elsewhere the claim has a COMMIT too, whose answer would be cut off; the burial is the same
    job_id = far.enqueue("k", max_attempts=1)
    with db.database.engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET attempts = 1 WHERE id = :id"), {"id": job_id})
    proxy.swallow("COMMIT")
    assert far.claim() == []
    assert proxy.wait_swallowed()
    assert db.queue(far.name).get(job_id).state is State.DEAD
    assert (far.db.counters.exhausted, far.db.counters.dead) == (1, 1)


@pytest.mark.parametrize("reaches_the_server", [True, False])
def test_an_enqueue_whose_commit_is_in_doubt_says_so_and_its_key_makes_it_safe(
    db: QueueDB, far: Queue, proxy: Proxy, reaches_the_server: bool
) -> None:
    if reaches_the_server:
        proxy.swallow("COMMIT")
    else:
        Once(far.db.database.engine, "COMMIT", proxy.cut)
    with pytest.raises(TransientStorageError, match="it is unknown whether it took effect") as doubt:
        far.enqueue("k", "once", unique_key="order 7")
    assert doubt.value.outcome_unknown
    again = far.enqueue("k", "once", unique_key="order 7", on_duplicate="skip")
    assert (again is None) == reaches_the_server
    (row,) = rows(db, far.name)
    assert row.payload == '"once"'


def test_an_enqueue_whose_reply_is_lost_is_in_doubt_and_is_not_made_again(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    far.enqueue("k")
    far.purge()
    proxy.swallow("INSERT")  # it commits by itself: the connection was in use
    with pytest.raises(TransientStorageError, match="it is unknown whether it took effect") as doubt:
        far.enqueue("k")
    assert doubt.value.outcome_unknown
    assert proxy.wait_swallowed()
    assert len(rows(db, far.name)) == 1


def test_a_release_that_was_committed_says_so_although_the_network_is_gone(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    """Workers are woken by the same transaction: a second one could fail after the jobs were released."""
    far.enqueue("k")
    jobs = far.claim()

    def end_the_network() -> None:
        proxy.refuse()
        proxy.cut()

    Once(far.db.database.engine, "BEGIN", end_the_network, 2)
    assert far.release_many(jobs) == [Verdict.APPLIED]
    assert db.queue(far.name).stats().available == 1


def test_a_dry_run_that_runs_again_tells_the_same(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    """Its first run has noted the keys of the jobs that it found; the second finds them again."""
    ids = [db.queue(far.name).enqueue("k", unique_key=key) for key in ("a", "b")]
    assert all(far.bury_many(far.claim(2), "no"))
    proxy.swallow("COMMIT")
    assert far.db.dead.redrive(queue=far.name, dry_run=True) == ids
    assert proxy.wait_swallowed()


def test_a_pop_whose_second_round_may_have_lost_jobs_says_so(
    db: QueueDB, far: Queue, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    near = db.queue(far.name)
    first = near.enqueue("k")
    near.enqueue("k", priority=1)  # the first round shows that there is such a priority, the second claims it
    committed: list[str] = []

    def swallow_the_second(*arguments: Any) -> None:
        if arguments[2] == "COMMIT" and not committed:
            committed.append("the first")
            proxy.swallow("COMMIT")

    event.listen(far.db.database.engine, "after_cursor_execute", swallow_the_second)
    assert [job.id for job in far.pop(2)] == [first]
    assert proxy.wait_swallowed()
    assert rows(db, far.name) == []
    (record,) = [record for record in caplog.records if record.name == "queue_db.verbs.claim"]
    assert f"1 jobs of {far.name!r} are claimed and deleted, and up to 1 more may be lost" in record.getMessage()


class Together:
    """Enqueues of several threads, so that all but the first share an insert; the network breaks in it."""

    def __init__(self, queue: Queue, jobs: int, breaks: Callable[[], object]) -> None:
        self.inserts: list[int] = []
        self._batcher, self._breaks = queue._enqueue._batcher, breaks
        self._run, self._batcher._run = self._batcher._run, self._gated
        self._batcher._at_once = 1
        self._wait = threading.Event()
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(queue.enqueue, "k", number) for number in range(jobs)]
            while len(self._batcher._queue) < jobs - 1:
                assert not any(future.done() for future in futures)
            self._wait.set()
        self.outcomes = [future.exception() or future.result() for future in futures]

    def _gated(self, jobs: list[Any]) -> Any:
        self.inserts.append(len(jobs))
        assert self._wait.wait(PATIENCE)
        if len(jobs) > 1:
            self._breaks()
        return self._run(jobs)


def test_a_shared_insert_that_is_cut_is_made_again_once_for_each_job(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    far.enqueue("k")
    far.purge()
    together = Together(far, 5, lambda: Once(far.db.database.engine, "INSERT", proxy.cut))
    assert together.inserts == [1, 4]
    assert sorted(together.outcomes) == [row.id for row in rows(db, far.name)]


def test_a_shared_insert_whose_reply_is_lost_is_in_doubt_for_each_of_its_callers(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    together = Together(far, 5, lambda: proxy.swallow("COMMIT"))
    assert proxy.wait_swallowed()
    assert together.inserts == [1, 4]
    doubts = [outcome for outcome in together.outcomes if isinstance(outcome, TransientStorageError)]
    assert len(doubts) == 4
    assert all(doubt.outcome_unknown and doubt.server_away for doubt in doubts)
    assert sorted(row.payload for row in rows(db, far.name)) == ["0", "1", "2", "3", "4"]  # it had arrived, and once


def test_many_jobs_whose_commit_is_in_doubt_are_all_there_or_none(db: QueueDB, far: Queue, proxy: Proxy) -> None:
    jobs = [("k", number, {"unique_key": str(number)}) for number in range(2500)]
    proxy.swallow("COMMIT")
    with pytest.raises(StorageError) as doubt:
        far.enqueue_many(jobs)
    assert doubt.value.outcome_unknown
    assert set(far.enqueue_many(jobs, on_duplicate="skip")) == {None}
    assert db.queue(far.name).stats().available == 2500


def test_a_load_that_is_cut_is_made_again_once(
    kind: str, db: QueueDB, far: Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, loaded = raw_cursor.copy, []

    def copy(*arguments: Any) -> int:
        if not loaded:
            proxy.cut()
        loaded.append(True)
        return real(*arguments)

    monkeypatch.setattr(raw_cursor, "copy", copy)
    ids = far.enqueue_many([("k", number) for number in range(600)])
    assert len(loaded) == (2 if kind == "postgresql" else 0)  # the others insert
    assert [(row.id, row.payload) for row in rows(db, far.name)] == [(job_id, str(at)) for at, job_id in enumerate(ids)]


def test_a_load_of_a_long_list_that_is_cut_in_the_middle_is_made_again(
    kind: str, db: QueueDB, far: Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "postgresql":
        return  # the others insert
    real, read = copy_stream.Lines._next, []

    def cut_once(lines: copy_stream.Lines) -> str:
        read.append(lines.jobs)
        if read == [0, 1000]:
            proxy.cut()
        return real(lines)

    monkeypatch.setattr(copy_stream.Lines, "_next", cut_once)
    ids = far.enqueue_many([("k", number) for number in range(2500)])
    assert read.count(0) == 2
    assert [(row.id, row.payload) for row in rows(db, far.name)] == [(job_id, str(at)) for at, job_id in enumerate(ids)]


@pytest.mark.parametrize("ordering", ["counter", "ranked"])
def test_a_publish_whose_commit_is_in_doubt_is_not_made_again(
    db: QueueDB, far: Queue, proxy: Proxy, ordering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_db.feeds.feed._FRESH", HOURS)  # the COMMIT is not that of a look for the feed
    db.feeds.set(far.name, ordering=ordering)
    feed = far.db.feed(far.name)
    feed.publish("n", 1)
    proxy.swallow("COMMIT")
    with pytest.raises(TransientStorageError, match="it is unknown whether it took effect") as doubt:
        feed.publish("n", 2)
    assert doubt.value.outcome_unknown
    assert proxy.wait_swallowed()
    feed.publish("n", 3)
    assert [message.payload for message in db.feed(far.name).read().messages] == [1, 2, 3]


@pytest.mark.parametrize("ordering", ["counter", "ranked"])
def test_a_publish_with_an_idempotency_key_is_made_again_and_once(db: QueueDB, far: Queue, proxy: Proxy, ordering: str) -> None:
    db.feeds.set(far.name, ordering=ordering)
    feed = far.db.feed(far.name)
    feed.publish("n", 1)
    proxy.swallow("COMMIT")
    found = feed.publish("n", 2, idempotency_key="two")
    assert proxy.wait_swallowed()
    assert far.db.counters.retried == 1
    assert [message.payload for message in db.feed(far.name).get(found)] == [2]
    assert [message.payload for message in db.feed(far.name).read().messages] == [1, 2]


def test_a_claim_whose_reply_is_lost_loses_no_job(kind: str, db: QueueDB, far: Queue, proxy: Proxy, open_db: Any) -> None:
    job_id = far.enqueue("k")
    proxy.swallow("EXECUTE" if kind == "postgresql" else "UPDATE")
    assert far.claim(lease=60) == []  # made again: the job is taken
    assert proxy.wait_swallowed()
    assert far.db.counters.retried == 1
    seen = far.get(job_id or 0)
    # Nobody had it in hand, so it was given back at once, unworked.
    assert (seen.state, seen.attempts) == (State.AVAILABLE, 0)
    (job,) = open_db().queue(far.name).claim()
    assert (job.id, job.attempts) == (job_id, 1)


@pytest.mark.parametrize("looks", [(0.0, 0.0), (0.0,)])
def test_a_claim_that_the_server_executes_late_loses_no_job(
    kind: str, far: Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, looks: tuple[float, ...]
) -> None:
    if kind != "postgresql":
        return  # elsewhere the change of a claim names the jobs that it takes, and the claim that is made again has taken these
    monkeypatch.setattr(claim_round, "LOOKS", looks)
    first, second = far.enqueue_many([("k", number) for number in range(2)])
    proxy.hold("EXECUTE")
    assert [job.id for job in far.claim(lease=3600)] == [first]  # made again; it finds nothing of the other to give back
    assert proxy.wait_swallowed()
    proxy.release()
    assert far.get(second or 0).state is State.RUNNING, "the server has executed it, and nobody has the job in hand"
    found = far.claim() or far.claim()  # the first one looks again
    assert [(job.id, job.attempts) for job in found] == ([(second, 1)] if len(looks) > 1 else []), "a second look finds it"


def test_a_completion_whose_reply_and_lease_are_lost_does_not_guess(
    kind: str, url: str, proxy: Proxy, far: Queue, open_db: Any, name: str
) -> None:
    job = claimed(far, "complete")
    # By the time that we can look, the lease is over: another worker may have completed the job, and then it was not us.
    ends = int(job.lease_expires.timestamp() * 1_000_000)
    settable = QueueDB(make_url(proxy.url(url)).update_query_dict(WAITS[kind]), clock=lambda: ends + 1)
    with settable:
        late = LeasedJob(job._row, settable.queue(name), settable.codec, job.token)
        settable.check()  # connected
        proxy.swallow(decides(kind, "complete"))
        with pytest.raises(StorageError, match="it is unknown whether it took effect") as doubt:
            late.complete()
    assert doubt.value.outcome_unknown


def test_a_pop_whose_reply_is_lost_says_so(kind: str, db: QueueDB, far: Queue, proxy: Proxy) -> None:
    far.enqueue("k")
    proxy.swallow("COMMIT")
    with pytest.raises(StorageError, match="it is unknown whether it took effect"):
        far.pop()
    assert rows(db, far.name) == []


def test_in_a_callers_transaction_nothing_is_run_again(url: str, kind: str, proxy: Proxy, far: Queue) -> None:
    far.enqueue("k")
    (job,) = far.claim()
    engine = create_engine(make_url(proxy.url(url)).update_query_dict(WAITS[kind]))

    def write(connection: Connection) -> None:
        proxy.cut()
        job.complete(using=connection)

    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(TransientStorageError, match="^complete: "):
            write(connection)
    engine.dispose()
    assert far.db.counters.retried == 0
    assert job.complete()
