"""The broker in this process: sending, receiving, leases, and a network that breaks."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from taskiq import BrokerMessage, TaskiqMiddleware
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

from queue_db import ArgumentError, ConfigurationError, SchemaOutOfDateError, State, StorageError
from queue_db.aio import AsyncQueueDB
from queue_db.concurrency import pauses
from queue_db.contrib.taskiq import QueueBroker, publishing_in
from tests.aio.loop import for_asyncio
from tests.contrib.taskiq.conftest import listening
from tests.patience import HOURS, PATIENCE, wait_for
from tests.servers.proxy import Proxy


class RolledBack(Exception):
    """Ends a transaction without a commit."""


async def until(find):
    return await asyncio.to_thread(wait_for, find)


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE)


def message(task: str, data: bytes = b"{}", **labels: object) -> BrokerMessage:
    return BrokerMessage(task_id="1", task_name=task, message=data, labels=labels)


class Running:
    """A receiver of Taskiq on this event loop."""

    def __init__(self, broker: QueueBroker) -> None:
        broker.is_worker_process = True
        self._pool = ThreadPoolExecutor(2)
        self._finish = asyncio.Event()
        receiver = Receiver(broker, self._pool, max_async_tasks=2, run_startup=False)
        self._task = asyncio.create_task(receiver.listen(self._finish))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self._finish.set()
        await soon(self._task)
        self._pool.shutdown()


# --- send -----------------------------------------------------------------------------------------------------------------


async def test_labels_become_options_of_the_job(broker, db, name):
    @broker.task(task_name="mail:welcome", max_crashes=2)
    async def welcome(user: int) -> None: ...

    await welcome.kiq(1)
    await welcome.kicker().with_labels(queue_name=f"{name}-other", delay=1000.5, priority=7).kiq(2)
    (first,) = db.queue(name).peek()
    assert (first.kind, first.priority, first.max_attempts, first.state) == ("mail:welcome", 0, 3, State.AVAILABLE)
    (second,) = db.queue(f"{name}-other").jobs("scheduled").jobs
    assert (second.priority, second.max_attempts) == (-7, 3)


@pytest.mark.parametrize(("label", "value"), [("delay", "soon"), ("priority", "1.5"), ("max_crashes", "none")])
async def test_a_wrong_label_is_refused(broker, db, name, label, value):
    @broker.task
    async def welcome() -> None: ...

    with pytest.raises(SendTaskError) as caught:
        await welcome.kicker().with_labels(**{label: value}).kiq()
    assert isinstance(caught.value.__cause__, ArgumentError)
    assert label in str(caught.value.__cause__)
    assert db.queue(name).stats().available == 0


async def test_a_task_is_sent_with_the_transaction_or_not_at_all(broker, db, name):
    @broker.task
    async def welcome() -> None: ...

    async def send(*, fail: bool) -> None:
        async with broker.db.queue(name).transaction() as connection:
            with publishing_in(connection):
                await welcome.kiq()
            if fail:
                raise RolledBack

    with pytest.raises(RolledBack):
        await send(fail=True)
    assert db.queue(name).stats().available == 0
    await send(fail=False)
    assert db.queue(name).stats().available == 1
    await welcome.kiq()  # outside the block: at once
    assert db.queue(name).stats().available == 2


async def test_a_task_that_outlives_the_block_is_refused(broker, db, name):
    @broker.task
    async def welcome() -> None: ...

    ended = asyncio.Event()

    async def later() -> None:
        await ended.wait()
        await welcome.kiq()

    async with broker.db.queue(name).transaction() as connection:
        with publishing_in(connection):
            begun = asyncio.create_task(later())
            await asyncio.sleep(0)
    ended.set()
    with pytest.raises(SendTaskError) as refused:
        await begun
    assert "the block of publishing_in() has ended" in str(refused.value.__cause__)
    assert db.queue(name).stats().available == 0


@pytest.mark.parametrize("options", [{"queues": "taskiq"}, {"queues": []}, {"lease": 0}, {"batch": True}, {"max_crashes": -1}])
def test_a_wrong_option_is_refused(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        QueueBroker("sqlite:///:memory:", **options)


async def test_missing_tables_name_the_command(fresh_url, db):
    broker = QueueBroker(for_asyncio(fresh_url))
    with pytest.raises(SchemaOutOfDateError, match="queue-db migrate"):
        await broker.startup()
    await broker.shutdown()
    migrated = QueueBroker(for_asyncio(fresh_url), migrate=True)
    await migrated.startup()
    await migrated.kick(message("a"))
    await migrated.shutdown()
    with pytest.raises(ConfigurationError, match="not open"):
        await migrated.kick(message("a"))


async def test_a_database_of_the_caller_stays_open(async_url, name):
    async with AsyncQueueDB(async_url) as mine:
        broker = QueueBroker(mine, [name])
        await broker.startup()
        await broker.kick(message("a"))
        await broker.shutdown()
        assert (await mine.queue(name).stats()).available == 1


# --- receive --------------------------------------------------------------------------------------------------------------


async def test_a_job_is_completed_when_its_task_has_ended(broker, db, name):
    begun, go = asyncio.Event(), asyncio.Event()

    @broker.task
    async def wait(number: int) -> None:
        begun.set()
        await go.wait()

    async with Running(broker):
        await wait.kiq(1)
        await soon(begun.wait())
        assert db.queue(name).stats().running == 1
        go.set()
        await until(lambda: db.next_due([name]) == {name: None})
    assert db.counters.lost == 0


async def test_higher_priorities_come_first_and_bytes_stay_bytes(broker):
    for data, priority in ((b"low", -1), (b"\x00\xff", 9), (b"middle", 0)):
        await broker.kick(message("a", data, priority=priority))
    async with listening(broker) as messages:
        assert [(await soon(anext(messages))).data for _ in range(3)] == [b"\x00\xff", b"middle", b"low"]


async def test_queues_take_turns(open_broker, name):
    queues = [f"{name}-{number}" for number in range(2)]
    broker = await open_broker(queues=queues)
    for number in range(3):
        for queue in queues:
            await broker.kick(message("a", f"{queue} {number}".encode(), queue_name=queue))
    async with listening(broker) as messages:
        order = [(await soon(anext(messages))).data.decode().split()[0] for _ in range(6)]
    assert order == queues * 3


async def test_a_commit_ends_the_wait(open_broker, db, name, monkeypatch):
    """With notifications nothing is polled: the pauses between two looks are hours."""
    if db.database.dialect.notifies:
        monkeypatch.setattr(pauses, "SHORTEST", HOURS)
        broker = await open_broker(poll=HOURS)
    else:
        broker = await open_broker()
    async with listening(broker) as messages:
        waiting = asyncio.create_task(anext(messages))
        await until(lambda: broker._consumers)
        (consumer,) = broker._consumers
        await until(lambda: consumer._arrivals is not None and consumer._arrivals._waits)
        db.queue(name).enqueue("a", {"message": "here"})  # another connection
        assert (await soon(waiting)).data == b"here"


async def test_a_wait_that_is_cancelled_loses_nothing(broker, db, name):
    async with listening(broker) as messages:
        waiting = asyncio.create_task(anext(messages))
        await until(lambda: broker._consumers and broker._consumers[0]._arrivals is not None)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await broker.kick(message("a"))
    await until(lambda: db.queue(name).stats().available == 1)
    assert db.queue(name).stats().running == 0


async def test_what_is_not_begun_is_given_back(open_broker, db, name):
    broker = await open_broker(batch=3, lease=HOURS)
    for _ in range(3):
        await broker.kick(message("a"))
    async with listening(broker) as messages:
        first = await soon(anext(messages))
        assert db.queue(name).stats().running == 3
    await until(lambda: db.queue(name).stats().available == 2)
    await soon(first.ack())
    assert (db.queue(name).stats().available, db.queue(name).stats().running) == (2, 0)
    assert {job.attempts for job in db.queue(name).peek()} == {0}


async def test_a_shutdown_gives_back_what_runs(open_broker, db, name):
    broker = await open_broker(lease=HOURS)
    await broker.kick(message("a"))
    async with listening(broker) as messages:
        held = await soon(anext(messages))
    assert db.queue(name).stats().running == 1
    await broker.shutdown()
    assert db.queue(name).stats().available == 1
    await soon(held.ack())  # too late, and no error
    assert db.queue(name).stats().available == 1


# --- leases ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("also", ["shutdown", None])
async def test_a_stop_while_the_database_is_opened_claims_nothing(open_broker, db, name, also, monkeypatch):
    broker = await open_broker(lease=1000)
    await broker.kick(message("k"))
    opening, go_on, open_it = threading.Event(), threading.Event(), broker.db.for_threads

    def slow():
        opening.set()
        assert go_on.wait(PATIENCE)
        return open_it()

    monkeypatch.setattr(broker.db, "for_threads", slow)
    monkeypatch.setattr("queue_db.contrib.taskiq.consumer._CLAIM", 0.01)
    async with listening(broker) as messages:
        first = asyncio.create_task(anext(messages))
        await until(opening.is_set)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    (consumer,) = broker._consumers
    if also == "shutdown":
        await broker.shutdown()
    go_on.set()
    await until(lambda: not consumer._thread.is_alive())
    assert db.queue(name).stats().available == 1
    assert db.queue(name).stats().running == 0


async def test_answers_that_wait_when_all_ends_are_given_once(open_broker, db, name, monkeypatch):
    broker = await open_broker(lease=1000, batch=3)
    for _ in range(3):
        await broker.kick(message("k"))
    async with listening(broker) as messages:
        got = [await soon(anext(messages)) for _ in range(3)]
        held = broker._consumers[0].held
        with monkeypatch.context() as away:
            away.setattr(held, "_settle", lambda: (_ for _ in ()).throw(StorageError("away")))
            answers = [held.answer(got[0].ack._tag, "complete") for _ in range(2)]
            await until(lambda: len(held._answers) == 2)
    await broker.shutdown()
    assert [answer.done() for answer in answers] == [True, True]
    assert db.queue(name).stats().available == 2
    assert db.queue(name).stats().running == 0


@pytest.mark.parametrize("extended", [True, False])
async def test_a_lease_is_extended_while_a_message_is_held(open_broker, db, name, extended, caplog):
    here, there = await open_broker(lease=0.6), await open_broker()
    await here.kick(message("a", b"it"))
    async with listening(here) as messages, listening(there) as others:
        held = await soon(anext(messages))
        other = asyncio.create_task(anext(others))
        if extended:
            job = db.queue(name).jobs("running").jobs[0]
            await until(lambda: db.get(job.id).version >= job.version + 4)
            assert not other.done()
            await soon(held.ack())
            other.cancel()
            await asyncio.wait({other})
        else:
            here._consumers[0].held._jobs.close()  # as in a process that hangs
            again = await soon(other)
            assert again.data == b"it"
            await soon(held.ack())
            assert "after its lease was lost" in caplog.text
            assert db.queue(name).stats().running == 1
            await soon(again.ack())
    assert db.next_due([name]) == {name: None}


async def test_a_message_without_an_acknowledgement_comes_again_until_it_is_dead(open_broker, db, name, caplog):
    caplog.set_level(logging.CRITICAL, "asyncio")  # a record would hold the traceback, and so the message
    broker = await open_broker(max_crashes=1, lease=3.0)

    class Refuses(TaskiqMiddleware):
        def pre_execute(self, message):
            raise RuntimeError("a fault")

    broker.add_middlewares(Refuses())

    @broker.task
    async def welcome() -> None: ...

    task = await welcome.kiq()
    async with Running(broker):

        def dead():
            gc.collect()  # of a cycle with the traceback
            queue = db.queue(name)
            for job in queue.jobs("scheduled").jobs:
                queue.reschedule(job.id, delay=0)
            if not queue.stats().available:  # the receiver keeps its last message until the next one
                queue.enqueue("other", {"message": "of no task"})
            return db.dead.count(name)

        await until(dead)
    (buried,) = db.dead.list(name)
    assert task.task_id == buried.payload["task_id"]
    assert "without an acknowledgement" in buried.last_error


async def test_a_job_that_is_no_message_is_buried_alone(open_broker, db, name):
    broker = await open_broker(batch=10)
    foreign = [db.queue(name).enqueue("k", payload) for payload in (None, [1], {"x": 1}, {"base64": "?"}, "undecodable")]
    with db.queue(name).transaction() as connection:
        connection.execute(text("UPDATE jobs SET payload = '{' WHERE id = :id"), {"id": foreign[-1]})
    await broker.kick(message("a", b"good"))
    async with listening(broker) as messages:
        assert (await soon(anext(messages))).data == b"good"
        assert {db.get(job).state for job in foreign} == {State.DEAD}


# --- a network that breaks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
async def test_a_worker_outlives_an_outage(url, db, name, caplog):
    caplog.set_level(logging.INFO, "queue_db.taskiq")
    queue = db.queue(name)
    with Proxy.before(url) as proxy:
        broker = QueueBroker(for_asyncio(proxy.url(url)), [name], lease=HOURS)
        await broker.startup()
        await broker.kick(message("a", b"first"))
        async with listening(broker) as messages:
            first = await soon(anext(messages))
            waiting = asyncio.create_task(anext(messages))
            await until(lambda: broker._consumers[0]._arrivals is not None)
            proxy.refuse()
            proxy.cut()
            acknowledged = asyncio.create_task(first.ack())
            await until(lambda: broker._consumers[0].held._failed >= 2)
            queue.enqueue("a", {"message": "second"})
            assert not acknowledged.done()
            assert not waiting.done()
            proxy.forward()
            await soon(acknowledged)
            second = await soon(waiting)
            assert second.data == b"second"
            await soon(second.ack())
        assert db.next_due([name]) == {name: None}
        said = [record.getMessage() for record in caplog.records if record.name == "queue_db.taskiq"]
        assert [line.partition(":")[0] for line in said] == [
            "the database does not answer, and is asked again until it does",
            "the database answers again",
        ]
        await broker.shutdown()


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
async def test_an_acknowledgement_that_the_database_never_gets_is_logged(url, db, name, caplog):
    with Proxy.before(url) as proxy:
        broker = QueueBroker(for_asyncio(proxy.url(url)), [name], lease=HOURS)
        await broker.startup()
        await broker.kick(message("a"))
        async with listening(broker) as messages:
            held = await soon(anext(messages))
        proxy.refuse()
        proxy.cut()
        acknowledged = asyncio.create_task(held.ack())
        await until(lambda: broker._consumers[0].held._failed >= 1)
        await asyncio.gather(broker.shutdown(), return_exceptions=True)
        await soon(acknowledged)
    assert "comes again when its lease ends" in caplog.text
    assert db.queue(name).stats().running == 1
