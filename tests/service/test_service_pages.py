"""The dashboard's pages, as HTML from a real server."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

#: A name, a kind, a payload and an error may be anything.
NASTY = "<img src=x onerror=alert(1)>\"'&/%2F"


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


def test_text_of_jobs_is_text(db: QueueDB, client: httpx2.Client) -> None:
    queue = db.queue(NASTY)
    queue.enqueue(NASTY, {NASTY: NASTY})
    page = look(client, "/")
    assert NASTY in page
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
