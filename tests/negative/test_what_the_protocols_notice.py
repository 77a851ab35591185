"""Negative controls of staged loads and of streams: without a guarantee the check for it must fail."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import ColumnElement, Row, delete, insert, select, update

from queue_db import QueueDB, StorageError
from queue_db.dialects import transactions
from queue_db.dialects.base import Dialect
from queue_db.errors import CheckpointMismatchError
from queue_db.spark.dialects import Move, SparkDialect
from queue_db.spark.staging import store as staging
from queue_db.spark.staging.store import Load, Published
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.store import Offset, Session, completion, position, reading, releases
from queue_db.spark.tables import spark_tables
from queue_db.store import Transaction
from queue_db.testing import SettableClock
from tests.handles import Handles
from tests.spark.staging import test_publication_loses
from tests.spark.streams import (
    test_stream_batches,
    test_stream_checkpoints,
    test_stream_keys,
    test_stream_loses,
    test_stream_release,
)
from tests.spark.streams.test_stream_machine import run_quickly

#: How a check fails: an assertion, or an expected error that is not raised.
NOTICED = (AssertionError, pytest.fail.Exception)

SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])

#: Enough examples for the state machine to find each of these.
EXAMPLES = 100


@pytest.fixture
def ours(handles: Handles, url: str, clock: SettableClock) -> QueueDB:
    return handles.get(url, "ours", settable=True)


@pytest.fixture
def theirs(handles: Handles, url: str, clock: SettableClock) -> QueueDB:
    return handles.get(url, "theirs", settable=True)


@pytest.fixture
def noticed() -> Callable[[Callable[[str], object], Callable[[], object]], None]:
    """Run a check on the library as it is, and again on a broken one, each on a new queue."""

    def run(check: Callable[[str], object], take_away: Callable[[], object]) -> None:
        check(f"whole-{uuid.uuid4().hex[:12]}")
        take_away()
        with pytest.raises(NOTICED):
            check(f"broken-{uuid.uuid4().hex[:12]}")

    return run


# --- staged loads -----------------------------------------------------------------------------------------------------


def publish_without_the_ledger(tx: Transaction, load: Load, attempts: Mapping[int, int], jobs: int) -> Published:
    _, added = staging._copy(tx, load, list(attempts))
    staging._delete(tx, list(attempts))
    return Published(added, 0)


def publish_without_counting(tx: Transaction, load: Load, attempts: Mapping[int, int], jobs: int) -> Published:
    entry = {"app": load.app, "version": load.version, "queue": load.queue, "size": jobs, "published_at": 0}
    tx.connection.execute(insert(spark_tables(tx.tables).published).values(entry))
    _, added = staging._copy(tx, load, list(attempts))
    staging._delete(tx, list(attempts))
    return Published(added, 0)


class TestPublications:
    def test_without_the_ledger_a_load_that_comes_twice_is_noticed(
        self, ours: QueueDB, theirs: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noticed(
            lambda name: test_publication_loses.test_the_second_of_two_publishers_at_once_finds_it_done(ours, theirs, name),
            lambda: monkeypatch.setattr(staging, "publish", publish_without_the_ledger),
        )

    @pytest.mark.parametrize("part", ["all", "one"])
    def test_without_the_count_what_a_discard_leaves_is_noticed(
        self, kind: str, ours: QueueDB, theirs: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        noticed(
            lambda name: test_publication_loses.test_a_publication_loses_to_a_discard(kind, ours, theirs, name, part, True),
            lambda: monkeypatch.setattr(staging, "publish", publish_without_counting),
        )

    @SERVERS
    def test_without_the_count_a_discard_in_the_middle_is_noticed(
        self, kind: str, ours: QueueDB, theirs: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noticed(
            lambda name: test_publication_loses.test_a_publication_loses_to_a_discard_between_its_copy_and_its_deletion(
                lambda _: None, ours, theirs, name, "one", False
            ),
            lambda: monkeypatch.setattr(staging, "publish", publish_without_counting),
        )


# --- streams ----------------------------------------------------------------------------------------------------------


def break_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim commits before its record."""
    parts = reading.batch_ranges

    def commit_before(tx: Transaction, *rest: Any) -> Any:
        transaction = transactions.own(tx.connection)
        assert transaction is not None
        transaction.commit()
        transaction.begin()
        return parts(tx, *rest)

    monkeypatch.setattr(reading, "batch_ranges", commit_before)


