"""What is wrong before the first job: each refusal says what it is and what to do, and never the password."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from queue_db import (
    Adaptive,
    Capability,
    ConfigurationError,
    PermanentStorageError,
    QueueDB,
    QueueDBError,
    SchemaOutOfDateError,
    StorageError,
    TransientStorageError,
    UnsupportedError,
)
from queue_db.aio import AsyncQueueDB
from queue_db.dialects import server_probe
from queue_db.strategies import known_strategies
from tests.aio.loop import for_asyncio
from tests.patience import wait_for
from tests.servers import over_tls, provide

SECRET = "hunter2-Zq"


def with_secret(url: str) -> str:
    return make_url(url).set(password=SECRET).render_as_string(hide_password=False)


def full_text(error: BaseException) -> str:
    """Everything that people get to see of an error."""
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nosuch://host/database", "unknown database scheme 'nosuch'; use one of: .*postgresql"),
        ("oracle://host/database", "'oracle'; use one of: .*postgresql"),
        ("postgresql+nosuch://host/database", r"unknown driver in 'postgresql\+nosuch'; use postgresql\+psycopg2"),
        ("queue.db", "not a database URL; write for example sqlite"),
        ("", "not a database URL"),
        (f"postgresql://u:{SECRET}@host:port/database", "not a database URL"),
    ],
)
def test_a_url_that_nobody_serves(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        QueueDB(url)
    assert SECRET not in full_text(refused.value)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_parameter_that_the_driver_does_not_know(kind: str, shared_urls: Callable[[str], str]) -> None:
    with pytest.raises((ConfigurationError, StorageError), match=r"cannot open .*nosuch"):
        QueueDB(make_url(shared_urls(kind)).update_query_dict({"nosuch": "1"}))


@pytest.mark.parametrize(
    ("scheme", "module", "extra"),
    [
        ("postgresql", "psycopg2", "postgresql"),
        ("mysql", "pymysql", "mysql"),
        ("mariadb", "pymysql", "mysql"),
    ],
)
def test_a_driver_that_is_not_installed_is_named_with_its_extra(scheme: str, module: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from queue_db import QueueDB, ConfigurationError\n"
        f"try: QueueDB('{scheme}://u:{SECRET}@127.0.0.1/d')\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f'pip install "queue-db[{extra}]"' in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_a_server_that_is_down(kind: str, shared_urls: Callable[[str], str], differs: Callable[[str], None]) -> None:
    differs("no server")
    nobody_listens = make_url(shared_urls(kind)).set(port=1).set(password=SECRET)
    with pytest.raises(TransientStorageError, match=r"cannot open .*:\*\*\*@127\.0\.0\.1:1/") as refused:
        QueueDB(nobody_listens)
    assert SECRET not in full_text(refused.value)


def test_a_server_that_is_down_on_the_default_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(TransientStorageError, match="cannot open"):
        QueueDB("postgresql:///nodb?port=1")
    monkeypatch.setenv("PGSERVICE", "elsewhere")
    assert server_probe.targets({"port": 1}) == []


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_that_is_full_is_a_transient_error_and_one_that_refuses_the_login_is_not(kind: str) -> None:
    # Room for all that are refused, for a connection that has ended may still have its place.
    most = 12
    full = ["-c", f"max_connections={most}", "-c", "superuser_reserved_connections=0", "-c", "max_wal_senders=0"]
    server = provide(kind, options=full)
    try:
        for wrong in (
            with_secret(server.url()),
            make_url(server.url()).set(username="nobody"),
            make_url(server.url()).set(database="x"),
        ):
            with pytest.raises(PermanentStorageError, match="cannot open"):
                QueueDB(wrong)
        engine = create_engine(server.url(), pool_size=most)

        def connected() -> Connection | None:
            with suppress(OperationalError):
                return engine.connect()
            return None

        held = [wait_for(connected) for _ in range(most)]
        with pytest.raises(TransientStorageError, match="cannot open .*too many clients"):
            QueueDB(server.url())
        for connection in held:
            connection.close()
        engine.dispose()
    finally:
        server.remove()


def test_a_wrong_password(
    kind: str, shared_urls: Callable[[str], str], differs: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    differs("no server")
    caplog.set_level(logging.DEBUG)
    with pytest.raises(PermanentStorageError, match=r"(?i)password|denied") as refused:
        QueueDB(with_secret(over_tls(shared_urls(kind))))
    assert SECRET not in full_text(refused.value)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", ["mysql"])
def test_a_password_that_mysql_will_not_take_without_tls(
    kind: str, shared_urls: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    with pytest.raises(ConfigurationError, match=r"cannot open .*:\*\*\*@.*cryptography") as refused:
        QueueDB(with_secret(shared_urls(kind)))
    assert SECRET not in full_text(refused.value)


def test_the_extras_of_mysql_bring_what_a_password_without_tls_needs() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in ("mysql", "async-mysql"):
        assert any(requirement.startswith("cryptography") for requirement in extras[extra])


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_over_tls(kind: str, shared_urls: Callable[[str], str], name: str) -> None:
    with QueueDB(over_tls(shared_urls(kind))) as db:
        with db.database.begin() as connection:
            assert connection.execute(text("SHOW STATUS LIKE 'Ssl_cipher'")).one()[1]
        db.queue(name).enqueue("work")
        assert [bool(job.complete()) for job in db.queue(name).claim()] == [True]


def test_a_password_that_the_server_knows_only_as_scram(name: str) -> None:
    """PostgreSQL's default. The servers of the other tests ask for the password itself, which takes less time."""
    server = provide("postgresql", durable=False)
    try:
        url = make_url(server.create_database())
        with QueueDB(url) as db:
            db.migrate()
            with db.database.begin() as connection:
                connection.exec_driver_sql("SET password_encryption = 'scram-sha-256'")
                connection.exec_driver_sql(f"CREATE ROLE \"{name}\" SUPERUSER LOGIN PASSWORD '{SECRET}'")
                rules = Path(str(connection.exec_driver_sql("SHOW hba_file").scalar()))
        server.stop()
        rules.write_text(f'host all "{name}" 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 password\n')
        server.start()
        # psycopg2 refuses a server that asks for anything else.
        plain = url.update_query_dict({"require_auth": "scram-sha-256"})
        with pytest.raises(StorageError, match="authentication"):
            QueueDB(plain)
        known = plain.set(username=name, password=SECRET)
        with QueueDB(known) as db:
            job_id = db.queue(name).enqueue("mail")
        with pytest.raises(PermanentStorageError, match="authentication failed") as refused:
            QueueDB(known.set(password=f"{SECRET}?"))
        assert SECRET not in full_text(refused.value)

        async def claimed(address: str) -> list[int]:
            async with AsyncQueueDB(address) as db:
                return [job.id for job in await db.queue(name).claim()]

        asynchronous = known.difference_update_query(["require_auth"]).render_as_string(hide_password=False)
        assert asyncio.run(claimed(for_asyncio(asynchronous))) == [job_id]
    finally:
        server.remove()


