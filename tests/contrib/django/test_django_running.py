"""Tasks run in the library's worker, and their results are those of Django."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queue_db import QueueDB
from queue_db.worker import JobEvent
from tests.patience import wait_for

Work = Callable[..., Any]


def test_a_task_succeeds(tasks: Any, name: str, work: Work, signals: list[Any]) -> None:
    result = tasks.add.using(queue_name=name).enqueue(1, b=2)
    work()
    assert result.status == "READY"
    result.refresh()
    assert (result.status, result.return_value, result.attempts, result.errors) == ("SUCCESSFUL", 3, 1, [])
    assert result.args == [1]
    assert result.kwargs == {"b": 2}
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    expected = [("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]
    assert signals == [(signal, result.id, status) for signal, status in expected]


def test_a_result_is_there_when_the_signal_of_its_end_is_sent(tasks: Any, name: str, work: Work) -> None:
    from queue_db.contrib.django.framework import task_finished

    seen = []

    def finished(sender: Any, task_result: Any, **kwargs: Any) -> None:
        seen.append((task_result.return_value, tasks.add.get_result(task_result.id).return_value))

    task_finished.connect(finished)
    try:
        tasks.add.using(queue_name=name).enqueue(1, 2)
        work()
    finally:
        task_finished.disconnect(finished)
    assert seen == [(3, 3)]


def test_a_coroutine_runs(tasks: Any, name: str, work: Work) -> None:
    result = tasks.add_later.using(queue_name=name).enqueue(1, 2)
    work()
    result.refresh()
    assert result.return_value == 3


def test_a_coroutine_enqueues_and_reads(tasks: Any, name: str, work: Work) -> None:
    async def order() -> Any:
        result = await tasks.add.using(queue_name=name).aenqueue(1, 2)
        assert await tasks.add.aget_result(result.id) == result
        return result

    result = asyncio.run(order())
    work()
    asyncio.run(result.arefresh())
    assert result.return_value == 3


def test_a_task_may_take_its_context(tasks: Any, name: str, work: Work) -> None:
    result = tasks.look.using(queue_name=name).enqueue("word")
    work(name="me")
    result.refresh()
    assert result.return_value == [result.id, 1, ["me"], "word"]
    assert result.worker_ids == ["me"]


@pytest.mark.parametrize(("task", "error"), [("explode", ValueError), ("unfit", TypeError), ("leave", SystemExit)])
def test_a_task_fails_once(task: str, error: type[BaseException], tasks: Any, name: str, work: Work, signals: list[Any]) -> None:
    result = getattr(tasks, task).using(queue_name=name).enqueue()
    work()
    result.refresh()
    assert result.status == "FAILED"
    assert [each.exception_class for each in result.errors] == [error]
    assert error.__name__ in result.errors[0].traceback
    assert result.attempts == 1
    assert result.finished_at >= result.started_at
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018
    assert signals[-1] == ("task_finished", result.id, "FAILED")


def test_a_task_is_retried(tasks: Any, name: str, work: Work, tmp_path: Path, signals: list[Any], db: QueueDB) -> None:
    result = tasks.explode_twice.using(queue_name=name).enqueue(str(tmp_path / "tries"))
    while db.queue(name).stats().scheduled or db.queue(name).stats().available:
        work()
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert result.return_value == "at last"
    assert result.attempts == 3
    assert [each.traceback.splitlines()[-1] for each in result.errors] == ["ValueError: kapow 0", "ValueError: kapow 1"]
    assert result.started_at < result.last_attempted_at
    assert [signal for signal, *_ in signals].count("task_finished") == 1


@pytest.mark.rest("above it a task is retried; here the event of its failure is late")
def test_the_signal_of_a_task_is_not_taken_by_the_event_of_the_attempt_before(
    tasks: Any, name: str, tmp_path: Path, signals: list[Any]
) -> None:
    from queue_db.contrib.django import worker

    tries = tmp_path / "tries"
    tasks.explode_twice.using(queue_name=name).enqueue(str(tries))

    def late(event: JobEvent) -> None:
        wait_for(lambda: [signal for signal, *_ in signals].count("task_started") == 3)

    made = worker("default", [name])
    made.on(late, "failed")
    try:
        made.run(until_empty=True)
    finally:
        made.db.close()
    assert [signal for signal, *_ in signals].count("task_finished") == 1


def test_a_failed_task_that_is_sent_back_has_all_its_attempts_again(tasks: Any, name: str, work: Work, db: QueueDB) -> None:
    result = tasks.explode.using(queue_name=name).enqueue()
    work()
    assert db.dead.redrive(queue=name) == [int(result.id)]
    result.refresh()
    assert result.status == "READY"
    work()
    result.refresh()
    assert result.status == "FAILED"
    assert result.attempts == 2


def test_a_task_waits_for_its_time(tasks: Any, name: str, work: Work, db: QueueDB) -> None:
    result = tasks.add.using(queue_name=name, run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
    work()
    result.refresh()
    assert result.status == "READY"
    assert result.task.run_after is not None
    assert db.queue(name).reschedule(int(result.id), delay=0)
    work()
    result.refresh()
    assert result.status == "SUCCESSFUL"


def test_naive_times_are_those_of_the_settings(tasks: Any, name: str, db: QueueDB) -> None:
    from django.test import override_settings

    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        result = tasks.add.using(queue_name=name, run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
        assert tasks.add.get_result(result.id) == result
    due = db.get(int(result.id)).available_at
    assert timedelta(minutes=59) < due - db.get(int(result.id)).created_at <= timedelta(minutes=61)


def test_the_order_is_priority_then_time_then_enqueue(tasks: Any, name: str, work: Work, tmp_path: Path, db: QueueDB) -> None:
    file, mine = tmp_path / "order", tasks.note.using(queue_name=name)
    mine.using(priority=-100).enqueue(str(file), "last")
    mine.using(priority=100).enqueue(str(file), "first")
    now = timezone.now()
    mine.using(run_after=now + timedelta(seconds=1)).enqueue(str(file), "later")
    mine.using(run_after=now + timedelta(seconds=0.8)).enqueue(str(file), "earlier")
    while db.queue(name).stats().scheduled:  # until their time has come
        pass
    mine.enqueue(str(file), "now")
    mine.enqueue(str(file), "now, after it")
    work(concurrency=1)
    assert file.read_text().splitlines() == ["first", "earlier", "later", "now", "now, after it", "last"]


def test_an_error_with_bytes_that_are_no_text_can_be_stored(set_up: None) -> None:
    """Names of files have such bytes. The error was lost, and the task ran again, until its worker seemed to have died often."""
    from queue_db.contrib.django.results import Record

    record = Record.begin(None, 1, "worker")
    record.add(ValueError("name \udcff"), 1, most=1)
    assert b"udcff" in json.dumps(record.stored(), ensure_ascii=False).encode()


def test_a_task_that_a_worker_does_not_know_waits_for_one_that_does(
    tasks: Any, name: str, work: Work, db: QueueDB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of an old worker in a rolling deploy."""
    from queue_db.contrib.django.framework import TaskResultDoesNotExist

    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    with monkeypatch.context() as without:
        without.delattr(tasks, "add")
        assert work().snoozed == 1
        with pytest.raises(TaskResultDoesNotExist, match=f"{result.id}: .*add cannot be imported .*keep the old name"):
            tasks.explode.get_result(result.id)
    assert f"the task {tasks.add.module_path} cannot be imported" in caplog.text
    assert db.get(int(result.id)).attempts == 0
    db.queue(name).reschedule(int(result.id), delay=0)
    work()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 1)


