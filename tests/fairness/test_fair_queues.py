"""Claims of a fair queue take turns among the groups that have due jobs."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import func, select

from queue_db import Queue, QueueDB
from queue_db.errors import ArgumentError
from queue_db.fairness import first_turn, policy
from queue_db.fairness.dialects import FairDialect
from queue_db.fairness.rules import TURN
from queue_db.fairness.tables import fairness_tables
from queue_db.groups.tables import group_tables
from queue_db.model import Capability, Verdict
from queue_db.operations import queues as operations
from queue_db.operations.actor import Actor
from queue_db.strategies import policies
from queue_db.testing import SettableClock
from queue_db.verbs.fenced_change import FencedChange
from queue_db.verbs.settle import CANCEL
from tests.races.interleaving import Loser, open_transaction

OpenDB = Callable[..., QueueDB]


def add(queue: Queue, group: str | None, number: int, **options: object) -> list[int]:
    return queue.enqueue_many([("k", place, {"group": group, **options}) for place in range(number)])


def taken(queue: Queue, limit: int) -> list[str | None]:
    """The groups of the jobs that a claim takes."""
    return [job.group for job in queue.claim(limit)]


@pytest.fixture
def fair(queue: Queue) -> Queue:
    queue.fair()
    return queue


@pytest.mark.parametrize("limit", [1, 10])
def test_the_one_job_of_a_tenant_starts_within_the_next_claim(fair: Queue, limit: int) -> None:
    add(fair, "many", 1000)
    assert taken(fair, limit) == ["many"] * limit
    add(fair, "one", 1)
    assert "one" in taken(fair, limit)


def test_without_turns_it_waits_behind_all_jobs_of_the_other(queue: Queue) -> None:
    """The control: so the turns do it."""
    queue.limit(per_group=1000)
    add(queue, "many", 30)
    add(queue, "one", 1)
    assert "one" not in [group for _ in range(3) for group in taken(queue, 10)]


def test_each_of_two_processes_is_fair(open_db: OpenDB, name: str) -> None:
    first, second = (open_db().queue(name) for _ in range(2))
    first.fair()
    second.core.policies.stale = True
    add(first, "many", 100)
    for queue in (first, second):
        assert set(taken(queue, 10)) == {"many"}
    for queue in (first, second):
        add(first, "one", 1)
        assert "one" in taken(queue, 10)


@pytest.mark.parametrize("limits", [(1,), (10,), (1, 3, 10, 7)])
def test_weights_hold_while_the_groups_have_jobs(fair: Queue, limits: tuple[int, ...]) -> None:
    fair.fair(weights={"three": 3})
    add(fair, "one", 250)
    add(fair, "three", 250)
    counts: Counter[str | None] = Counter()
    turn = 0
    while sum(counts.values()) < 200:
        counts.update(taken(fair, limits[turn % len(limits)]))
        turn += 1
    share = counts["three"] / sum(counts.values())
    assert 0.75 * 0.95 <= share <= 0.75 * 1.05, counts


@pytest.mark.rest("the same with 200 jobs stands for it")
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_weights_hold_over_4000_claims(fair: Queue) -> None:
    fair.fair(weights={"three": 3})
    add(fair, "one", 1200)
    add(fair, "three", 3200)
    counts = Counter(group for _ in range(4000) for group in taken(fair, 1))
    assert abs(counts["three"] / 3000 - 1) <= 0.05, counts


def test_a_change_of_a_weight_holds_from_the_next_turns_on(fair: Queue) -> None:
    for group in "ab":
        add(fair, group, 40)
    assert Counter(taken(fair, 10)) == {"a": 5, "b": 5}
    fair.fair(weights={"a": 4})
    assert Counter(taken(fair, 10) + taken(fair, 10))["a"] >= 14
    fair.fair(weights={"a": 1})
    assert [limit.weight for limit in fair.group_limits()] == []


def test_a_lone_tenant_gets_all_that_a_claim_wants(fair: Queue) -> None:
    ids = add(fair, "alone", 35)
    jobs = [job for wanted in (10, 10, 10, 10) for job in fair.claim(wanted)]
    assert [job.id for job in jobs] == ids


def test_no_place_stays_free_while_a_job_is_due(fair: Queue) -> None:
    add(fair, "many", 19)
    add(fair, "one", 1)
    assert len(taken(fair, 10)) == 10
    assert len(taken(fair, 10)) == 10
    assert taken(fair, 10) == []


def test_many_tenants_have_their_turns_one_after_the_other(fair: Queue) -> None:
    """Also where a claim reads ahead."""
    groups = [f"tenant-{number:03}" for number in range(100)]
    fair.enqueue_many([("k", None, {"group": group}) for group in groups for _ in range(3)])
    rounds = [[group for _ in range(10) for group in taken(fair, 10)] for _ in range(3)]
    assert [sorted(map(str, one)) for one in rounds] == [groups] * 3


@pytest.mark.parametrize(("groups", "limit"), [(3, 2), (15, 10)])
def test_shares_are_equal_if_a_claim_goes_on_behind_the_last_group(fair: Queue, groups: int, limit: int) -> None:
    fair.enqueue_many([("k", None, {"group": f"g{place % groups:02}"}) for place in range(24 * limit)])
    counts = Counter(group for _ in range(12) for group in taken(fair, limit))
    assert max(counts.values()) - min(counts.values()) <= (12 * limit) % groups, counts


def test_groups_without_due_jobs_are_passed_over(fair: Queue) -> None:
    add(fair, "a", 1, delay=60)
    add(fair, "b", 3)
    add(fair, "c", 1)
    assert taken(fair, 1) + taken(fair, 1) + taken(fair, 1) == ["b", "c", "b"]
    assert taken(fair, 2) == ["b"]


def test_jobs_of_a_group_do_not_wait_for_each_other(fair: Queue) -> None:
    add(fair, "g", 3)
    first, second, third = fair.claim(3)
    assert third.complete()
    assert second.fail("again", retry_in=0)
    assert first.complete()
    assert [job.payload for job in fair.claim(3)] == [second.payload]


def test_priorities_come_first(fair: Queue) -> None:
    add(fair, "a", 2, priority=1)
    assert taken(fair, 1) == ["a"]
    add(fair, "b", 2, priority=-1)
    assert taken(fair, 3) in (["b", "b", "a"], ["b", "b"])


def test_jobs_without_a_group_are_taken_too(fair: Queue) -> None:
    add(fair, None, 2)
    add(fair, "g", 2)
    assert sorted(taken(fair, 4), key=str) == [None, None, "g", "g"]


def test_a_job_without_a_group_is_not_passed_over_for_ever(fair: Queue) -> None:
    add(fair, None, 1)
    add(fair, "g", 100)
    assert None in [group for _ in range(70) for group in taken(fair, 1)]


def test_a_claim_that_deletes_is_fair(fair: Queue) -> None:
    add(fair, "many", 30)
    assert [job.group for job in fair.pop(10)] == ["many"] * 10
    add(fair, "one", 1)
    assert "one" in [job.group for job in fair.pop(10)]


def test_blocked_jobs_are_due_when_their_queue_becomes_fair(queue: Queue) -> None:
    add(queue, "g", 3)
    assert queue.stats().blocked == 2
    queue.fair()
    assert queue.stats().blocked == 0
    assert taken(queue, 3) == ["g"] * 3


def test_fair_waits_for_a_transaction_that_has_blocked_jobs(kind: str, queue: Queue, open_db: OpenDB) -> None:
    """A repair that does not wait for it does not see its jobs, which are blocked for ever then."""
    other = open_db().queue(queue.name)
    with open_transaction(queue.db) as connection:
        queue.enqueue_many([("k", place, {"group": "g"}) for place in range(2)], using=connection)
        late = Loser(kind, other.db, other.fair)
        waited = late.until_it_waits()
        connection.commit()
        late.result()
    assert waited
    assert queue.stats().blocked == 0
    assert taken(other, 2) == ["g"] * 2


def test_a_queue_that_is_fair_no_more_orders_its_groups(fair: Queue) -> None:
    fair.fair(False)
    add(fair, "g", 2)
    assert taken(fair, 2) == ["g"]
    assert not fair.controls().fair
    assert fair.controls().per_group == 1


def test_a_process_that_had_opened_the_database_before_obeys(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "FRESH", 0.0)
    before, other = open_db().queue(name), open_db().queue(name)
    before.limit(per_group=1000)
    add(before, "many", 30)
    assert taken(before, 1) == ["many"]
    other.fair()
    add(other, "one", 1)
    assert set(taken(before, 1) + taken(before, 1)) == {"many", "one"}


def test_a_job_whose_lease_ended_comes_back(open_db: OpenDB, name: str, clock: SettableClock) -> None:
    queue = open_db(clock=clock).queue(name)
    queue.fair()
    add(queue, "g", 1)
    (lost,) = queue.claim(1, lease=5)
    assert taken(queue, 1) == []
    clock.advance(6)
    (again,) = queue.claim(1)
    assert (again.id, again.attempts) == (lost.id, 2)
    assert lost.complete() is Verdict.LOST


def test_per_group_is_for_queues_that_are_not_fair(fair: Queue) -> None:
    with pytest.raises(ArgumentError, match=r"limit_groups\(concurrency"):
        fair.limit(per_group=3)
    fair.limit(concurrency=None, rate=None, per_group=None)
    add(fair, "g", 2)
    assert taken(fair, 2) == ["g", "g"]


@pytest.mark.parametrize("weights", [{"g": 0}, {"": 1}, {"g": 1.5}, {"g": 1001}])
def test_wrong_weights_are_refused(queue: Queue, weights: dict[str, int]) -> None:
    with pytest.raises(ArgumentError):
        queue.fair(weights=weights)


# --- processes that claim once -----------------------------------------------------------------------------------------


def _claimed_once(open_db: OpenDB, name: str, number: int) -> Counter[str | None]:
    """The groups of the jobs that so many processes get, each of which claims one job."""
    return Counter(group for _ in range(number) for group in taken(open_db().queue(name), 1))


def test_processes_that_claim_once_are_fair_among_groups_with_one_prefix(open_db: OpenDB, name: str) -> None:
    fair = open_db().queue(name)
    fair.fair()
    for number in range(1, 9):
        add(fair, f"tenant-{number}", 3, priority=5)
    counts = _claimed_once(open_db, name, 16)
    assert set(counts.values()) == {2}
    assert len(counts) == 8


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_start_at_random_is_not_fair(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: all random texts lead to the first group of a prefix, but for those within the prefix."""
    monkeypatch.setattr(first_turn, "read", lambda *_: first_turn.FirstTurn(f"{random.choice('0123456789abcdefghijk')}", False))
    fair = open_db().queue(name)
    fair.fair()
    for number in range(1, 9):
        add(fair, f"tenant-{number}", 20)
    assert _claimed_once(open_db, name, 12) == {"tenant-1": 12}


