"""The dashboard over many jobs: ``python -m benchmarks.dashboard [--jobs 1000000] [--kinds 10000]``.

It fills a SQLite file in a temporary folder, or the database of ``--url``, which must be empty and stays full; it serves that, and
opens each page of the menu several times with Chromium, which must be on PATH: the time until the server's answer, until the first
paint, and the bytes of the page without its style sheet and scripts.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from playwright.sync_api import Page, sync_playwright
from sqlalchemy import text
from starlette.routing import NoMatchFound

from benchmarks.filling import CHUNK, numbers, tidy
from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.http.server import server
from queue_db.service.pages.render import MENU

QUEUES = ("mail", "reports", "thumbnails")

#: Loads of each page; the first one is not counted.
LOADS = 6

#: Milliseconds from the start of the navigation.
TIMES = """() => {
  const [load] = performance.getEntriesByType("navigation");
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  return [load.responseEnd, paint ? paint.startTime : NaN, load.encodedBodySize];
}"""


def fill(db: QueueDB, jobs: int, kinds: int) -> None:
    """Jobs that are due; the database makes the rows."""
    now, engine = db.core.now(), db.database.engine
    for queue in QUEUES:
        for start in range(0, jobs // len(QUEUES), CHUNK):
            made = numbers(engine.dialect.name, min(CHUNK, jobs // len(QUEUES) - start))
            # The kinds are numbers: each database joins texts in another way.
            rows = f"SELECT '{queue}', (n + {start}) * 7 % {kinds}, 'null', {now} + {start} + n - {jobs} FROM ({made}) made"  # noqa: S608 - names and numbers of our own
            with engine.begin() as connection:
                connection.execute(text(f"INSERT INTO {db.store.tables.jobs} (queue, kind, payload, available_at) {rows}"))
    tidy(db)


def measure(page: Page, address: str) -> tuple[float, float, int]:
    """Answer and first paint, milliseconds, and bytes, of several loads the median."""
    loads = []
    for _ in range(LOADS):
        page.goto(address, wait_until="networkidle")
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        loads.append(page.evaluate(TIMES))
    answers, paints, sizes = zip(*loads[1:], strict=True)
    return statistics.median(answers), statistics.median(paints), max(sizes)


def addresses(app: Any) -> list[str]:
    """The pages of the menu, and one queue's."""
    found = []
    for place in (place for places in MENU.values() for place in places):
        with suppress(NoMatchFound):
            found.append(str(app.router.url_path_for(place.route)))
    return [*found, f"/queues/{QUEUES[0]}"]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--kinds", type=int, default=10_000)
    parser.add_argument("--url", help="an empty database, which stays full; default: a SQLite file")
    given = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.stderr.write("apt-get install chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as folder, QueueDB(given.url or f"sqlite:///{folder}/queue.db") as db:
        db.migrate()
        if db.queues():
            parser.error("the database of --url has jobs")
        fill(db, given.jobs, given.kinds)
        app = service(db, Settings(closed=False))
        running = server(app, port=0)
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            while not running.started:
                time.sleep(0.01)
            port = running.servers[0].sockets[0].getsockname()[1]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
                page = browser.new_page()
                sys.stdout.write(f"{'page':16}{'answer, ms':>12}{'first paint, ms':>18}{'bytes':>10}\n")
                for path in addresses(app):
                    answer, paint, size = measure(page, f"http://127.0.0.1:{port}{path}")
                    sys.stdout.write(f"{path:16}{answer:12.0f}{paint:18.0f}{size:10,}\n")
                browser.close()
        finally:
            running.should_exit = True
            thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
