"""Those who come to one group at the same time: never two of its jobs at once, and never none while one waits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine

from queue_db import DuplicateJobError, LeasedJob, Queue, QueueDB, State, StorageError, Verdict
from queue_db.groups.store import groups
from queue_db.store import Transaction, on_leave
from queue_db.store.on_leave import Departure
from queue_db.verbs import claim_round
from tests.races.interleaving import Loser, at_once, open_transaction

OpenDB = Callable[..., QueueDB]


def enqueue(queue: Queue, payload: object, **options: object) -> int:
    job_id = queue.enqueue("mail", payload, group="g", **options)  # type: ignore[arg-type]
    assert job_id is not None
    return job_id


def enqueue_loses_to_a_completion(kind: str, ours: Queue, theirs: Queue) -> None:
    enqueue(ours, 1)
    (held,) = ours.claim()
    with open_transaction(ours.db) as connection:
        assert held.complete(using=connection) is Verdict.APPLIED
        late = Loser(kind, theirs.db, partial(enqueue, theirs, 2))
        waited = late.until_it_waits()
        connection.commit()
        second = late.result()
    assert waited
    assert theirs.get(second).state is State.AVAILABLE


def completion_loses_to_an_enqueue(kind: str, ours: Queue, theirs: Queue) -> None:
    enqueue(ours, 1)
    (held,) = theirs.claim()
    with open_transaction(ours.db) as connection:
        second = enqueue(ours, 2, using=connection)
        late = Loser(kind, theirs.db, held.complete)
        waited = late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert waited
    # It has seen the one that it let in.
    assert theirs.get(second).state is State.AVAILABLE


def enqueue_loses_to_another(kind: str, ours: Queue, theirs: Queue) -> None:
    with open_transaction(ours.db) as connection:
        first = enqueue(ours, 1, using=connection)
        late = Loser(kind, theirs.db, partial(enqueue, theirs, 2))
        waited = late.until_it_waits()
        connection.commit()
        second = late.result()
    assert waited
    assert (ours.get(first).state, ours.get(second).state) == (State.AVAILABLE, State.BLOCKED)


def completion_loses_to_the_cancelling_of_the_next(kind: str, ours: Queue, theirs: Queue) -> None:
    enqueue(ours, 1)
    second, third = enqueue(ours, 2), enqueue(ours, 3)
    (held,) = theirs.claim()
    with open_transaction(ours.db) as connection:
        pair = (second, ours.get(second).version)
        gone = on_leave.delete(Transaction(connection, ours.db.store), [pair], lambda _: Departure.CANCELLED)
        assert gone == {second}
        late = Loser(kind, theirs.db, held.complete)
        waited = late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert waited
    assert theirs.get(third).state is State.AVAILABLE


RACES = [
    completion_loses_to_the_cancelling_of_the_next,
    enqueue_loses_to_a_completion,
    completion_loses_to_an_enqueue,
    enqueue_loses_to_another,
]


@pytest.mark.parametrize("race", RACES)
def test_a_group_is_seen_as_the_winner_left_it(
    kind: str, race: Callable[[str, Queue, Queue], None], ours: Queue, theirs: Queue
) -> None:
    race(kind, ours, theirs)


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_without_its_lock_each_race_is_lost(
    kind: str, race: Callable[[str, Queue, Queue], None], ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "lock", lambda tx, names, **_: {name.queue: 1 for name in names})
    monkeypatch.setattr(groups, "own", lambda connection: connection)  # nor with those that a caller's transaction takes
    with pytest.raises(AssertionError):
        race(kind, ours, theirs)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_a_callers_old_snapshot_lets_no_second_job_in(kind: str, url: str, ours: Queue, theirs: Queue) -> None:
    engine = create_engine(url, isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM jobs")  # from here on it sees nothing new
            first = enqueue(theirs, 1)
            try:
                second = enqueue(ours, 2, using=connection)
                connection.commit()
            except StorageError:
                return  # the database refuses to let it change what it has not seen
        assert (ours.get(first).state, ours.get(second).state) == (State.AVAILABLE, State.BLOCKED)
    finally:
        engine.dispose()


class Record:
    """How many jobs of each group are in hand at once, and which came in what order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_hand: Counter[str | None] = Counter()
        self.most = 0
        self.seen: dict[str | None, list[int]] = {}

    def begun(self, jobs: list[LeasedJob]) -> None:
        with self._lock:
            for job in jobs:
                self._in_hand[job.group] += 1
                self.most = max(self.most, self._in_hand[job.group])
                self.seen.setdefault(job.group, []).append(job.payload)

    def ended(self, jobs: list[LeasedJob]) -> None:
        with self._lock:
            self._in_hand -= Counter(job.group for job in jobs)


