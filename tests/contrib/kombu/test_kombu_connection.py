"""URLs, options, tables and errors of a connection."""

from __future__ import annotations

import copy
import pickle

import kombu
import pytest
from kombu.utils.url import maybe_sanitize_url

from queue_db import ConfigurationError, SchemaOutOfDateError, StorageError
from queue_db.contrib.kombu import close_all
from queue_db.contrib.kombu.backend import with_driver
from queue_db.contrib.kombu.databases import Options, options_of
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


def test_options_of_others_are_named_once(caplog):
    options = {"visibility_timout": 1, "fanout_prefix": True, "max_retries": 1, "interval_step": 0.1, "table": "jobs"}
    for _ in range(2):
        assert options_of(options) == Options()
    (warned,) = caplog.records
    assert warned.levelname == "WARNING"
    assert warned.getMessage().startswith(
        "transport_options: fanout_prefix, visibility_timout has no effect here; known are migrate,"
    )


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


SECRET = "s3cret/#word"
SECRET_URL = "queuedb+postgresql://user:s3cret%2F%23word@127.0.0.1:1/name?sslpassword=s3cret/#word"


def failed_over(url):
    connection = kombu.Connection(["queuedb+postgresql://user:s3cret0@127.0.0.1:1/other", url.partition("?")[0]])
    connection.info()
    connection.maybe_switch_next()
    return connection


@pytest.mark.parametrize("made", [kombu.Connection, failed_over])
@pytest.mark.parametrize(
    "copied",
    [
        lambda one: one,
        kombu.Connection.clone,
        copy.copy,
        lambda one: pickle.loads(pickle.dumps(one)),  # noqa: S301 - made here
        lambda one: one.clone().clone(),
    ],
)
def test_no_password_is_shown(made, copied, caplog):
    original = made(SECRET_URL)
    before = database_url(original)
    connection = copied(original)
    assert database_url(connection) == before
    said = connection.info()
    said.pop("password")  # as Celery does, and masks the alternates
    said["alternates"] = [maybe_sanitize_url(url) for url in said["alternates"]]
    with pytest.raises(StorageError) as refused:
        connection.connect()
    shown = f"{said} {connection!r} {connection.as_uri()} {connection.host} {refused.value} {caplog.text}"
    assert "s3cret" not in shown
    assert "user:**@127.0.0.1" in shown
    assert "s3cret" in connection.as_uri(include_password=True)


def test_an_unreadable_url_is_not_shown():
    assert "s3cret" not in repr(kombu.Connection("queuedb+postgresql://user:s3cret@host:port/name"))


def test_fresh_connections_share_a_pool():
    pools = [kombu.pools.connections[kombu.Connection("queuedb+sqlite:///:memory:")] for _ in range(3)]
    assert len({id(pool) for pool in pools}) == 1


def test_results_have_the_driver_of_the_broker():
    assert with_driver("postgresql://u:p@h/d") == "postgresql+psycopg2://u:p@h/d"
    assert with_driver("queuedb+mysql://u:p@h/d") == "mysql+pymysql://u:p@h/d"
    assert with_driver("postgresql+psycopg://h/d") == "postgresql+psycopg://h/d"
    assert with_driver("sqlite:///file.db") == "sqlite:///file.db"