def test_nobody_waits_for_a_first_claim_that_stands_still(open_db: OpenDB, name: str) -> None:
    fair, second = (open_db().queue(name) for _ in range(2))
    fair.fair()
    second.core.policies.stale = True
    for group in "ab":
        add(fair, group, 2)
    if Capability.SKIP_LOCKED not in fair.core.store.capabilities:
        return  # a writer waits for the other one in any case
    limits = fairness_tables(fair.core.store.tables).limits
    with open_transaction(fair.db) as connection:
        row = select(limits).where(limits.c.queue == name, limits.c.scope == TURN).with_for_update()
        assert connection.execute(row).first() is not None
        assert taken(second, 1) == ["a"]
    assert fair.group_limits() == []


# --- what makes claims and completions cheap ---------------------------------------------------------------------------


def test_a_group_that_was_alone_has_company_within_the_next_claim(fair: Queue) -> None:
    add(fair, "alone", 30)
    for _ in range(3):
        assert taken(fair, 1) == ["alone"]
    add(fair, "another", 1)
    assert taken(fair, 1) == ["another"]
    assert taken(fair, 3) == ["alone"] * 3


def test_a_claim_whose_jobs_others_have_taken_takes_others_by_turns(open_db: OpenDB, name: str) -> None:
    """It has read them ahead: two processes with the same turn."""
    first, second = (open_db().queue(name) for _ in range(2))
    first.fair()
    second.core.policies.stale = True
    groups = [f"tenant-{number:03}" for number in range(100)]
    first.enqueue_many([("k", None, {"group": group}) for group in groups for _ in range(6)])
    counts: Counter[str | None] = Counter()
    for _ in range(15):
        for queue in (first, second):
            got = taken(queue, 10)
            assert len(got) == 10
            counts.update(got)
    assert max(counts.values()) - min(counts[group] for group in groups) <= 3, counts


