"""What pages say when something goes wrong: sentences for people, and what they can do."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.core import Core
from queue_db.errors import TransientStorageError
from queue_db.service import Settings
from queue_db.store.portions import AT_ONCE
from tests.service.conftest import submitted

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

BROWSER = {"Accept": "text/html,*/*;q=0.8"}


def says(answer: httpx2.Response) -> str:
    """The heading and the text of a page that shows a problem."""
    heading = re.search(r"<h1>(.*?)</h1>", answer.text)
    inner = re.search(r'<div class="empty">(.*?)</div>', answer.text, re.DOTALL)
    text = inner or re.search(r"</h1>(.*?)</main>", answer.text, re.DOTALL)
    assert heading is not None
    assert text is not None
    words = re.sub(r"<[^>]+>", " ", f"{heading[1]} {text[1]}")
    return " ".join(unescape(words).replace("To the overview", "").split())


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("/queues/{}/limit", {"concurrency": "ten"}, "“jobs at the same time” 'ten': must be a number."),
        ("/queues/{}/limit", {"rate": "5", "per": "0"}, "“in seconds” 0: must be more than 0 seconds."),
        ("/schedules/set", {"name": "n", "queue": "q", "kind": "k", "every": "1", "payload": "{"}, "“payload” '{': must be JSON."),
        ("/routes/set", {"name": "r", "action": "webhook", "target": "ftp://x"}, "Target 'ftp://x': must be an address"),
        ("/routes/set", {"name": "r", "action": "drop", "where": "(("}, "“only where” '((': is no JMESPath expression"),
    ],
)
def test_a_value_of_a_form(client: httpx2.Client, name: str, path: str, fields: dict[str, str], said: str) -> None:
    answer = submitted(client, f"/queues/{name}", path.format(name), **fields)
    assert answer.status_code == 422
    assert says(answer).startswith(f"A value is not allowed {said}")
    assert says(answer).endswith("Nothing was changed. Go back, correct it, and send the form again.")


@pytest.mark.parametrize("path", ["/finished?after=x", "/jobs/99999999999999999999", "/jobs?queue=a&after=x"])
def test_an_address_that_is_not_valid(client: httpx2.Client, path: str) -> None:
    assert says(client.get(path)) == "The address is not valid A part of it is missing or outside its range."


def test_what_is_not_there(client: httpx2.Client, serve: Callable[[Settings], httpx2.Client]) -> None:
    mistyped = "There is no such page The address may be mistyped, or what it showed may have left."
    assert says(client.get("/nothing", headers=BROWSER)) == mistyped
    assert says(serve(Settings()).get("/nothing", headers=BROWSER)) == mistyped
    assert "openapi.json" in client.get("/nothing").json()["detail"]
    assert "A form is sent to this address" in says(client.get("/queues/a/pause", headers=BROWSER))


def test_a_form_that_is_too_old(client: httpx2.Client, name: str) -> None:
    said = says(client.post(f"/queues/{name}/pause", data={"csrf": "old"}, headers=BROWSER))
    assert said.startswith("This form is too old The page was loaded before you logged in")
    assert said.endswith("Nothing was changed. Load the page again, and send the form from there.")


def test_a_change_that_fails_on_the_way_may_have_changed_a_part(
    client: httpx2.Client, db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.queue(name).enqueue_many([("mail", number) for number in range(AT_ONCE + 1)])
    write, written = Core.write, []

    def fails(core: Core, called: str, *args: Any, **options: Any) -> Any:
        written.append(called)
        if written.count("purge") == 2:
            raise TransientStorageError("locked")
        return write(core, called, *args, **options)

    monkeypatch.setattr(Core, "write", fails)
    answer = submitted(client, f"/queues/{name}", f"/queues/{name}/purge")
    assert answer.status_code == 503
    assert db.queue(name).stats().available == 1
    assert "It is not known whether anything was changed: look before" in says(answer)


def test_no_permission(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings())
    client.post("/login", data={"token": db.tokens.create(name, ["read"], queues=[f"{name}-mine"])})
    said = says(client.get(f"/queues/{name}"))
    assert said.startswith("The token does not allow this This token lacks the scope 'read' for this queue. Log out, and")
    only = serve(Settings(closed=False, read_only=True))
    only.get("/")
    (csrf,) = only.cookies.values()
    said = says(only.post("/queues/a/pause", data={"csrf": csrf}))
    assert said.startswith("This service only shows It was started so")
    assert said.endswith("Nothing was changed. Who runs the service knows why.")


def test_another_host_name_is_refused_with_a_page(client: httpx2.Client) -> None:
    headers = {**BROWSER, "Host": "jobs.example"}
    assert says(client.get("/", headers=headers)).startswith("The service has another name This service does not answer")
    assert client.get("/", headers={"Host": "jobs.example"}).json()["status"] == 421
