"""Each command that changes something writes one action; the others change nothing, or have a reason."""

import getpass
import re
import shutil
import socket
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import delete, make_url

from queue_db import QueueDB
from queue_db.cli import recording
from queue_db.model import StoredResult
from queue_db.monitoring.tables import WHO_LENGTH
from queue_db.spark.streams import store as streams
from queue_db.store import Transaction
from tests.cli.test_cli_reference import COMMANDS

WHO = f"cli:{getpass.getuser()}@{socket.gethostname()}"

#: What a command is called with, and its action.
CHANGES = {
    ("tokens create", "shop --scope read"): ("create", "token shop", None),
    ("tokens revoke", "known"): ("revoke", "token known", None),
    ("prune", ""): ("prune", "expired rows", 1),
    ("queues repair", "grouped"): ("repair", "groups of queue grouped", 1),
    ("jobs cancel", "{live}"): ("cancel", "job {live}", None),
    ("jobs reschedule", "{live} --delay 9 --priority 2"): ("reschedule", "job {live}", None),
    ("queues purge", "mail --yes"): ("purge", "queue mail", 2),
    ("dead redrive", "{dead}"): ("redrive", "dead job {dead}", 1),
    ("dead redrive", "--queue mail --kind sad"): ("redrive", "dead jobs of queue mail and kind sad", 1),
    ("dead purge", "--queue mail --yes"): ("purge", "dead jobs of queue mail", 1),
    ("dead purge", "--all --yes"): ("purge", "dead jobs of all queues", 1),
    ("queues pause", "mail"): ("pause", "queue mail", None),
    ("queues resume", "mail"): ("resume", "queue mail", None),
    ("queues limit", "mail --rate 7"): ("limit", "queue mail", None),
    ("queues limit", "mail --none"): ("limit", "queue mail", None),
    ("queues fair", "mail --weight vip=3"): ("fair", "queue mail", None),
    ("queues limit-groups", "tenants --group vip --concurrency 5"): ("limit groups", "queue tenants", None),
    ("queues limit-groups", "tenants --none"): ("limit groups", "queue tenants", None),
    ("schedules set", "weekly mail k --every 604800"): ("set", "schedule weekly", None),
    ("schedules run", "nightly"): ("run", "schedule nightly", None),
    ("schedules pause", "nightly"): ("pause", "schedule nightly", None),
    ("schedules resume", "nightly"): ("resume", "schedule nightly", None),
    ("schedules remove", "nightly"): ("remove", "schedule nightly", None),
    ("workers rescue", "gone"): ("rescue", "worker gone", 1),
    ("feeds purge", "long --retained"): ("purge", "feed long", 2),
    ("feeds set", "orders --keep-rows 10"): ("set", "feed orders", None),
    ("feeds purge", "orders --yes"): ("purge", "feed orders", 1),
    ("feeds remove", "orders --yes"): ("remove", "feed orders", None),
    ("feeds restored", "--yes"): ("restored", "all feeds", 3),
    ("cursors seek", "orders billing end"): ("seek", "cursor billing of feed orders", None),
    ("cursors remove", "orders billing"): ("remove", "cursor billing of feed orders", None),
    ("routes set", "other --drop"): ("set", "route other", None),
    ("routes set", "archive --definition {definition}"): ("set", "route archive", None),
    ("routes subscribe", "new.* archive"): ("subscribe", "route archive", None),
    ("routes unsubscribe", "sensor.* archive"): ("unsubscribe", "route archive", None),
    ("routes pause", "archive"): ("pause", "route archive", None),
    ("routes resume", "archive"): ("resume", "route archive", None),
    ("routes remove", "archive"): ("remove", "route archive", None),
    ("routes reset", "seen --yes"): ("reset", "counter seen", None),
    ("graphs cancel", "{graph}"): ("cancel", "graph {graph}", 2),
    ("graphs cancel", "{graph} --node a"): ("cancel", "node a of graph {graph}", 2),
    ("graphs retry", "{over}"): ("retry", "graph {over}", 1),
    ("streams complete", "etl --yes"): ("complete", "stream etl", 1),
    ("streams release", "etl --yes"): ("release", "stream etl", 1),
    ("streams release", "--expired --yes"): ("release", "expired streams", 1),
}

