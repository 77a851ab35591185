"""``queue-db work`` and ``queue-db doctor`` with tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queue_db import QueueDB
from tests.cli.harness import Ask
from tests.tasks.shop_of_tasks import chain, greet
from tests.tasks.shop_of_tasks import tasks as shop

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])

PLACE = "tests.tasks.shop_of_tasks:tasks"


@pytest.fixture
def db(own_url: str) -> Iterator[QueueDB]:
    with QueueDB(own_url) as found:
        yield found


def test_work_runs_tasks_on_the_database_of_the_command(ask_at: Ask, own_url: str, db: QueueDB) -> None:
    """Also those that are enqueued by tasks, although their module binds no database."""
    shop._databases.sync = None
    db.queue("shop").enqueue("chain", {"name": "Ada"})
    job = db.queue("shop").enqueue("old_greet", {"name": "Bob", "times": 2})
    summary = ask_at(own_url, "work", PLACE, "--until-empty", "--concurrency", 1, "--json").record
    assert (summary["completed"], summary["queues"]) == (3, ["shop"])
    assert db.wait(job, timeout=10).result == "hello Bobhello Bob"
    shop._databases.sync = None


def test_what_work_cannot_run_is_refused(ask_at: Ask, own_url: str) -> None:
    assert "neither a queue_db.worker.Worker nor a queue_db.tasks.Tasks" in ask_at(own_url, "work", f"{PLACE}.task", status=2).err
    assert "there are no tasks" in ask_at(own_url, "work", "tests.tasks.shop_of_tasks:empty", status=2).err
    assert "no database given" in ask_at(None, "work", PLACE, status=2).err


def test_doctor_tells_of_jobs_that_no_task_runs(ask_at: Ask, own_url: str, db: QueueDB) -> None:
    shop.bind(db)
    greet.enqueue("Ada")
    chain.enqueue("Ada")
    db.queue("shop").enqueue("old_greet", {"name": "Ada"})
    db.queue("elsewhere").enqueue("other")
    assert ask_at(own_url, "doctor", "--app", PLACE, "--json").record["stuck"] == []
    db.queue("shop").enqueue_many([("gret", {"name": "Ada"}, {"delay": 600}), ("gret", None), ("fare", None)])
    found = ask_at(own_url, "doctor", "--app", PLACE, "--json", status=1).record["stuck"]
    fare = "queue 'shop': 1 job of kind 'fare' waits, and no task has this kind: give one aliases=['fare']"
    gret = "queue 'shop': 2 jobs of kind 'gret' wait, and no task has this kind: give one aliases=['gret']"
    assert found == [fare, f"{gret}; did you mean 'greet' or 'old_greet'?"]
    assert "stuck: queue 'shop': 1 job of kind 'fare'" in ask_at(own_url, "doctor", "--app", PLACE, status=1).out
    assert ask_at(own_url, "doctor", "--json").record["stuck"] == []
    assert "must be a queue_db.tasks.Tasks" in ask_at(own_url, "doctor", "--app", f"{PLACE}.task", status=2).err
