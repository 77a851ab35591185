"""MySQL forgets at every restart which passwords it has seen, and then takes none without TLS until somebody has come with it."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from queue_db import QueueDB
from queue_db.errors import ConfigurationError, StorageError
from tests.idle import release
from tests.servers import over_tls, provide


def test_with_cryptography_a_password_that_the_server_has_forgotten_is_no_matter() -> None:
    server = provide("mysql")
    try:
        url = server.create_database()
        with QueueDB(url) as db:
            db.migrate()
            with db.database.begin() as connection:
                connection.exec_driver_sql("FLUSH PRIVILEGES")
            release(db)
            db.database.engine.dispose()
            assert db.queue("mail").enqueue("welcome") is not None
    finally:
        server.remove()


def test_without_cryptography_it_is_a_storage_error_until_the_server_knows_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    server = provide("mysql")
    try:
        url = server.create_database()
        engine = create_engine(over_tls(url))
        with QueueDB(url) as db:
            db.migrate()
            with engine.connect() as known:
                known.exec_driver_sql("FLUSH PRIVILEGES")
                release(db)
                db.database.engine.dispose()
                with pytest.raises(StorageError, match="cryptography"):
                    db.queue("mail").enqueue("welcome")
                with pytest.raises(ConfigurationError, match="cryptography"):
                    QueueDB(url)
            engine.dispose()
            engine.connect().close()
            assert db.queue("mail").enqueue("welcome") is not None
        engine.dispose()
    finally:
        server.remove()
