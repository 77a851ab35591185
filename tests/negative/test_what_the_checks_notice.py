"""Negative controls: without a guarantee the check for it must fail.

Each control first runs the check on the library as it is, so that it fails for the removed part and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from sqlalchemy import delete, text

from queue_db import Queue, QueueDB
from queue_db.dialects import Dialect, claim_sql, inserts, mysql_inserts, statements
from queue_db.dialects.claim_sql import ClaimText
from queue_db.dialects.postgresql import PostgreSQL
from queue_db.model import ClaimResult
from queue_db.removal import Delete
from queue_db.store import LowWaterMarks, Transaction, lease, settle
from queue_db.testing.suite import claiming, leases, settling
from tests.conftest import server_of
from tests.negative.conftest import Stage
from tests.properties import test_marks
from tests.properties.machine import QueueMachine
from tests.races import test_claim_loses, test_enqueue_loses

StageOf = Callable[..., Stage]

SERVERS_WITHOUT_RETURNING = pytest.mark.parametrize("kind", ["mysql", "mariadb"])


def never(_reason: str) -> None:
    """Instead of the fixture ``differs``: the kinds are chosen here."""


class Steps:
    """The state machine of the property tests, driven by hand: the same steps in each run, and the invariants after each.

    A random search finds these faults too, after 6 to 400 of its examples: too slow for a control, and different with each seed.
    """

    def __init__(self, pool: QueueDB) -> None:
        self.machine = QueueMachine(pool, ["head"])
        self.machine.open(data=Chosen(strategy="head"), removal="delete", per_group=1)

    def take(self, rule: str, **arguments: Any) -> None:
        getattr(self.machine, rule)(**arguments)
        self.machine.counts_add_up()
        self.machine.groups_keep_their_limit_and_go_on()
        self.machine.nothing_is_lost_and_the_order_holds()

    def enqueue(self) -> None:
        self.take("enqueue", worker=0, key=None, policy="raise", priority=0, delay=0, max_attempts=25, group=None)

    def settle(self, verb: str, lease: int) -> None:
        self.take("settle", verb=verb, data=Chosen(leases=[lease], seconds=1))


class Chosen:
    """Gives what was chosen where the machine would draw."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def draw(self, _strategy: object, label: str) -> Any:
        return self._values[label]


def snooze_after_a_takeover(pool: QueueDB) -> None:
    steps = Steps(pool)
    steps.enqueue()
    steps.take("claim", worker=0, limit=1, lease=1)
    steps.take("time_passes", by=2)
    steps.take("claim", worker=1, limit=1, lease=10)
    steps.settle("snooze", lease=0)
    steps.settle("snooze", lease=1)


def extend_and_complete(pool: QueueDB) -> None:
    steps = Steps(pool)
    steps.enqueue()
    steps.take("claim", worker=0, limit=1, lease=10)
    steps.settle("extend", lease=0)
    steps.settle("complete", lease=0)


def match_by_id(dialect: Dialect, *, one: bool) -> str:
    return "id = :of_id" if one else "id = ANY(:ids)" if "ids" in dialect.lists else "id IN :of_ids"


