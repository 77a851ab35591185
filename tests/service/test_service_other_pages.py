"""Pages of workers, schedules, groups, tokens and the log: what they show, and to whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.operations.actor import Actor
from queue_db.service import Settings
from queue_db.service.live.diagnosis import Watch, seen_by
from queue_db.service.pages.numbers import series, waiting
from queue_db.service.pages.words import whereabouts
from queue_db.store import worker_registry
from tests.compare import hand_made
from tests.patience import PATIENCE
from tests.service.conftest import serving, submitted


@pytest.fixture
def db(tmp_path: Path) -> Iterator[QueueDB]:
    """A database of its own: the pages show what other tests leave behind."""
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        yield db


Serve = Callable[[Settings], httpx2.Client]


def logged_in(db: QueueDB, client: httpx2.Client, name: str, *scopes: str, queues: tuple[str, ...] = ("*",)) -> httpx2.Client:
    secret = db.tokens.create(name, scopes, queues=queues)
    assert client.post("/login", data={"token": secret}).status_code == 303
    return client


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg2://ann:***@db-1.example.com:6432/queue?sslmode=require", "db-1.example.com:6432/queue"),
        ("mysql+pymysql://ann:***@db-1/queue", "db-1/queue"),
        ("postgresql+psycopg2:///queue?host=a:5432&host=b:5433", "a:5432,b:5433/queue"),
        ("postgresql+psycopg2:///queue?host=/run/postgresql", "queue"),
        ("sqlite:////srv/production/queue.db", "/srv/production/queue.db"),
        ("sqlite://", "sqlite://"),
        ("postgresql+psycopg2://***", "***"),
        ("***", "***"),
        (f"postgresql://{'a' * 40}.{'b' * 40}/queue", f"{'a' * 29}…{'b' * 23}/queue"),
    ],
)
def test_a_database_in_few_words(url: str, shown: str) -> None:
    assert whereabouts(url) == shown


def test_every_page_says_which_database_it_is_of(db: QueueDB, serve: Serve) -> None:
    for name, title in (("", "queue.db"), ("production", "production")):
        open_, closed = (serve(Settings(name=name, closed=closed)) for closed in (False, True))
        for text in (open_.get("/workers").text, open_.get("/none", headers={"Accept": "text/html"}).text):
            assert re.search(rf"<title>[^<]+ · [^<]*{title} · queue_db</title>", text)
            head, _, _ = text.partition("<main")
            assert f'title="{db.url}, {db.database.server}"' in head
            assert f"<b>{name}</b>" in head or not name
        before = closed.get("/login").text
        assert (f"Log in · {name} · queue_db" in before) is bool(name)
        assert "queue.db" not in before


def test_a_worker_is_shown_with_its_jobs(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    mine, other = queue.enqueue_many([("mail", 1), ("print", 2)])
    queue.claim(1, worker=f"{name}-w")
    queue.claim(1, worker=f"{name}-elsewhere")
    values = {"host": "h", "pid": 1, "queues": f'{{"{name}": 4}}', "state": "working", "in_hand": 1, "stuck": 0, "counters": "{}"}
    db.core.write("worker_registry.heartbeat", worker_registry.heartbeat, f"{name}-w#1", values)
    text = client.get("/workers").text
    registered, _, others = text.partition("not registered as workers")
    assert f"mail {mine}" in registered
    assert f"print {other}" not in registered
    assert f"print {other}" in others
    assert f"{name}-elsewhere" in others


def test_a_group_is_shown_with_the_job_that_it_waits_for(db: QueueDB, name: str, client: httpx2.Client) -> None:
    head, *_ = db.queue(name).enqueue_many(("mail", number, {"group": "ann"}) for number in range(3))
    text = client.get("/groups", params={"queue": name}).text
    assert f"mail {head}" in text
    assert re.search(r'<td class="n">2</td>', text)
    paths = {path for path in re.findall(r'href="(/[^"]*)"', text) if not path.startswith("/static/")}
    assert {path: status for path in paths if (status := client.get(path).status_code) != 200} == {}
    assert "No job waits" in client.get("/groups", params={"queue": f"{name}-none"}).text


def test_a_schedule_runs_now(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.schedules.set(name, name, "mail", every=3600)
    answer = submitted(client, "/schedules", "/schedules/run", name=name)
    assert answer.status_code == 303
    (job,) = db.queue(name).peek()
    assert job.kind == "mail"
    assert f'href="/jobs/{job.id}"' in client.get(answer.headers["location"]).text
    assert submitted(client, "/schedules", "/schedules/run", name=f"{name}-none").status_code == 404
    db.schedules.remove(name)


def test_others_queues_are_neither_shown_nor_changed(db: QueueDB, name: str, serve: Serve) -> None:
    db.schedules.set(name, name, "mail", every=3600)
    client = logged_in(db, serve(Settings()), f"{name}-t", "read", "manage", queues=(f"{name}-mine*",))
    assert name not in client.get("/schedules").text.replace(f"{name}-t", "")
    for path in ("/workers/rescue", "/tokens", "/tokens/revoke"):
        assert submitted(client, "/schedules", path, name=name).status_code == 403
    for path in ("/schedules/run", "/schedules/pause"):
        answers = [submitted(client, "/schedules", path, name=one) for one in (name, f"{name}-none")]
        assert [(one.status_code, one.text) for one in answers] == [(404, answers[1].text)] * 2
    assert client.get("/tokens").status_code == 403
    assert client.get("/actions").status_code == 403
    assert db.queue(name).peek() == []
    assert [one.paused for one in db.schedules.list() if one.name == name] == [False]
    db.schedules.remove(name)


def test_names_and_payloads_of_others_are_on_no_page(db: QueueDB, serve: Serve) -> None:
    mine, other = db.queue("a1"), db.queue("secret-queue")
    mine.enqueue("k", 1)
    for number in (1, 2, 3):
        other.enqueue("secret-kind", {"secret-key": number}, max_attempts=1, group="secret-group", unique_key=f"secret-{number}")
    (died,) = other.claim()
    died.fail(ValueError("secret-error"))
    db.actions.add("ann", "pause", "queue secret-queue")
    db.tokens.create("secret-token", ["read"], queues=["secret-*"])
    db.metrics.take()
    client = logged_in(db, serve(Settings()), "t", "read", "manage", queues=("a*",))
    lists = ("", "strategy", "workers", "jobs", "groups", "batches", "schedules", "streams", "feeds", "routes", "failures", "dead")
    refused = ("actions", "tokens", "dead/all?action=purge")
    unknown = (f"jobs/{died.id}", f"jobs/{died.id + 1}")
    for paths, status in ((lists, 200), (refused, 403), (unknown, 404)):
        for path in paths:
            answer = client.get(f"/{path}")
            assert (answer.status_code, "secret" in answer.text) == (status, False), path
    for path in ("failures", "dead", "jobs", "groups"):
        assert client.get(f"/{path}?queue=secret-queue").status_code == 403


def test_nobody_gives_a_scope_that_they_lack(db: QueueDB, name: str, serve: Serve) -> None:
    client = logged_in(db, serve(Settings()), f"{name}-t", "read", "manage")
    given = {"name": f"{name}-new", "queues": "*", "scope-work": "1"}
    assert submitted(client, "/tokens", "/tokens", **given).status_code == 403
    assert submitted(client, "/tokens", "/tokens", name=f"{name}-new", queues="a b*", **{"scope-read": "1"}).status_code == 200
    (made,) = [one for one in db.tokens.list() if one.name == f"{name}-new"]
    assert (made.scopes, made.queues) == (("read",), ("a", "b*"))


@pytest.mark.parametrize("fields", [{"name": ""}, {"days": "soon"}, {"days": "-1"}, {"days": "nan"}, {"scope-read": ""}])
def test_a_wrong_entry_is_explained(client: httpx2.Client, name: str, fields: dict[str, str]) -> None:
    answer = submitted(client, "/tokens", "/tokens", **({"name": name, "scope-read": "1"} | fields))
    assert answer.status_code == 422
    assert "Nothing was made: " in answer.text


def test_read_only_changes_nothing(db: QueueDB, name: str, serve: Serve) -> None:
    db.schedules.set(name, name, "mail", every=3600)
    client = serve(Settings(closed=False, read_only=True))
    page = client.get("/schedules").text
    assert name in page
    assert "Run now" not in page
    for path in ("/schedules/run", "/schedules/pause", "/workers/rescue", "/tokens", "/tokens/revoke", "/routes/pause"):
        assert client.post(path, data={"name": name}).status_code == 403
    assert db.queue(name).peek() == []
    db.schedules.remove(name)


def test_a_chart_ends_with_the_last_step_that_has_ended() -> None:
    now = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)

    def row(minutes: int, jobs: int) -> QueueMetrics:
        at = now.replace(second=0) - timedelta(minutes=minutes)
        return QueueMetrics("mail", at, jobs, 0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 60.0)

    rows = [row(4, 9), row(2, 5), row(1, 6), row(0, 1)]
    assert series(rows, waiting, 3, 60, now) == (None, 5, 6)
    assert series(rows[-1:], waiting, 3, 60, now) == ()


def test_findings_of_ones_own_queues(tmp_path: Path, name: str) -> None:
    """The worst first; others' queues, workers and schedules are not among them."""
    with QueueDB(f"sqlite:///{tmp_path}/old.db", clock=lambda: 1_000_000_000_000_000) as db:  # the year 2001
        db.migrate()
        for queue in (f"{name}-mine-paused", f"{name}-mine", f"{name}-other"):
            db.queue(queue).enqueue("mail")
        db.schedules.set(f"{name}-late", f"{name}-other", "mail", every=3600)
    with QueueDB(f"sqlite:///{tmp_path}/old.db") as db:
        db.queue(f"{name}-mine-paused").pause()
        watch = Watch(db)
        looks = (watch.look() for _ in range(int(PATIENCE / 0.1)))  # each waits for so long, until there is one
        found = next(look for look in looks if look.found is not None)
        mine = seen_by(Actor("ann", frozenset({"read"}), (f"{name}-mine*",)), found).found or ()
        everything = seen_by(Actor("ann", frozenset({"read"}), ("*",)), found).found or ()
        assert [(one.queue, one.stuck) for one in mine] == [(f"{name}-mine", True), (f"{name}-mine-paused", False)]
        assert [one.stuck for one in everything] == [True, True, True, False]
        with serving(db, Settings()) as base, httpx2.Client(base_url=base, timeout=PATIENCE) as client:
            logged_in(db, client, "ann", "read", queues=(f"{name}-mine*",))
            pages = (client.get("/").text for _ in range(int(PATIENCE / 0.1)))
            text = next(page for page in pages if "Looking for" not in page)
            queues = {queue: client.get(f"/queues/{queue}").text for queue in (f"{name}-mine", f"{name}-mine-paused")}
        assert "1 job has been due" in text
        assert f"{name}-other" not in text
        assert "no registered worker serves it" in queues[f"{name}-mine"]
        assert "it is paused" in queues[f"{name}-mine-paused"]