def test_a_more_urgent_job_comes_before_those_that_were_read_ahead(open_db: OpenDB, name: str) -> None:
    """And a claim that leaves them has lost no race."""
    fair, other = (open_db().queue(name) for _ in range(2))
    fair.fair()
    other.enqueue_many([("k", None, {"group": f"tenant-{number:02}"}) for number in range(80)])
    for _ in range(4):
        assert len(taken(fair, 1)) == 1
    turns = fair.core.policies.of[name].turns  # type: ignore[attr-defined]
    assert turns.ahead.rows
    turns.ahead.until = math.inf
    add(other, "urgent", 1, priority=-1)
    assert taken(fair, 1) == ["urgent"]
    assert fair.core.database.counters.missed == 0


@pytest.mark.parametrize("limit", [1, 3])
def test_a_job_between_two_known_priorities_comes_first(open_db: OpenDB, name: str, limit: int) -> None:
    fair, other = (open_db().queue(name) for _ in range(2))
    fair.fair()
    other.enqueue_many([("k", None, {"group": group, "priority": 5}) for group in "abcdefgh" for _ in range(3)])
    for _ in range(3):
        assert len(taken(fair, limit)) == limit
    add(other, "urgent", 1, priority=1)
    assert "urgent" in taken(fair, limit)


