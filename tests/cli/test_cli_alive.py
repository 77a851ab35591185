"""``queue-db workers alive``."""

import os
import subprocess
import sys

import pytest

from queue_db.db import QueueDB
from queue_db.store import Transaction
from queue_db.store import worker_registry as stored
from queue_db.worker.registration import host_identity
from tests.databases import SERVERS
from tests.patience import PATIENCE

PROGRAM = """
import sys
from queue_db import QueueDB
from queue_db.worker.registration import Registration
Registration(QueueDB(sys.argv[1]), {}, lambda: ("working", 0, {})).report()
print("reported", flush=True)
sys.stdin.read()
"""


def test_workers_of_this_machine_that_live_and_report_are_alive(ask_at, fresh_url):
    """Not those of other machines, nor dead ones, nor those whose heartbeat is too old."""
    with QueueDB(fresh_url) as db:
        db.migrate()
        assert ask_at(fresh_url, "workers", "alive", status=1).out == "0 workers\n"
        command = [sys.executable, "-c", PROGRAM, fresh_url]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert worker.stdout.readline() == "reported\n"
            values = {"host": "other/1234/5", "pid": os.getppid(), "queues": "{}", "state": "working", "counters": "{}"}
            with db.database.begin() as connection:
                stored.heartbeat(Transaction(connection, db.store), "of-another-machine#1", values)
            assert ask_at(fresh_url, "workers", "alive", "--json").record["workers"] == 1
            assert ask_at(fresh_url, "workers", "alive", "--workers", 2, status=1).out.startswith("1 workers, last heartbeat ")
            workers = db.store.tables.workers
            with db.database.begin() as connection:
                earlier = workers.c.seen_at - 100_000_000
                connection.execute(workers.update().where(workers.c.host == host_identity()).values(seen_at=earlier))
            assert ask_at(fresh_url, "workers", "alive", "--json", status=1).record == {"workers": 0, "silent": None}
            ask_at(fresh_url, "workers", "alive", "--within", 3600)
        finally:
            worker.communicate("", PATIENCE)
        ask_at(fresh_url, "workers", "alive", "--within", 3600, status=1)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_database_that_does_not_answer_is_another_status(ask_at, url):
    scheme, _, rest = url.partition("://")
    ask_at(f"{scheme}://{rest.partition('@')[0]}@127.0.0.1:1/nothing", "workers", "alive", status=3)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_how_long_ago_must_be_a_time(ask):
    assert "within=0" in ask("workers", "alive", "--within", 0, status=2).err
