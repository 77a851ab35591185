"""The hook, the operators and the trigger that waits: one job for each task, no password in any text, the error of a dead job."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Connection
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError, TaskDeferralTimeout, TaskDeferred
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from jinja2 import Environment
from triggerer import until

from queue_db import Queue, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.contrib.airflow import triggers
from queue_db.contrib.airflow.connections import _KNOWN, address_of, database
from queue_db.contrib.airflow.hook import QueueHook
from queue_db.contrib.airflow.info import get_provider_info
from queue_db.contrib.airflow.operators import EnqueueOperator, WaitForJob, task_key
from queue_db.contrib.airflow.triggers import FeedTrigger, JobTrigger
from queue_db.errors import ArgumentError, ConfigurationError, StorageError
from queue_db.testing import drain
from queue_db.worker import Worker

SECRET = "s3cret/with@signs"


def task(**options: Any) -> dict[str, Any]:
    """The context of a task instance."""
    return {"ti": SimpleNamespace(**{"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "max_tries": 2, **options})}


# --- Airflow finds the provider --------------------------------------------------------------------------------------------------


def test_airflow_finds_hook_and_provider() -> None:
    hook = ProvidersManagerTaskRuntime().hooks["queue_db"]
    assert hook is not None
    assert hook.hook_class_name == "queue_db.contrib.airflow.hook.QueueHook"
    assert "queue_db.contrib.airflow.messages.FeedProvider" in ProvidersManager().queue_class_names
    trigger = MessageQueueTrigger(scheme="queue-db", feed="orders", cursor="airflow", kinds=("b", "a"))
    path, arguments = trigger.serialize()
    assert path == "queue_db.contrib.airflow.triggers.FeedTrigger"
    assert FeedTrigger(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)


def test_the_description_is_of_airflows_form() -> None:
    folder = Path(airflow.__file__).parent
    jsonschema.validate(get_provider_info(), json.loads((folder / "provider_info.schema.json").read_text()))
    # The other schema is that of a file, and the only one that has the fields of a form.
    form = json.loads((folder / "provider.yaml.schema.json").read_text())["properties"]["connection-types"]
    jsonschema.validate(get_provider_info()["connection-types"], form)


def test_the_form_of_a_connection_shows_its_fields() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", AirflowProviderDeprecationWarning)
        (form,) = [one for one in HookMetaService.hook_meta_data() if one.connection_type == "queue_db"]
        assert ProvidersManager().hooks["queue_db"] is not None
    assert form.extra_fields is not None
    assert {*form.extra_fields} == {*_KNOWN}
    assert form.extra_fields["dialect"]["schema"]["enum"] == ["postgresql", "mysql", "mariadb", "sqlite"]
    assert form.standard_fields is not None
    assert form.standard_fields.url_schema is not None
    assert form.standard_fields.url_schema.title == "Database"


# --- connections -----------------------------------------------------------------------------------------------------------------


def test_a_connection_is_a_database() -> None:
    mysql = Connection(
        conn_id="c",
        conn_type="queue_db",
        host="h",
        port=3307,
        login="u",
        password=SECRET,
        schema="d",
        extra=json.dumps({"dialect": "mariadb", "query": {"ssl_ca": "f"}, "table": "work", "schema": "s"}),
    )
    found = address_of(mysql)
    assert found.url.render_as_string(hide_password=False) == "mariadb://u:s3cret%2Fwith%40signs@h:3307/d?ssl_ca=f"
    assert (found.table, found.schema) == ("work", "s")
    assert SECRET not in f"{found!r} {found.url}"
    assert str(address_of(Connection(conn_id="c", conn_type="postgres", host="h", schema="d")).url) == "postgresql://h/d"
    assert str(address_of(Connection(conn_id="c", conn_type="sqlite", host="/a/b.db")).url) == "sqlite:////a/b.db"
    chosen = Connection(
        conn_id="c", conn_type="mysql", host="h", schema="d", extra='{"dialect": "mariadb", "table": "", "query": null}'
    )
    assert str(address_of(chosen).url) == "mariadb://h/d"
    assert address_of(chosen).table == "jobs"
    numbers = json.dumps({"query": {"connect_timeout": 10, "sslpassword": SECRET}, "async_query": {"timeout": 1.5}})
    found = address_of(Connection(conn_id="c", conn_type="postgres", host="h", schema="d", extra=numbers))
    assert found.url.query == {"connect_timeout": "10", "sslpassword": SECRET}
    assert found.async_url.query == {"timeout": "1.5"}
    assert f"{found}" == f"{found!r}" == "<postgresql://h/d table='jobs'>"


@pytest.mark.parametrize(
    ("dialect", "for_asyncio"),
    [
        ("postgresql", "postgresql"),
        ("postgresql+psycopg2", "postgresql"),
        ("postgresql+psycopg", "postgresql+psycopg"),
        ("mariadb+pymysql", "mariadb"),
    ],
)
def test_a_driver_in_the_dialect_is_for_threads(dialect: str, for_asyncio: str) -> None:
    found = address_of(Connection(conn_id="c", conn_type="queue_db", host="h", schema="d", extra=json.dumps({"dialect": dialect})))
    assert (found.url.drivername, found.async_url.drivername) == (dialect, for_asyncio)


@pytest.mark.parametrize(
    ("connection", "named"),
    [
        ({"conn_type": "http"}, "type 'http'"),
        ({"conn_type": "queue_db"}, '"dialect": "postgresql"'),
        ({"conn_type": "queue_db", "extra": '{"dialect": "oracle"}'}, "unknown database scheme 'oracle'"),
        ({"conn_type": "postgres", "extra": '{"sslmode": "require"}'}, "sslmode"),
        ({"conn_type": "queue_db", "extra": "[1]"}, "a list or text"),
        ({"conn_type": "postgres", "extra": '{"query": "sslmode=require"}'}, "query .* must be an object"),
        ({"conn_type": "postgres", "extra": '{"async_query": [1]}'}, "async_query .* must be an object"),
        ({"conn_type": "postgres", "extra": '{"query": {"a": "b", "sslmode": {"x": 1}}}'}, "wrong are sslmode"),
        ({"conn_type": "postgres", "extra": '{"table": 5, "schema": []}'}, "a text in table and in schema"),
        ({"conn_type": "sqlite", "host": None}, "needs the path"),
    ],
)
def test_a_wrong_connection_is_refused_with_the_fix(connection: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as raised:
        address_of(Connection(**{"conn_id": "c", "host": "h", "login": "u", "password": SECRET, **connection}))
    assert SECRET not in str(raised.value)


def test_no_text_shows_the_password(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    away = {"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "login": "u", "password": SECRET, "schema": "d"}
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps(away))
    hook = QueueHook("away")
    works, told = hook.test_connection()
    assert not works
    with pytest.raises(StorageError) as raised:
        hook.enqueue("q", "k")

    async def open_it() -> None:
        async with database("away"):
            pass

    with pytest.raises(StorageError) as also:
        asyncio.run(open_it())
    shown = f"{told} {hook!r} {hook.address} {raised.value!r} {also.value!r} {caplog.text}"
    assert "127.0.0.1" in shown
    assert SECRET not in shown
    assert "s3cret" not in shown


# --- enqueue ---------------------------------------------------------------------------------------------------------------------


def test_the_hook_enqueues_one_and_many(queue: Queue) -> None:
    hook = QueueHook()
    first = hook.enqueue(queue.name, "k", {"n": 1}, priority=3)
    assert first is not None
    assert queue.get(first).priority == 3
    ids = hook.enqueue_many(queue.name, [("k", 2), ("k", 3, {"unique_key": "u"})])
    assert [queue.get(id_).payload for id_ in ids if id_ is not None] == [2, 3]
    assert hook.test_connection() == (True, "The database answers, and has the tables.")


def test_a_retried_task_enqueues_once_and_a_cleared_one_again(queue: Queue) -> None:
    operator = EnqueueOperator(task_id="t", queue_name=queue.name, kind="k", payload={"n": 1}, options={"headers": {"a": "b"}})
    run = queue.name  # no other test has this run
    first = operator.execute(task(run_id=run))
    assert operator.execute(task(run_id=run)) == first
    assert first is not None
    assert queue.get(first).headers == {"airflow": {"dag": "d", "run": run, "task": "t", "map_index": -1}, "a": "b"}
    (job,) = queue.claim()
    job.complete()
    assert operator.execute(task(run_id=run)) == first  # the retry comes after the job
    cleared = operator.execute(task(run_id=run, max_tries=3))
    mapped = operator.execute(task(run_id=run, map_index=1))
    assert len({first, cleared, mapped}) == 3
    assert queue.stats().available == 2


@pytest.mark.parametrize("name", ["unique_key", "unique_for"])
def test_the_key_is_not_an_option(name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        EnqueueOperator(task_id="t", queue_name="q", kind="k", options={name: 5})


def test_without_a_key_a_retried_task_enqueues_twice(queue: Queue) -> None:
    operator = EnqueueOperator(task_id="t", queue_name=queue.name, kind="k", unique_key="")
    assert operator.execute(task()) != operator.execute(task())


def test_keys_of_tasks_differ_and_are_short() -> None:
    names = [{}, {"dag_id": "x"}, {"run_id": "x"}, {"task_id": "x"}, {"map_index": 0}, {"max_tries": 5}, {"dag_id": "d" * 250}]
    keys = [task_key(task(**one)["ti"]) for one in names]
    assert len(set(keys)) == len(names)
    assert max(map(len, keys)) <= 200


# --- wait ------------------------------------------------------------------------------------------------------------------------


def event_of(job_id: int) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        trigger = JobTrigger(job_id=job_id, poll=0.01)
        (found,) = [event.payload async for event in trigger.run()]
        assert json.loads(json.dumps(found)) == found
        return dict(found)

    return asyncio.run(run())


def worked(db: QueueDB, queue: Queue, **options: Any) -> None:
    worker = Worker(db, [queue.name])

    @worker.handles("k", **options)
    def handle(job: Any) -> Any:
        if job.payload == "fail":
            raise RuntimeError("no such order")
        return {"done": job.payload}

    drain(worker, raises=False)


def test_the_result_of_a_job_is_returned(db: QueueDB, queue: Queue) -> None:
    job = queue.enqueue("k", 7)
    worked(db, queue, result_ttl=60)
    event = event_of(job)
    assert event == {"job_id": job, "status": "completed", "result": {"done": 7}}
    assert WaitForJob(task_id="w", job_id=job).resume({}, event) == {"done": 7}


def test_a_dead_job_fails_the_task_with_its_error(db: QueueDB, queue: Queue) -> None:
    job = queue.enqueue("k", "fail", max_attempts=1)
    worked(db, queue)
    event = event_of(job)
    with pytest.raises(AirflowFailException, match="dead after 1 attempts: RuntimeError: no such order"):
        WaitForJob(task_id="w", job_id=job).resume({}, event)


def test_a_job_of_which_nothing_is_left_fails_the_task_unless_it_may(db: QueueDB, queue: Queue) -> None:
    job = queue.enqueue("k", 7)
    worked(db, queue)
    event = event_of(job)
    assert event == {"job_id": job, "status": "gone"}
    with pytest.raises(AirflowFailException, match="result_ttl"):
        WaitForJob(task_id="w", job_id=job).resume({}, event)
    assert WaitForJob(task_id="w", job_id=job, if_gone="succeed").resume({}, event) is None


def test_the_task_hands_over_the_id_and_the_timeout(queue: Queue) -> None:
    job = queue.enqueue("k")
    with pytest.raises(TaskDeferred) as raised:
        WaitForJob(task_id="w", job_id=str(job), timeout=60).execute({})
    assert raised.value.trigger.serialize()[1] == {"job_id": job, "poll": 5.0, "conn_id": "queue_db_default"}
    assert raised.value.timeout == timedelta(seconds=60)
    with pytest.raises(ArgumentError, match="has the task that enqueues it run"):
        WaitForJob(task_id="w", job_id="None").execute({})


@pytest.mark.parametrize("wrong", [{"if_gone": "maybe"}, {"poll": 0}, {"timeout": -5}, {"timeout": 0}])
def test_a_wrong_wait_is_refused_in_the_dag(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        WaitForJob(task_id="w", job_id=1, **wrong)


def test_what_is_done_is_not_waited_for(db: QueueDB, queue: Queue) -> None:
    done, dead = queue.enqueue("k", 7), queue.enqueue("k", "fail", max_attempts=1)
    worked(db, queue, result_ttl=60)
    assert WaitForJob(task_id="w", job_id=done).execute({}) == {"done": 7}
    with pytest.raises(AirflowFailException, match="dead after 1 attempts: RuntimeError: no such order"):
        WaitForJob(task_id="w", job_id=dead).execute({})
    with pytest.raises(AirflowFailException, match="result_ttl"):
        WaitForJob(task_id="w", job_id=10**9).execute({})


def test_a_database_that_is_away_is_left_to_the_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "login": "u", "schema": "d"}
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps(away))
    with pytest.raises(TaskDeferred):
        WaitForJob(task_id="w", job_id=7, conn_id="away").execute({})


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"timeout": 5}, 5),
        ({"execution_timeout": timedelta(seconds=7)}, 7),
        ({"timeout": 9, "execution_timeout": timedelta(seconds=8)}, 8),
    ],
)
def test_a_wait_is_as_long_as_the_shorter_limit(queue: Queue, limits: dict[str, Any], expected: float | None) -> None:
    job = queue.enqueue("k")
    wait = WaitForJob(task_id="w", job_id=job, **limits)
    with pytest.raises(TaskDeferred) as raised:
        wait.execute({})
    assert raised.value.timeout == (None if expected is None else timedelta(seconds=expected))
    with pytest.raises(TaskDeferralTimeout, match=f"job {job} was not done within .*{expected or ''}"):
        wait.resume_execution(TRIGGER_FAIL_REPR, {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, {})
    with pytest.raises(TaskDeferralError, match="another"):
        wait.resume_execution(TRIGGER_FAIL_REPR, {"error": "another"}, {})


def test_fields_have_templates() -> None:
    enqueue = EnqueueOperator(
        task_id="e",
        queue_name="{{ n }}",
        kind="k{{ n }}",
        payload={"a": ["{{ n }}"]},
        options={"group": "g{{ n }}"},
        conn_id="c{{ n }}",
    )
    enqueue.render_template_fields({"n": 1}, jinja_env=Environment())  # noqa: S701
    assert (enqueue.queue_name, enqueue.kind, enqueue.payload, enqueue.conn_id) == ("1", "k1", {"a": ["1"]}, "c1")
    assert enqueue.options == {"group": "g1"}
    wait = WaitForJob(task_id="w", job_id="{{ n }}", conn_id="c{{ n }}")
    wait.render_template_fields({"n": 1}, jinja_env=Environment())  # noqa: S701
    assert (wait.job_id, wait.conn_id) == ("1", "c1")


def test_another_triggerer_goes_on_waiting(db: QueueDB, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job = queue.enqueue("k", 7)
    looks: list[int] = []
    finished = AsyncQueueDB.finished

    async def seen(self: AsyncQueueDB, job_id: int) -> Any:
        looks.append(job_id)
        return await finished(self, job_id)

    monkeypatch.setattr(AsyncQueueDB, "finished", seen)

    async def run() -> dict[str, Any]:
        first = JobTrigger(job_id=job, poll=0.01)
        waiting = asyncio.ensure_future(anext(first.run()))
        await until(lambda: len(looks) >= 2)
        waiting.cancel()
        await asyncio.wait([waiting])
        path, arguments = first.serialize()
        assert path.endswith(".JobTrigger")
        second = asyncio.ensure_future(anext(JobTrigger(**json.loads(json.dumps(arguments))).run()))
        await asyncio.to_thread(worked, db, queue, result_ttl=60)
        return dict((await second).payload)

    assert asyncio.run(run())["result"] == {"done": 7}


def test_a_trigger_does_not_fire_at_once(db: QueueDB, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job = queue.enqueue("k", 7)
    worked(db, queue, result_ttl=60)
    seen: list[str] = []
    finished = AsyncQueueDB.finished

    def paused(seconds: float) -> float:
        seen.append("pause")
        return seconds

    async def looked(self: AsyncQueueDB, job_id: int) -> Any:
        seen.append("look")
        return await finished(self, job_id)

    monkeypatch.setattr(triggers, "_about", paused)
    monkeypatch.setattr(AsyncQueueDB, "finished", looked)
    assert event_of(job)["status"] == "completed"
    assert seen == ["pause", "look"]


def test_all_triggers_of_a_connection_share_one_database() -> None:
    async def run() -> None:
        async with database("queue_db_default") as one:
            async with database("queue_db_default") as other:
                assert one is other
            assert await other.state(1) is not None  # still open
        async with database("queue_db_default") as again:
            assert again is not one

    asyncio.run(run())
