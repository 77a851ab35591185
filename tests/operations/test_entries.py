"""Which changes write an entry, and what it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.codecs import JSONCodec, Schema
from queue_db.errors import ArgumentError, PayloadError
from queue_db.limits import store as limits
from queue_db.model import UNCHANGED, NewJob
from queue_db.monitoring.actions import MAX_DETAIL
from queue_db.operations import dead, entry, queues, routes, schedules, tokens, workers
from queue_db.operations.actor import ANYBODY
from queue_db.schedules import Schedules
from queue_db.service import Settings
from queue_db.verbs import new_jobs
from tests.cli.harness import Ask
from tests.patience import PATIENCE
from tests.service.conftest import serving, submitted

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture
def own(own_url: str) -> Iterator[QueueDB]:
    with QueueDB(own_url) as db:
        yield db


def entries(db: QueueDB) -> list[tuple[str, str, int | None]]:
    return [(one.action, one.target, one.number) for one in db.actions.list()]


@pytest.mark.parametrize("what", ["run", "pause", "resume"])
def test_a_schedule_that_goes_meanwhile(own: QueueDB, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """It is there when the right is checked, and gone when the change comes."""
    own.schedules.set("nightly", "mail", "k", every=60)
    found = own.schedules.list()
    own.schedules.remove("nightly")
    monkeypatch.setattr(Schedules, "list", lambda _: found)
    with pytest.raises(ArgumentError, match="there is no schedule"):
        getattr(schedules, what)(own, ANYBODY, "nightly")
    assert entries(own) == []


UNNAMED: dict[str, Any] = dict.fromkeys(("payload", "zone", "catch_up", "priority", "max_attempts", "headers"), UNCHANGED)

#: Those of a schedule that is there.
OPTIONS: dict[str, Any] = {"zone": "Europe/Berlin", "catch_up": "all", "priority": 7, "max_attempts": 3, "headers": {"trace": "a"}}


def test_what_a_definition_leaves_unchanged(own: QueueDB) -> None:
    definition: dict[str, Any] = {"queue": "mail", "kind": "k"}
    schedules.set(own, ANYBODY, "new", schedules.Definition(**definition, every=60, **UNNAMED))
    own.schedules.set("old", **definition, payload={"a": 1}, cron="0 3 * * *", **OPTIONS)
    schedules.set(own, ANYBODY, "old", schedules.Definition(**definition, cron="0 4 * * *", **UNNAMED))
    new, old = own.schedules.list()
    assert (new.payload, new.zone, new.catch_up, new.priority, new.max_attempts, new.headers) == (None, "UTC", "one", 0, 25, {})
    assert {one: getattr(old, one) for one in OPTIONS} == OPTIONS
    assert (old.payload, old.rule) == ({"a": 1}, "0 4 * * *")
    assert old.next_at.astimezone(ZoneInfo("Europe/Berlin")).hour == 4
    assert own.actions.list()[0].detail == {**definition, "cron": "0 4 * * *"}


def test_a_schedule_without_a_payload_that_its_kind_asks_for(own: QueueDB) -> None:
    """The payload of one that is there stays; there is no new one."""

    def page(payload: Any) -> Any:
        return payload["page"]

    own.schemas["k"] = Schema(page)
    definition = schedules.Definition(queue="mail", kind="k", every=90, **UNNAMED)
    with pytest.raises(PayloadError, match="payload"):
        schedules.set(own, ANYBODY, "nightly", definition)
    assert (own.schedules.list(), entries(own)) == ([], [])
    own.schedules.set("nightly", "mail", "k", {"page": 1}, every=60)
    schedules.set(own, ANYBODY, "nightly", definition)
    assert [(one.payload, one.rule) for one in own.schedules.list()] == [({"page": 1}, "every 90")]


def test_two_partial_changes_of_a_schedule_are_both_kept(own: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(**named: Any) -> None:
        schedules.set(own, ANYBODY, "s", schedules.Definition(queue="q", kind="k", every=60, **{**UNNAMED, **named}))

    change()
    real = new_jobs.columns_of

    def between(job: NewJob) -> dict[str, Any]:
        monkeypatch.setattr(new_jobs, "columns_of", real)
        change(priority=7)
        return real(job)

    monkeypatch.setattr(new_jobs, "columns_of", between)
    change(max_attempts=3)
    (one,) = own.schedules.list()
    assert (one.priority, one.max_attempts) == (7, 3)


def test_the_form_the_command_and_rest_keep_what_they_do_not_name(ask_at: Ask, own: QueueDB, own_url: str) -> None:
    own.schedules.set("nightly", "mail", "k", {"a": 1}, cron="0 3 * * *", **OPTIONS)
    rule: dict[str, Any] = {"queue": "mail", "kind": "k", "cron": "0 5 * * *"}
    with serving(own, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE, verify=False) as asks:
        sent = submitted(asks, "/schedules", "/schedules/set", name="nightly", **rule, payload="", zone="", catch_up="")
        shown = asks.get("/api/v1/schedules/nightly").json()
        kept = {one: shown[one] for one in ("payload", *OPTIONS)}
        put = asks.put("/api/v1/schedules/nightly", json={**rule, **kept})
    assert (sent.status_code in {200, 303}, put.status_code) == (True, 200), (sent.text, put.text)
    ask_at(own_url, "schedules", "set", "nightly", "mail", "other", "--cron", "0 6 * * *", "--max-attempts", "4")
    (one,) = own.schedules.list()
    assert {name: getattr(one, name) for name in OPTIONS} == {**OPTIONS, "max_attempts": 4}
    assert (one.kind, one.payload, one.rule) == ("other", {"a": 1}, "0 6 * * *")
    ask_at(own_url, "schedules", "set", "nightly", "mail", "other", "null", "--every", "60")
    assert own.schedules.list()[0].payload is None


def test_a_long_detail_refuses_no_change(own: QueueDB) -> None:
    patterns = tuple(f"{number}{'ü' * 200}" for number in range(100))
    tokens.create(own, ANYBODY, tokens.NewToken("many", ("read",), patterns))
    where = f"kind == '{'😀' * 900}'"
    routes.set(own, ANYBODY, "long", routes.RouteAction("enqueue", "😀" * 100, kind="😀" * 100, where=where, group="😀" * 200))
    assert [one.name for one in own.tokens.list()] == ["many"]
    assert entries(own) == [("set", "route long", None), ("create", "token many", None)]
    detail = own.actions.list()[1].detail
    assert detail is not None
    assert (detail["scopes"], detail["queues"]) == (["read"], "…")


def test_a_limit_logs_what_is_written(own: QueueDB) -> None:
    for change in ({"rate": 7, "per": None}, {"rate": 7, "per": 60}, {"per": None}, {"rate": None, "per": None}, {"per": None}):
        queues.limit(own, ANYBODY, "mail", queues.Limits(**change))
    logged = [one.detail or {} for one in reversed(own.actions.list())]
    assert [one["per"] for one in logged] == [1.0, 60, 1.0, "none", "none"]


def test_only_what_is_too_long_is_cut(own: QueueDB) -> None:
    detail = {"short": 1, "list": list(range(30_000)), "text": "x" * MAX_DETAIL}
    with entry.entry(own, ANYBODY, "set", "x", detail=detail):
        own.queue("mail").pause()
    assert own.actions.list()[0].detail == {"short": 1, "list": [*range(20), "…"], "text": "x" * 500 + "…"}


class Writing(JSONCodec):
    """A codec of a program that writes itself: into this database, and into another one."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[QueueDB] = []

    def encode(self, payload: Any) -> str:
        for one in self.others:
            one.queue("audit").pause()
            one.schedules.pause("other")
        return super().encode(payload)