def test_each_link_of_the_menu_works_for_a_token_of_some_queues(db: QueueDB, serve: Serve) -> None:
    for queue in ("mine", "other"):
        db.queue(queue).enqueue("mail", max_attempts=1)
        db.queue(queue).claim()[0].fail(ValueError(f"the error of {queue}"))
    db.metrics.take()
    client = serve(Settings())
    for pattern, shown in (("mine*", True), ("none*", False)):
        logged_in(db, client, pattern.strip("*"), "read", "manage", queues=(pattern,))
        menu = client.get("/").text.partition("<nav")[2].partition("</nav>")[0]
        pages = {path: client.get(path) for path in re.findall(r'href="([^"]+)"', menu)}
        assert {path for path, answer in pages.items() if answer.status_code != 200} == set()
        assert pages.keys().isdisjoint({"/actions", "/tokens"})
        for path in ("/dead", "/failures"):
            assert ("the error of mine" in pages[path].text, "other" in pages[path].text) == (shown, False), (path, pattern)


def test_the_last_comparison(tmp_path: Path, serve: Serve) -> None:
    """What was not measured says why; an error's own text may have what pages must not show."""
    refused = hand_made.row("skip_locked", (), refused="SQLite has no SKIP LOCKED")
    failed = replace(hand_made.row("pessimistic", ()), failed="cannot open secret-place")
    slow, fast = hand_made.row("optimistic", (900.0,)), hand_made.row("adaptive", (1234.0,), candidates=2000)
    hand_made.comparison(hand_made.bench(refused, slow, fast, failed)).save(tmp_path / "report.json")
    text = serve(Settings(closed=False, report=tmp_path / "report.json")).get("/strategy").text
    table = text.partition("Comparison on PostgreSQL 18.1, 2026-11-21")[2]
    assert re.findall(r'<th scope="row">(\w+)', table) == ["adaptive", "optimistic", "skip_locked", "pessimistic"]
    for shown in ("1,234", "50%", "SQLite has no SKIP LOCKED", "An error ended it", "in use"):
        assert shown in table, shown
    assert "secret-place" not in text
    (tmp_path / "report.json").write_text("{}")
    assert "not a saved comparison" in serve(Settings(closed=False, report=tmp_path / "report.json")).get("/strategy").text
