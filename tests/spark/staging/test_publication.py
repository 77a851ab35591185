"""What was staged becomes jobs, all of it and once, or nothing does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
from sqlalchemy import Connection, create_engine, delete, func, select

from queue_db import DuplicateJobError, QueueDB
from queue_db.errors import StagingError
from queue_db.spark.staging import store as staging
from queue_db.spark.staging.chunks import small, whole
from queue_db.spark.staging.store import Load, Published
from queue_db.spark.tables import spark_tables
from queue_db.store import Transaction
from tests.spark.staging.conftest import (
    Attempt,
    chunk_of,
    discard,
    jobs_of,
    ledger,
    load,
    load_at_once,
    new_number,
    nothing_was_published,
    payloads,
    publish,
    publishing,
    stage,
    staged,
)
from tests.spark.streams.conftest import Cut, cut_at


def test_all_that_was_staged_becomes_jobs_and_leaves_the_staging_table(db: QueueDB, name: str) -> None:
    entry = load(name, name, kind="mail", priority=-3, max_attempts=7)
    attempts = [stage(db, ["1", "2"], ["3"]), stage(db, ["4"])]
    assert payloads(db, name) == [], "staged jobs are no jobs yet"
    assert publish(db, entry, *attempts) == Published(4, 0)
    rows = jobs_of(db, name)
    assert [row.payload for row in rows] == ["1", "2", "3", "4"]
    assert {(row.kind, row.priority, row.max_attempts, row.version, row.attempts, row.unique_key) for row in rows} == {
        ("mail", -3, 7, 0, 0, None)
    }
    assert ledger(db, entry) == Published(4, 0)
    assert staged(db, *attempts) == 0
    claimed = db.queue(name).claim(10)
    assert sorted(job.payload for job in claimed) == [1, 2, 3, 4]
    assert all(db.queue(name).complete_many(claimed))


def test_the_same_version_is_published_once(db: QueueDB, name: str) -> None:
    entry = load(name, name)
    first, again = stage(db, ["1", "2"]), stage(db, ["1", "2"])
    assert publish(db, entry, first) == Published(2, 0)
    assert publish(db, entry, first) is None
    assert publish(db, entry, again) is None
    assert payloads(db, name) == ["1", "2"]
    assert ledger(db, entry) == Published(2, 0)
    # The rows of the second attempt are never published; the driver discards them.
    assert staged(db, again) == 1
    assert discard(db, again) == 1
    assert discard(db, again) == 0
    assert (staged(db, again), payloads(db, name)) == (0, ["1", "2"])


def test_another_version_or_another_app_is_another_load(db: QueueDB, name: str) -> None:
    assert publish(db, load(name, name, 1), stage(db, ["1"])) == Published(1, 0)
    assert publish(db, load(name, name, 2), stage(db, ["2"])) == Published(1, 0)
    assert publish(db, load(name, name.upper(), 1), stage(db, ["3"])) == Published(1, 0)
    assert publish(db, load(name, name, 2**63 - 1), stage(db, ["4"])) == Published(1, 0)
    assert payloads(db, name) == ["1", "2", "3", "4"]
    assert ledger(db, load(name, name, 3)) is None


def test_the_same_version_into_another_queue_is_another_load(db: QueueDB, name: str) -> None:
    """One txnAppId and txnVersion for several targets, as with Delta tables."""
    entries = [load(f"{name}-{target}", name, kept=kept) for target, kept in (("audit", True), ("billing", False))]
    for entry in entries:
        assert publish(db, entry, stage(db, ["1", "2"])) == Published(2, 0)
        assert publish(db, entry, stage(db, ["1", "2"])) is None
    assert [payloads(db, entry.queue) for entry in entries] == [["1", "2"], ["1", "2"]]
    # Its own count, too.
    third = load(f"{name}-third", name, policy="skip", fields=("unique_key",))
    assert publish(db, third, stage(db, {"payload": ["3", "4", "5"], "unique_key": ["a", "a", None]})) == Published(2, 1)
    assert [ledger(db, entry) for entry in (*entries, third)] == [Published(2, 0), Published(2, 0), Published(2, 1)]
    with pytest.raises(StagingError, match=f"was published into queue {third.queue!r} before with 3 jobs"):
        publish(db, third, stage(db, {"payload": ["3"], "unique_key": ["a"]}))


def test_a_load_without_rows_stands_in_the_ledger_too(db: QueueDB, name: str) -> None:
    assert publish(db, load(name, name)) == Published(0, 0)
    assert publish(db, load(name, name)) is None
    assert ledger(db, load(name, name)) == Published(0, 0)


@pytest.mark.parametrize("again", [[], ["3"], ["3", "4", "5"]], ids=len)
def test_another_load_under_an_old_version_is_refused(db: QueueDB, name: str, again: list[str]) -> None:
    entry = load(name, name)
    assert publish(db, entry, stage(db, ["1", "2"])) == Published(2, 0)
    attempts = [stage(db, again)] if again else []
    with pytest.raises(
        StagingError, match=f"was published into queue {name!r} before with 2 jobs, and this time it has {len(again)}"
    ):
        publish(db, entry, *attempts)
    assert (payloads(db, name), ledger(db, entry), staged(db, *attempts)) == (["1", "2"], Published(2, 0), len(attempts))


def test_attempts_in_no_message_are_not_published(db: QueueDB, name: str) -> None:
    named, late = stage(db, ["1"], ["2"]), stage(db, ["1"], ["2"])
    assert publish(db, load(name, name), named) == Published(2, 0)
    assert payloads(db, name) == ["1", "2"]
    assert staged(db, late) == 2


def test_more_attempts_than_go_into_one_statement(db: QueueDB, name: str) -> None:
    first = new_number(db)
    numbers = [first + place for place in range(450)]

    def stage_all(connection: Connection) -> None:
        for number in numbers:
            staging.stage(Transaction(connection, db.store), number, [(1, f'[["{number}"]]')])

    db.database.run(stage_all, name="stage")
    attempts = [Attempt(number, 1, 1) for number in numbers]
    assert publish(db, load(name, name), *attempts) == Published(450, 0)
    assert payloads(db, name) == sorted(map(str, numbers))
    assert staged(db, *attempts[:300]) + staged(db, *attempts[300:]) == 0


@pytest.mark.parametrize("keyed", [False, True], ids=["by the database", "one by one"])
class TestMissing:
    """A publication that does not find all that was staged is refused."""

    @pytest.fixture
    def staged_both(self, db: QueueDB, keyed: bool) -> tuple[Attempt, Attempt]:
        def rows(*numbers: int) -> dict[str, list[str]]:
            return {"payload": [str(number) for number in numbers]} | (
                {"unique_key": [f"key {number}" for number in numbers]} if keyed else {}
            )

        return stage(db, rows(1, 2), rows(3)), stage(db, rows(4))

    @pytest.fixture
    def entry(self, name: str, keyed: bool) -> staging.Load:
        return load(name, name, fields=("unique_key",) if keyed else ())

    @pytest.mark.parametrize("what", ["a chunk", "an attempt", "all of them"])
    def test_a_load_with_missing_chunks_is_refused_and_leaves_no_ledger_row(
        self, db: QueueDB, entry: staging.Load, staged_both: tuple[Attempt, Attempt], what: str
    ) -> None:
        first, second = staged_both
        table = spark_tables(db.store.tables).staged
        gone = {
            "a chunk": [(table.c.attempt == first.number) & (table.c.place == 0)],
            "an attempt": [table.c.attempt == second.number],
            "all of them": [table.c.attempt.in_([first.number, second.number])],
        }[what]
        db.database.run(lambda connection: connection.execute(delete(table).where(*gone)), name="lose")
        left = staged(db, first, second)
        with pytest.raises(StagingError, match=f"{left} of 3 staged chunks .* Nothing was published"):
            publish(db, entry, first, second)
        nothing_was_published(db, entry)
        assert staged(db, first, second) == left, "what is left was deleted"

    def test_a_count_of_jobs_that_is_wrong_is_refused(
        self, db: QueueDB, entry: staging.Load, staged_both: tuple[Attempt, Attempt]
    ) -> None:
        first, second = staged_both
        with pytest.raises(StagingError, match="4 of 5 jobs"):
            publish(db, entry, first, Attempt(second.number, second.chunks, 2))
        nothing_was_published(db, entry)
        # It was the message that was wrong: what was staged is still there.
        assert publish(db, entry, first, second) == Published(4, 0)

    def test_after_a_refusal_the_load_can_be_run_again(
        self, db: QueueDB, entry: staging.Load, staged_both: tuple[Attempt, Attempt], keyed: bool
    ) -> None:
        first, second = staged_both
        assert discard(db, second) == 1
        with pytest.raises(StagingError):
            publish(db, entry, first, second)
        again = stage(db, {"payload": ["4"]} | ({"unique_key": ["key 4"]} if keyed else {}))
        assert publish(db, entry, first, again) == Published(4, 0)
        assert payloads(db, entry.queue) == ["1", "2", "3", "4"]


def test_a_publication_cut_at_any_of_its_statements_leaves_everything_as_it_was(db: QueueDB, name: str) -> None:
    queue, at = f"{name}-cut", 0
    db.queue(queue).enqueue("k", 0, unique_key="taken")
    while True:
        at += 1
        entry = load(queue, name, at, policy="skip", fields=("unique_key",))
        attempt = stage(db, {"payload": [f"{at}", "9"], "unique_key": [f"{at}", "taken"]})
        before = jobs_of(db, queue)
        with cut_at(db.database.engine, at) as cut, suppress(Cut):
            published = publish(db, entry, attempt)
        if not cut:
            break
        assert jobs_of(db, queue) == before
        assert (ledger(db, entry), staged(db, attempt)) == (None, 1)
    assert at > 5, "too few statements were cut"
    assert published == Published(1, 1)
    assert ledger(db, entry) == Published(1, 1)


class TestUniqueKeys:
    """Rows with unique keys go in as any enqueue does it."""

    def rows(self, *keys: str | None) -> dict[str, list[str | None]]:
        return {"payload": [f'"{key} new"' for key in keys], "unique_key": list(keys)}

    def test_skip_leaves_the_live_job_and_counts_it(self, db: QueueDB, name: str) -> None:
        db.queue(name).enqueue("k", "a old", unique_key="a")
        entry = load(name, name, policy="skip", fields=("unique_key",))
        # The second b of one load is a duplicate of the first.
        assert publish(db, entry, stage(db, self.rows("a", "b"), self.rows("b", None))) == Published(2, 2)
        assert payloads(db, name) == ['"None new"', '"a old"', '"b new"']
        assert ledger(db, entry) == Published(2, 2)
        # What was skipped was in the load too.
        assert publish(db, entry, stage(db, self.rows("a", "b"), self.rows("b", None))) is None

    def test_raise_publishes_nothing(self, db: QueueDB, name: str) -> None:
        queue = db.queue(name)
        job_id = queue.enqueue("k", "a old", unique_key="a")
        entry = load(name, name, fields=("unique_key",))
        attempt = stage(db, self.rows("b"), self.rows("c", "a"))
        with pytest.raises(DuplicateJobError) as caught:
            publish(db, entry, attempt)
        assert (caught.value.unique_key, caught.value.existing_id) == ("a", job_id)
        assert (payloads(db, name), ledger(db, entry), staged(db, attempt)) == (['"a old"'], None, 2)
        queue.purge()
        assert publish(db, entry, attempt) == Published(3, 0)

    def test_replace_puts_the_new_content_in_the_place_of_the_old(self, db: QueueDB, name: str) -> None:
        job_id = db.queue(name).enqueue("k", "a old", unique_key="a", priority=5)
        entry = load(name, name, policy="replace", fields=("unique_key",))
        assert publish(db, entry, stage(db, self.rows("a", "b"))) == Published(2, 0)
        assert payloads(db, name) == ['"a new"', '"b new"']
        row = jobs_of(db, name)[0]
        assert (row.id, row.payload, row.version, row.priority) == (job_id, '"a new"', 1, 0)

    def test_replace_takes_the_last_row_of_a_key(self, db: QueueDB, name: str) -> None:
        entry = load(name, name, policy="replace", fields=("unique_key",))
        rows = {"payload": ["1", "2"], "unique_key": ["a", "a"]}
        assert publish(db, entry, stage(db, rows)) is not None
        assert payloads(db, name) == ["2"]

    def test_more_jobs_than_go_into_one_call(self, db: QueueDB, name: str) -> None:
        entry = load(name, name, policy="skip", fields=("unique_key",))
        numbers = [str(number) for number in range(2100)]
        attempt = stage(db, {"payload": numbers, "unique_key": numbers}, {"payload": ["0"] * 3, "unique_key": numbers[:3]})
        assert publish(db, entry, attempt) == Published(2100, 3)
        assert payloads(db, name) == sorted(numbers)


class TestLoadingAtOnce:
    """A chunk that goes straight into the queue."""

    def test_its_jobs_are_in_the_queue(self, db: QueueDB, name: str) -> None:
        entry = load(name, "", 0, kept=False, kind="mail")
        assert load_at_once(db, entry, ["1", "2"]) == 2
        assert load_at_once(db, entry, ["2"]) == 1
        assert payloads(db, name) == ["1", "2", "2"]
        assert {row.kind for row in jobs_of(db, name)} == {"mail"}
        assert ledger(db, entry) is None

    @pytest.mark.parametrize(("policy", "added", "left"), [("skip", 1, ["1", "2"]), ("replace", 2, ["2", "3"])])
    def test_duplicate_keys_are_skipped(self, db: QueueDB, name: str, policy: str, added: int, left: list[str]) -> None:
        db.queue(name).enqueue("k", 1, unique_key="a")
        entry = load(name, "", 0, policy=policy, fields=("unique_key",))
        assert load_at_once(db, entry, {"payload": ["3", "2"], "unique_key": ["a", "b"]}) == added
        assert payloads(db, name) == left


class TestSmallLoads:
    """Chunks that were not staged but travel with the tasks' messages."""

    @staticmethod
    def publish(db: QueueDB, entry: Load, jobs: int, *chunks: str, attempts: Sequence[Attempt] = ()) -> Published | None:
        work = partial(
            staging.publish,
            load=entry,
            attempts={attempt.number: attempt.chunks for attempt in attempts},
            jobs=jobs,
            parts=[
                *(attempt.number for attempt in attempts),
                *(packed for chunk in chunks if (packed := small(chunk)) is not None),
            ],
        )
        return db.database.run(work, store=db.store, name="publish", repeatable=True)

    def test_they_are_published_once(self, db: QueueDB, name: str) -> None:
        entry = load(name, name, kind="mail")
        chunks = [chunk_of(rows)[1] for rows in (["1", "2"], ["3"])]
        assert self.publish(db, entry, 3, *chunks) == Published(3, 0)
        assert self.publish(db, entry, 3, *chunks) is None
        assert payloads(db, name) == ["1", "2", "3"]
        assert {row.kind for row in jobs_of(db, name)} == {"mail"}
        assert ledger(db, entry) == Published(3, 0)

    def test_they_are_published_together_with_staged_ones(self, db: QueueDB, name: str) -> None:
        attempt = stage(db, ["1", "2"])
        assert self.publish(db, load(name, name), 3, chunk_of(["3"])[1], attempts=[attempt]) == Published(3, 0)
        assert payloads(db, name) == ["1", "2", "3"]

    def test_nothing_is_published_if_a_staged_one_is_missing(self, db: QueueDB, name: str) -> None:
        entry, attempt = load(name, name), stage(db, ["1", "2"])
        discard(db, attempt)
        with pytest.raises(StagingError, match="run the load again"):
            self.publish(db, entry, 3, chunk_of(["3"])[1], attempts=[attempt])
        nothing_was_published(db, entry)

    def test_duplicate_keys_are_skipped(self, db: QueueDB, name: str) -> None:
        db.queue(name).enqueue("k", 1, unique_key="a")
        entry = load(name, name, policy="skip", fields=("unique_key",))
        chunks = [chunk_of({"payload": [payload], "unique_key": [key]})[1] for payload, key in (("2", "a"), ("3", "b"))]
        assert self.publish(db, entry, 2, *chunks) == Published(1, 1)
        assert payloads(db, name) == ["1", "3"]

    def test_chunks_up_to_the_limits_are_small(self) -> None:
        for chunk in ("", "x", "x" * 65_536, "\U0001f600" * 100):
            packed = small(chunk)
            assert packed is not None
            assert whole(packed) == chunk
        assert small("x" * 65_537) is None
        assert small("".join(map(chr, random.Random(1).choices(range(0x20, 0xD000), k=20_000)))) is None

    def test_thousands_of_them_are_published(self, db: QueueDB, name: str) -> None:
        chunks = [chunk_of([str(number)])[1] for number in range(12_000)]
        assert self.publish(db, load(name, name), 12_000, *chunks) == Published(12_000, 0)
        assert payloads(db, name) == sorted(map(str, range(12_000)))


