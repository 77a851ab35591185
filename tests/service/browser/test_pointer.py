"""The pointer in a chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import expect

from queue_db import QueueDB
from queue_db.service import Settings
from queue_db.service.live.kept import Clock
from tests.service.browser.watched import Watched, barriers, too_wide
from tests.service.conftest import serving
from tests.service.test_charts import sampled


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a service. It is named before ``watched``: pages are closed before their server."""
    now = datetime.now(UTC)
    monkeypatch.setattr(Clock, "now", lambda _: now)  # a chart moves on with each minute
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        sampled(db, "mail", {30: 5, 1: 247, 2: 8}, now)
        with serving(db, Settings(closed=False)) as url:
            yield url


@pytest.mark.parametrize("look", ["desktop", "phone"])
def test_a_chart_shows_the_time_and_the_value_under_the_pointer(base: str, watched: Watched, look: str) -> None:
    page = watched.page(base, look)
    page.goto("/queues/mail")
    chart = page.locator(".chart", has_text="due and running")
    expect(chart).to_contain_text("250")  # the scale
    plot = chart.locator("svg")
    box = plot.bounding_box()
    assert box is not None
    tip = page.locator(".tip")
    expect(tip).to_be_hidden()
    middle = box["height"] / 2
    for x, value in ((1, "5"), (box["width"] - 1, "247"), (box["width"] / 2, "not known")):
        plot.hover(position={"x": x, "y": middle})
        expect(tip).to_have_text(re.compile(rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d UTC · {value}$"))
        expect(tip).to_be_in_viewport(ratio=1)
    assert not barriers(page)
    assert not too_wide(page)
    page.get_by_role("heading", level=1).hover()
    expect(tip).to_be_hidden()
