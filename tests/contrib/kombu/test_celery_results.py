"""The result backend."""

from __future__ import annotations

import pytest
from celery import Celery
from celery.result import GroupResult

from queue_db import QueueDB
from queue_db.contrib.kombu import NotPublishedError, databases, publishing_in


@pytest.fixture
def app(url):
    app = Celery("tests", broker=f"queuedb+{url}", backend=f"queuedb+{url}", set_as_current=False)
    yield app
    app.backend.session_manager.invalidate(app.backend.url)


def test_a_result_is_stored_and_forgotten(app, name):
    backend = app.backend
    assert type(backend).__module__ == "queue_db.contrib.kombu.backend"
    backend.store_result(name, {"sum": 5}, "SUCCESS")
    assert app.AsyncResult(name).get(timeout=1) == {"sum": 5}
    backend.forget(name)
    assert app.AsyncResult(name).state == "PENDING"
    backend.mark_as_failure(name, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        app.AsyncResult(name).get(timeout=1)
    backend.forget(name)


def test_a_group_is_stored(app, name):
    app.backend.save_group(name, GroupResult(name, [app.AsyncResult(f"{name}-1")]))
    assert [one.id for one in app.backend.restore_group(name).results] == [f"{name}-1"]
    app.backend.delete_group(name)
    assert app.backend.restore_group(name) is None


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_tables_that_wait_for_the_callers_transaction_are_an_error(fresh_url, name, monkeypatch):
    monkeypatch.setattr(databases, "BESIDE", 0.05)
    url = f"queuedb+{fresh_url}"
    app = Celery("tests", broker=url, backend=url, set_as_current=False)
    with QueueDB(fresh_url) as db:
        db.migrate()
        with db.queue(name).transaction() as mine:
            db.queue(name).enqueue("mine", using=mine)
            with publishing_in(mine), pytest.raises(NotPublishedError, match="start a worker"):
                app.backend  # noqa: B018
    assert app.AsyncResult(name).state == "PENDING"