class TestSweeping:
    """Old chunks and ledger rows are deleted."""

    #: Seconds; no other test stages or publishes anything as old as that.
    AGE = 30 * 365 * 86_400.0

    def sweep(self, db: QueueDB, age: float, limit: int = 10_000) -> int:
        return db.core.write("staging.sweep", staging.sweep, age=age, limit=limit)

    def old(self, place: int) -> int:
        return (1000 + place) << 22  # of the year 1970

    def test_old_attempts_go_and_young_ones_stay(self, db: QueueDB, name: str) -> None:
        young, old = stage(db, ["1"], ["2"]), [stage(db, ["1"], ["2"], number=self.old(place)) for place in range(3)]
        assert self.sweep(db, self.AGE, limit=4) == 4
        assert [staged(db, attempt) for attempt in old] == [0, 0, 2], "the oldest go first"
        assert self.sweep(db, self.AGE) == 2
        assert self.sweep(db, self.AGE) == 0
        assert (staged(db, *old), staged(db, young)) == (0, 2)
        assert publish(db, load(name, name), young) == Published(2, 0)
        with pytest.raises(StagingError):
            publish(db, load(name, name, 2), old[0])

    def test_an_attempt_is_as_old_as_its_number(self, db: QueueDB) -> None:
        mine = stage(db, ["1"])
        self.sweep(db, 600.0)
        assert staged(db, mine) == 1
        self.sweep(db, -600.0)
        assert staged(db, mine) == 0

    def test_only_old_ledger_rows_that_are_not_kept_are_deleted(self, open_db: Callable[..., QueueDB], name: str) -> None:
        past, now = 10**15, 10**15 + 100_000_000  # microseconds, in 2001
        then, later = open_db(clock=lambda: past), open_db(clock=lambda: now)
        entries = {
            "old": (then, load(name, f"{name} old", kept=False)),
            "kept": (then, load(name, f"{name} kept")),
            "young": (later, load(name, f"{name} young", kept=False)),
        }
        for db, entry in entries.values():
            assert publish(db, entry, stage(db, ["1"])) == Published(1, 0)
        self.sweep(later, 101.0)
        assert {what for what, (_, entry) in entries.items() if ledger(later, entry)} == {"old", "kept", "young"}
        assert self.sweep(later, 99.0) == 1
        assert {what for what, (_, entry) in entries.items() if ledger(later, entry)} == {"kept", "young"}
        for what in ("kept", "young"):
            assert publish(later, entries[what][1], stage(later, ["1"])) is None

    def test_old_versions_are_deleted(self, db: QueueDB, name: str) -> None:
        for app in (name, f"{name} other"):
            for version in (1, 2, 3):
                assert publish(db, load(name, app, version)) == Published(0, 0)
        db.core.write("staging.forget_versions", staging.forget_versions, app=name, below=3)
        assert [ledger(db, load(name, name, version)) is None for version in (1, 2, 3)] == [True, True, False]
        assert all(ledger(db, load(name, f"{name} other", version)) for version in (1, 2, 3))


