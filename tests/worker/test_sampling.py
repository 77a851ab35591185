"""Counting whole queues: by one process at a time, at most one percent of the time."""

import threading
from functools import wraps

import pytest
from prometheus_client import CollectorRegistry

from queue_db import QueueDB, TransientStorageError
from queue_db.instrumentation import prometheus
from queue_db.monitoring.sampling import LONGEST_LEASE, REST, SHORTEST_LEASE, Sampling
from queue_db.monitoring.store import counts
from queue_db.store import Transaction
from queue_db.testing import SettableClock, counted_statements
from tests.patience import PATIENCE
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def opened(own_url, clock, monkeypatch):
    """Handles on a database of one's own, as several processes have them."""
    monkeypatch.setattr("queue_db.monitoring.sampling._PATIENCE", PATIENCE)
    dbs = []

    def open_it(**options):
        dbs.append(QueueDB(own_url, clock=clock, **options))
        return dbs[-1]

    yield open_it
    for db in dbs:
        db.close()


def sums(sent):
    """How many of these statements count jobs."""
    return len([one for one in sent if "sum(CASE" in one or "SUM(CASE" in one])


class Timer:
    """Says that each sample takes so many seconds."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.now = 0.0

    def __call__(self):
        self.now += self.seconds
        return self.now


def test_of_all_that_find_it_due_one_takes_the_sample(opened):
    """Both have read the row before either begins: without a fence both would count."""
    dbs = [opened() for _ in range(4)]
    dbs[0].queue("mail").enqueue_many([("n", None)] * 3)
    for version in (None, 1, 2):  # the first one is an INSERT
        together = threading.Barrier(len(dbs))
        took = []

        def take(db, together=together, took=took, version=version):
            together.wait(PATIENCE)
            took.append(Sampling(db.core).take(version))

        threads = [threading.Thread(target=take, args=[db]) for db in dbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(took) == [False, False, False, True]
    assert Sampling(dbs[1].core).depths().jobs["mail"]["available"] == 3


@SQLITE
@pytest.mark.parametrize(("seconds", "rest"), [(0.001, REST), (9.0, 900.0)])
def test_a_sample_is_taken_at_most_one_percent_of_the_time(opened, clock, seconds, rest):
    one, other = opened(), opened()
    one.queue("mail").enqueue("n")
    mine, theirs = Sampling(one.core, Timer(seconds)), Sampling(other.core, Timer(seconds))
    with counted_statements(one.database.engine) as sent, counted_statements(other.database.engine) as sent_by_other:
        for _ in range(5):
            assert mine.depths().jobs == theirs.depths().jobs
        assert sums(sent) + sums(sent_by_other) == 1
        clock.advance(rest - 0.001)
        found = theirs.depths()
        assert found.age == pytest.approx(rest - 0.001, abs=0.0001)
        assert sums(sent) + sums(sent_by_other) == 1
        clock.advance(0.002)
        assert theirs.depths().age == 0
        assert sums(sent) + sums(sent_by_other) == 2


class Killed(BaseException):
    """The process ends here, and nothing that it would still do is done."""


def fails(error):
    def count():
        raise error

    return count


@SQLITE
@pytest.mark.parametrize(("lasted", "lease"), [(1.0, SHORTEST_LEASE), (9.0, 90.0), (1000.0, LONGEST_LEASE)])
def test_where_a_process_dies_with_its_sample_another_one_takes_it(opened, clock, monkeypatch, lasted, lease):
    """It has as long as counts take here, and not an hour."""
    one, other = opened(), opened()
    assert Sampling(one.core, Timer(lasted)).take(None)
    clock.advance(100 * lasted)
    killed = Sampling(one.core)
    monkeypatch.setattr(killed, "counted", fails(Killed()))
    with pytest.raises(Killed):
        killed.take(1, lasted)
    clock.advance(lease - 1)
    age = Sampling(other.core).depths().age
    assert age == pytest.approx(100 * lasted + lease - 1)
    clock.advance(1)
    assert Sampling(other.core).depths().age == 0


@SQLITE
def test_the_lease_follows_the_last_count(opened, clock, monkeypatch):
    one, other = opened(), opened()
    assert Sampling(one.core, Timer(9.0)).take(None)
    clock.advance(900)
    monkeypatch.setattr(threading, "excepthook", lambda about: None)
    killed = Sampling(one.core)
    monkeypatch.setattr(killed, "counted", fails(Killed()))
    killed.depths()
    clock.advance(89)
    assert Sampling(other.core).depths().age == pytest.approx(989)
    clock.advance(1)
    assert Sampling(other.core).depths().age == 0


@SQLITE
def test_a_count_that_fails_costs_one_rest_and_is_logged_once(opened, clock, monkeypatch, caplog):
    """As when the server restarts below it: neither this process nor the others wait for the end of the lease."""
    one, other = opened(), opened()
    assert Sampling(one.core, Timer(0.0)).take(None)
    clock.advance(REST)
    with monkeypatch.context() as broken, caplog.at_level("INFO", logger="queue_db.monitoring.sampling"):
        failing = Sampling(one.core, Timer(0.0))
        broken.setattr(failing, "counted", fails(TransientStorageError("the server restarts", statement_name="stats")))
        assert failing.depths().age == REST
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "next count is due in about 10 s: the server restarts" in caplog.text
    clock.advance(REST - 0.001)
    assert Sampling(other.core).depths().age == pytest.approx(2 * REST - 0.001)
    clock.advance(0.001)
    assert Sampling(other.core).depths().age == 0


@SQLITE
def test_after_a_failed_count_the_rest_is_as_after_one_that_took_as_long(opened, clock, monkeypatch):
    one, other, took = opened(), opened(), [0.0]

    def slowly_fails():
        took[0] += 3.0
        raise TransientStorageError("the statement takes too long", statement_name="stats")

    failing = Sampling(one.core, lambda: took[0])
    monkeypatch.setattr(failing, "counted", slowly_fails)
    with pytest.raises(TransientStorageError):
        failing.take(None)
    clock.advance(299)
    assert not Sampling(other.core).take_if_due()
    clock.advance(1)
    assert Sampling(other.core).take_if_due()


@SQLITE
def test_one_that_took_too_long_writes_nothing(opened):
    one, other = opened(), opened()
    assert Sampling(one.core).take(None)
    slow = Sampling(one.core)
    counted = slow.counted

    def slowly():
        assert Sampling(other.core).take(2)  # its time was over, and another one began
        other.queue("mail").enqueue("n")
        return counted()

    one.queue("mail").enqueue("n")
    slow.counted = slowly
    assert slow.take(1)
    assert Sampling(other.core).depths().jobs["mail"]["available"] == 1


def test_one_that_outlasts_its_lease_is_written_if_it_is_the_newest(opened, clock, monkeypatch):
    """Else there would be no counts at all where they take longer than the first lease."""
    one, other = opened(), opened()
    one.queue("mail").enqueue("n")
    slow, killed = Sampling(one.core), Sampling(other.core)
    counted = slow.counted

    def slowly():
        clock.advance(SHORTEST_LEASE)
        monkeypatch.setattr(killed, "counted", fails(Killed()))
        with pytest.raises(Killed):
            killed.take(1)
        return counted()

    monkeypatch.setattr(slow, "counted", slowly)
    assert slow.take(None)
    assert Sampling(one.core).depths().jobs["mail"]["available"] == 1


@SQLITE
def test_a_scrape_reads_one_row(opened):
    db = opened()
    queue = db.queue("mail")
    queue.enqueue("n", delay=100)
    registry = CollectorRegistry()
    prometheus.instrument(serving(queue, lambda job: None), registry)
    assert registry.get_sample_value("queue_db_depth", {"queue": "mail", "state": "scheduled"}) == 1
    assert registry.get_sample_value("queue_db_depth_age_seconds") == 0
    with counted_statements(db.database.engine) as sent:
        assert registry.get_sample_value("queue_db_depth", {"queue": "mail", "state": "scheduled"}) == 1
    assert len([one for one in sent if one.startswith("SELECT")]) == 1
    assert sums(sent) == 0


@SQLITE
def test_a_queue_beyond_the_limit_does_not_hold_up_the_counts_of_others(opened, clock, monkeypatch):
    """While all its jobs are counted, the others are counted every ten seconds, and it up to the limit."""
    for place in ("sampling", "metrics"):
        monkeypatch.setattr(f"queue_db.monitoring.{place}.MOST", 3)
    began, go_on = threading.Event(), threading.Event()
    count = counts.stats

    @wraps(count)
    def slowly(tx: Transaction, queue, most=None):
        if most is None:
            began.set()
            assert go_on.wait(PATIENCE)
        return count(tx, queue, most)

    monkeypatch.setattr(counts, "stats", slowly)
    db, other = opened(), opened()
    db.queue("large").enqueue_many([("n", None)] * 5)
    sampling = Sampling(db.core, Timer(0.0))
    assert sampling.take_if_due()
    assert began.wait(PATIENCE)
    since = clock.now()
    for mails in (1, 2):
        db.queue("mail").enqueue("n")
        clock.advance(REST)
        depths = Sampling(other.core, Timer(0.0)).depths()
        assert (depths.age, depths.jobs["mail"]["available"], depths.oldest["large"]) == (0, mails, REST * mails)
        assert (depths.jobs["large"]["available"], depths.capped) == (3, {"large": ["available"]})
    assert [(one.queue, one.available, one.capped) for one in db.metrics.latest()] == [
        ("large", 3, ("available",)),
        ("mail", 2, ()),
    ]
    assert [one.available for one in db.metrics.history("large", since=since)] == [3, 3, 3]  # not fewer
    go_on.set()
    sampling._whole._taking.join(PATIENCE)
    assert db.metrics.history("large", since=since)[-1].available == 5
    clock.advance(REST)
    assert Sampling(other.core, Timer(0.0)).take_if_due()
    assert db.metrics.history("large", since=since)[-1].available == 5


@SQLITE
def test_the_check_notices_when_several_take_a_sample(opened, monkeypatch):
    monkeypatch.setattr("queue_db.monitoring.store.samples.begin", lambda *_, **__: True)
    with pytest.raises(AssertionError):
        test_of_all_that_find_it_due_one_takes_the_sample(opened)
