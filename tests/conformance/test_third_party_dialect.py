"""A database that queue_db has no dialect for: the portable defaults of the dialect seam serve it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.ddl.impl import DefaultImpl

from queue_db import ConfigurationError, JobNotFoundError, QueueDB, UnsupportedError
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB
from tests.conformance import grid, third_party
from tests.conformance.combinations import REMOVALS, Combination
from tests.conformance.pool import on_pool
from tests.spark.streams.conftest import open_stream

#: A strategy with a fixed window, so that slices of it are read too.
STRATEGY = "optimistic"
CELLS = [Combination("acme", STRATEGY, removal) for removal in REMOVALS]


def on_its_axes(axes: grid.Axes, cell: Combination) -> bool:
    """The whole suite with the default removal; with the others what depends on the removal."""
    return cell.removal == grid.REMOVAL or axes in {grid.Axes.REMOVAL, grid.Axes.EITHER, grid.Axes.BOTH}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    grid.parametrize(metafunc, CELLS, on_its_axes)


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    with QueueDB(f"acme:///{tmp_path_factory.mktemp('acme')}/queue.db") as db:
        db.migrate()
        assert type(db.database.dialect) is third_party.Acme
        assert db.store.tables.jobs.name in db.migration_sql()
        yield db


@pytest.fixture
def open_db(acme: QueueDB, combination: Combination) -> OpenDB:
    def open_it(**options: object) -> QueueDB:
        given = {"strategy": STRATEGY, "removal": combination.removal} | options
        return on_pool(QueueDB(acme.database.engine, **given), acme)  # type: ignore[arg-type]

    return open_it


@pytest.fixture
def displacement() -> int:
    return 9


@pytest.mark.parametrize("options", [{}, {"unique_key": "key"}], ids=["plain", "keyed"])
def test_a_stream_reads_it(acme: QueueDB, name: str, options: dict[str, str]) -> None:
    """The suite has no class for streams, which need the bulk verbs."""
    queue = acme.queue(name)
    ids = [queue.enqueue("mail", number, **(options if number == 0 else {})) for number in range(5)]
    reader = open_stream(acme, name)
    start = reader.initial()
    end = reader.allocate(start)
    assert reader.ids(start, end) == ids
    assert queue.claim(10) == []
    reader.complete(end)
    with pytest.raises(JobNotFoundError):
        queue.get(ids[0])
    assert (queue.stats().available, queue.stats().held) == (0, 0)


def test_without_support_of_alembic_the_error_says_what_it_needs(
    acme: QueueDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefaultImpl, "get_by_dialect", lambda dialect: {}[dialect.name])
    with QueueDB(f"acme:///{tmp_path}/queue.db") as db:
        for verb in (db.migrate, db.migration_sql):
            with pytest.raises(ConfigurationError, match="Alembic.* does not know 'acme': import a subclass of .*DefaultImpl"):
                verb()


def test_without_row_locks_a_claim_that_would_lock_is_one_that_does_not(acme: QueueDB, name: str) -> None:
    with QueueDB(acme.database.engine, strategy="pessimistic") as db:
        queue = db.queue(name)
        ids = queue.enqueue_many([("mail", number) for number in range(3)])
        assert [job.id for job in queue.claim(2) + queue.claim(2)] == ids
        assert queue.claim() == []


def test_a_missing_capability_is_refused(acme: QueueDB) -> None:
    with pytest.raises(UnsupportedError, match="SKIP LOCKED") as caught:
        QueueDB(acme.database.engine.url, strategy="skip_locked")
    assert caught.value.dialect == "acme"