def test_a_task_that_no_worker_knows_fails_in_the_end(
    tasks: Any, name: str, work: Work, monkeypatch: pytest.MonkeyPatch, db: QueueDB
) -> None:
    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    with monkeypatch.context() as without:
        without.delattr(tasks, "add")
        assert work(unknown_grace=0).dead == 1
    result.refresh()
    assert result.status == "FAILED"
    assert "cannot be imported" in result.errors[0].traceback


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_worker_that_would_delete_tasks_before_it_runs_them_is_refused(tasks: Any, name: str, work: Work) -> None:
    from django.core.exceptions import ImproperlyConfigured

    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    with pytest.raises(ImproperlyConfigured, match="a worker of tasks has no mode"):
        work(mode="at_most_once")
    assert work().completed == 1
    result.refresh()
    assert result.return_value == 3


def test_a_path_that_leads_to_no_task_is_not_called(tasks: Any, name: str, work: Work, db: QueueDB, tmp_path: Path) -> None:
    from queue_db.contrib.django.framework import TaskResultDoesNotExist

    file = tmp_path / "made"
    payload = {"task": "os.mkdir", "args": [str(file)], "kwargs": {}, "backend": "default"}
    job_id = db.queue(name).enqueue("a kind of another program", payload)
    assert work().snoozed == 1
    with pytest.raises(TaskResultDoesNotExist, match="os.mkdir is no task here"):
        tasks.add.get_result(str(job_id))
    db.queue(name).reschedule(job_id, delay=0)
    assert work(unknown_grace=0).dead == 1
    assert not file.exists()


