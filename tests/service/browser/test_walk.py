"""A person goes to every page in each of the looks that the dashboard has, and sends every form in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from queue_db import QueueDB
from queue_db.service import Settings, service
from tests.compare import hand_made
from tests.service.browser.walk import Walk, routes
from tests.service.browser.watched import Watched, barriers
from tests.service.conftest import serving
from tools.shop import ODD, fill

#: Bytes of a page with its style sheet and scripts.
HEAVIEST = 100_000


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path}/shop.db") as db:
        db.migrate()
        fill(db)
        yield db


@pytest.fixture
def base(shop: QueueDB, tmp_path: Path) -> Iterator[str]:
    """The address of an open service. It is named before ``watched``: pages are closed before their server."""
    report = tmp_path / "report.json"
    hand_made.comparison(hand_made.bench(*hand_made.article("sqlite"), hand_made.row("skip_locked", (), refused="no"))).save(report)
    with serving(shop, Settings(closed=False, report=report)) as url:
        yield url


@pytest.fixture
def closed_base(shop: QueueDB) -> Iterator[str]:
    """The address of a service that people log in to."""
    with serving(shop, Settings()) as url:
        yield url


def of_method(method: str) -> set[str]:
    return {name for name, route in routes().items() if method in (route.methods or ())}


@pytest.mark.rest("the tests of the pages send their forms; nothing in make test follows every link")
@pytest.mark.parametrize("look", ["desktop", "phone", "dark"])
def test_every_page_and_every_form(shop: QueueDB, base: str, watched: Watched, look: str) -> None:
    walk = Walk(service(shop, Settings(closed=False)), watched.page(base, look))
    walk.everywhere()
    walk.look("/queues/exports")  # fair: it shows and asks for more than the first queue
    assert not walk.found
    assert walk.visited.keys() == of_method("GET"), "pages that no link leads to"
    files = sum(weight for path, weight in walk.weights.items() if path.startswith("/static/"))
    pages = {path: weight + files for path, weight in walk.weights.items() if not path.startswith("/static/")}
    assert len(pages) >= len(walk.visited)
    assert {path: weight for path, weight in pages.items() if weight > HEAVIEST} == {}
    if look == "desktop":
        everything_is_sent(walk, shop)


def everything_is_sent(walk: Walk, shop: QueueDB) -> None:
    # The page of a dead job has a form that other jobs have not, and then theirs.
    walk.visited["job"] = f"/jobs/{shop.dead.list(limit=1)[0].id}"
    walk.look(walk.visited["job"])
    walk.submit_everything()
    assert not walk.found
    assert walk.submitted == of_method("POST"), "forms that are on no page"
    actions = {action.action for action in shop.actions.list(limit=1000)}
    assert actions >= {"pause", "resume", "create", "revoke"}


def test_a_person_logs_in_and_out(shop: QueueDB, closed_base: str, watched: Watched) -> None:
    secret = shop.tokens.create("ann", ["read", "manage"])
    page = watched.page(closed_base)
    page.goto("/schedules")
    assert "/login" in page.url
    assert not barriers(page)
    page.locator("input[name=token]").fill(secret)
    page.locator("form button").click()
    page.wait_for_url("**/schedules")
    page.get_by_role("row", name="nightly report").get_by_role("button", name="Run now").click()
    page.get_by_role("status").wait_for()
    newest = shop.actions.list(limit=1)[0]
    assert (newest.who, newest.action, newest.target) == ("ann", "run", "schedule nightly report")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login*")
    page.goto("/tokens")
    assert "/login" in page.url


def test_the_menu_of_a_phone(base: str, watched: Watched) -> None:
    page = watched.page(base, "phone")
    page.goto("/workers")
    menu = page.get_by_role("navigation", name="Pages")
    expect(menu).to_be_hidden()
    expect(page.locator(".where")).to_contain_text("shop.db")
    expect(page.locator(".where")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Menu").tap()
    expect(menu).to_be_visible()
    assert not barriers(page)
    menu.get_by_role("link", name="Schedules").tap()
    page.wait_for_url("**/schedules")
    expect(menu).to_be_hidden()
    # What does not fit scrolls inside its box: the last column can be brought into sight.
    button = page.get_by_role("row", name="nightly report").get_by_role("button", name="Pause")
    expect(button).not_to_be_in_viewport()
    button.scroll_into_view_if_needed()
    expect(button).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("rowheader", name="nightly report")).to_be_in_viewport(ratio=1)


def test_a_secret_is_shown_once(shop: QueueDB, base: str, watched: Watched) -> None:
    page = watched.page(base)
    page.goto("/tokens")
    page.get_by_label("who uses it").fill("ann")
    page.get_by_role("button", name="Make it").click()
    secret = page.locator("#secret").inner_text()
    token = shop.tokens.find(secret)
    assert token is not None
    assert token.name == "ann"
    page.goto("/tokens")
    assert secret not in page.content()


def test_names_are_text(base: str, watched: Watched) -> None:
    page = watched.page(base)
    page.goto("/")
    page.get_by_role("link", name=ODD).click()
    page.get_by_role("heading", name=ODD, level=1).wait_for()
