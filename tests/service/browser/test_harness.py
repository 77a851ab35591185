"""What the other tests of pages rely on: the harness sees what it must see, and leaves the process as it was."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.patience import PATIENCE
from tests.service.browser import chromium
from tests.service.browser.watched import Watched, barriers, too_wide

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'"

BODIES = {
    "/fine": "<main><h1>Fine</h1></main>",
    "/inline": "<main><h1>Script</h1></main><script>document.title = 'ran'</script>",
    "/style": "<main><h1 style='color: red'>Style</h1></main>",
    "/missing": "<main><h1>Missing</h1><img src='/nothing.png' alt='nothing'></main>",
    "/script": "<main><h1>Error</h1></main><script src='/wrong.js'></script>",
    "/barrier": "<main><h1>Pale</h1><p class='pale'>pale</p><input></main>",
    "/wide": "<main><h1>Wide</h1><div class='wide'>wide</div></main>",
}

STYLE = ".pale { color: #ddd; background: #fff } .wide { width: 3000px }"


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = {"/wrong.js": "throw new Error('wrong')", "/look.css": STYLE, "/favicon.ico": ""}.get(self.path)
        kind = {"js": "text/javascript", "css": "text/css"}.get(self.path.rpartition(".")[2], "text/html; charset=utf-8")
        if self.path in BODIES:
            head = "<title>Page</title><meta name='viewport' content='width=device-width'><link rel='stylesheet' href='/look.css'>"
            found = f"<!doctype html><html lang='en'><head>{head}</head><body>{BODIES[self.path]}</body></html>"
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write((found or "").encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def base() -> Iterator[str]:
    """The address of a server of `BODIES`. Comes before `watched` in a test, so that the pages close first: Chromium asks for a
    favicon when it likes, and a server that is gone is a complaint.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, name="pages")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def test_a_page_without_faults_passes(base: str, watched: Watched) -> None:
    for look in ("desktop", "phone"):
        page = watched.page(base, look)
        page.goto("/fine")
        assert not barriers(page)
        assert not too_wide(page)


@pytest.mark.parametrize(
    ("path", "complaint"), [("/inline", "script"), ("/style", "style"), ("/missing", "404"), ("/script", "wrong")]
)
def test_a_fault_is_seen(base: str, browser: Browser, path: str, complaint: str) -> None:
    pages = Watched(browser)
    pages.page(base).goto(path)
    pages.close()
    assert any(complaint in one.lower() for one in pages.complaints), pages.complaints


def test_a_barrier_is_seen(base: str, watched: Watched) -> None:
    page = watched.page(base)
    page.goto("/barrier")
    found = " ".join(barriers(page))
    assert "color-contrast" in found
    assert "label" in found


def test_a_page_that_is_wider_than_a_phone_is_seen(base: str, watched: Watched) -> None:
    page = watched.page(base, "phone")
    page.goto("/wide")
    assert too_wide(page)


def test_the_next_file_can_have_a_loop_of_its_own() -> None:
    def use() -> None:
        program, environment = chromium.find()
        with sync_playwright() as playwright:
            playwright.chromium.launch(executable_path=program, chromium_sandbox=False, env={**os.environ, **environment}).close()
        asyncio.run(asyncio.sleep(0))

    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            use()
        except BaseException as error:  # noqa: BLE001 - the thread's error is the test's
            failed.append(error)

    thread = threading.Thread(target=guarded, name="the next file")
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not failed