def test_a_result_whose_queue_has_left_the_settings_is_not_there(tasks: Any, name: str) -> None:
    from django.test import override_settings

    from queue_db.contrib.django.framework import TaskResultDoesNotExist

    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    only = {"default": {"BACKEND": "queue_db.contrib.django.QueueBackend", "QUEUES": ["default"]}}
    with override_settings(TASKS=only), pytest.raises(TaskResultDoesNotExist, match=name):
        tasks.add.get_result(result.id)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_the_traceback_of_a_module_that_breaks_is_logged(
    tasks: Any, name: str, work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from queue_db.contrib.django import results

    def breaks(path: str) -> Any:
        raise NameError("undefined")

    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    monkeypatch.setattr(results, "import_string", breaks)
    work()
    (line,) = [each for each in caplog.records if "cannot be run" in each.getMessage()]
    assert line.getMessage() == f"Task id={result.id} path={tasks.add.module_path} cannot be run"
    assert line.exc_info is not None


@pytest.mark.parametrize("result_id", ["", "x", "-1", "9" * 30, "٣", "00000000-0000-4000-8000-000000000000"])
def test_there_is_no_such_result(result_id: str, tasks: Any) -> None:
    from queue_db.contrib.django.framework import TaskResultDoesNotExist

    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(result_id)


def test_the_job_of_another_program_is_no_result(tasks: Any, name: str, db: QueueDB) -> None:
    from queue_db.contrib.django.framework import TaskResultDoesNotExist

    job_id = db.queue(name).enqueue("of another program", {"secret": 1})
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(str(job_id))


def test_a_task_whose_workers_die_fails_in_the_end(tasks: Any, name: str, work: Work, db: QueueDB) -> None:
    result = tasks.add.using(queue_name=name).enqueue(1, 2)
    for _ in range(4):  # one attempt, and three crashes
        (job,) = db.queue(name).claim(worker="dies")
        assert db.rescue("dies") == 1
        assert job.attempts <= job.max_attempts
    work()
    result.refresh()
    assert result.status == "FAILED"
    assert [each.exception_class_path for each in result.errors] == ["queue_db.errors.JobDeadError"]
    assert "no verdict after 4 attempts" in result.errors[0].traceback


def test_the_worker_serves_only_its_queues(tasks: Any, name: str, work: Work, db: QueueDB) -> None:
    other = tasks.add.using(queue_name=f"{name}-other").enqueue(1, 2)
    work()
    other.refresh()
    assert other.status == "READY"


@pytest.mark.usefixtures("set_up")
@pytest.mark.parametrize("letter", ["x", "ä", "\n", '"'])
def test_a_record_stays_small(letter: str) -> None:
    from queue_db.contrib.django.results import Record

    record = Record.begin(None, 1, "w" * 64)
    for attempt in range(1, 300):
        record = Record.begin(record.stored(), attempt, "w" * 64)
        record.add(ValueError(letter * 20_000), attempt, most=1000)
    assert len(json.dumps(record.stored())) < 64_000  # with traces of 4,000 letters of any kind it has more
    assert record.errors[-1][1].endswith(f"{letter * 100}\n")


@pytest.mark.usefixtures("set_up")
def test_a_record_of_thousands_of_failures_stays_small_and_counts_them_all() -> None:
    from queue_db.contrib.django.results import Record

    stored: Any = None
    for attempt in range(1, 20_001):
        record = Record.begin(stored, attempt, "w" * 64)
        record.add(ValueError(attempt), attempt, most=20_000)
        assert record.failures == attempt
        assert record.ended is (attempt == 20_000)
        stored = record.stored()
    assert len(json.dumps(stored)) < 64_000
    said = [trace.split()[-1] for _, trace in record.errors]
    assert said == ["1", *(str(number) for number in range(19_994, 20_001))]
    again = Record.begin(stored, 20_000, "w")  # the last attempt was interrupted after its record was stored
    assert again.failures == 19_999
    assert Record.begin(stored, 1, "w").failures == 0  # redriven


@pytest.mark.usefixtures("set_up")
def test_a_record_of_the_version_before_is_read() -> None:
    from queue_db.contrib.django.results import Record

    record = Record.begin(None, 1, "w")
    stored = record.stored() | {"failed": list(range(1, 5001))}
    del stored["failed_before"]
    record = Record.begin(stored, 5001, "w")
    record.add(ValueError(), 5001, most=5001)
    assert (record.failures, record.ended) == (5001, True)
    assert len(record.failed) < 100
