"""What a fault costs: it must not lose, repeat, delay or delete the messages of others."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta

import kombu
import pytest
from kombu import Queue
from sqlalchemy import create_engine, text

from queue_db import ArgumentError, ConfigurationError, QueueDB, State, StorageError, TransientStorageError
from queue_db.concurrency import pauses
from queue_db.contrib.kombu import NotPublishedError, channel, databases, publishing_in
from queue_db.contrib.kombu.topology import _EXPIRING, EXPIRY, Topology
from tests.contrib.kombu.receiving import consuming, publish
from tests.patience import HOURS, PATIENCE, wait_for

# --- a transaction of the caller ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_publish_in_a_transaction_that_the_database_gave_up_is_not_repeated(connect, name, open_db, kind):
    here, queue, orders = connect(), open_db().queue(name), name.replace("-", "_").replace(".", "_") + "_orders"
    engine = create_engine(open_db().database.engine.url)
    with engine.begin() as made:
        made.execute(text(f"CREATE TABLE {orders} (id INT PRIMARY KEY, n INT)"))
    with here.channel() as on, engine.connect() as mine, engine.connect() as rival, ThreadPoolExecutor(1) as pool:
        Queue(name)(on).declare()
        mine.execute(text(f"INSERT INTO {orders} VALUES (1, 0)"))
        if kind == "postgresql":
            rival.execute(text("LOCK TABLE jobs IN EXCLUSIVE MODE"))
            mine.execute(text("SET LOCAL lock_timeout = '50ms'"))
            circle = None
        else:  # InnoDB gives up the transaction that has changed less, and rolls it back
            for number in range(100):
                rival.execute(text(f"INSERT INTO {orders} VALUES ({1000 + number}, 0)"))
            rival.execute(text("SELECT id FROM jobs FOR UPDATE")).all()

            def close_the_circle():
                rival.execute(text(f"UPDATE {orders} SET n = 1 WHERE id = 1"))
                rival.rollback()  # another attempt would succeed

            circle = pool.submit(close_the_circle)
        policy = {"max_retries": 2, "interval_start": 0.0, "interval_step": 0.0}
        try:
            with publishing_in(mine), pytest.raises(NotPublishedError, match="repeat it") as caught:
                kombu.Producer(on).publish("a", routing_key=name, retry=True, retry_policy=policy)
        finally:
            if circle is not None:
                circle.result(PATIENCE)
            rival.rollback()
            mine.rollback()
    assert isinstance(caught.value.__cause__, TransientStorageError)
    assert not isinstance(caught.value, here.recoverable_connection_errors)
    assert queue.stats().available == 0
    with engine.begin() as made:
        made.execute(text(f"DROP TABLE {orders}"))
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"expires": 1000},
        {"auto_delete": True},
        {"exchange": kombu.Exchange("news", "topic"), "routing_key": "shop.*"},
        {"exchange": kombu.Exchange("all", "fanout")},
    ],
    ids=["stays", "expires", "auto_delete", "topic", "fanout"],
)
def test_a_queue_that_is_there_is_published_to_beside_a_write_by_each_new_connection(connect, name, open_db, options):
    publish(connect(), "first", Queue(name, **options))
    db = open_db()
    with db.queue(name).transaction() as mine:
        db.queue(name).enqueue("message", using=mine)  # SQLite has one writer
        with publishing_in(mine):
            publish(connect(), "second", Queue(name, **options))
    assert db.queue(name).stats().available == 3


@pytest.mark.parametrize(("first", "second"), [("direct", "topic"), ("topic", "direct"), ("fanout", "direct")])
def test_a_binding_of_another_type_is_added_to_that_of_the_same_key(connect, name, open_db, first, second):
    topology, exchange = Topology(open_db()), f"{name}-x"
    topology.declare(name, None)
    for kind in (first, second):
        topology.bind(name, exchange, "a.*", kind)
    topology.unbind(name, exchange, "a.*", first)
    assert topology.queues_for(exchange, "a.*") == [name]


def test_the_definition_of_queues_that_expire_is_that_of_the_routes(open_db):
    assert open_db().routes.define(drop=True, matched=True) == _EXPIRING


def test_a_thread_that_outlives_the_block_is_refused(connect, name, open_db):
    db, connection = open_db(), connect()
    publish(connection, "first", Queue(name))
    with db.queue(name).transaction() as mine, publishing_in(mine):
        context = copy_context()
    with pytest.raises(ConfigurationError, match="the block of publishing_in"):
        context.run(publish, connection, "lost", Queue(name))
    assert db.queue(name).stats().available == 1


@pytest.mark.parametrize("broken", [False, True])
def test_a_job_of_another_program_does_not_stop_the_sweep(connect, name, open_db, broken):
    db = open_db()
    foreign = db.queue(EXPIRY).enqueue("of another", [name], priority=-1)
    if broken:
        with db.queue(EXPIRY).transaction() as connection:
            connection.execute(text("UPDATE jobs SET payload = '{' WHERE id = :id"), {"id": foreign})
    Queue(name, expires=0.05)(connect().default_channel).declare()
    topology = Topology(db)
    wait_for(lambda: topology.sweep() >= 0 and not topology.exists(name))
    assert db.state(foreign) is State.DEAD


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_declaration_that_waits_for_the_callers_transaction_says_so(connect, name, open_db, monkeypatch):
    here, db = connect(), open_db()
    monkeypatch.setattr(databases, "BESIDE", 0.05)
    with db.queue(name).transaction() as mine:
        db.queue(name).enqueue("mine", using=mine)
        with publishing_in(mine), pytest.raises(NotPublishedError, match="start a worker"):
            publish(here, "a", Queue(name))
    wait_for(lambda: Topology(db).exists(name))  # the declaration has gone on
    monkeypatch.undo()
    with db.queue(name).transaction() as mine, publishing_in(mine):
        publish(here, "b", Queue(name))
    assert db.queue(name).stats().available == 2


def test_a_declaration_that_fails_when_its_caller_has_gone_is_logged(connect, name, open_db, monkeypatch, caplog):
    here, db, gone = connect(), open_db(), threading.Event()

    def fail(*_, **__):
        gone.wait(PATIENCE)
        raise StorageError("away")

    monkeypatch.setattr(databases, "BESIDE", 0.01)
    monkeypatch.setattr(Topology, "declare", fail)
    with db.queue(name).transaction() as mine, publishing_in(mine), pytest.raises(NotPublishedError):
        publish(here, "a", Queue(name))
    gone.set()
    wait_for(lambda: "a declaration beside the transaction of publishing_in() failed: away" in caplog.text)


def test_a_declaration_in_the_callers_block_raises_its_error(connect, name, open_db):
    here, db = connect(), open_db()
    with db.queue(name).transaction() as mine, publishing_in(mine), pytest.raises(ArgumentError, match="94 is the limit"):
        publish(here, "a", Queue("x" * 95))


@pytest.mark.parametrize("wrong", [None, "shop.db", 7])
def test_what_is_no_connection_is_refused(wrong):
    with pytest.raises(ArgumentError, match=r"publishing_in\(\) takes a SQLAlchemy Connection"), publishing_in(wrong):
        pass


def test_a_refused_transaction_names_the_block(connect, name, open_db):
    here = connect()
    publish(here, "a", Queue(name))
    other = create_engine("sqlite://", isolation_level="AUTOCOMMIT")
    with other.connect() as mine, publishing_in(mine), pytest.raises(ConfigurationError, match=r"^publishing_in\(\): using= "):
        publish(here, "b", Queue(name))
    other.dispose()


def test_the_connection_of_a_pool_is_taken(connect, name, open_db):
    here, db = connect(), open_db()
    publish(here, "a", Queue(name))
    engine = create_engine(db.database.engine.url)
    raw = engine.raw_connection()
    raw.cursor().execute("BEGIN" if engine.dialect.name != "postgresql" else "SELECT 1")
    with publishing_in(raw):
        publish(here, "b", Queue(name))
    assert db.queue(name).stats().available == 1
    raw.commit()
    assert db.queue(name).stats().available == 2
    raw.close()
    engine.dispose()


def test_a_fork_while_another_thread_opens_a_database_does_not_hang_the_child():
    with databases._lock:
        pid = os.fork()
        if not pid:
            signal.alarm(int(PATIENCE))  # ends a child that hangs
            try:
                databases.close_all()
            finally:
                os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# --- jobs that are no messages --------------------------------------------------------------------------------------------


def test_a_job_that_is_no_message_is_buried_alone(connect, name, open_db, caplog):
    here, db = connect(), open_db()
    for number in range(3):
        publish(here, number, Queue(name))
    foreign = [
        db.queue(name).enqueue("x", payload, priority=0)
        for payload in ({"hand": "made"}, [1], {"body": "a", "properties": {"body_encoding": "base64"}}, "undecodable")
    ]
    with db.queue(name).transaction() as connection:
        connection.execute(text("UPDATE jobs SET payload = '{' WHERE id = :id"), {"id": foreign[-1]})
    with consuming(here, Queue(name), prefetch_count=20) as received:
        assert received.until(3) == [0, 1, 2]
        assert [job.attempts for job in db.queue(name).jobs("running").jobs] == [1, 1, 1]
    dead = [db.get(number) for number in foreign]
    assert {job.state for job in dead} == {"dead"}
    assert all("no message of Kombu" in job.last_error for job in dead)
    warned = [record.message for record in caplog.records if "no message of Kombu" in record.message]
    assert len(warned) == len(foreign)
    assert all(name in message for message in warned)


def test_an_error_releases_what_was_claimed(connect, name, open_db, monkeypatch):
    here, queue = connect(), open_db().queue(name)
    for number in range(3):
        publish(here, number, Queue(name))
    with consuming(here, Queue(name), prefetch_count=5) as received, monkeypatch.context() as broken:

        def fail(*_):
            raise RuntimeError("a fault")

        broken.setattr(channel.Channel, "_expired", fail)
        with pytest.raises(RuntimeError, match="a fault"):
            received.until(1)
        assert (queue.stats().available, queue.stats().running) == (3, 0)


# --- turns ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 4])
@pytest.mark.parametrize("channels", ["one channel", "a channel each"])
def test_queues_take_turns(connect, name, number, channels):
    here = connect()
    queues = [Queue(f"{name}-{place}") for place in range(number)]
    for queue in queues:
        for _ in range(3):
            publish(here, "a", queue)
    order: list[str] = []

    def got(message):
        order.append(message.delivery_info["routing_key"])
        message.ack()

    groups = [queues] if channels == "one channel" else [[queue] for queue in queues]
    consumers = [kombu.Consumer(here.channel(), group, on_message=got, prefetch_count=1) for group in groups]
    for consumer in consumers:
        consumer.consume()
    while len(order) < 3 * number:
        here.drain_events(timeout=PATIENCE)
    turns = [set(order[place : place + number]) for place in range(0, 3 * number, number)]
    assert turns == [{queue.name for queue in queues}] * 3


@pytest.mark.parametrize("first", ["of tasks", "of control"])
def test_a_message_of_control_is_not_overtaken_by_tasks(connect, name, first):
    here, there = connect(), connect()
    tasks, control = Queue(f"{name}-tasks"), Queue(f"{name}-control", auto_delete=True)
    order: list[str] = []

    def got(message):
        order.append(message.payload)
        message.ack()

    queues = [tasks, control] if first == "of tasks" else [control, tasks]
    for queue in queues:
        kombu.Consumer(here.channel(), [queue], on_message=got, prefetch_count=1).consume()
    for _ in range(2):  # whose turn it is
        publish(there, "revoke", control)
        publish(there, "task", tasks)
        here.drain_events(timeout=PATIENCE)
        with suppress(TimeoutError):
            while True:
                here.drain_events(timeout=0)
    assert order == ["revoke", "task"] * 2
    for _ in range(12):
        publish(there, "revoke", control)
    publish(there, "task", tasks)
    while len(order) < 17:
        here.drain_events(timeout=PATIENCE)
    assert order.index("task", 4) == 14  # and a flood of them lets tasks through


def test_control_of_an_idle_worker_is_not_counted(connect, name):
    here, there = connect(), connect()
    tasks, control = Queue(f"{name}-tasks"), Queue(f"{name}-control", auto_delete=True)
    order: list[str] = []

    def got(message):
        order.append(message.payload)
        message.ack()

    for queue in (tasks, control):
        kombu.Consumer(here.channel(), [queue], on_message=got, prefetch_count=1).consume()
    for _ in range(10):
        publish(there, "ping", control)
        here.drain_events(timeout=PATIENCE)
        with suppress(TimeoutError):
            here.drain_events(timeout=0)
    publish(there, "revoke", control)
    publish(there, "task", tasks)
    while len(order) < 12:
        here.drain_events(timeout=PATIENCE)
    assert order[10:] == ["revoke", "task"]


def test_a_broadcast_is_not_overtaken_by_the_task_that_wakes_its_process(connect, name, monkeypatch):
    monkeypatch.setattr(pauses, "SHORTEST", HOURS)  # no polls
    here, there = connect(polling_interval=HOURS), connect()
    everyone, tasks = kombu.Exchange(f"{name}-all", "fanout"), Queue(f"{name}-tasks")
    boxes = [Queue(f"{name}-{number}", everyone, auto_delete=True) for number in range(2)]
    for box in boxes:
        box(there.default_channel).declare()
    tasks(there.default_channel).declare()
    with consuming(here, boxes[0], tasks) as received, ThreadPoolExecutor(1) as pool:
        counters, before = here.connection.db.counters, here.connection.db.counters.statements
        waiting = pool.submit(here.drain_events, timeout=PATIENCE)
        wait_for(lambda: counters.statements > before and here.connection.arrivals._waits)  # it has looked, and sleeps
        publish(there, "revoke", exchange=everyone)
        publish(there, "task", tasks)
        waiting.result(PATIENCE)
        assert received.until(2) == ["revoke", "task"]


# --- waits ----------------------------------------------------------------------------------------------------------------


def test_closed_arrivals_refuse_to_wait(db, name):
    arrivals = db.arrivals()
    arrivals.close()
    arrivals.close()
    for wait in (lambda: arrivals.wait([name], 1.0), lambda: arrivals.look([name])):
        with pytest.raises(ConfigurationError, match="arrivals are closed"):
            wait()


def test_a_close_ends_the_wait_of_another_thread(db, name):
    arrivals = db.arrivals(poll=PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(arrivals.wait, [name], 10 * PATIENCE)
        wait_for(lambda: arrivals._waits)
        arrivals.close()
        assert waiting.result(PATIENCE) == set()


def test_a_text_is_no_list_of_queues(db):
    arrivals = db.arrivals()
    with arrivals, pytest.raises(ArgumentError, match="queues"):
        arrivals.look("abc")


# --- queues that expire ---------------------------------------------------------------------------------------------------


def expiry_of(db: QueueDB, queue: str):
    found = [job for state in ("available", "scheduled", "running") for job in db.queue(EXPIRY).jobs(state, limit=1000).jobs]
    return next((job for job in found if job.payload["queue"] == queue), None)


def test_the_time_of_auto_delete_begins_with_the_first_consumer(connect, name, open_db, monkeypatch):
    monkeypatch.setattr(channel, "AUTO_DELETE_AFTER", 0.05)
    here, db, queue = connect(), open_db(), Queue(name, auto_delete=True)
    publish(here, "kept", queue)
    assert expiry_of(db, name) is None
    with consuming(here, queue) as received:
        assert received.until(1) == ["kept"]
        assert expiry_of(db, name) is not None
        received[0].ack()
    topology = Topology(db)
    while topology.exists(name):
        topology.sweep()


def test_a_declaration_that_is_killed_does_not_begin_the_time_of_auto_delete(name, open_db, monkeypatch):
    db, topology = open_db(), Topology(open_db())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, suppress(KeyboardInterrupt):
        broken.setattr(type(db.queue(EXPIRY)), "cancel", killed)
        Topology(db).declare(name, 300.0, begins=False)
    topology.declare(name, 300.0, begins=False)
    assert topology.exists(name)
    assert expiry_of(db, name) is None


@pytest.mark.parametrize("found", ["due", "held by a sweep"])
def test_an_auto_delete_queue_lives_on_if_a_producer_declares_it(connect, name, open_db, monkeypatch, found):
    monkeypatch.setattr(channel, "AUTO_DELETE_AFTER", 1000)
    here, db, queue = connect(), open_db(), Queue(name, auto_delete=True)
    with consuming(here, queue):
        pass
    db.queue(EXPIRY).reschedule(wait_for(lambda: expiry_of(db, name)).id, delay=0)
    if found == "due":
        publish(connect(), "kept", queue)
        Topology(db).sweep()
    else:
        Overtaken(db, connect(), queue).sweep()
    assert Topology(db).exists(name)
    assert db.queue(name).stats().available == 1
    assert expiry_of(db, name).available_at > db.now() + timedelta(seconds=900)


@pytest.mark.parametrize("after", [0, 400])
def test_a_queue_lives_for_its_whole_time_after_each_declaration(connect, name, open_db, after):
    db, queue = open_db(), Queue(name, expires=1000)
    queue(connect().default_channel).declare()
    before = expiry_of(db, name)
    if after:  # it was declared so long ago
        db.queue(EXPIRY).reschedule(before.id, delay=1333 - after)
    queue(connect().default_channel).declare()
    found = expiry_of(db, name)
    assert found.available_at >= db.now() + timedelta(seconds=990)
    assert (found.version == before.version) == (not after)


class Overtaken(Topology):
    """Another process declares the queue, and publishes, when this one has found that it has expired."""

    def __init__(self, db: QueueDB, other: kombu.Connection, queue: Queue) -> None:
        super().__init__(db)
        self._other, self._queue = other, queue
        self._overtaken = False

    def _definition(self, queue: str) -> str | None:
        found = super()._definition(queue)
        if queue == self._queue.name and not self._overtaken:
            self._overtaken = True
            publish(self._other, "kept", self._queue)
        return found


def expired(db: QueueDB, name: str):
    return next((job for job in db.queue(EXPIRY).peek(1000) if job.payload["queue"] == name), None)


@pytest.mark.parametrize("again", [{"expires": 1000}, {}], ids=["expires later", "stays"])
@pytest.mark.parametrize("found", ["expired", "deleted"])
def test_a_queue_that_is_declared_while_a_sweep_looks_at_it_stays(connect, name, open_db, again, found):
    here, there, db = connect(), connect(), open_db()
    Queue(name, expires=0.05)(here.default_channel).declare()
    wait_for(lambda: expired(db, name) is not None)
    if found == "deleted":  # a consumer held a message, so a later sweep looks for it
        db.queue(name).enqueue("message", delay=PATIENCE)
        wait_for(lambda: Topology(db).sweep() and not Topology(db).exists(name))
        job = expiry_of(db, name)
        db.queue(EXPIRY).reschedule(job.id, delay=0)
    Overtaken(db, there, Queue(name, **again)).sweep()
    assert Topology(db).exists(name)
    assert db.queue(name).stats().available == 1
    if not again:
        assert expiry_of(db, name) is None


def test_a_consumer_with_another_time_makes_it_that_of_the_queue_at_once(connect, name, open_db):
    here, db = connect(), open_db()
    Queue(name, expires=1000)(here.default_channel).declare()
    upkeep = here.connection.upkeep
    upkeep.keep(name, 1000)
    wait_for(lambda: name in upkeep._used_at)
    upkeep.keep(name, 100)
    wait_for(lambda: expiry_of(db, name).available_at < db.now() + timedelta(seconds=150))


def test_a_queue_that_expired_may_be_declared_to_stay(connect, name, open_db):
    here, db = connect(), open_db()
    Queue(name, expires=0.05)(here.default_channel).declare()
    publish(here, "kept", Queue(name))
    assert expiry_of(db, name) is None
    Topology(db).sweep()
    assert Topology(db).exists(name)


def test_messages_that_go_with_an_expired_queue_are_counted(connect, name, open_db, caplog):
    here, db = connect(), open_db()
    for _ in range(2):
        publish(here, "gone", Queue(name, expires=0.05))
    topology = Topology(db)
    while topology.exists(name):
        topology.sweep()
    assert f"queue {name!r} expired without a consumer: 2 messages were deleted" in caplog.text


@pytest.mark.parametrize(("options", "level"), [({"expires": 0.05}, "WARNING"), ({"expires": 0.05, "auto_delete": True}, "INFO")])
def test_a_warning_is_of_queues_that_were_to_stay(connect, name, open_db, caplog, options, level):
    caplog.set_level("INFO", "queue_db.kombu")
    topology = Topology(open_db())
    publish(connect(), "a", Queue(name, **options))
    while topology.exists(name):
        topology.sweep()
    assert [one.levelname for one in caplog.records if name in one.getMessage()] == [level]


def test_a_purge_and_a_removal_of_a_route_belong_to_a_transaction(db, name):
    queue, route = db.queue(name), f"route-{name}"
    queue.enqueue_many([("k", 1), ("k", 2)])
    db.routes.set(route, drop=True)

    def delete(*, fail: bool):
        with queue.transaction() as connection:
            assert queue.purge(using=connection) == 2
            assert db.routes.remove(route, using=connection)
            if fail:
                raise KeyError

    with pytest.raises(KeyError):
        delete(fail=True)
    assert queue.stats().available == 2
    assert any(one.name == route for one in db.routes.list())
    delete(fail=False)
    assert queue.stats().available == 0
    assert not any(one.name == route for one in db.routes.list())
