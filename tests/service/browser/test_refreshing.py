"""A page that stays open: it follows the numbers, says when nobody answers, and leaves for the login when the session has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from queue_db import QueueDB
from queue_db.service import Settings
from tests.service.browser.watched import Watched
from tests.service.conftest import serving


@pytest.fixture
def db(tmp_path: Path) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        jobs = db.queue("mail").enqueue_many(("send", n) for n in range(6))
        db.queue("mail").fail_many(db.queue("mail").claim(len(jobs)), ValueError("no"), retry_in=600)
        db.metrics.take()
        yield db


def refresh(page: Page) -> None:
    """Stop the refreshing and go on, which loads the numbers at once."""
    for pressed in ("false", "true"):
        page.locator("#live").click()
        expect(page.locator("#live")).to_have_attribute("aria-pressed", pressed)


def test_an_open_page_of_a_session_that_has_ended(db: QueueDB, browser: Browser) -> None:
    secret = db.tokens.create("ann", ["read"])
    with serving(db, Settings(name="staging")) as base:
        pages = Watched(browser)
        page = pages.page(base)
        page.goto("/?sort=due")
        page.locator("input[name=token]").fill(secret)
        page.locator("form button").click()
        expect(page).to_have_title("(1) Overview · staging · queue_db")
        expect(page.locator("#live")).to_be_visible()  # the scripts have come, too

        page.context.set_offline(True)
        refresh(page)
        expect(page.locator("#live")).to_contain_text("not connected since")
        expect(page.locator("#totals")).to_have_css("opacity", "0.5")

        page.context.set_offline(False)
        refresh(page)
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator("#totals")).to_have_css("opacity", "1")

        db.tokens.revoke("ann")
        page.wait_for_url("**/login?next=*sort*")
        pages.close()