#: Nothing was there to be changed: no action. Exit status 1; 0 where that is the state that was wanted, 2 where none is named.
FINDS_NOTHING = {
    ("tokens revoke", "nobody"): 1,
    ("schedules run", "nobody"): 1,
    ("schedules pause", "nobody"): 1,
    ("schedules remove", "nobody"): 1,
    ("cursors remove", "orders nobody"): 1,
    ("routes subscribe", "sensor.* archive"): 0,
    ("routes unsubscribe", "nothing archive"): 1,
    ("routes remove", "nobody"): 1,
    ("routes reset", "seen --key unknown --yes"): 1,
    ("graphs cancel", "{over}"): 0,
    ("graphs cancel", "999999"): 1,
    ("graphs retry", "{graph}"): 0,
    ("jobs cancel", "999999"): 1,
    ("jobs reschedule", "999999 --now"): 1,
    ("queues limit", "mail"): 2,
    ("queues limit-groups", "tenants"): 2,
    ("queues limit-groups", "mail --rate 7"): 2,  # it is not fair
    ("workers rescue", "nobody"): 0,
    ("queues repair", "mail"): 0,
    ("queues purge", "nothing --yes"): 0,
    ("dead redrive", "--queue nothing"): 0,
    ("dead purge", "--error-class None --yes"): 0,
    ("feeds purge", "orders --retained"): 0,
}

#: These change nothing, and are called with this.
LOOKS = {
    ("doctor", ""),
    ("actions", ""),
    ("tokens list", ""),
    ("jobs list", ""),
    ("jobs show", "{live}"),
    ("jobs batch", ""),
    ("jobs batch", "{batch}"),
    ("jobs wait", "{finished}"),
    ("dead list", ""),
    ("dead list", "--failures"),
    ("queues list", "mail"),
    ("queues show", "mail"),
    ("queues show", "grouped --groups"),
    ("schedules list", ""),
    ("feeds list", ""),
    ("feeds read", "orders"),
    ("cursors list", ""),
    ("routes list", ""),
    ("routes list", "--counter seen"),
    ("routes test", "sensor.7"),
    ("graphs list", ""),
    ("graphs show", "{graph}"),
    ("streams list", ""),
    ("top", "--once"),
    ("workers list", ""),
    ("workers alive", ""),
}

