"""What each operation on jobs, queues, schedules and workers is on the three sides: a command, a request, a form."""

from __future__ import annotations

from sqlalchemy import delete

from queue_db import QueueDB
from queue_db.model import StoredResult
from queue_db.store import Transaction, worker_registry
from tests.operations.sides import Sides


def prepare(db: QueueDB) -> dict[str, str]:
    """One of everything that the operations change; what has no fixed name."""
    mail = db.queue("mail")
    for kind in ("sad", "sad", "mad"):
        mail.enqueue(kind)
        mail.claim()[0].bury("ValueError: no use")
    dead_id = max(job.id for job in db.dead.list("mail"))
    live = mail.enqueue("k", delay=10**6)
    mail.enqueue("k")
    db.schedules.set("nightly", "mail", "k", every=3600)
    db.schedules.set("paused", "mail", "k", every=3600)
    db.schedules.pause("paused")
    db.queue("paused").pause()
    db.queue("tenants").fair(weights={"vip": 2})
    db.queue("tenants").limit_groups(group="vip", concurrency=2, rate=9)
    done = db.queue("done")
    done.enqueue("k")
    done.complete_many(done.claim(), results=[StoredResult(None, 1)])
    done.enqueue("k")
    assert done.claim(lease=10**6, worker="gone")
    values = {"host": "other/1/2", "pid": 1, "queues": '{"done": 1}', "state": "working", "counters": "{}", "in_hand": 1}
    grouped = db.queue("grouped")
    first, _ = (grouped.enqueue("k", group="g") for _ in range(2))
    table, registered = db.store.tables.jobs, db.store.tables.workers
    with db.database.begin() as connection:
        connection.execute(delete(table).where(table.c.id == first))
        worker_registry.heartbeat(Transaction(connection, db.store), "gone#1", values)
        connection.execute(registered.update().values(seen_at=registered.c.seen_at - 600_000_000))
    return {"live": str(live), "dead": str(dead_id)}


QUEUE, TENANTS, JOB = "/queues/mail", "/queues/tenants", "/jobs/{live}"

