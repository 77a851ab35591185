"""Chromium, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.patience import PATIENCE
from tests.service.browser import chromium
from tests.service.browser.watched import Watched

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium for the tests of one file.

    Playwright's synchronous interface keeps an asyncio loop running in this thread as long as it is open: the next file of the
    process may want its own.
    """
    program, environment = chromium.find()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=program,
            chromium_sandbox=False,  # it needs user namespaces, which root has not and containers may not have
            timeout=PATIENCE * 1000,
            env={**os.environ, **environment},
            args=["--force-color-profile=srgb", "--font-render-hinting=none"],
        )
        try:
            yield opened
        finally:
            opened.close()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    """Opens pages; fails the test if one of them logs an error, breaks its content security policy, or misses a file."""
    pages = Watched(browser)
    yield pages
    pages.close()
    assert not pages.complaints
