"""The limit of waiting jobs of a queue holds for every operation that puts jobs into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from queue_db import Job, QueueDB
from queue_db.service import Settings
from queue_db.service.http import pressure
from tests.patience import HOURS
from tests.service.conftest import submitted
from tests.service.test_api_schema import DOCUMENT, OPERATIONS

here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

Send = Callable[[httpx2.Client, QueueDB, str], httpx2.Response]


@pytest.fixture(autouse=True)
def _one_look_at_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service adds to its first look is exact; at a later one it forgets jobs that came while the sample was taken."""
    monkeypatch.setattr(pressure, "_REMEMBER", HOURS)


MANY = {"jobs": [{"kind": "mail"}] * 3}
MESSAGES = {"messages": [{"kind": "paid"}] * 3}


def publish(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
    db.routes.set(queue, enqueue=(queue, "mail"))
    db.routes.subscribe(queue, queue, form="exact")
    return client.post(f"/api/v1/topics/{queue}/messages", json=MESSAGES)


def run_schedule(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
    db.schedules.set(queue, queue=queue, kind="mail", every=3600)
    answers = [client.post(f"/api/v1/schedules/{queue}/run") for _ in range(3)]
    db.schedules.remove(queue)
    return answers[-1]


def died(db: QueueDB, queue: str) -> list[Job]:
    """Three dead jobs."""
    db.queue(queue).enqueue_many([(queue, None)] * 3)
    for job in db.queue(queue).claim(3):
        job.bury("broken")
    db.metrics.take()
    return db.dead.list(queue)


def redrive(by: str) -> Send:
    def send(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
        which: dict[str, Any] = {"queue": queue, "kind": queue, "ids": [str(one.id) for one in died(db, queue)]}
        return client.post("/api/v1/dead/redrive", json={by: which[by]})

    return send


def failed_graph(db: QueueDB, queue: str) -> int:
    """A graph with a dead node and two that were cancelled with it."""
    with db.graph() as graph:
        parent = graph.add(queue, queue, name="parent")
        graph.add(queue, queue, after=graph.add(queue, queue, after=parent))
    db.queue(queue).claim()[0].bury("broken")
    db.metrics.take()
    assert graph.id is not None
    return graph.id


def retry_graph(by: str) -> Send:
    def send(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
        return client.post(f"/api/v1/graphs/{failed_graph(db, queue)}/retry{by}")

    return send


#: Requests that put three jobs into a queue, by operation.
ENQUEUING: dict[str, list[Send]] = {
    "enqueue_job": [
        lambda client, _, queue: [client.post(f"/api/v1/queues/{queue}/jobs", json={"kind": "k"}) for _ in range(3)][-1]
    ],
    "enqueue_jobs": [lambda client, _, queue: client.post(f"/api/v1/queues/{queue}/jobs/many", json=MANY)],
    "enqueue_batch": [
        lambda client, _, queue: client.post(f"/api/v1/queues/{queue}/batches", json={**MANY, "then": {"kind": "report"}})
    ],
    "publish_to_topic": [publish],
    "run_schedule": [run_schedule],
    "retry_graph": [retry_graph(""), retry_graph("?node=parent")],
    "redrive_dead_jobs": [redrive("queue"), redrive("ids"), redrive("kind")],
}

#: Those that put no new job into a queue. A job that returns to its own, from a lease or a stream, is let in.
OTHERS = {
    *("claim_jobs", "settle_jobs", "complete_job", "fail_job", "bury_job", "snooze_job", "release_job", "cancel_leased_job"),
    *(
        "extend_lease",
        "report_progress",
        "cancel_job",
        "reschedule_job",
        "change_limits",
        "set_limits",
        "change_fairness",
        "change_group_limits",
        "set_group_limits",
        "pause_queue",
        "resume_queue",
    ),
    *(
        "cancel_graph",
        "purge_queue",
        "purge_dead_jobs",
        "prune_database",
        "repair_groups",
        "rescue_worker",
        "complete_stream",
        "release_stream",
    ),
    *("set_schedule", "remove_schedule", "pause_schedule", "resume_schedule"),
    *("set_feed", "change_feed", "delete_feed", "purge_feed", "publish_messages", "delete_messages", "delete_message"),
    *("claim_messages", "extend_message_claim", "release_message_claim"),
    *("declare_restored", "release_expired_streams", "create_token", "revoke_token"),
    *("open_cursor", "acknowledge_cursor", "acknowledge_cursors", "close_cursor", "seek_cursor", "delete_cursor", "reset_counter"),
    *(
        "set_route",
        "point_route",
        "pause_route",
        "resume_route",
        "delete_route",
        "subscribe_route",
        "unsubscribe_route",
        "test_topic",
    ),
}


def test_each_operation_that_changes_something_is_here() -> None:
    """A new one says whether it puts jobs into a queue."""
    changing = {one["operationId"] for line, one in OPERATIONS.items() if not line.startswith(("GET ", "HEAD ", "OPTIONS "))}
    assert DOCUMENT
    assert changing <= ENQUEUING.keys() | OTHERS
    assert ENQUEUING.keys() <= changing


@here
@pytest.mark.parametrize("operation", ENQUEUING)
def test_it_is_refused_where_a_queue_would_be_too_full(
    db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client], operation: str
) -> None:
    for number, send in enumerate(ENQUEUING[operation]):
        for most, allowed in ((2, False), (3, True)):
            queue = f"{name}-{number}-{most}"
            answer = send(serve(Settings(closed=False, max_depths={queue: most})), db, queue)
            assert (answer.status_code < 300) is allowed, answer.text
            stats = db.queue(queue).stats()
            assert stats.available <= most
            if not allowed:
                assert (answer.status_code, answer.json()["type"]) == (429, "urn:queue-db:problem:queue-full")
                assert db.dead.purge(queue) == {"redrive_dead_jobs": 3, "retry_graph": 1}.get(operation, 0)
                assert stats.blocked == 0


def run_on_page(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
    db.schedules.set(queue, queue=queue, kind="mail", every=3600)
    return [submitted(client, "/schedules", "/schedules/run", name=queue) for _ in range(3)][-1]


def redrive_on_page(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
    died(db, queue)
    return submitted(client, f"/dead/all?action=redrive&queue={queue}", "/dead/all", action="redrive", queue=queue)


def redrive_each_on_page(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
    pages = [(f"/jobs/{job.id}", str(job.version)) for job in died(db, queue)]
    return [submitted(client, page, f"{page}/redrive", version=version) for page, version in pages][-1]


def retry_on_page(client: httpx2.Client, db: QueueDB, queue: str) -> httpx2.Response:
    page = f"/graphs/{failed_graph(db, queue)}"
    return submitted(client, page, f"{page}/retry")


@here
@pytest.mark.parametrize("send", [run_on_page, redrive_on_page, redrive_each_on_page, retry_on_page])
def test_a_page_is_refused_as_a_program_is(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client], send: Send) -> None:
    for most, allowed in ((2, False), (3, True)):
        queue = f"{name}-{most}"
        answer = send(serve(Settings(closed=False, max_depths={queue: most})), db, queue)
        assert (answer.status_code == 303) is allowed, answer.text
        assert db.queue(queue).stats().available <= most
        if not allowed:
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
            assert "<h1>Too many jobs are waiting</h1>" in answer.text
            assert f"Queue &#39;{queue}&#39; may have 2 waiting jobs; it has about " in answer.text
            assert "Nothing was changed." in answer.text


@here
def test_what_a_topic_and_a_redrive_have_put_there_fills_it(
    db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]
) -> None:
    for number, send in enumerate((publish, *ENQUEUING["redrive_dead_jobs"][:2])):
        queue = f"{name}-{number}"
        client = serve(Settings(closed=False, max_depths={queue: 3}))
        assert send(client, db, queue).status_code < 300
        assert client.post(f"/api/v1/queues/{queue}/jobs", json={"kind": "mail"}).status_code == 429