def test_changes_by_code_inside_an_operation_are_not_its_own(own_url: str, tmp_path: Path) -> None:
    codec = Writing()
    with QueueDB(own_url, codec=codec) as db, QueueDB(f"sqlite:///{tmp_path}/second.db") as second:
        second.migrate()
        for one in (db, second):
            one.schedules.set("other", "mail", "k", every=60)
        codec.others = [db, second]
        schedules.set(db, ANYBODY, "nightly", schedules.Definition(queue="mail", kind="k", every=60, payload=1))
        assert (entries(db), entries(second)) == ([("set", "schedule nightly", None)], [])
        with entry.entry(db, ANYBODY, "set", "x"):
            queues.pause(second, ANYBODY, "mail")
            second.schedules.pause("other")
        assert (entries(db)[1:], entries(second)) == ([], [("pause", "queue mail", None)])


def test_a_rescue_that_frees_only_shares_is_an_entry(own: QueueDB) -> None:
    own.queue("mail").limit(concurrency=2)
    own.core.write("test", limits.take_share, "mail", "gone", 2, 600_000_000)
    assert [workers.rescue(own, ANYBODY, "gone") for _ in range(2)] == [0, 0]
    assert entries(own) == [("rescue", "worker gone", None)]


def test_a_redrive_shows_the_ids_that_returned(own: QueueDB) -> None:
    queue = own.queue("mail")
    ids = [queue.enqueue("k", unique_key=key) for key in ("taken", None, None)]
    for job in queue.claim(3):
        job.bury("broken")
    queue.enqueue("k", unique_key="taken")
    returned = dead.redrive(own, ANYBODY, dead.Redrive(ids=tuple(ids)))
    assert returned == ids[1:]
    assert own.actions.list()[0].detail == {"ids": returned}


def test_what_outlasts_an_operation_is_not_its_own(own: QueueDB) -> None:
    """As a task that was made inside it, with its context."""
    own.queue("mail").enqueue_many([("k", None)] * 2)
    with entry.entry(own, ANYBODY, "set", "x"):
        context = copy_context()
        own.queue("mail").pause()
    assert context.run(own.queue("mail").purge) == 2
    assert entries(own) == [("set", "x", None)]
