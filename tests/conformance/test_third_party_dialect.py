"""A database that we have never heard of, served by the portable defaults of the dialect seam."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queue_db import QueueDB, UnsupportedError
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB
from tests.conformance import third_party
from tests.conformance.combinations import REMOVALS


@pytest.fixture(scope="module")
def acme_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"acme:///{tmp_path_factory.mktemp('acme')}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
        assert type(db.database.dialect) is third_party.Acme
        assert db.store.tables.jobs.name in db.migration_sql()
    return url


@pytest.fixture(params=REMOVALS)
def open_db(acme_url: str, request: pytest.FixtureRequest) -> Iterator[OpenDB]:
    opened: list[QueueDB] = []

    def open_it(**options: object) -> QueueDB:
        opened.append(QueueDB(acme_url, **{"strategy": "optimistic", "removal": request.param} | options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_it
    for db in opened:
        db.close()


@pytest.fixture
def displacement() -> int:
    return 9


def test_what_it_does_not_claim_to_have_is_refused(acme_url: str, shared_urls: Callable[[str], str]) -> None:
    with pytest.raises(UnsupportedError, match="SKIP LOCKED") as caught:
        QueueDB(acme_url, strategy="skip_locked")
    assert caught.value.dialect == "acme"
