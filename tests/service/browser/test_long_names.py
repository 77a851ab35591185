"""Long names and large numbers: a screen shows every column, a phone scrolls inside the table, and shows what was changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from queue_db import QueueDB
from queue_db.service import Settings
from tests.service.browser.watched import Watched, too_wide
from tests.service.conftest import serving

NAMES = ("invoices.europe.reminders.second-notice.by-letter", "x" * 100, "mail")


@pytest.fixture
def base(tmp_path: Path) -> Iterator[str]:
    """It is named before ``watched``: pages are closed before their server."""
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        for name in NAMES:
            db.queue(name).limit(concurrency=12, rate=100, per=60)
            db.queue(name).enqueue_many(("send", number) for number in range(8))
            jobs = db.queue(name).claim(6)
            db.queue(name).complete_many(jobs[:1])
            db.queue(name).fail_many(jobs[1:4], ValueError("no"), retry_in=600)
            for job in jobs[4:]:
                job.bury("no")
        db.metrics.take()
        for name in NAMES:
            db.actions.add("cli:deployment-user@build-machine-7.example.com", "redrive", f"dead jobs: queue {name}", 12_345)
        with serving(db, Settings(closed=False)) as url:
            yield url


def test_every_column_is_in_sight_and_a_phone_scrolls_inside_the_table(base: str, watched: Watched) -> None:
    for colours, width in (("desktop", 1280), ("desktop", 1400), ("dark", 1280)):
        page = watched.page(base, colours)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto("/")
        row = page.get_by_role("row", name=NAMES[0])
        expect(row.locator("td").last).to_have_text("2 2 since yesterday", use_inner_text=True)
        hidden = page.locator("#queues .scroll").evaluate("box => box.scrollWidth - box.clientWidth")
        assert hidden == 0, (colours, width)
        expect(row.locator("td").last).to_be_in_viewport(ratio=1)
        assert page.locator("#queues").get_by_role("link", name=NAMES[1]).get_attribute("title") == NAMES[1]
    phone = watched.page(base, "phone")
    phone.goto("/")
    assert not too_wide(phone)


def test_a_phone_shows_what_was_changed(base: str, watched: Watched) -> None:
    page = watched.page(base, "phone")
    page.goto("/actions")
    for name in NAMES:
        changed = page.get_by_text(f"dead jobs: queue {name}", exact=True)
        changed.evaluate("element => element.scrollIntoView({block: 'center', inline: 'nearest'})")
        expect(changed).to_be_in_viewport(ratio=1)
    assert page.locator("#actions .scroll").evaluate("box => box.scrollLeft") == 0
