"""Write the pictures of the dashboard into docs. ``python -m tools.dashboard_pictures``, in the project's environment.

It makes the database of a shop in a temporary folder (``tools/shop.py``), serves it, and takes pictures with Chromium, which must
be on PATH. The jobs are a shop's; what the last hour was like is made up (``history`` below).
"""

import math
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import delete, insert

from queue_db import QueueDB
from queue_db.monitoring.tables import COUNTS, DEPTHS, monitoring_tables
from queue_db.service import Settings, service
from queue_db.service.http.server import server
from queue_db.store import Transaction
from tools.shop import ODD, fill

TARGET = Path(__file__).resolve().parent.parent / "docs"

DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2}
DARK = {"color_scheme": "dark"}

#: File, page, and how it is looked at.
PICTURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("dashboard.png", "/", DESKTOP),
    ("dashboard-dark.png", "/queues/mail", DESKTOP | DARK),
    ("dashboard-jobs.png", "/jobs?queue=mail&state=scheduled", DESKTOP),
    ("dashboard-workers.png", "/workers", DESKTOP),
    ("dashboard-phone.png", "/", PHONE | DARK),
)

#: Queue, jobs due, jobs in a second, and dead jobs, on average.
LAST_HOUR = (("mail", 30, 12.0, 6), ("thumbnails", 18, 3.5, 0), ("reports", 8, 0.2, 0), ("clicks", 80, 40.0, 0))

_STEP = 10_000_000


def history(db: QueueDB) -> None:
    """Samples of an hour that a shop might have had, up to now."""
    table, rows, luck = monitoring_tables(db.store.tables).metrics, [], random.Random(7)
    now = time.time_ns() // 1000 // _STEP * _STEP
    for queue, due, rate, dead in LAST_HOUR:
        for step in range(360, 0, -1):
            wave = 1 + 0.5 * math.sin(step / 40) + luck.uniform(-0.15, 0.15) + (2.5 if 60 < step < 90 and queue == "mail" else 0)
            done = max(0, round(rate * 10 * luck.uniform(0.8, 1.2)))
            rows.append(
                {
                    **dict.fromkeys((*DEPTHS, *COUNTS), 0),
                    "queue": queue,
                    "width": 10,
                    "at": now - step * _STEP,
                    "duration": 4_000,
                    "available": round(due * wave),
                    "running": 6,
                    "scheduled": 12,
                    "dead": dead,
                    "oldest": round(400_000 * wave),
                    "completed": done,
                    "failed": done // 60,
                }
            )
    db.core.write("write", _write, table, rows)


def _write(tx: Transaction, table: Any, rows: list[dict[str, Any]]) -> None:
    tx.connection.execute(delete(table))
    tx.connection.execute(insert(table), rows)


@contextmanager
def shop() -> Iterator[QueueDB]:
    """The shop's database, in a folder and of a worker whose names are not those of this machine: pages show both."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), QueueDB("sqlite:///shop.db", worker="web-1-4710") as db:
        db.migrate()
        fill(db)
        yield db


def main() -> int:
    """Write them."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("apt-get install chromium", file=sys.stderr)
        return 1
    with shop() as db:
        db.queue(ODD).purge()
        history(db)
        running = server(service(db, Settings(closed=False)), port=0)
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            while not running.started:
                time.sleep(0.01)
            port = running.servers[0].sockets[0].getsockname()[1]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
                for name, page, look in PICTURES:
                    picture(browser, f"http://127.0.0.1:{port}{page}", TARGET / name, look)
                browser.close()
        finally:
            running.should_exit = True
            thread.join()
    return 0


def picture(browser: Browser, address: str, target: Path, look: dict[str, Any]) -> None:
    """Take one."""
    context = browser.new_context(reduced_motion="reduce", **look)
    page = context.new_page()
    page.goto(address, wait_until="networkidle")
    page.screenshot(path=target)
    context.close()
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