def test_a_completion_in_a_fair_queue_locks_no_stripe(fair: Queue) -> None:
    add(fair, "g", 2)
    (job, other) = fair.claim(2)
    stripes = group_tables(fair.core.store.tables).stripes

    def versions() -> int:
        with fair.core.database.engine.connect() as connection:
            return int(connection.execute(select(func.sum(stripes.c.version))).scalar_one())

    before = versions()
    assert job.complete()
    add(fair, "g", 1)
    assert versions() == before
    fair.core.policies._read_at = 0.0  # this process has not looked for a while
    assert other.complete()
    assert versions() == before + 1


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_no_job_waits_for_a_group_before_all_processes_know_that_their_queue_is_not_fair(
    open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not know it would leave the next job blocked."""
    before, other = open_db().queue(name), open_db().queue(name)
    before.fair()
    other.core.policies.stale = True
    add(before, "g", 2)
    jobs = other.claim(2)
    meanwhile: list[int] = []

    def pause(_: float) -> None:
        add(before, "g", 1)
        meanwhile.append(before.stats().blocked)
        assert all(job.complete() for job in jobs)

    monkeypatch.setattr(before.core.database, "pause", pause)
    before.fair(False)
    assert meanwhile == [0]
    add(before, "g", 1)
    assert before.stats().blocked == 1
    assert taken(before, 2) == ["g"]


@pytest.mark.parametrize("kind", ["postgresql", "mysql"], scope="session")
def test_no_job_waits_for_one_that_a_caller_completes_while_its_queue_ceases_to_be_fair(
    kind: str, open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller's transaction may end at any time later."""
    first, other = (open_db().queue(name) for _ in range(2))
    first.fair()
    add(first, "g", 1)
    (job,) = first.claim(1)
    monkeypatch.setattr(other.core.database, "pause", lambda _: None)

    def order_and_add() -> None:
        other.fair(False)
        add(other, "g", 1)

    with open_transaction(first.db) as connection:
        assert job.complete(using=connection)
        late = Loser(kind, other.db, order_and_add)
        late.until_it_waits()
        connection.commit()
        late.result()
    assert taken(other, 1) == ["g"]


def test_a_completion_asks_in_each_run_whether_jobs_wait(fair: Queue) -> None:
    add(fair, "g", 1)
    (job,) = fair.claim(1)
    stripes = group_tables(fair.core.store.tables).stripes
    with fair.core.database.engine.connect() as connection:
        before = connection.execute(select(func.sum(stripes.c.version))).scalar_one()
    change = FencedChange(fair.core, job.source, CANCEL, [job])
    fair.core.policies._read_at = 0.0  # time passes between the call and its run
    assert change.settle() == [Verdict.APPLIED]
    with fair.core.database.engine.connect() as connection:
        assert connection.execute(select(func.sum(stripes.c.version))).scalar_one() == before + 1


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_repair_ends_a_change_that_was_interrupted(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = (open_db().queue(name) for _ in range(2))
    first.fair()

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first.core.database, "pause", stop)
    with pytest.raises(KeyboardInterrupt):
        first.fair(False)
    pauses: list[float] = []
    monkeypatch.setattr(other.core.database, "pause", pauses.append)
    other.repair_groups()
    assert pauses == [2 * policies.FRESH]
    add(other, "g", 2)
    assert taken(other, 2) == ["g"]


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_weights_of_a_queue_that_is_not_fair_are_logged(queue: Queue) -> None:
    me = Actor("me", frozenset({"manage"}), ("*",))
    operations.fair(queue.db, me, queue.name, enabled=False, weights={"g": 5})
    assert [limit.weight for limit in queue.group_limits()] == [5]
    entries = [entry for entry in queue.db.actions.list() if queue.name in entry.target]  # other tests use the database, too
    assert [(entry.action, entry.detail) for entry in entries] == [("fair", {"fair": "no", "weight of g": 5})]


# --- a database without statements of its own ---------------------------------------------------------------------------


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim as on a database that has no subclass of FairDialect."""
    dialects: dict[object, FairDialect] = {}
    monkeypatch.setattr(policy, "dialect_of", lambda dialect: dialects.setdefault(dialect, FairDialect(dialect)))


@pytest.mark.usefixtures("portable")
@pytest.mark.parametrize("kind", ["sqlite", "mysql"], scope="session")
def test_other_databases_have_turns_weights_and_limits_too(fair: Queue) -> None:
    fair.fair(weights={"heavy": 3})
    for group in ("a", "heavy"):
        add(fair, group, 20)
    add(fair, None, 1)
    assert Counter(taken(fair, 8)) == {"a": 2, "heavy": 6}
    assert Counter(taken(fair, 1) + taken(fair, 1) + taken(fair, 1) + taken(fair, 1)) == {"a": 1, "heavy": 3}
    fair.limit_groups(concurrency=10)
    fair.limit_groups(group="a", concurrency=4)
    claimed = [group for _ in range(4) for group in taken(fair, 5)]
    assert Counter(claimed) == {"a": 4, "heavy": 10, None: 1}
