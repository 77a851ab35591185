"""A shop's database with something on each page of the dashboard: for its tests and for its pictures."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import update

from queue_db import LeasedJob, QueueDB
from queue_db.model import StoredResult
from queue_db.spark.streams import store as streams
from queue_db.store import Transaction, worker_registry

#: Names, kinds and payloads may be anything.
ODD = "a/b <i>50%</i>"


def fill(db: QueueDB) -> None:
    """Fill an empty, migrated database."""
    _jobs(db)
    _tenants(db)
    _failures(db)
    _graph(db)
    _workers(db)
    _schedules(db)
    _streams(db)
    _feeds(db)
    db.tokens.create("mail service", ["enqueue", "work"], queues=["mail*"], expires_in=90 * 86_400)
    db.tokens.create("grafana", ["read"])
    db.actions.add("ann", "pause", "queue reports")


def _jobs(db: QueueDB) -> None:
    mail, thumbnails, reports = (db.queue(name) for name in ("mail", "thumbnails", "reports"))
    mail.enqueue_many(("send", {"to": f"customer-{number}@example.com", "password": "hidden"}) for number in range(40))
    mail.enqueue_many(("send", {"to": f"customer-{number}@example.com"}, {"delay": 3600}) for number in range(12))
    thumbnails.enqueue_many(("scale", {"picture": number}, {"group": f"album-{number % 4}"}) for number in range(24))
    reports.enqueue_batch([("monthly", {"page": page}) for page in range(12)], ("publish", {"month": "October"}))
    reports.limit(concurrency=3, rate=10, per=60)
    reports.enqueue("yearly", {"year": 2025}, priority=-2)
    reports.complete_many(reports.claim(1), results=[StoredResult('{"pages": 214}', 86_400_000_000)])
    db.queue(ODD).enqueue("<b>kind</b>", {"html": "<script>document.title = 'no'</script>"})


def _tenants(db: QueueDB) -> None:
    """A fair queue: tenants with many jobs and with one, weights, and limits that are reached."""
    exports = db.queue("exports")
    exports.fair(weights={"vip": 3})
    exports.limit_groups(concurrency=2)
    exports.limit_groups(group="vip", concurrency=5, rate=50, per=60)
    exports.limit_groups(prefix="acme:", concurrency=3)
    for tenant, jobs in (("acme:north", 60), ("acme:south", 30), ("globex", 300), ("initech", 1), ("vip", 20), (ODD, 2)):
        exports.enqueue_many(("export", {"page": page}, {"group": tenant}) for page in range(jobs))
    for _ in range(3):
        exports.claim(6, lease=3600)


def _attempt(job: LeasedJob) -> None:
    raise ConnectionRefusedError(f"mailbox of {job.payload['to']} is full")


def _failures(db: QueueDB) -> None:
    for _ in range(6):
        db.queue("mail").enqueue("receipt", {"to": "bob@example.com"}, max_attempts=1, priority=-1)
    for job in db.queue("mail").claim(6):
        try:
            _attempt(job)
        except ConnectionRefusedError as error:
            job.fail(error)
    db.queue("mail").claim(1)[0].fail(TimeoutError("no answer from smtp.example.com"), retry_in=600)


def _graph(db: QueueDB) -> None:
    """A graph with a dead node, which a person can retry, and others that are to be done, which a person can cancel."""
    with db.graph("album 7") as graph:
        scans = [graph.add("scans", "scan", {"page": page}, name=f"scan page {page}", max_attempts=1) for page in range(1, 5)]
        proof = graph.add("scans", "proof", after=scans[:2], name="proof")
        album = graph.add("albums", "bind", after=[proof, *scans[2:]], name="bind", if_failed="wait")
        graph.add("mail", "receipt", {"to": "ann@example.com"}, after=album, name="tell ann", if_failed="run")
    first, second, *_ = db.queue("scans").claim(2)
    first.complete()
    second.bury("the page is empty")


def _workers(db: QueueDB) -> None:
    """A worker with jobs in hand, and one that has not been seen for a while."""
    page, *_ = (*db.queue("reports").claim(2, lease=3600), *db.queue("thumbnails").claim(3, lease=3600))
    page.progress(0.4, "page 4 of 10")
    db.queue("mail").claim(2, lease=3600, worker="web-2-4711")
    _register(db, f"{db.worker}#1", 5, {"mail": 8, "reports": 4, "thumbnails": 2}, {"completed": 18_204, "failed": 7, "lost": 1})
    _register(db, "web-2-4711#1", 2, {"mail": 8}, {"completed": 12_650, "failed": 4, "lost": 0})
    table = db.store.tables.workers
    since = update(table).values(started_at=table.c.started_at - 21_600_000_000)
    away = update(table).where(table.c.name == "web-2-4711#1").values(seen_at=table.c.seen_at - 240_000_000)
    for statement in (since, away):
        db.core.write("execute", _execute, statement)


def _register(db: QueueDB, name: str, in_hand: int, queues: dict[str, int], counters: dict[str, int]) -> None:
    values = {
        "host": "web",
        "pid": 4711,
        "queues": json.dumps(queues),
        "state": "working",
        "in_hand": in_hand,
        "stuck": 0,
        "counters": json.dumps(counters),
    }
    db.core.write("worker_registry.heartbeat", worker_registry.heartbeat, name, values)


def _execute(tx: Transaction, statement: Any) -> None:
    tx.connection.execute(statement)


def _schedules(db: QueueDB) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    db.schedules.set("nightly report", "reports", "monthly", {"page": 0}, cron="0 3 * * *", zone="Europe/Berlin")
    db.schedules.set("clean up", "mail", "clean", every=900, first_at=soon)
    db.schedules.set("newsletter", "mail", "newsletter", cron="0 9 * * MON")
    db.schedules.pause("newsletter")


def _streams(db: QueueDB) -> None:
    for queue, jobs, held in (("clicks", 200, 120), ("views", 10, 5)):
        db.queue(queue).enqueue_many(("click", {"page": number}) for number in range(jobs))
        _stream(db, queue, held)


def _stream(db: QueueDB, queue: str, held: int) -> None:
    opened = partial(streams.open_stream, name=f"{queue} to lake", queue=queue, holder=db.worker, retention=10**9)
    session = db.database.run(opened, store=db.store, name="open stream", repeatable=True)

    def hold(tx: Transaction) -> None:
        start = streams.initial(tx, session)
        end = streams.allocate(tx, session, start, limit=held, ceiling=None, partitions=2)
        streams.partition(tx, session, start, end, most=None)

    db.database.run(hold, store=db.store, name="stream", write=True, repeatable=True)


def _feeds(db: QueueDB) -> None:
    orders = db.feed("orders")
    orders.publish_many(("paid", {"order": number}) for number in range(60))
    orders.publish("shipped", {"order": 1}, key="order-1")
    for name, read in (("bookkeeping", 20), ("warehouse", 61)):
        with orders.cursor(name) as cursor:
            messages = cursor.read(read)
            if messages:
                cursor.ack(messages[-1])
    db.routes.set("paid orders", enqueue=("mail", "receipt"))
    db.routes.subscribe("orders.*.paid", "paid orders")
    db.routes.set("all orders", count="orders")
    db.routes.subscribe("orders.**", "all orders")
    db.routes.pause("all orders")
