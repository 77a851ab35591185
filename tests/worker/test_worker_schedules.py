"""Schedules: which occurrences there are, and that each is enqueued once."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from queue_db import ArgumentError, ConfigurationError, QueueDB, TransientStorageError
from queue_db.model import to_micros
from queue_db.schedules import store as stored
from queue_db.schedules.recurrence import Cron, Interval, rule_of
from queue_db.store import Transaction
from queue_db.worker import maintenance
from queue_db.worker.logs import outages_of
from tests.patience import PATIENCE
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


def at(text: str) -> int:
    return to_micros(datetime.fromisoformat(text))


def local(rule: Cron, start: str, count: int) -> list[str]:
    """The occurrences after ``start``, in the rule's zone."""
    found, moment = [], at(start)
    for _ in range(count):
        moment = rule.after(moment)
        found.append(f"{datetime.fromtimestamp(moment / 1e6, rule._zone):%m-%d %H:%M%z}")
    return found


@SQLITE
@pytest.mark.parametrize(
    ("line", "start", "occurrences"),
    [
        # The clock goes from 2 to 3: what was in between comes at its end, once.
        ("30 2 * * *", "2026-03-28T12:00+01:00", ["03-29 03:00+0200", "03-30 02:30+0200"]),
        # The clock goes from 3 back to 2: a fixed hour comes once, …
        ("30 2 * * *", "2026-10-24T12:00+02:00", ["10-25 02:30+0200", "10-26 02:30+0100"]),
        # … every half hour goes on.
        (
            "*/30 * * * *",
            "2026-10-25T01:45+02:00",
            ["10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100", "10-25 03:00+0100"],
        ),
        ("0 9 * * MON-FRI", "2026-11-20T10:00+01:00", ["11-23 09:00+0100"]),
        ("0 0 29 2 *", "2026-01-01T00:00+01:00", ["02-29 00:00+0100"]),
    ],
)
def test_cron_in_a_time_zone(kind, line, start, occurrences):
    assert local(Cron(line, "Europe/Berlin"), start, len(occurrences)) == occurrences


@SQLITE
def test_the_last_occurrence_is_found_without_counting_through_all(kind):
    minutely = Cron("* * * * *", "UTC")
    first, now = at("2020-01-01T00:00+00:00"), at("2026-11-22T05:30:30+00:00")
    assert minutely.last(first, now) == at("2026-11-22T05:30+00:00")
    assert minutely.last(first, at("2026-11-22T05:30:00+00:00")) == at("2026-11-22T05:30+00:00")
    assert minutely.last(first, first) == first
    assert Interval(7_000_000).last(0, 100_000_000) == 98_000_000
    for rule in (minutely, Cron("0 3 * * *", "UTC")):
        assert str(rule_of(str(rule), "UTC")) == str(rule)
    for micros in (1, 50_000, 7_500_000, 30_000_000, 1_234_567_000_000, 100_000_500_001):
        assert rule_of(str(Interval(micros)), "UTC").micros == micros, "a rule is not what it was when it is read again"