def break_the_epoch_of_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(tx: Transaction, session: Session, end: Offset) -> None:
        row = position.locked(tx, session.name)
        assert row is not None
        if end.batch > row.acked:
            position.check(tx, row, end)
            completion.complete_up_to(tx, row, end)

    monkeypatch.setattr(streams, "complete", complete)


def break_the_epoch_of_takeovers(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = streams.open_stream

    def open_stream(tx: Transaction, *rest: Any, **more: Any) -> Session:
        session = take_over(tx, *rest, **more)
        table = spark_tables(tx.tables).streams
        tx.connection.execute(update(table).where(table.c.id == session.stream).values(epoch=1))
        return replace(session, epoch=1)

    monkeypatch.setattr(streams, "open_stream", open_stream)


def break_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(tx: Transaction, row: Row[Any], offset: Offset) -> None:
        if not row.acked <= offset.batch <= row.allocated:
            raise CheckpointMismatchError(f"the checkpoint and stream {row.name!r} do not belong together")

    for module in (reading, completion):
        monkeypatch.setattr(module, "check", check)


def break_the_version_of_keyed_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current version of a job with a key is taken for the leased one."""

    def keyed(tx: Transaction, mine: ColumnElement[bool]) -> Iterator[Sequence[tuple[int, int]]]:
        jobs, held = tx.tables.jobs, spark_tables(tx.tables).held
        query = select(jobs.c.id, jobs.c.version).join(held, held.c.id == jobs.c.id).where(mine, held.c.unique_key.is_not(None))
        if found := [(row.id, row.version) for row in tx.connection.execute(query)]:
            yield found

    for module in (completion, releases):
        monkeypatch.setattr(module, "keyed_pairs", keyed)


def break_the_token_of_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A released job keeps the token of the last claim."""
    release = releases.release_row

    def keep(tx: Transaction, row: Row[Any]) -> int:
        table = spark_tables(tx.tables).streams
        last = position.batches_between(tx, row.id, row.allocated, row.allocated)
        back = release(tx, row)
        claim = last[0].claim if last else row.acked_claim
        tx.connection.execute(update(table).where(table.c.id == row.id).values(acked_claim=claim))
        return back

    monkeypatch.setattr(releases, "release_row", keep)


def break_the_count_of_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release counts as an attempt."""
    monkeypatch.setattr(releases, "attempt_before", lambda table: table.c.attempts)


def break_the_look_before_the_deletion(monkeypatch: pytest.MonkeyPatch, dialect: Dialect) -> None:
    """A claim takes jobs that were due at its read, whatever their state is now."""

    def move_to_held(_dialect: object, tx: Transaction, move: Move, parameters: Mapping[str, Any]) -> int:
        connection = tx.connection
        jobs, values = move.jobs, move.values
        found = select(jobs.c.id).where(*move.due).order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id).limit(move.limit)
        ids = list(connection.execute(found, parameters).scalars())
        connection.execute(
            insert(move.held).from_select(list(values), select(*values.values()).where(jobs.c.id.in_(ids))), parameters
        )
        connection.execute(delete(jobs).where(jobs.c.id.in_(ids)))
        return len(ids)

    monkeypatch.setattr(type(SparkDialect.of(dialect)), "move_to_held", move_to_held)


class TestStreams:
    def test_a_claim_that_commits_before_its_record_is_noticed(
        self, ours: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noticed(
            lambda name: test_stream_batches.test_an_allocation_that_dies_at_any_of_its_statements_changes_nothing(ours, name),
            lambda: break_the_record(monkeypatch),
        )

    def test_a_completion_that_ignores_the_epoch_is_noticed(
        self, ours: QueueDB, theirs: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noticed(
            lambda name: test_stream_batches.test_an_older_session_is_fenced_in_every_verb(ours, theirs, name),
            lambda: break_the_epoch_of_completions(monkeypatch),
        )

    def test_a_takeover_that_leaves_the_epoch_is_noticed(
        self, ours: QueueDB, theirs: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noticed(
            lambda name: test_stream_loses.test_of_two_readers_that_open_a_stream_at_once_the_first_one_loses(
                ours, theirs, name, False
            ),
            lambda: break_the_epoch_of_takeovers(monkeypatch),
        )

    @pytest.mark.parametrize("checkpoint", ["made up", "from before a backup was restored"])
    def test_a_check_that_ignores_the_token_is_noticed(
        self, ours: QueueDB, theirs: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch, checkpoint: str
    ) -> None:
        def made_up(name: str) -> None:
            test_stream_checkpoints.test_an_offset_with_the_token_of_another_claim_is_refused(
                test_stream_checkpoints.three_batches(ours, name)
            )

        def restored(name: str) -> None:
            ahead = test_stream_checkpoints.restored(ours, name)
            test_stream_checkpoints.TestBackup().test_a_checkpoint_with_other_batches_of_the_same_numbers_is_refused(
                theirs, name, ahead, "claimed twice"
            )

        noticed(made_up if checkpoint == "made up" else restored, lambda: break_the_token(monkeypatch))

    def test_a_release_that_keeps_the_token_is_noticed(self, ours: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        noticed(
            lambda name: test_stream_checkpoints.test_an_offset_from_before_a_release_is_refused(
                test_stream_checkpoints.three_batches(ours, name), ours, name, True
            ),
            lambda: break_the_token_of_releases(monkeypatch),
        )

    @pytest.mark.parametrize("end", ["complete", "release"])
    def test_an_end_that_ignores_the_versions_of_keyed_jobs_is_noticed(
        self, ours: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch, end: str
    ) -> None:
        def check(name: str) -> None:
            held = test_stream_keys.hold(ours, name)
            test_stream_keys.test_a_replaced_job_that_a_worker_has_is_left_to_it(ours, name, held, end)

        noticed(check, lambda: break_the_version_of_keyed_jobs(monkeypatch))

    def test_a_completion_that_takes_the_new_job_with_the_old_one_is_noticed(
        self, ours: QueueDB, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def check(name: str) -> None:
            held = test_stream_keys.hold(ours, name)
            test_stream_keys.test_a_job_that_was_replaced_while_held_is_not_completed_with_the_old_one(ours, name, held)

        noticed(check, lambda: break_the_version_of_keyed_jobs(monkeypatch))

    def test_a_release_that_counts_is_noticed(
        self, ours: QueueDB, theirs: QueueDB, clock: SettableClock, noticed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noticed(
            lambda name: test_stream_release.test_a_release_gives_everything_back_as_it_was(ours, theirs, clock, name, False),
            lambda: break_the_count_of_releases(monkeypatch),
        )

    @SERVERS
    def test_a_claim_of_jobs_that_another_session_took_is_noticed(
        self,
        kind: str,
        ours: QueueDB,
        theirs: QueueDB,
        clock: SettableClock,
        noticed: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        noticed(
            lambda name: test_stream_loses.test_a_claim_loses_to_what_commits_while_it_waits_and_goes_on_with_the_rest(
                kind, ours, theirs, clock, name, False
            ),
            lambda: break_the_look_before_the_deletion(monkeypatch, ours.database.dialect),
        )


@pytest.mark.parametrize(
    "broken",
    [break_the_epoch_of_completions, break_the_token, break_the_version_of_keyed_jobs],
    ids=lambda broken: broken.__name__.replace("_", " "),
)
@pytest.mark.parametrize("kind", ["sqlite"])
def test_the_machine_notices(
    kind: str, ours: QueueDB, clock: SettableClock, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    # Some of them end in a row that the database refuses.
    with pytest.raises((*NOTICED, StorageError)):
        run_quickly(ours, clock, EXAMPLES)
