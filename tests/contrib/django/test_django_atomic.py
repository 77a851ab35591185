"""Tasks with ``atomic=True``: the task and its end are one transaction of the database, whatever ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queue_db import QueueDB
from tests.contrib.django.conftest import Start
from tests.patience import wait_for

Work = Callable[..., Any]


def test_an_atomic_task_ends_in_its_own_transaction(tasks: Any, name: str, work: Work, signals: list[Any]) -> None:
    from tests.contrib.django.project.shop.models import Order

    result = tasks.buy.using(queue_name=name).enqueue(name)
    work()
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert Order.objects.filter(name=name).count() == 1
    assert signals[-1] == ("task_finished", result.id, "SUCCESSFUL")


@pytest.mark.parametrize("atomic", [True, False])
def test_what_an_atomic_task_has_written_is_gone_if_its_lease_is_lost(
    atomic: bool, kind: str, tasks: Any, name: str, work: Work, db: QueueDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.contrib.django.project.shop import models

    result = tasks.buy.using(queue_name=name).enqueue(name)
    monkeypatch.setitem(tasks.buy.func.queue_db_options, "atomic", atomic)
    create, lost = models.Order.objects.create, []

    def create_and_lose(**values: Any) -> None:
        if not lost:  # before the transaction writes: SQLite has one writer
            lost.append(db.rescue("loses"))
        create(**values)

    monkeypatch.setattr(models.Order.objects, "create", create_and_lose)
    work(name="loses")
    work()
    assert lost == [1]
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert models.Order.objects.filter(name=name).count() == (1 if atomic else 2)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])  # the others have no constraint that is checked at COMMIT
def test_an_atomic_task_whose_commit_fails_has_failed(tasks: Any, name: str, work: Work) -> None:
    from django.db import IntegrityError, connection

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS shop_parents (id integer PRIMARY KEY)")
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS shop_children (parent integer REFERENCES shop_parents (id) DEFERRABLE INITIALLY DEFERRED)"
        )
    result = tasks.adopt.using(queue_name=name).enqueue(7)
    work()
    work()
    result.refresh()
    assert (result.status, [error.exception_class for error in result.errors]) == ("FAILED", [IntegrityError] * 2)


def test_what_raises_after_the_commit_of_an_atomic_task_is_logged(
    tasks: Any, name: str, work: Work, signals: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import transaction

    from tests.contrib.django.project.shop import models

    create = models.Order.objects.create

    def create_and_register(**values: Any) -> None:
        create(**values)
        transaction.on_commit(lambda: 1 / 0)

    monkeypatch.setattr(models.Order.objects, "create", create_and_register)
    result = tasks.buy.using(queue_name=name).enqueue(name)
    assert work().completed == 1
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert models.Order.objects.filter(name=name).count() == 1
    assert signals[-1] == ("task_finished", result.id, "SUCCESSFUL")
    (line,) = [each for each in caplog.records if "a function of on_commit raised" in each.getMessage()]
    assert "ZeroDivisionError" in str(line.exc_info)


def test_a_savepoint_of_an_atomic_task_rolls_back_alone(tasks: Any, name: str, work: Work) -> None:
    from tests.contrib.django.project.shop.models import Order

    result = tasks.buy_and_regret.using(queue_name=name).enqueue(name)
    work()
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", "kept")
    # The worker has also run the task that was enqueued before the savepoint.
    assert {each.name for each in Order.objects.filter(name__startswith=name)} == {name, f"{name} later"}


def test_what_an_atomic_task_has_written_is_gone_if_its_worker_is_killed(
    tasks: Any, name: str, start: Start, tmp_path: Path
) -> None:
    from tests.contrib.django.project.shop.models import Order

    file = tmp_path / "pids"
    result = tasks.buy_and_hang.using(queue_name=name).enqueue(name, str(file))
    first = start("queue_worker", "--queue", name, "--lease", "2")
    wait_for(lambda: file.exists() and file.read_text())
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = start("queue_worker", "--queue", name, "--lease", "2")
    wait_for(lambda: tasks.buy_and_hang.get_result(result.id).is_finished)
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    result.refresh()
    assert (result.status, result.attempts, result.errors) == ("SUCCESSFUL", 2, [])
    assert Order.objects.filter(name=name).count() == 1  # twice without atomic=True