@SQLITE
def test_what_cannot_be_scheduled_is_refused(db, name):
    for options, part in (
        ({}, "give either"),
        ({"cron": "* * * * *", "every": 5}, "give either"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * *"}, "the fields are"),
        ({"every": 0}, "every=0"),
        ({"every": 1, "zone": "Europe/Atlantis"}, "no such time zone"),
        ({"every": 1, "catch_up": "some"}, "one, all or none"),
        ({"every": 1, "first_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is the point
    ):
        with pytest.raises(ArgumentError, match=part):
            db.schedules.set(name, "q", "k", **options)
    with pytest.raises(ArgumentError, match="no schedule"):
        db.schedules.pause(name)
    assert db.schedules.remove(name) is False
    assert name not in {schedule.name for schedule in db.schedules.list()}


@pytest.fixture
def ours(open_db, clock, own_url):
    """A database of its own by a clock of its own: a tick reads all schedules."""
    clock.set(datetime(2026, 11, 22, 12, 0, tzinfo=UTC))
    with QueueDB(own_url, clock=clock) as db:
        yield db


def occurrences(db: QueueDB, queue: str) -> list[str]:
    return [job.headers["occurrence"][11:19] for job in db.queue(queue).peek(1000)]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("one", ["12:05:00"]), ("none", ["12:05:00"]), ("all", ["12:01:00", "12:02:00", "12:03:00", "12:04:00", "12:05:00"])],
)
def test_after_an_outage_it_catches_up_as_it_was_told(ours, clock, catch_up, expected):
    assert ours.schedules.set("minutely", "q", "k", {"a": 1}, cron="* * * * *", catch_up=catch_up) is True
    clock.advance(5 * 60 + 30)
    assert ours.schedules.tick()[0] == len(expected)
    assert occurrences(ours, "q") == expected
    assert ours.schedules.tick()[0] == 0
    (schedule,) = ours.schedules.list()
    assert f"{schedule.last_at:%H:%M:%S}" == expected[-1]
    assert schedule.next_at.second == 0
    assert schedule.next_at > datetime.fromtimestamp(clock() / 1e6, UTC)
    job = ours.queue("q").peek(1)[0]
    assert (job.kind, job.payload, job.headers["schedule"]) == ("k", {"a": 1}, "minutely")


def test_an_occurrence_that_was_missed_by_more_than_a_minute_is_left_out_by_none(ours, clock):
    ours.schedules.set("hourly", "q", "k", cron="0 * * * *", catch_up="none")
    clock.advance(2 * 3600 + 120)
    assert ours.schedules.tick() == (0, 3480.0)
    assert occurrences(ours, "q") == []
    assert ours.schedules.list()[0].last_at is None
    clock.advance(3480)
    assert ours.schedules.tick()[0] == 1
    last = ours.schedules.list()[0].last_at
    clock.advance(3600 + 120)
    assert ours.schedules.tick()[0] == 0
    assert ours.schedules.list()[0].last_at == last


def test_run_now_enqueues_its_job_besides_the_occurrences(ours, clock):
    ours.schedules.set("hourly", "q", "k", {"a": 1}, cron="0 * * * *", priority=3, max_attempts=2)
    ours.schedules.pause("hourly")
    (before,) = ours.schedules.list()
    job = ours.queue("q").get(ours.schedules.run_now("hourly"))
    assert (job.kind, job.payload, job.priority, job.max_attempts) == ("k", {"a": 1}, 3, 2)
    assert job.headers == {"schedule": "hourly", "occurrence": datetime.fromtimestamp(clock() / 1e6, UTC).isoformat()}
    assert ours.schedules.list() == [before]
    with pytest.raises(ArgumentError, match="there is no schedule 'none'"):
        ours.schedules.run_now("none")


@SQLITE
def test_upcoming_occurrences(ours):
    ours.schedules.set("hourly", "q", "k", cron="30 * * * *", first_at=datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    ours.schedules.set("quick", "q", "k", every=90, first_at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    hourly, quick = ours.schedules.list()
    assert [f"{one:%H:%M}" for one in hourly.upcoming(3)] == ["12:30", "13:30", "14:30"]
    assert [f"{one:%H:%M:%S}" for one in quick.upcoming()] == ["12:00:00", "12:01:30", "12:03:00", "12:04:30", "12:06:00"]
    assert quick.upcoming(0) == []
    with pytest.raises(ArgumentError, match="count=-1"):
        quick.upcoming(-1)


def test_all_goes_on_where_one_transaction_ended(ours, clock, monkeypatch):
    monkeypatch.setattr("queue_db.schedules.registry.AT_ONCE", 4)
    ours.schedules.set("often", "q", "k", every=1, catch_up="all")
    clock.advance(10)
    counts = [ours.schedules.tick() for _ in range(4)]
    assert [count for count, _ in counts] == [4, 4, 2, 0]
    assert counts[0][1] == 0.0, "there is more to do at once"
    assert len(set(occurrences(ours, "q"))) == 10


def test_to_say_it_again_keeps_the_next_occurrence_and_another_rule_makes_a_new_one(ours, clock):
    assert ours.schedules.set("s", "q", "k", every=10)
    first = ours.schedules.list()[0].next_at
    clock.advance(5)
    assert ours.schedules.set("s", "q", "other", every=10, priority=3) is False
    schedule = ours.schedules.list()[0]
    assert (schedule.next_at, schedule.kind, schedule.priority) == (first, "other", 3)
    ours.schedules.set("s", "q", "k", every=20)
    assert ours.schedules.list()[0].next_at - first == timedelta(seconds=15)
    ours.schedules.pause("s")
    clock.advance(100)
    assert ours.schedules.tick() == (0, None)
    ours.schedules.resume("s")
    assert ours.schedules.tick()[0] == 1
    assert ours.schedules.remove("s") is True
    assert ours.schedules.list() == []


def test_five_schedulers_and_one_occurrence_a_second_with_an_outage(ours, clock, own_url):
    """Each occurrence once; after a minute without anybody all sixty, each once."""
    ours.schedules.set("secondly", "q", "k", every=1, catch_up="all")
    others = [QueueDB(own_url, clock=clock) for _ in range(5)]
    barrier = threading.Barrier(5, timeout=PATIENCE, action=lambda: clock.advance(steps.pop(0)))
    steps = [1, 1, 1, 60, 1, 1, 0]
    rounds = len(steps)
    failures = []

    def ticks(db: QueueDB) -> None:
        try:
            for _ in range(rounds):
                barrier.wait()
                db.schedules.tick()
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=ticks, args=(db,)) for db in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for db in others:
        db.close()
    assert failures == []
    counts = Counter(job.headers["occurrence"] for job in ours.queue("q").peek(1000))
    assert len(counts) == 65
    assert set(counts.values()) == {1}, "an occurrence was enqueued more than once"


@SQLITE
def test_without_the_comparison_of_versions_occurrences_come_twice(ours, clock, own_url, monkeypatch):
    """The control for the test above: two that have both seen the occurrence."""
    advance = stored.advance
    monkeypatch.setattr(stored, "advance", lambda *arguments, **options: advance(*arguments, **options) or True)
    ours.schedules.set("s", "q", "k", every=10)
    clock.advance(10)
    seen = stored.due

    def both_have_seen(tx: Transaction):
        found = seen(tx)
        if not inner:
            inner.append(True)
            with QueueDB(own_url, clock=clock) as other:
                other.schedules.tick()
        return found

    inner: list[bool] = []
    monkeypatch.setattr(stored, "due", both_have_seen)
    ours.schedules.tick()
    assert len(occurrences(ours, "q")) == 2


def test_workers_enqueue_what_schedules_say(own_url, running):
    seen = threading.Semaphore(0)
    with QueueDB(own_url) as db:
        db.schedules.set("often", "q", "k", every=0.05)
        worker = serving(db.queue("q"), lambda job: seen.release(), poll=0.05)
        with running(worker):
            for _ in range(5):
                assert seen.acquire(timeout=PATIENCE)
        assert worker.summary.completed >= 5


def test_a_schedule_that_cannot_be_read_does_not_hold_up_the_others(ours, clock):
    for name in ("a", "b", "c"):
        ours.schedules.set(name, "q", name, every=10)
    table = ours.store.tables.slices["schedules"]
    with ours.queue("q").transaction() as connection:
        connection.execute(table.update().where(table.c.name == "b").values(rule="* * *"))
    clock.advance(10)
    with pytest.raises(ConfigurationError, match="schedule 'b': cron"):
        ours.schedules.tick()
    assert sorted(job.kind for job in ours.queue("q").peek()) == ["a", "c"]


def test_a_run_until_the_queue_is_empty_works_off_what_is_due_by_schedules(ours, clock, monkeypatch):
    ours.schedules.set("hourly", "q", "k", cron="0 * * * *", catch_up="one")
    clock.advance(3600 + 30)
    looked, tick, next_due = threading.Event(), ours.schedules.tick, ours.next_due

    def tick_after_the_fetcher_has_looked():
        """In any other thread than the fetcher's: a run that relies on it ends without the job, however fast it is."""
        if "fetcher" not in threading.current_thread().name:
            assert looked.wait(PATIENCE)
        return tick()

    def look(queues):
        found = next_due(queues)
        looked.set()
        return found

    monkeypatch.setattr(ours.schedules, "tick", tick_after_the_fetcher_has_looked)
    monkeypatch.setattr(ours, "next_due", look)
    done = []
    worker = serving(ours.queue("q"), done.append)
    assert worker.run(until_empty=True).completed == len(done) == 1


def test_a_run_until_the_queue_is_empty_waits_for_the_jobs_of_schedules_however_long_they_take(ours, clock, monkeypatch):
    """Other periodic tasks go on meanwhile."""
    ours.schedules.set("hourly", "q", "k", cron="0 * * * *", catch_up="one")
    clock.advance(3600 + 30)
    others, tick = threading.Event(), ours.schedules.tick
    monkeypatch.setattr(ours.metrics, "take", others.set)
    monkeypatch.setattr("queue_db.monitoring.registration.METRICS_EVERY", 0.0)
    monkeypatch.setattr(maintenance, "PATIENCE", 0.0)
    monkeypatch.setattr(type(ours.schedules), "tick", lambda _: (others.wait(PATIENCE), tick())[1])
    done = []
    worker = serving(ours.queue("q"), done.append)
    assert worker.run(until_empty=True).completed == len(done) == 1


def test_the_outage_of_the_first_tick_ends_with_a_later_one(ours, monkeypatch):
    """In a run until the queue is empty the fetcher's thread makes the first one, and maintenance the others."""
    ticks, third, tick = [], threading.Event(), ours.schedules.tick

    def first_fails():
        ticks.append(None)
        if len(ticks) == 1:
            raise TransientStorageError("away")
        if len(ticks) == 3:  # so the second has been logged
            third.set()
        return tick()

    monkeypatch.setattr(ours.schedules, "tick", first_fails)
    monkeypatch.setattr("queue_db.schedules.registration._EVERY", 0.01)
    monkeypatch.setattr("queue_db.schedules.registration._WITHOUT", 0.01)
    outages = outages_of(ours.url)
    failing = []

    def handler(job):
        assert third.wait(PATIENCE)
        failing.append(dict(outages.going_on))

    ours.queue("q").enqueue("k")
    serving(ours.queue("q"), handler).run(until_empty=True)
    assert failing == [{}]