def test_a_database_that_is_not_there(kind: str, shared_urls: Callable[[str], str], tmp_path: Path) -> None:
    missing = make_url(shared_urls(kind)).set(database=f"{tmp_path}/nowhere/queue.db" if kind == "sqlite" else "nowhere")
    with pytest.raises(PermanentStorageError, match="nowhere"):
        QueueDB(missing)


def test_the_password_is_shown_nowhere(
    kind: str, url: str, name: str, differs: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    differs("no server")
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "sqlalchemy")
    password = make_url(url).password
    assert password
    with QueueDB(url) as db:
        queue = db.queue(name)
        queue.enqueue("k", {"n": 1})
        shown = [repr(db), db.url, repr(queue), repr(queue.claim())]
        assert "***" in db.url
        with pytest.raises(QueueDBError) as refused:
            db.queue("")
        shown.append(full_text(refused.value))
        with pytest.raises(StorageError) as broken:
            db.database.run(lambda connection: connection.execute(text("SELECT nothing FROM nowhere")), name="test")
        shown.append(full_text(broken.value))
    assert password not in "".join(shown) + caplog.text


@pytest.mark.parametrize("place", ["?password=", "?user=u&password="])
def test_a_password_in_the_query_is_masked(place: str, kind: str, differs: Callable[[str], None]) -> None:
    differs("no server")
    driver = "postgresql+psycopg2" if kind == "postgresql" else f"{kind}+pymysql"
    with pytest.raises(QueueDBError) as refused:
        QueueDB(f"{driver}://127.0.0.1:1/d{place}{SECRET}")
    assert SECRET not in full_text(refused.value)