@pytest.mark.parametrize("per_group", [1, 2])
def test_workers_and_producers_keep_every_group_in_order(open_db: OpenDB, name: str, per_group: int) -> None:
    queues = [open_db(worker=f"worker-{number}").queue(name) for number in range(4)]
    queues[0].limit(per_group=per_group)
    names, each, record, produced = [f"g{number}" for number in range(5)], 12, Record(), threading.Event()

    def produce() -> None:
        for number in range(0, each, 2):
            queues[0].enqueue_many([("mail", n, {"group": group}) for n in (number, number + 1) for group in names])
        produced.set()

    def work(queue: Queue) -> None:
        over = False
        while not over or queue.stats().by_kind:
            over = produced.is_set()
            jobs = queue.claim(3)
            record.begun(jobs)
            record.ended(jobs)
            assert all(queue.complete_many(jobs))

    for got in at_once(produce, *(partial(work, queue) for queue in queues[1:])):
        assert got is None, got
    assert record.most <= per_group
    assert {group: sorted(seen) for group, seen in record.seen.items()} == {group: list(range(each)) for group in names}
    if per_group == 1:
        assert all(seen == sorted(seen) for seen in record.seen.values())


def test_transactions_with_many_groups_do_not_wait_for_each_other_in_a_circle(open_db: OpenDB, name: str) -> None:
    there, back = (open_db().queue(name) for _ in range(2))
    jobs = [("mail", number, {"group": f"g{number}"}) for number in range(100)]
    for _ in range(5):
        got = at_once(partial(there.enqueue_many, jobs), partial(back.enqueue_many, jobs[::-1]))
        assert all(isinstance(one, list) for one in got), got
    assert there.db.counters.deadlocks == back.db.counters.deadlocks == 0
    for turn in range(10):
        mine = [there.claim(50), back.claim(50)]
        settled = at_once(partial(there.complete_many, mine[0]), partial(back.complete_many, mine[1][::-1]))
        assert [len(verdicts) for verdicts in settled if isinstance(verdicts, list)] == [50, 50], (turn, settled)
    assert there.db.counters.deadlocks == back.db.counters.deadlocks == 0


def test_the_last_two_of_a_batch_enqueue_what_comes_after_it_once(open_db: OpenDB, name: str) -> None:
    ours, theirs = (open_db().queue(name) for _ in range(2))
    for _ in range(10):
        ours.enqueue_batch([("mail", 1), ("mail", 2)], ("report", None))
        (one,), (other,) = ours.claim(), theirs.claim()
        assert at_once(one.complete, other.complete) == [Verdict.APPLIED] * 2
        (after,) = ours.claim(3)
        assert after.kind == "report"
        assert after.complete() is Verdict.APPLIED


def test_enqueues_of_one_key_with_a_time_lose_but_one(open_db: OpenDB, name: str) -> None:
    producers = [open_db().queue(name) for _ in range(4)]
    for number in range(6):
        enqueues = (partial(q.enqueue, "mail", unique_key=f"k{number}", unique_for=60, on_duplicate="skip") for q in producers)
        got = at_once(*enqueues)
        assert len([job_id for job_id in got if isinstance(job_id, int)]) == 1, got
        assert got.count(None) == len(producers) - 1, got
    assert producers[0].stats().available == 6


def test_a_pop_that_is_cut_off_takes_no_job_without_what_hangs_on_it(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.enqueue_many([("mail", n) for n in range(3)])
    queue.enqueue_batch([("mail", n, {"group": "g"}) for n in range(3, 6)], ("report", None))
    seen = [job.payload for _ in range(3) for job in queue.pop()]  # from here on it expects to win, and asks for less

    class Cut(Exception):
        pass

    def cut(*_: object, **__: object) -> set[str]:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(claim_round, "dependents", lambda: SimpleNamespace(leave=cut))
        with pytest.raises(Cut):
            queue.pop()
    assert queue.stats().available == 1
    kinds = []
    while popped := queue.pop():
        kinds += [job.kind for job in popped]
        seen += [job.payload for job in popped]
    assert seen == [0, 1, 2, 3, 4, 5, None]
    assert kinds == ["mail"] * 3 + ["report"]


def test_a_refused_enqueue_in_a_callers_transaction_leaves_no_key_taken(queue: Queue) -> None:
    live = queue.enqueue("mail", 1, unique_key="k")
    with queue.transaction() as connection, pytest.raises(DuplicateJobError) as caught:
        queue.enqueue("mail", 2, unique_key="k", unique_for=60, using=connection)
    assert caught.value.existing_id == live
    assert queue.purge() == 1
    assert queue.enqueue("mail", 3, unique_key="k", unique_for=60) is not None
