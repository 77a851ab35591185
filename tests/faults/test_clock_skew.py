"""A worker whose clock is an hour off: leases, delays and retries follow the database's clock all the same."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import queue_db
from queue_db import QueueDB, State
from queue_db.dialects.clock import clock_query
from queue_db.model import from_micros

WORKER = """
import datetime, json, sys, time
skew, url, name = float(sys.argv[1]), sys.argv[2], sys.argv[3]

real_time, real_ns, real_datetime = time.time, time.time_ns, datetime.datetime
time.time = lambda: real_time() + skew
time.time_ns = lambda: real_ns() + int(skew * 1e9)
class Skewed(real_datetime):
    @classmethod
    def now(cls, tz=None): return real_datetime.now(tz) + datetime.timedelta(seconds=skew)
    @classmethod
    def utcnow(cls): return cls.now()
datetime.datetime = Skewed

from queue_db import QueueDB
with QueueDB(url) as db:
    queue = db.queue(name)
    (job,) = queue.claim(10, lease=30)  # one is leased by somebody else, one is due in ten minutes
    done = {"claimed": job.payload, "expires": job.lease_expires.isoformat()}
    assert job.extend(300)
    done["extended"] = job.lease_expires.isoformat()
    assert job.fail("again", retry_in=0)
    (job,) = queue.claim(10)
    assert job.snooze(600)
    queue.enqueue("now", "enqueued")
    queue.enqueue("later", "delayed", delay=600)
    queue.enqueue_many([("later", "delayed", {"delay": 600})])
print(json.dumps(done))
"""


WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


@pytest.mark.parametrize("skew", [3600, -3600])
def test_a_skewed_worker_sees_and_makes_the_same_times(db: QueueDB, url: str, name: str, skew: int) -> None:
    queue = db.queue(name)
    queue.enqueue("k", "leased")
    (held,) = queue.claim(lease=60)
    queue.enqueue("k", "due")
    queue.enqueue("k", "delayed", delay=600)

    command = [sys.executable, "-c", WORKER, str(skew), url, name]
    done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    now = clock(db)
    assert done["claimed"] == "due"
    assert 30 - 600 < seconds(done["expires"], now) <= 30
    assert 0 < seconds(done["extended"], now) <= 300

    assert held.extend(60), "the lease of an honest worker was taken"
    assert [job.payload for job in queue.claim(10)] == ["enqueued"]
    waiting = [row for row in listed(db, name) if row.state is State.SCHEDULED]
    assert len(waiting) == 4
    for job in waiting:
        assert 0 < (job.available_at - now).total_seconds() <= 600
        assert (now - job.created_at).total_seconds() < 600


def test_the_librarys_code_asks_no_clock_but_the_databases() -> None:
    package = Path(queue_db.__file__).parent
    # The laboratory measures with clocks, and the article's rows go by the client's: that is part of what they show.
    elsewhere = {"cli", "testing", "spark", "compare"}
    sources = [path for path in package.rglob("*.py") if not elsewhere & set(path.relative_to(package).parts)]
    assert len(sources) > 20
    asked = [
        f"{path.name}:{node.lineno}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and f"{ast.unparse(node.value)}.{node.attr}" in WALL_CLOCKS
    ]
    assert asked == []


def clock(db: QueueDB) -> datetime:
    with db.database.engine.connect() as connection:
        return from_micros(connection.execute(clock_query()).scalar_one())


def seconds(moment: str, since: datetime) -> float:
    return (datetime.fromisoformat(moment) - since).total_seconds()


def listed(db: QueueDB, name: str) -> list[Any]:
    queue = db.queue(name)
    jobs = db.store.tables.jobs
    with db.database.engine.connect() as connection:
        return [queue.get(job_id) for job_id in connection.execute(jobs.select().where(jobs.c.queue == name)).scalars()]
