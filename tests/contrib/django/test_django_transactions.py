"""An enqueue is a part of the caller's transaction in Django."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from queue_db import QueueDB


@pytest.fixture
def others(url: str) -> Any:
    """What another connection sees."""
    with QueueDB(url) as db:
        yield db


def waiting(db: QueueDB, name: str) -> int:
    return db.queue(name).stats().available


def test_outside_a_transaction_a_task_is_there_at_once(tasks: Any, name: str, others: QueueDB, signals: list[Any]) -> None:
    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    assert waiting(others, name) == 1
    assert signals == [("task_enqueued", result.id, "READY")]


def test_a_task_is_there_for_others_with_the_commit(kind: str, tasks: Any, name: str, others: QueueDB, signals: list[Any]) -> None:
    with transaction.atomic():
        result = tasks.add.using(queue_name=name).enqueue(1, 2)
        assert waiting(others, name) == 0  # with an enqueue on a connection of its own this fails
        assert tasks.add.get_result(result.id) == result
        assert signals == []
    assert waiting(others, name) == 1
    assert signals == [("task_enqueued", result.id, "READY")]


def test_a_rollback_takes_the_task_away(tasks: Any, name: str, others: QueueDB, signals: list[Any]) -> None:
    with suppress(ZeroDivisionError), transaction.atomic():
        result = tasks.add.using(queue_name=name).enqueue(1, 2)
        raise ZeroDivisionError
    assert waiting(others, name) == 0
    assert signals == []
    with pytest.raises(Exception, match=result.id) as refused:
        tasks.add.get_result(result.id)
    assert type(refused.value).__name__ == "TaskResultDoesNotExist"


def test_a_savepoint_that_is_rolled_back_takes_its_tasks_away(tasks: Any, name: str, others: QueueDB) -> None:
    mine = tasks.add.using(queue_name=name)
    with transaction.atomic():
        outer = mine.enqueue(1, 1)
        with suppress(ZeroDivisionError), transaction.atomic():
            mine.enqueue(2, 2)
            raise ZeroDivisionError
        with transaction.atomic():
            inner = mine.enqueue(3, 3)
    assert [job.id for job in others.queue(name).peek()] == [int(outer.id), int(inner.id)]


def test_a_hook_after_the_commit_enqueues_at_once(tasks: Any, name: str, others: QueueDB) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: tasks.add.using(queue_name=name).enqueue(1, 2))
        assert waiting(others, name) == 0
    assert waiting(others, name) == 1


def test_the_data_of_the_application_and_its_task_commit_together(tasks: Any, name: str, others: QueueDB) -> None:
    from tests.contrib.django.project.shop.models import Order

    with suppress(ZeroDivisionError), transaction.atomic():
        Order.objects.create(name=name)
        tasks.add.using(queue_name=name).enqueue(1, 2)
        raise ZeroDivisionError
    assert not Order.objects.filter(name=name).exists()
    with transaction.atomic():
        Order.objects.create(name=name)
        tasks.add.using(queue_name=name).enqueue(1, 2)
    assert Order.objects.filter(name=name).exists()
    assert waiting(others, name) == 1


def test_an_enqueue_that_is_refused_leaves_the_transaction_usable(tasks: Any, name: str, others: QueueDB) -> None:
    mine = tasks.add.using(queue_name=name)
    with transaction.atomic():
        with pytest.raises(TypeError):
            mine.enqueue(object())
        mine.enqueue(1, 2)
    assert waiting(others, name) == 1