def test_attempts_have_numbers_of_their_own(db: QueueDB) -> None:
    def draw(connection: Connection) -> list[int]:
        return [staging.new_attempt(Transaction(connection, db.store)) for _ in range(500)]

    numbers = db.database.run(draw, name="attempts")
    assert len(set(numbers)) > 495, "the same number again and again"
    assert all(0 < number < 2**63 for number in numbers)


def test_two_attempts_with_one_number_are_not_mixed(db: QueueDB) -> None:
    attempt = stage(db, ["1"])
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        stage(db, ["2"], ["3"], number=attempt.number)
    assert staged(db, attempt) == 1


def test_a_callers_engine_works(url: str, name: str) -> None:
    engine = create_engine(url)
    with QueueDB(engine) as db:
        entry = load(name, name)
        attempts = [stage(db, ["1"]), stage(db, ["2"])]
        assert publish(db, entry, attempts[0]) == Published(1, 0)
        assert publish(db, entry, attempts[1]) is None
        assert discard(db, attempts[1]) == 1
        with pytest.raises(StagingError):
            publish(db, load(name, name, 2), attempts[1])
        assert payloads(db, name) == ["1"]
    engine.dispose()


def test_tables_of_another_name_work(url: str, name: str) -> None:
    with QueueDB(url, table="other_jobs") as db, QueueDB(url) as plain:
        db.migrate()
        assert publish(db, load(name, name), stage(db, ["1"])) == Published(1, 0)
        assert (payloads(db, name), payloads(plain, name)) == (["1"], [])
        assert ledger(plain, load(name, name)) is None
        jobs = db.store.tables.jobs
        count = select(func.count()).select_from(jobs)
        assert db.database.run(lambda connection: connection.execute(count).scalar_one(), name="count") == 1


def test_a_publication_that_is_rolled_back_leaves_nothing(db: QueueDB, name: str) -> None:
    entry, attempt = load(name, name), stage(db, ["1"])

    class Died(Exception):
        pass

    def die(connection: Connection) -> None:
        assert publishing(entry, attempt)(Transaction(connection, db.store)) == Published(1, 0)
        raise Died

    with pytest.raises(Died):
        db.database.run(die, name="publish")
    nothing_was_published(db, entry)
    assert publish(db, entry, attempt) == Published(1, 0)
