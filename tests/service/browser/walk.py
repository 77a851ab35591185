"""A walk through the dashboard: every page, and every form once. What there is comes from the application's own routes."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import urlsplit

from fastapi import FastAPI
from playwright.sync_api import Error, Page, Response
from starlette.routing import Match, Route

from queue_db.routes.definition import new
from queue_db.service.pages import PAGES
from tests.service.browser.watched import barriers, too_wide

#: The definition of a route in the shop.
RECEIPTS = new(feed=None, enqueue=("mail", "receipt"), forward=None, webhook=None, count=None, drop=False, group=False).sha

#: What people would enter, by the route of the form and the name of the field.
ENTRIES = {
    "make_token": {"name": "made by a person", "queues": "mail* reports", "days": "30"},
    "limit_queue": {"concurrency": "5"},
    "fair_queue": {"group": "made by a person", "weight": "3"},
    "limit_groups": {"concurrency": "5"},
    "set_schedule": {"name": "made by a person", "queue": "mail", "kind": "report", "every": "3600"},
    "make_feed": {"feed": "made by a person"},
    "seek_cursor": {"name": "bookkeeping", "position": "start"},
    "remove_cursor": {"name": "bookkeeping"},
    "set_route": {"name": "made by a person", "target": "mail"},
    "subscribe_route": {"pattern": "made.*"},
    "assign_route": {"definition": RECEIPTS},
}

#: They take away what other forms need: last, in this order.
LATE = ("redrive", "cancel", "unsubscribe", "purge_feed", "remove", "release", "rescue", "revoke", "change_dead", "purge")

POSTS = "form[method=post]"

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
        """Follow links until every page has been looked at once."""
        left = ["/"]
        while left:
            address = left.pop()
            name = route_of(self.app, "GET", urlsplit(address).path)
            if name is not None and name not in self.visited:
                self.visited[name] = address
                self.look(address)
                left += self._links()

    def look(self, address: str) -> None:
        """Open a page: it has no barriers, and is not wider than its window."""
        self.page.goto(address)
        for form in self._forms():
            if form is not None:
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
        forms = self._forms()
        if name not in forms:
            return  # another form has taken it away, perhaps until later
        form = self.page.locator(POSTS).nth(forms.index(name))
        # What cannot be taken back is shown first.
        form.evaluate("form => form.closest('details')?.setAttribute('open', '')")
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
                actions = map(unescape, re.findall(r'<form method="post" action="([^"]+)"', answer.text()))
                for name in (self._sends(action) for action in actions):
                    if name is not None and name not in self.submitted:
                        left.setdefault(name, address)
        return left

    def _forms(self) -> list[str | None]:
        """The routes of the forms of this page, in their order."""
        actions: list[str] = self.page.locator(POSTS).evaluate_all("forms => forms.map(form => form.getAttribute('action'))")
        return [self._sends(action) for action in actions]

    def _sends(self, action: str) -> str | None:
        return route_of(self.app, "POST", urlsplit(action).path)

    def _links(self) -> list[str]:
        paths: list[str] = self.page.locator("a[href^='/']").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        return paths
