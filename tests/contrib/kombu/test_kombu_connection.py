"""URLs, options, tables and errors of a connection."""

from __future__ import annotations

import kombu
import pytest

from queue_db import ConfigurationError, SchemaOutOfDateError, StorageError
from queue_db.contrib.kombu import close_all
from queue_db.contrib.kombu.backend import with_driver
from queue_db.contrib.kombu.urls import database_url


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


def test_missing_tables_name_the_command(fresh_url):
    connection = kombu.Connection(f"queuedb+{fresh_url}")
    with pytest.raises(SchemaOutOfDateError, match="queue-db migrate"):
        connection.connect()
    with kombu.Connection(f"queuedb+{fresh_url}", transport_options={"migrate": True}) as migrated:
        migrated.connect()
        assert migrated.connected
    close_all()


@pytest.mark.parametrize("options", [{"visibility_timeout": 0}, {"polling_interval": "soon"}, {"max_deliveries": True}])
def test_a_wrong_option_is_refused(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        kombu.Connection("queuedb+sqlite:///:memory:", transport_options=options).connect()


def test_a_database_that_is_away_is_an_error_of_the_connection():
    connection = kombu.Connection("queuedb+postgresql://nobody:secret@127.0.0.1:1/nowhere")
    with pytest.raises(connection.connection_errors) as caught:
        connection.connect()
    assert isinstance(caught.value, StorageError)
    assert isinstance(caught.value, connection.recoverable_connection_errors)
    assert "secret" not in str(caught.value) + connection.as_uri() + repr(connection)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////folder/file.db",
        "sqlite:///file.db",
        "postgresql://user:p%40ss@host:5433/name",
        "postgresql+psycopg://user@host/name",
        "mysql+pymysql://user:word@host/name",
        "mariadb://host/name",
    ],
)
def test_kombu_keeps_the_url(url):
    assert database_url(kombu.Connection(f"queuedb+{url}")) == url
    failing_over = kombu.Connection(["queuedb+sqlite:///other.db", f"queuedb+{url}"])
    failing_over.maybe_switch_next()
    assert database_url(failing_over) == url


def test_results_have_the_driver_of_the_broker():
    assert with_driver("postgresql://u:p@h/d") == "postgresql+psycopg2://u:p@h/d"
    assert with_driver("queuedb+mysql://u:p@h/d") == "mysql+pymysql://u:p@h/d"
    assert with_driver("postgresql+psycopg://h/d") == "postgresql+psycopg://h/d"
    assert with_driver("sqlite:///file.db") == "sqlite:///file.db"