#: These change something and write no action, and are called with this.
EXEMPT = {
    ("migrate", ""),  # creates and removes the table of the actions; the tables have their revision
    ("compare", ""),  # works in tables of its own, which it removes
    ("serve", ""),  # the service writes what its clients change; its first token has an action
    ("work", "mail --exec true --until-empty"),  # what workers do are events of jobs
    ("enqueue", "mail k"),  # the work of programs: one action for each job would double the jobs
    ("feeds publish", "orders paid"),  # the work of programs, like enqueue
    ("feeds publish", "sensor.7 reading --topic"),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A file with one of everything, and the names of what has no fixed one."""
    file = tmp_path_factory.mktemp("actions") / "queue.db"
    with QueueDB(f"sqlite:///{file}") as db:
        db.migrate()
        mail = db.queue("mail")
        mail.enqueue("sad")
        (job,) = mail.claim()
        assert job.bury("no use")
        live = mail.enqueue("k")
        mail.enqueue("k")
        db.schedules.set("nightly", "mail", "k", every=3600)
        db.feed("orders").publish("paid")
        with db.feed("orders").cursor("billing"):
            pass
        assert db.feed("orders").shared("shared").claim(1)
        definition = db.routes.set("archive", feed="archived")
        db.routes.subscribe("sensor.*", "archive")
        db.routes.set("seen", count="seen", by="topic")
        assert db.routes.run("seen", "reading") == 1
        db.tokens.create("known", ["read"])
        db.queue("events").enqueue("k")
        db.queue("tenants").fair()
        _hold(db, "etl", "events", 10**12)
        _prepare_upkeep(db)
        batch, _ = db.queue("batched").enqueue_batch([("k", None)], ("k",))
        finished = _finished(db)
        graphs = _graphs(db)
    return file, {"live": live, "dead": job.id, "definition": definition, "batch": batch, "finished": finished, **graphs}


def _graphs(db):
    """A graph that is open, and one that is over since it was cancelled."""
    with db.graph() as graph:
        graph.add("nodes", "k", after=graph.add("nodes", "k", name="a"))
    with db.graph() as over:
        over.add("nodes", "k")
    assert db.graphs.cancel(over.id) == 1
    return {"graph": graph.id, "over": over.id}


def _finished(db):
    """The id of a job whose result is retained; and a job of a worker that is gone."""
    queue = db.queue("done")
    job_id = queue.enqueue("k")
    queue.complete_many(queue.claim(), results=[StoredResult("1", 10**12)])
    queue.enqueue("k")
    assert queue.claim(lease=10**6, worker="gone")
    return job_id


def _prepare_upkeep(db):
    """An expired result, a group that waits for nobody, messages beyond what is kept, and a stream that nobody reads."""
    other = db.queue("other")
    other.enqueue("k")
    other.complete_many(other.claim(), results=[StoredResult(None, 1)])
    grouped = db.queue("grouped")
    first, _ = (grouped.enqueue("k", group="g") for _ in range(2))
    jobs = db.store.tables.jobs
    with db.database.engine.begin() as connection:
        connection.execute(delete(jobs).where(jobs.c.id == first))
    for _ in range(3):
        db.feed("long").publish("paid")
    db.feeds.set("long", keep_rows=1)
    db.queue("abandoned").enqueue("k")
    _hold(db, "old", "abandoned", 1)


def _hold(db, name, queue, retention):
    """A stream that holds a job."""

    def held(tx: Transaction):
        session = streams.open_stream(tx, name=name, queue=queue, holder="here:1", retention=retention)
        start = streams.initial(tx, session)
        streams.allocate(tx, session, start=start, limit=1, ceiling=None, partitions=1)

    db.core.write("test", held)


@pytest.fixture
def own(prepared, tmp_path):
    """A copy of the file, and its URL."""
    return f"sqlite:///{shutil.copy(prepared[0], tmp_path / 'own.db')}"


def called(ask_at, url, command, given, names, status=0):
    return ask_at(url, *command.split(), *(word.format(**names) for word in given.split()), status=status)


def entries(url):
    with closing(sqlite3.connect(make_url(url).database)) as connection:
        return connection.execute("SELECT who, action, target, number FROM jobs_actions").fetchall()


def content(url):
    """All rows; without the last ids of tables, which SQLite notes also where an INSERT has no row."""
    with closing(sqlite3.connect(make_url(url).database)) as connection:
        return [line for line in connection.iterdump() if "sqlite_sequence" not in line]


def test_each_command_is_in_one_of_these_lists():
    changing, looking, exempt = ({command for command, _ in calls} for calls in (CHANGES, LOOKS, EXEMPT))
    every = [*changing, *looking, *exempt]
    assert sorted(every) == sorted(" ".join(path) for path in COMMANDS)
    assert {command for command, _ in FINDS_NOTHING} <= changing


@pytest.mark.parametrize("call", CHANGES, ids=" ".join)
def test_a_command_that_changes_something_writes_one_action(ask_at, own, prepared, call):
    answer = called(ask_at, own, *call, prepared[1])
    action, target, number = CHANGES[call]
    assert entries(own) == [(WHO, action, target.format(**prepared[1]), number)]
    assert "action log" not in answer.err


@pytest.mark.parametrize("call", FINDS_NOTHING, ids=" ".join)
def test_what_is_not_there_is_not_changed(ask_at, own, prepared, call):
    called(ask_at, own, *call, prepared[1], status=FINDS_NOTHING[call])
    assert entries(own) == []


@pytest.mark.parametrize(
    "command", ["prune", "queues repair grouped", "feeds purge long --retained", "streams release --expired --yes"]
)
def test_what_is_done_already_is_not_written_again(ask_at, own, command):
    for _ in range(2):
        ask_at(own, *command.split())
    assert len(entries(own)) == 1


def test_a_command_that_looks_changes_nothing(ask_at, own, prepared):
    before = content(own)
    for command, given in sorted(LOOKS):
        called(ask_at, own, command, given, prepared[1], status=1 if command == "workers alive" else 0)
        assert content(own) == before, command


def test_times_in_json_have_one_form(ask_at, own, prepared):
    for command, given in LOOKS:
        out = called(ask_at, own, command, f"{given} --json", prepared[1], status=1 if command == "workers alive" else 0).out
        times = re.findall(r'"(\d{4}-\d\d-\d\d[^"]*)"', out)
        assert [one for one in times if not re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{6}\+00:00", one)] == [], command


@pytest.mark.parametrize("call", CHANGES, ids=" ".join)
def test_where_the_log_takes_no_entry_nothing_is_changed(ask_at, own, prepared, call):
    with closing(sqlite3.connect(make_url(own).database)) as connection:
        connection.execute("DROP TABLE jobs_actions")
    before = content(own)
    assert "jobs_actions" in called(ask_at, own, *call, prepared[1], status=3).err
    assert content(own) == before


def test_a_long_name_is_cut(monkeypatch):
    monkeypatch.setenv("LOGNAME", "n\n" + "ä" * 200)
    assert recording.user().name == "cli:n" + "ä" * (WHO_LENGTH - 5)
