"""The dashboard's pages, as HTML from a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.model import StoredResult, to_micros
from queue_db.service import Settings
from queue_db.store import worker_registry
from tests.patience import PATIENCE
from tests.service.conftest import serving, submitted

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

#: A name, a kind, a payload and an error may be anything.
NASTY = "<img src=x onerror=alert(1)>\"'&/%2F"


@pytest.fixture
def url(own_url: str) -> str:
    """A database of its own: nothing is sampled yet."""
    return own_url


class _Page(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def __contains__(self, text: str) -> bool:
        return text in " ".join("".join(self.text).split())


def look(client: httpx2.Client, path: str, status: int = 200) -> _Page:
    """Load a page, and check what holds for every page."""
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert len(answer.content) < 100_000
    page = _Page(answer.text)
    for tag, attributes in page.elements:
        # The policy of the answers' header forbids them.
        assert tag != "style"
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        assert tag != "script" or attributes.get("src")
        # Nothing comes from another host.
        for name in ("src", "href", "action"):
            assert not urlsplit(attributes.get(name) or "").netloc
    tokens = [one for one in page.all("input") if one.get("name") == "csrf"]
    assert len(tokens) == len([form for form in page.all("form") if form["method"] == "post"])
    assert len(page.all("h1")) == 1
    return page


def after_a_count(client: httpx2.Client, text: str) -> _Page:
    """The overview, once the service has counted the jobs and it has this text."""
    for _ in range(int(PATIENCE / 0.1)):
        page = look(client, "/")
        if text in page:
            return page
        threading.Event().wait(0.1)
    pytest.fail(f"the overview never had {text}")


def submit(client: httpx2.Client, path: str, action: str, **values: str) -> httpx2.Response:
    """Submit the form of a page with this action as a browser would; follow to the page after it."""
    fields: dict[str, str] = {}
    inside = False
    page = look(client, path)
    for tag, attributes in page.elements:
        if tag == "form":
            inside = (attributes.get("action") or "").endswith(action)
        elif tag == "input" and inside:
            fields[attributes["name"] or ""] = attributes.get("value") or ""
    assert fields, f"{path} has no form for {action}"
    answer = client.post(urljoin(path, _action(page, action)), data=fields | values)
    assert answer.status_code == 303, answer.text
    return client.get(answer.headers["location"])


def _action(page: _Page, action: str) -> str:
    return next(form["action"] or "" for form in page.all("form") if (form.get("action") or "").endswith(action))


def test_an_empty_database_says_what_to_do_next(client: httpx2.Client) -> None:
    page = look(client, "/")
    assert "No jobs yet" in page
    assert "enqueue" in page


def test_text_of_jobs_is_text(db: QueueDB, serve: Callable[[Settings], httpx2.Client]) -> None:
    queue = db.queue(NASTY)
    queue.enqueue(NASTY, {NASTY: NASTY})
    client = serve(Settings(closed=False))
    page = after_a_count(client, NASTY)
    (link,) = {a["href"] for a in page.all("a") if "/queues/" in (a["href"] or "")}
    assert NASTY in look(client, link or "")


def test_files_are_kept_by_browsers_and_nothing_else_is_read(client: httpx2.Client) -> None:
    page = look(client, "/")
    (style,) = [link["href"] for link in page.all("link") if link["rel"] == "stylesheet"]
    answer = client.get(style or "")
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    for path in ("..%2Frender.py", "%2e%2e/render.py", "../__init__.py", "nothing.css"):
        assert client.get(f"/static/x/{path}").status_code == 404


def test_controls_of_a_queue(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    queue.enqueue("mail")
    path = f"/queues/{name}"
    assert "paused" in submit(client, path, "/pause").text
    assert queue.controls().paused
    submit(client, path, "/resume")
    assert not queue.controls().paused
    submit(client, path, "/limit", concurrency="4", rate="100", per="10")
    assert (queue.controls().concurrency, queue.controls().rate, queue.controls().per) == (4, 100, 10.0)
    submit(client, path, "/limit", concurrency="", rate="", per="")
    assert queue.controls().concurrency is queue.controls().rate is None


@pytest.mark.parametrize("rate", ["x", "nan", "-1", "1.5", "1e400"])
def test_a_bad_limit_changes_nothing(db: QueueDB, name: str, client: httpx2.Client, rate: str) -> None:
    db.queue(name).limit(rate=7)
    page = look(client, f"/queues/{name}")
    (csrf,) = {one["value"] for one in page.all("input") if one.get("name") == "csrf"}
    answer = client.post(f"/queues/{name}/limit", data={"csrf": csrf, "rate": rate})
    assert answer.status_code == 422
    assert db.queue(name).controls().rate == 7


def test_a_form_without_its_token_changes_nothing(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    assert client.post(f"/queues/{name}/pause", data={"csrf": "guessed"}).status_code == 403
    assert not db.queue(name).controls().paused


def test_read_only_pages_have_no_buttons(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    db.queue(name).enqueue("mail")
    page = look(serve(Settings(closed=False, read_only=True)), f"/queues/{name}")
    assert not [form for form in page.all("form") if form.get("method") == "post"]


def test_a_jobs_page_shows_text_and_masks_values(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    job_id = queue.enqueue(NASTY, {"to": NASTY, "deep": [{"API-Key": "s3cr3t"}]}, headers={"trace": NASTY}, group=NASTY)
    queue.claim()[0].fail(ValueError(NASTY), retry_in=600)
    page = look(client, f"/jobs/{job_id}")
    for text in (f"/ {NASTY}", f"ValueError: {NASTY}", f"{job_id}:1", '"trace": "<img', "attempt 1 failed"):
        assert text in page, text
    assert "s3cr3t" not in client.get(f"/jobs/{job_id}").text
    assert "s3cr3t" not in client.get(f"/jobs?queue={name}&state=scheduled").text
    assert "s3cr3t" not in client.get(f"/api/v1/jobs/{job_id}").text


def test_a_key_is_masked_however_it_is_written(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings(closed=False, masked=("Card-No",)))
    job_id = db.queue(name).enqueue("mail", {"card_no": "s3cr3t", "CardNo": ["s3cr3t"], "shown": {"CARD-NO": "s3cr3t"}})
    for path in (f"/jobs/{job_id}", f"/jobs?queue={name}", f"/api/v1/jobs/{job_id}", f"/api/v1/queues/{name}/jobs"):
        answer = client.get(path)
        assert (path, answer.status_code, "s3cr3t" in answer.text) == (path, 200, False)


@pytest.mark.parametrize("depth", [101, 900])
def test_a_deep_payload_spoils_no_page(db: QueueDB, name: str, client: httpx2.Client, depth: int) -> None:
    payload = f'{{"kind": "mail", "payload": {"[" * depth}{"]" * depth}}}'
    made = client.post(f"/api/v1/queues/{name}/jobs", content=payload, headers={"Content-Type": "application/json"})
    for path in (f"/jobs/{made.json()['id']}", f"/jobs?queue={name}", f"/queues/{name}"):
        look(client, path)


def test_a_job_is_run_now_and_cancelled(db: QueueDB, name: str, client: httpx2.Client) -> None:
    job_id = db.queue(name).enqueue("mail", delay=3600) or 0
    assert "due now" in submit(client, f"/jobs/{job_id}", "/reschedule").text
    assert db.get(job_id).state == "available"
    submit(client, f"/jobs/{job_id}", "/reschedule", priority="-7")
    assert db.get(job_id).priority == -7
    assert f"Cancelled: job {job_id}" in submit(client, f"/jobs/{job_id}", "/cancel").text
    look(client, f"/jobs/{job_id}", 404)
    assert not db.queue(name).peek()


@pytest.mark.parametrize("action", ["reschedule", "cancel", "redrive"])
def test_a_form_changes_no_job_that_has_changed_since(db: QueueDB, name: str, client: httpx2.Client, action: str) -> None:
    queue = db.queue(name)
    job_id = queue.enqueue("mail", delay=3600, max_attempts=1) or 0
    if action == "redrive":
        queue.reschedule(job_id, delay=0)
        queue.claim()[0].bury(NASTY)
    page = look(client, f"/jobs/{job_id}")
    form = {one["name"] or "": one["value"] or "" for one in page.all("input") if one.get("name") in {"csrf", "version"}}
    if action == "redrive":
        db.dead.redrive(job_id)
        queue.claim()[0].bury(NASTY)
    else:
        queue.reschedule(job_id, delay=7200)
    before = db.get(job_id)
    answer = client.post(f"/jobs/{job_id}/{action}", data=form | {"now": "1"}, follow_redirects=True)
    assert "Nothing was changed" in answer.text
    assert db.get(job_id) == before
    assert db.actions.list() == []
    unknown = form | {"now": "1", "version": ""}
    assert client.post(f"/jobs/{job_id}/{action}", data=unknown).status_code == 422


def test_a_dead_job_is_redriven(db: QueueDB, name: str, client: httpx2.Client) -> None:
    job_id = db.queue(name).enqueue("mail") or 0
    db.queue(name).claim()[0].bury(NASTY)
    assert NASTY in look(client, f"/jobs/{job_id}")
    assert NASTY in look(client, f"/dead?queue={name}")
    submit(client, f"/jobs/{job_id}", "/redrive")
    assert db.get(job_id).state == "available"


def test_the_address_filters_the_jobs(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    wanted = queue.enqueue_many([("mail", n) for n in range(60)])
    others = [
        queue.enqueue("report"),
        queue.enqueue("mail", delay=600),
        queue.enqueue("mail", group="a"),
        queue.enqueue("mail", group="a"),
    ]

    def shown(path: str) -> list[int]:
        rows = [link["href"] or "" for link in look(client, path).all("a") if "/jobs/" in (link["href"] or "")]
        return [int(row.rpartition("/")[2]) for row in rows]

    first = f"/jobs?queue={name}&kind=mail"
    assert shown(first) == wanted[:50]
    (after,) = [link["href"] for link in look(client, first).all("a") if link.get("rel") == "next"]
    assert shown(after or "") == [*wanted[50:], others[2]]
    assert shown(f"/jobs?queue={name}&kind=report") == [others[0]]
    assert shown(f"/jobs?queue={name}&state=scheduled") == [others[1]]
    assert shown(f"/jobs?queue={name}&state=blocked&group=a") == [others[3]]
    look(client, f"/jobs?queue={name}&after=nonsense", 422)


def test_what_is_not_there_is_a_page_with_the_menu(client: httpx2.Client) -> None:
    client.headers["Accept"] = "text/html"
    for path, status in (("/jobs/123456789", 404), (f"/jobs/{2**70}", 422), ("/nothing", 404), ("/batches?after=x", 422)):
        assert "/schedules" in [link["href"] for link in look(client, path, status).all("a")], path


def test_the_menu_is_for_people_who_have_logged_in(serve: Callable[[Settings], httpx2.Client]) -> None:
    answer = serve(Settings()).get("/nothing", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "/schedules" not in answer.text


def test_finished_jobs_by_page(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    done = queue.enqueue_many([("mail", n) for n in range(60)])
    retained = StoredResult('{"sent": "today", "token": "s3cr3t"}', 3_600_000_000)
    queue.complete_many(queue.claim(60), results=[retained] * 60)

    def shown(page: _Page) -> list[int]:
        return [int((link["href"] or "").rpartition("/")[2]) for link in page.all("a") if "/jobs/" in (link["href"] or "")]

    page = look(client, f"/finished?queue={name}")
    assert "today" in page
    assert "s3cr3t" not in page
    (more,) = [link["href"] for link in page.all("a") if link.get("rel") == "next"]
    assert shown(page) + shown(look(client, more or "")) == done
    assert shown(look(client, f"/finished?queue={name}-none")) == []
    assert f"/finished?queue={name}" in [link["href"] for link in look(client, f"/queues/{name}").all("a")]


def test_a_queue_shows_its_workers_and_their_jobs(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    mine, other = queue.enqueue_many([("mail", 1), ("print", 2)])
    queue.claim(1, worker=f"{name}-w")
    queue.claim(1, worker=f"{name}-elsewhere")
    for worker, served in ((f"{name}-w#1", name), (f"{name}-idle#1", f"{name}-b")):
        serves = {"host": "h", "pid": 1, "queues": json.dumps({served: 4}), "state": "working"}
        db.core.write(
            "worker_registry.heartbeat", worker_registry.heartbeat, worker, serves | {"in_hand": 1, "stuck": 0, "counters": "{}"}
        )
    page = look(client, f"/queues/{name}")
    assert {f"/jobs/{mine}", f"/jobs/{other}"} <= {link["href"] for link in page.all("a")}
    for text, there in ((f"{name}-w#1", True), (f"{name}-elsewhere", True), (f"{name}-idle", False)):
        assert (text in page) == there, text


def test_limits_in_words(db: QueueDB, name: str, client: httpx2.Client) -> None:
    assert "Now: no limits." in look(client, f"/queues/{name}")
    db.queue(name).limit(concurrency=3, rate=10, per=60, per_group=2)
    now = "Now: at most 3 at the same time, at most 10 begun in 60 s, at most 2 of one group at the same time."
    assert now in look(client, f"/queues/{name}")


def test_a_job_far_behind_in_its_group_is_among_its_neighbours(db: QueueDB, name: str, client: httpx2.Client) -> None:
    *_, last = db.queue(name).enqueue_many([("mail", n, {"group": "ann"}) for n in range(20)])
    (row,) = [row for row in look(client, f"/jobs/{last}").all("tr") if row.get("aria-current")]
    assert row["data-row"] == str(last)


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_all_like_this(db: QueueDB, name: str, client: httpx2.Client, action: str) -> None:
    queue = db.queue(name)
    once = {"max_attempts": 1}
    queue.enqueue_many([*(("mail", n, once) for n in range(3)), ("report", None, once)])
    for job in queue.claim(4):
        job.fail(ValueError(NASTY))
    assert "newest 10,000 failed attempts" in look(client, f"/failures?queue={name}&error_class=KeyError")
    page = look(client, f"/failures?queue={name}&error_class=ValueError")
    assert NASTY in page
    dead = [
        look(client, f"/dead?queue={name}&{filters}")
        for filters in ("error=ValueError", "error=KeyError", "error=", "error_class=")
    ]
    assert [NASTY in one for one in dead] == [True, False, True, False]
    (link,) = [
        one["href"] or ""
        for one in page.all("a")
        if f"action={action}" in (one["href"] or "") and "kind=mail" in (one["href"] or "")
    ]
    asked = look(client, link)
    assert "3 jobs" in asked
    form = {one["name"] or "": one["value"] or "" for one in asked.all("input") if one.get("name")}
    assert len(db.dead.list(name)) == 4  # a dry run
    assert f"{'Redriven' if action == 'redrive' else 'Purged'}: 3 jobs" in submit(client, link, "/dead/all").text
    assert [job.kind for job in db.dead.list(name)] == ["report"]
    assert len(queue.peek()) == (3 if action == "redrive" else 0)
    again = client.post("/dead/all", data=form, follow_redirects=True)
    assert f"{'Redriven' if action == 'redrive' else 'Purged'}: 0 jobs" in again.text
    # As the REST API and the CLI name them; what changed nothing is not in the log.
    assert [(one.target, one.number) for one in db.actions.list() if name in one.target] == [
        (f"dead jobs of queue {name} and kind mail and error class ValueError", 3)
    ]


def test_a_change_of_all_dead_jobs_is_asked_for(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    db.queue(name).claim()[0].bury("broken")
    for action in ("redrive", "purge"):
        refused = submitted(client, f"/dead/all?action={action}", "/dead/all", action=action)
        assert refused.status_code == 422, action
        assert "say that all of all queues are meant" in refused.text
    assert db.dead.count(name) == 1
    assert "Purged: 1 job" in submit(client, "/dead/all?action=purge", "/dead/all").text


def test_times_are_those_of_the_databases_clock(db: QueueDB, url: str, name: str) -> None:
    past = datetime(2001, 2, 3, tzinfo=UTC)
    with QueueDB(url, clock=lambda: to_micros(past)) as earlier:
        job_id = earlier.queue(name).enqueue("mail", delay=30 * 86_400)
        with serving(earlier, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE) as client:
            assert "in 30 d" in look(client, f"/jobs/{job_id}")


def test_a_read_only_service_counts_nothing(serve: Callable[[Settings], httpx2.Client]) -> None:
    assert "No numbers yet" in look(serve(Settings(closed=False, read_only=True)), "/")
    assert "queue_db samples" not in {thread.name for thread in threading.enumerate()}


def test_attempts_that_fail_are_seen(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """No job is dead or late, and yet the overview is red; a queue in which some fail is not called failing."""
    for queue, good, bad in ((name, 2, 7), (f"{name}-fine", 7, 5)):
        db.queue(queue).enqueue_many([("mail", n) for n in range(good + bad)])
        jobs = db.queue(queue).claim(good + bad)
        db.queue(queue).complete_many(jobs[:good])
        db.queue(queue).fail_many(jobs[good:], [ValueError("no")] * bad, retry_in=600)
    db.metrics.take()
    page = after_a_count(client, f"{name}: 7 of 9 attempts failed in the last minute")
    assert f"{name}-fine: 5" not in page
    classes = [cell["class"] for cell in page.all("td") if "bad" in (cell.get("class") or "")]
    assert len(classes) == 2, "one cell of each queue: failed"
    assert [figure["class"] for figure in page.all("div") if "figure bad" in (figure.get("class") or "")] == ["figure bad"]


def test_deaths_are_not_growth(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue_many([("mail", n) for n in range(2)])
    for job in db.queue(name).claim(2):
        job.bury("no")
    db.dead.purge(name)
    db.metrics.take()
    page = after_a_count(client, "2 since yesterday")
    cells = [cell.get("class") for cell in page.all("td")]
    assert cells[-1] == "n zero"
