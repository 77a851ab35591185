"""A walk through the dashboard: every page, and every form once. What there is comes from the application's own routes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from fastapi import FastAPI
from playwright.sync_api import Error, Locator, Page, Response
from starlette.routing import Match, Route

from queue_db.service.pages import PAGES
from tests.service.browser.watched import barriers, too_wide

#: What people would enter, by the route of the form and the name of the field.
ENTRIES = {
    "make_token": {"name": "made by a person", "queues": "mail* reports", "days": "30"},
    "limit_queue": {"concurrency": "5"},
}

#: They take away what other forms need: last, in this order.
LATE = ("redrive", "cancel", "remove", "release", "rescue", "revoke", "change_dead", "purge")

#: Nothing to look at.
FILES = {"static"}


def routes() -> dict[str, Route]:
    """The routes of the pages by name."""
    return {
        route.name: route for router in PAGES for route in router.routes if isinstance(route, Route) and route.name not in FILES
    }


def route_of(app: FastAPI, method: str, path: str) -> str | None:
    """The name of the route that answers a request."""
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    for name, route in routes().items():
        if route.matches(scope)[0] is Match.FULL:
            return name
    return None


def _lateness(name: str) -> int:
    return next((place for place, word in enumerate(LATE) if name.startswith(word)), -1)


@dataclass
class Walk:
    """One person with one browser."""

    app: FastAPI
    page: Page
    visited: dict[str, str] = field(default_factory=dict)  #: address by route: the first one of each
    forms: dict[str, str] = field(default_factory=dict)  #: the address of a page with it, by route
    submitted: set[str] = field(default_factory=set)
    found: list[str] = field(default_factory=list)  #: what is wrong
    weights: dict[str, int] = field(default_factory=dict)  #: bytes by path, also of scripts and style sheets

    def __post_init__(self) -> None:
        self.page.on("response", self._weigh)

    def _weigh(self, response: Response) -> None:
        if response.request.method == "GET" and response.status == 200:
            with suppress(Error):  # the page was left before the body came
                self.weights[urlsplit(response.url).path] = len(response.body())

    def everywhere(self) -> None:
        """Follow every kind of link, and look at each page, until there is no other."""
        left = ["/"]
        seen: set[tuple[str, tuple[str, ...]]] = set()
        while left:
            address = left.pop()
            kind = self._kind(address)
            if kind is None or kind in seen:
                continue
            seen.add(kind)
            self.look(address)
            left += self._links()

    def look(self, address: str) -> None:
        """Open a page: it has no barriers, and is not wider than its window."""
        self.page.goto(address)
        name = route_of(self.app, "GET", urlsplit(address).path)
        if name is not None:
            self.visited.setdefault(name, address)
        for _, form in self._forms():
            self.forms.setdefault(form, address)
        self.found += barriers(self.page)
        if wide := too_wide(self.page):
            self.found.append(wide)

    def submit_everything(self) -> None:
        """Send each form once, on whatever page it is, until none is left; those that take something away after the others."""
        while self.forms:
            before = len(self.submitted)
            for name in sorted(self.forms, key=_lateness):
                self._submit(self.forms[name], name)
            assert len(self.submitted) > before, self.forms
            self.forms = self._forms_left()

    def _submit(self, address: str, name: str) -> None:
        self.page.goto(address)
        form = next((form for form, route in self._forms() if route == name), None)
        if form is None:
            return  # another form has taken it away, perhaps until later
        for field_name, text in ENTRIES.get(name, {}).items():
            form.locator(f"[name='{field_name}']").fill(text)
        with self.page.expect_navigation():
            form.locator("button").last.click()
        self.submitted.add(name)
        if wide := too_wide(self.page):
            self.found.append(wide)

    def _forms_left(self) -> dict[str, str]:
        """The address of a page with each form that was not sent yet."""
        left: dict[str, str] = {}
        for address in list(self.visited.values()):
            answer = self.page.request.get(address)
            if answer.ok and "<form" in answer.text():  # a job's page is gone with the job
                self.page.goto(address)
                left.update({name: address for _, name in self._forms() if name not in self.submitted and name not in left})
        return left

    def _forms(self) -> Iterator[tuple[Locator, str]]:
        for form in self.page.locator("form[method=post]").all():
            name = route_of(self.app, "POST", urlsplit(form.get_attribute("action") or self.page.url).path)
            if name is not None:
                yield form, name

    def _links(self) -> list[str]:
        paths: list[str] = self.page.locator("a[href^='/']").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        return paths

    def _kind(self, address: str) -> tuple[str, tuple[str, ...]] | None:
        """Its route and the names in its query: one of each kind is looked at."""
        parts = urlsplit(address)
        name = route_of(self.app, "GET", parts.path)
        return None if name is None else (name, tuple(sorted(key for key, _ in parse_qsl(parts.query))))
