"""Servers and networks that break while a load is staged and published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event, make_url, text

from queue_db import QueueDB, StorageError
from queue_db.errors import StagingError
from queue_db.spark.staging.store import Published
from queue_db.spark.tables import spark_tables
from tests.faults.conftest import WAITS
from tests.servers import Server, provide
from tests.servers.proxy import Proxy
from tests.spark.staging.conftest import Attempt, ledger, load, payloads, publish, stage, staged

SERVERS = ["postgresql", "mysql", "mariadb"]


@pytest.mark.parametrize("kind", SERVERS, scope="session")
class TestNetwork:
    """A connection is cut while a transaction commits."""

    @pytest.fixture
    def proxy(self, url: str) -> Iterator[Proxy]:
        with Proxy.before(url) as between:
            yield between

    @pytest.fixture
    def far(self, kind: str, url: str, proxy: Proxy, db: QueueDB) -> Iterator[QueueDB]:
        # `db` is there first: MySQL lets a password in without TLS only once it has seen it with TLS.
        with QueueDB(make_url(proxy.url(url)).update_query_dict(WAITS[kind])) as remote:
            remote.check()
            yield remote

    def test_a_publication_whose_reply_is_lost_is_run_again_and_finds_it_done(
        self, kind: str, db: QueueDB, far: QueueDB, proxy: Proxy, name: str
    ) -> None:
        entry, attempt = load(name, name), stage(db, ["1"], ["2"])
        proxy.swallow("COMMIT")
        assert publish(far, entry, attempt) is None
        assert proxy.wait_swallowed()
        assert far.counters.retried == 1
        assert (payloads(db, name), ledger(db, entry), staged(db, attempt)) == (["1", "2"], Published(2, 0), 0)

    def test_a_publication_whose_commit_never_arrived_is_run_again_and_done(
        self, kind: str, db: QueueDB, far: QueueDB, proxy: Proxy, name: str
    ) -> None:
        entry, attempt = load(name, name), stage(db, ["1"], ["2"])
        cut: list[int] = []

        def before(connection: object, cursor: object, statement: str, *_: object) -> None:
            if statement == "COMMIT" and not cut:
                cut.append(proxy.cut())

        event.listen(far.database.engine, "before_cursor_execute", before)
        assert publish(far, entry, attempt) == Published(2, 0)
        assert cut
        assert far.counters.retried >= 1
        assert (payloads(db, name), ledger(db, entry), staged(db, attempt)) == (["1", "2"], Published(2, 0), 0)

    def test_an_attempt_staged_with_a_lost_reply_has_an_unknown_outcome_and_is_not_published(
        self, kind: str, db: QueueDB, far: QueueDB, proxy: Proxy, name: str
    ) -> None:
        number = 5 << 22
        proxy.swallow("COMMIT")
        with pytest.raises(StorageError) as doubt:
            stage(far, ["1"], number=number)
        assert doubt.value.outcome_unknown
        # The task fails, and Spark runs it again under another number.
        assert publish(db, load(name, name), stage(far, ["1"])) == Published(1, 0)
        assert payloads(db, name) == ["1"]
        table = spark_tables(db.store.tables).staged
        with db.database.begin() as connection:
            assert connection.execute(table.delete().where(table.c.attempt == number)).rowcount == 1


@pytest.fixture
def server(kind: str) -> Iterator[Server]:
    started = provide(kind)
    yield started
    started.remove()


@pytest.mark.parametrize("kind", SERVERS, scope="session")
def test_a_server_that_is_killed_keeps_what_it_published_and_refuses_what_it_lost(kind: str, server: Server) -> None:
    with QueueDB(server.create_database()) as db:
        db.migrate()
        done, entry = load("q", "done"), load("q", "app")
        assert publish(db, done, stage(db, ["1"])) == Published(1, 0)
        attempts = [stage(db, ["2"], ["3"]), stage(db, ["4"])]
        server.kill()
        server.start()
        assert (payloads(db, "q"), ledger(db, done)) == (["1"], Published(1, 0))
        assert publish(db, done, Attempt(attempts[1].number, 1, 1)) is None
        if kind == "postgresql":
            with db.database.engine.connect() as connection:
                kept = connection.execute(text("SELECT relpersistence FROM pg_class WHERE relname = 'jobs_staged'")).scalar_one()
            assert kept == "u", "the table is logged"
            assert staged(db, *attempts) == 0
            with pytest.raises(StagingError, match="0 of 3 staged chunks and 0 of 3 jobs"):
                publish(db, entry, *attempts)
            # What was staged afterwards is not published without the rest.
            attempts = [attempts[0], stage(db, ["4"])]
            with pytest.raises(StagingError, match="1 of 3 staged chunks and 1 of 3 jobs"):
                publish(db, entry, *attempts)
            assert (payloads(db, "q"), ledger(db, entry)) == (["1"], None)
            attempts = [stage(db, ["2"], ["3"]), attempts[1]]
        assert publish(db, entry, *attempts) == Published(3, 0)
        assert payloads(db, "q") == ["1", "2", "3", "4"]
