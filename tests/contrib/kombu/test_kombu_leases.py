"""What a consumer holds: prefetch, answers, leases, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from kombu import Queue

from queue_db.contrib.kombu import publishing_in, upkeep
from queue_db.contrib.kombu.topology import Topology
from tests.contrib.kombu.receiving import consuming, publish
from tests.patience import PATIENCE, wait_for


def test_a_consumer_gets_as_many_as_it_may_prefetch(connect, name):
    here, there = connect(), connect()
    for number in range(5):
        publish(here, number, Queue(name))
    with consuming(here, Queue(name), prefetch_count=2) as first:
        assert first.until(2) == [0, 1]
        assert first.no_more()
        with consuming(there, Queue(name), prefetch_count=10) as second:
            assert second.until(3) == [2, 3, 4]
        first.pop(0).ack()
        first.until(2)


def test_an_answer_from_another_thread_ends_the_wait(connect, name):
    here = connect(polling_interval=PATIENCE)
    for number in range(2):
        publish(here, number, Queue(name))
    with consuming(here, Queue(name), prefetch_count=1) as received:
        received.until(1)
        threading.Timer(0.1, received[0].ack).start()
        assert received.until(2) == [0, 1]


def test_answers(connect, name, open_db):
    here, queue = connect(), open_db().queue(name)
    with consuming(here, Queue(name)) as received:
        publish(here, "a", Queue(name))
        received.until(1)
        assert queue.stats().running == 1
        assert received[0].delivery_info["redelivered"] is False
        received[0].requeue()
        received.until(2)
        assert received[1].delivery_info["redelivered"] is True
        received[1].reject()
        assert (queue.stats().available, queue.stats().running) == (0, 0)
        publish(here, "b", Queue(name))
        received.until(3)
        received[2].ack()
        assert (queue.stats().available, queue.stats().running) == (0, 0)


def test_what_is_held_at_the_end_returns_at_once(connect, name, open_db):
    here, queue = connect(visibility_timeout=1000), open_db().queue(name)
    publish(here, "a", Queue(name))
    with consuming(here, Queue(name)) as received:
        received.until(1)
    assert queue.stats().available == 1


@pytest.mark.parametrize("extended", [True, False])
def test_a_lease_is_extended_while_a_message_is_held(connect, name, open_db, extended):
    here, there = connect(visibility_timeout=0.6), connect()
    publish(here, "a", Queue(name))
    with consuming(here, Queue(name)) as received, consuming(there, Queue(name)) as other:
        received.until(1)
        if extended:
            job = open_db().queue(name).jobs("running").jobs[0]
            wait_for(lambda: open_db().get(job.id).version >= job.version + 4)
            assert other.no_more()
        else:
            here.connection.leases.close()  # as in a process that hangs
            assert other.until(1) == ["a"]


@pytest.mark.parametrize("slow", ["sweep", "used"])
def test_leases_do_not_wait_for_the_upkeep_of_queues(connect, name, open_db, monkeypatch, slow):
    monkeypatch.setattr(upkeep, "_SWEEP_EVERY", 0.01)
    here, begun, ended = connect(visibility_timeout=0.6), threading.Event(), threading.Event()

    def lasts(self, *_):  # as a purge of many messages, and a lock that it holds
        begun.set()
        ended.wait(PATIENCE)

    publish(here, "a", Queue(name, expires=1000))
    with consuming(here, Queue(name, expires=1000)) as received:
        received.until(1)
        monkeypatch.setattr(Topology, slow, lasts)
        here.connection.upkeep.keep("another", 0.01)
        assert begun.wait(PATIENCE)
        job = open_db().queue(name).jobs("running").jobs[0]
        wait_for(lambda: open_db().get(job.id).version >= job.version + 4)
        ended.set()


def test_after_a_fork_the_child_returns_nothing_of_its_parent(connect, name, open_db):
    here, queue = connect(), open_db().queue(name)
    publish(here, "a", Queue(name))
    with consuming(here, Queue(name)) as received:
        received.until(1)
        pid = os.fork()
        if not pid:
            try:
                here.collect()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert queue.stats().running == 1
        received[0].ack()
        assert queue.stats().running == 0


KILLED = """
import sys
import kombu
import queue_db.contrib.kombu
connection = kombu.Connection(sys.argv[1], transport_options={"visibility_timeout": 1})
def got(message):
    print("got", flush=True)
queues, no_ack = [kombu.Queue(sys.argv[2])], sys.argv[3] == "True"
with connection.channel() as channel, kombu.Consumer(channel, queues, on_message=got, no_ack=no_ack):
    while True:
        connection.drain_events()
"""


@pytest.mark.parametrize(
    "no_ack",
    [
        False,
        pytest.param(True, marks=pytest.mark.rest("a process; the other case kills one, test_higher_priorities_first has no_ack")),
    ],
)
def test_the_message_of_a_killed_process_returns(connect, name, url, open_db, no_ack):
    here = connect()
    publish(here, "a", Queue(name))
    command = [sys.executable, "-c", KILLED, f"queuedb+{url}", name, str(no_ack)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "got\n"
        process.send_signal(signal.SIGKILL)
    if no_ack:  # it had left the queue
        assert open_db().next_due([name]) == {name: None}
    else:
        with consuming(here, Queue(name)) as received:
            assert received.until(1) == ["a"]
            assert received[0].delivery_info["redelivered"] is True
            received[0].ack()


def test_a_message_that_kills_its_consumers_dies(connect, name, open_db):
    here, db = connect(max_deliveries=1, visibility_timeout=0.2), open_db()
    publish(here, "a", Queue(name))
    with consuming(here, Queue(name)) as received:
        received.until(1)
        here.connection.leases.close()
        wait_for(lambda: received.no_more() and db.dead.count(name) == 1)


def test_higher_priorities_first(connect, name):
    here = connect()
    for priority in (0, 3, 9, 6):
        publish(here, priority, Queue(name), priority=priority)
    with consuming(here, Queue(name), no_ack=True) as received:
        assert received.until(4) == [9, 6, 3, 0]


def test_an_expired_message_is_dropped(connect, name, open_db):
    here = connect()
    publish(here, "old", Queue(name), expiration=0.001)
    publish(here, "lasts", Queue(name), expiration=1000)
    with consuming(here, Queue(name)) as received:
        assert received.until(1) == ["lasts"]
    assert open_db().queue(name).stats().available == 1


def test_a_task_waits_in_the_database_for_its_time(connect, name, open_db):
    eta = datetime.now(UTC) + timedelta(hours=1)
    headers = {"task": "send", "eta": eta.isoformat()}
    queue = open_db().queue(name)
    publish(connect(), {}, Queue(name), headers=headers)
    assert (queue.stats().available, queue.stats().scheduled) == (1, 0)  # a worker holds it
    publish(connect(eta_in_database=True), {}, Queue(name), headers=headers)
    publish(connect(), {}, Queue(name), delay=3600)
    assert (queue.stats().available, queue.stats().scheduled) == (1, 2)
    assert {job.kind for job in queue.jobs("scheduled").jobs} == {"send", "message"}


def test_a_publish_belongs_to_a_transaction(connect, name, open_db):
    here, queue = connect(), open_db().queue(name)
    with here.channel() as channel:
        Queue(name)(channel).declare()

    def fail():
        with queue.transaction() as connection, publishing_in(connection):
            publish(here, "never", exchange="", routing_key=name)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert queue.stats().available == 0
    with queue.transaction() as connection, publishing_in(connection):
        publish(here, "once", exchange="", routing_key=name)
    assert queue.stats().available == 1