def test_an_old_schema_is_refused_with_the_command_that_mends_it(kind: str, fresh_url: str) -> None:
    with QueueDB(fresh_url) as db:
        for verb in (db.check, db.queues, db.sweep, db.queue("q").claim, db.queue("q").stats, lambda: db.queue("q").enqueue("k")):
            with pytest.raises(SchemaOutOfDateError, match="queue-db migrate --url") as refused:
                verb()
            assert refused.value.found is None
            assert refused.value.required
            if kind != "sqlite":
                assert str(make_url(fresh_url).password) not in full_text(refused.value)
        db.migrate()
        db.queue("q").enqueue("k")
        with db.database.engine.begin() as connection:
            connection.execute(text("UPDATE jobs_schema_version SET version_num = '0000'"))
    with (
        QueueDB(fresh_url) as db,
        pytest.raises(SchemaOutOfDateError, match="at revision 0000, .* is required; run: queue-db migrate"),
    ):
        db.queue("q").claim()


def test_an_unknown_strategy_or_removal() -> None:
    with pytest.raises(ConfigurationError, match=f"unknown strategy 'fast'; known: {', '.join(known_strategies())} "):
        QueueDB("sqlite://", strategy="fast")
    with pytest.raises(ConfigurationError, match="unknown removal 'burn'; known: delete, delete_mark, lock_then_delete"):
        QueueDB("sqlite://", removal="burn")
    with pytest.raises(ConfigurationError, match="neither a name nor an object"):
        QueueDB("sqlite://", strategy=42)  # type: ignore[arg-type]


def test_a_strategy_that_the_database_cannot_serve(kind: str, url: str) -> None:
    if kind != "sqlite":
        with QueueDB(url, strategy="skip_locked") as db:
            assert Capability.SKIP_LOCKED in db.database.capabilities
        return
    with pytest.raises(
        UnsupportedError, match="strategy 'skip_locked' needs SKIP LOCKED, which SQLite [0-9.]+ does not have"
    ) as refused:
        QueueDB(url, strategy="skip_locked")
    assert refused.value.capability == "SKIP LOCKED"
    assert refused.value.dialect == "sqlite"


@pytest.mark.parametrize("kind", ["mysql"], scope="session")
def test_a_strategy_of_ones_own_is_held_to_what_it_needs(url: str) -> None:
    greedy = Adaptive()
    greedy.needs = frozenset({Capability.UPDATE_RETURNING})
    with pytest.raises(UnsupportedError, match="UPDATE … RETURNING, which MySQL"):
        QueueDB(url, strategy=greedy)


def test_a_callers_engine_survives_a_refusal(url: str) -> None:
    engine = create_engine(url)
    with pytest.raises(ConfigurationError):
        QueueDB(engine, strategy="fast")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


def test_a_connection_that_is_in_use_when_the_database_is_closed_is_closed_at_its_end(url: str) -> None:
    db = QueueDB(url)
    driver: Any = db.database.engine.dialect.loaded_dbapi
    with db.queue("q").transaction() as connection:
        session: Any = connection.connection.driver_connection
        db.close()
        session.cursor().execute("SELECT 1")
    with pytest.raises(driver.Error):
        session.cursor().execute("SELECT 1")