SIDES = [
    Sides(
        "queues.resume",
        ("resume", "queue paused", None),
        "queues resume paused",
        ("POST", "/queues/paused/resume"),
        "/queues/paused",
        ("/queues/paused/resume", {}),
    ),
    Sides(
        "schedules.resume",
        ("resume", "schedule paused", None),
        "schedules resume paused",
        ("POST", "/schedules/paused/resume"),
        "/schedules",
        ("/schedules/resume", {"name": "paused"}),
    ),
    Sides(
        "queues.pause",
        ("pause", "queue mail", None),
        "queues pause mail",
        ("POST", f"{QUEUE}/pause"),
        QUEUE,
        (f"{QUEUE}/pause", {}),
    ),
    Sides(
        "queues.limit",
        ("limit", "queue mail", None),
        "queues limit mail --none --concurrency 7 --per-group 2",
        ("PUT", f"{QUEUE}/limits", {"concurrency": 7, "per_group": 2}),
        QUEUE,
        (f"{QUEUE}/limit", {"concurrency": "7", "per_group": "2"}),
    ),
    Sides(
        "queues.limit",
        ("limit", "queue mail", None),
        "queues limit mail --rate 7",
        ("PATCH", f"{QUEUE}/limits", {"rate": 7}),
        QUEUE,
        (f"{QUEUE}/limit", {"rate": "7"}),
    ),
    Sides(
        "queues.fair",
        ("fair", "queue mail", None),
        "queues fair mail --weight vip=3",
        ("PATCH", f"{QUEUE}/fairness", {"fair": True, "weights": {"vip": 3}}),
        QUEUE,
        (f"{QUEUE}/fair", {"fair": "1", "group": "vip", "weight": "3"}),
    ),
    Sides(
        "queues.fair",
        ("fair", "queue tenants", None),
        "queues fair tenants --off",
        ("PATCH", f"{TENANTS}/fairness", {"fair": False}),
        TENANTS,
        (f"{TENANTS}/fair", {"fair": ""}),
    ),
    Sides(
        "queues.limit_groups",
        ("limit groups", "queue tenants", None),
        "queues limit-groups tenants --concurrency 5",
        ("PATCH", f"{TENANTS}/group-limits", {"concurrency": 5}),
        TENANTS,
        (f"{TENANTS}/limit-groups", {"scope": "each", "name": "", "concurrency": "5"}),
    ),
    Sides(
        "queues.limit_groups",
        ("limit groups", "queue tenants", None),
        "queues limit-groups tenants --group vip --none",
        ("PUT", f"{TENANTS}/group-limits?group=vip", {}),
        TENANTS,
        (f"{TENANTS}/limit-groups", {"scope": "group", "name": "vip"}),
    ),
    Sides(
        "queues.purge",
        ("purge", "queue mail", 2),
        "queues purge mail --yes",
        ("DELETE", f"{QUEUE}/jobs"),
        QUEUE,
        (f"{QUEUE}/purge", {}),
    ),
    Sides("jobs.cancel", ("cancel", "job {live}", None), "jobs cancel {live}", ("DELETE", JOB), JOB, (f"{JOB}/cancel", {})),
    Sides(
        "jobs.reschedule",
        ("reschedule", "job {live}", None),
        "jobs reschedule {live} --now",
        ("PATCH", JOB, {"delay": 0}),
        JOB,
        (f"{JOB}/reschedule", {"now": "1"}),
    ),
    Sides(
        "jobs.reschedule",
        ("reschedule", "job {live}", None),
        "jobs reschedule {live} --priority 3",
        ("PATCH", JOB, {"priority": 3}),
        JOB,
        (f"{JOB}/reschedule", {"priority": "3"}),
    ),
    Sides(
        "jobs.reschedule",
        ("reschedule", "job {live}", None),
        "jobs reschedule {live} --delay 60",
        ("PATCH", JOB, {"delay": 60}),
        JOB,
        (f"{JOB}/reschedule", {"delay": "60"}),
    ),
    Sides(
        "dead.redrive",
        ("redrive", "dead job {dead}", 1),
        "dead redrive {dead} --queue mail",
        ("POST", "/dead/redrive", {"ids": ["{dead}"], "queue": "mail"}),
        "/jobs/{dead}",
        ("/jobs/{dead}/redrive", {}),
    ),
    Sides(
        "dead.redrive",
        ("redrive", "dead jobs of queue mail and kind sad", 2),
        "dead redrive --queue mail --kind sad",
        ("POST", "/dead/redrive", {"queue": "mail", "kind": "sad"}),
        "/dead/all?action=redrive&queue=mail&kind=sad",
        ("/dead/all", {}),
    ),
    Sides(
        "dead.purge",
        ("purge", "dead jobs of queue mail and kind sad and error class ValueError", 2),
        "dead purge --queue mail --kind sad --error-class ValueError --yes",
        ("POST", "/dead/purge", {"queue": "mail", "kind": "sad", "error_class": "ValueError"}),
        "/dead/all?action=purge&queue=mail&kind=sad&error_class=ValueError",
        ("/dead/all", {}),
    ),
    Sides(
        "dead.purge",
        ("purge", "dead jobs of all queues", 4),
        "dead purge --all --yes",
        ("POST", "/dead/purge", {"all": True}),
        "/dead/all?action=purge",
        ("/dead/all", {}),
    ),
    Sides(
        "schedules.set",
        ("set", "schedule weekly", None),
        "schedules set weekly mail k --every 604800",
        ("PUT", "/schedules/weekly", {"queue": "mail", "kind": "k", "every": 604800}),
        "/schedules",
        ("/schedules/set", {"name": "weekly", "queue": "mail", "kind": "k", "every": "604800"}),
    ),
    Sides(
        "schedules.set",
        ("set", "schedule nightly", None),
        "schedules set nightly mail other --every 3600",
        ("PUT", "/schedules/nightly", {"queue": "mail", "kind": "other", "every": 3600}),
        "/schedules",
        ("/schedules/set", {"name": "nightly", "queue": "mail", "kind": "other", "every": "3600"}),
    ),
    *(
        Sides(
            f"schedules.{word}",
            (word, "schedule nightly", None),
            f"schedules {word} nightly",
            ("DELETE", "/schedules/nightly") if word == "remove" else ("POST", f"/schedules/nightly/{word}"),
            "/schedules",
            (f"/schedules/{word}", {"name": "nightly"}),
        )
        for word in ("run", "pause", "remove")
    ),
    Sides(
        "workers.rescue",
        ("rescue", "worker gone", 1),
        "workers rescue gone#1",
        ("POST", "/workers/gone/rescue"),
        "/workers",
        ("/workers/rescue", {"name": "gone#1"}),
    ),
    Sides(
        "groups.repair",
        ("repair", "groups of queue grouped", 1),
        "queues repair grouped",
        ("POST", "/queues/grouped/groups/repair"),
        "/groups?queue=grouped",
        ("/groups/repair", {"queue": "grouped"}),
    ),
    Sides("database.prune", ("prune", "expired rows", 1), "prune", ("POST", "/prune"), "/finished", ("/prune", {})),
]