class TestWithoutTheVersionCheck:
    """Rows are matched by their ids alone."""

    def test_a_settle_after_a_takeover_is_noticed(self, stage: StageOf, monkeypatch: pytest.MonkeyPatch) -> None:
        def check(on: Stage) -> None:
            settling.TestFence().test_lost_after_another_worker_took_over(on.queue, on.rival, on.clock)

        check(stage())
        broken = stage()
        monkeypatch.setattr(type(broken.queue.db.database.dialect), "matching", match_by_id)
        with pytest.raises(AssertionError):
            check(broken)

    @SERVERS_WITHOUT_RETURNING
    def test_a_claim_with_an_old_read_is_noticed(self, kind: str, stage: StageOf, monkeypatch: pytest.MonkeyPatch) -> None:
        def check(on: Stage) -> None:
            test_claim_loses.test_claim_loses_between_its_look_and_its_update(kind, never, on.clock, on.queue, on.rival, "claim")

        check(stage())
        monkeypatch.setattr(claim_sql, "matching", lambda **_: "jobs.id = :of_id")
        with pytest.raises(AssertionError):
            check(stage())

    @pytest.mark.parametrize("kind", ["postgresql"])
    def test_a_list_settled_after_a_takeover_is_noticed(self, kind: str, stage: StageOf, monkeypatch: pytest.MonkeyPatch) -> None:
        def check(on: Stage) -> None:
            settling.TestFence().test_mixed_verdicts_stand_by_position(on.queue, on.rival, on.clock)

        check(stage())
        monkeypatch.setattr(PostgreSQL, "matching", match_by_id)
        with pytest.raises(AssertionError):
            check(stage())

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_the_machine_notices(self, kind: str, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
        snooze_after_a_takeover(db)
        monkeypatch.setattr(type(db.database.dialect), "matching", match_by_id)
        statements.on.cache_clear()
        with pytest.raises(AssertionError):
            snooze_after_a_takeover(db)


@dataclass(frozen=True)
class DeleteByIdAlone(Delete):
    """A completion without a fence."""

    def remove(self, tx: Transaction, pairs: Sequence[tuple[int, int]]) -> set[int]:
        jobs = tx.tables.jobs
        ids = [job_id for job_id, _ in pairs]
        return set(ids) if tx.connection.execute(delete(jobs).where(jobs.c.id.in_(ids))).rowcount else set()


class TestWithoutTheFenceOfComplete:
    """A completion deletes the job whatever its lease."""

    def test_a_late_completion_is_noticed(self, stage: StageOf) -> None:
        def check(on: Stage) -> None:
            settling.TestFence().test_lost_after_another_worker_took_over(on.queue, on.rival, on.clock)

        check(stage())
        with pytest.raises(AssertionError):
            check(stage(removal=DeleteByIdAlone()))


def extend_without_a_new_version(tx: Transaction, pairs: Sequence[tuple[int, int]], micros: int) -> dict[int, int]:
    jobs = tx.tables.jobs
    assert tx.store.clock is not None
    end = tx.store.clock() + micros
    changed = tx.dialect.change(tx, jobs, pairs, "available_at = :until", {"until": end})
    return dict.fromkeys(changed, end)


class TestWithoutTheNewVersionOfExtend:
    """A heartbeat that does not change the version."""

    def test_the_same_pair_for_two_leases_is_noticed(self, stage: StageOf, monkeypatch: pytest.MonkeyPatch) -> None:
        def check(on: Stage) -> None:
            leases.TestExtend().test_the_lease_ends_later_under_a_new_version(on.queue, on.clock)

        check(stage())
        monkeypatch.setattr(settle, "extend", extend_without_a_new_version)
        with pytest.raises(AssertionError):
            check(stage())

    @SERVERS_WITHOUT_RETURNING
    def test_a_claim_that_steals_a_renewed_lease_is_noticed(
        self, kind: str, stage: StageOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def check(on: Stage) -> None:
            test_claim_loses.test_claim_loses_between_its_look_and_its_update(kind, never, on.clock, on.queue, on.rival, "extend")

        check(stage())
        monkeypatch.setattr(settle, "extend", extend_without_a_new_version)
        with pytest.raises(AssertionError):
            check(stage())

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_the_machine_notices(self, kind: str, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
        extend_and_complete(db)
        monkeypatch.setattr(settle, "extend", extend_without_a_new_version)
        with pytest.raises(AssertionError):
            extend_and_complete(db)


class TestWithoutTheCountAtClaim:
    """Attempts are not counted at the claim."""

    @pytest.fixture
    @staticmethod
    def uncounted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        whole = ClaimText.assignments.fget
        assert whole is not None

        def others(claim: ClaimText) -> dict[str, str]:
            return {name: value for name, value in whole(claim).items() if name != "attempts"}

        # The statements of a QueueDB object are made when it first claims.
        return lambda: monkeypatch.setattr(ClaimText, "assignments", property(others))

    def test_a_job_that_kills_its_workers_endlessly_is_noticed(self, stage: StageOf, uncounted: Callable[[], None]) -> None:
        def check(on: Stage) -> None:
            leases.TestVanishedWorkers().test_attempts_count_without_a_verdict(on.queue, on.clock)

        check(stage())
        uncounted()
        with pytest.raises(AssertionError):
            check(stage())

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_the_machine_notices(self, kind: str, db: QueueDB, uncounted: Callable[[], None]) -> None:
        extend_and_complete(db)
        uncounted()
        with pytest.raises(AssertionError):
            extend_and_complete(db)


class TestWithoutTheUniqueIndex:
    """Only the query before the insert prevents a second job with a key."""

    @SERVERS_WITHOUT_RETURNING
    def test_a_key_that_came_between_is_noticed(self, kind: str, fresh_url: str) -> None:
        with QueueDB(fresh_url) as one, QueueDB(fresh_url) as other:
            one.migrate()

            def check(name: str) -> None:
                test_enqueue_loses.test_enqueue_loses_between_its_look_and_its_insert(
                    never, one.queue(name), other.queue(name), "skip"
                )

            check("whole")
            with one.database.begin() as connection:
                connection.execute(text("DROP INDEX jobs_unique_key ON jobs"))
            with pytest.raises(AssertionError):
                check("broken")


class TestWithIdsTakenForConsecutive:
    """A server that assigns the ids 1, 3, 5 …"""

    @SERVERS_WITHOUT_RETURNING
    def test_ids_of_other_jobs_are_noticed(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        url = server_of(kind, "--auto-increment-increment=2").create_database()

        def check(name: str) -> None:
            with QueueDB(url) as db:
                queue = db.queue(name)
                ids = queue.enqueue_many([("mail", number) for number in range(30)])
                claimed = {job.id: job.payload for job in queue.claim(limit=100)}
                assert claimed == dict(zip(ids, range(30), strict=True))

        with QueueDB(url) as db:
            db.migrate()
        check("whole")

        def consecutive(_: Any, tx: Any, jobs: Any, columns: Any, rows: Any) -> list[int]:
            first = inserts.load(tx, jobs, columns, rows)
            return list(range(first, first + len(rows)))

        for insert in ("_insert_returning", "_insert_and_read"):
            monkeypatch.setattr(mysql_inserts.MySQLInserts, insert, consecutive)
        with pytest.raises(AssertionError):
            check("broken")


class TestWithoutTheOrder:
    """Claims take jobs in any order."""

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_a_batch_out_of_order_is_noticed(self, kind: str, stage: StageOf) -> None:
        class Disorderly:
            """Takes the last jobs of the window first."""

            name = "disorderly"
            needs = frozenset[Any]()

            def claim(self, tx: Transaction, request: Any) -> ClaimResult:
                window = lease.CandidateWindow(lease.Order.SLICE, read=12, start=12 - request.limit)
                return lease.claim(tx, request, window)

            def observe(self, result: ClaimResult) -> None:
                pass

        def check(on: Stage) -> None:
            claiming.TestOrder().test_single_claims_skip_no_more_than_the_window(on.queue, on.clock, displacement=0)

        check(stage(strategy="skip_locked" if kind == "postgresql" else "pessimistic"))
        with pytest.raises(AssertionError):
            check(stage(strategy=Disorderly()))


class TestWithoutTheSlackOfTheMarks:
    """A process that takes the time of its last claim as the low-water mark."""

    def test_a_job_of_a_slower_producer_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @settings(
            derandomize=True, database=None, deadline=None, phases=[Phase.generate], max_examples=300, report_multiple_bugs=False
        )
        @given(test_marks.steps)
        def check(taken: list[tuple[str, Any]]) -> None:
            test_marks.live_through(taken, test_marks.nothing_in_time_is_below)

        check()
        learn = LowWaterMarks.learn

        def forgetful(self: LowWaterMarks, claim: ClaimResult, now: int | None, rescanned: bool, seconds: float) -> None:
            learn(self, claim, now=now, rescanned=rescanned, seconds=seconds)
            if now is not None:
                self._floors.update(dict.fromkeys(claim.min_due, now))

        monkeypatch.setattr(LowWaterMarks, "learn", forgetful)
        with pytest.raises(AssertionError):
            check()


def test_a_stage_is_empty(stage: StageOf, kind: str) -> None:
    on = stage()
    queues: list[Queue] = [on.queue, on.rival]
    assert [queue.claim() for queue in queues] == [[], []]
