"""``python -m benchmarks tabs``: what a dashboard that is left open costs the database, beside a busy worker."""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table
from sqlalchemy import make_url, text
from starlette.routing import NoMatchFound

from benchmarks.running import addresses, ended, exit_on_sigterm, say
from queue_db import QueueDB, QueueDBError
from queue_db.service import Settings, service
from queue_db.service.http.server import server
from queue_db.service.pages.navigation import MENU
from queue_db.worker import Worker

_EPILOG = """\
how it measures:
  A worker process executes empty jobs, which come at a steady rate. A service process serves the dashboard to Chromium, which
  must be on PATH: each tab is a visible window on one page of the menu, and refreshes as it does for a person. Every second the
  processor time of each server process is read, so the server must be a PostgreSQL on this machine. share: processor time of the
  service's connections ÷ that of all processes of the server.
"""

_QUEUE = "bench"
_DASHBOARD = "queue_db dashboard"


def _serve(url: str, ready: Connection) -> None:
    with QueueDB(url) as db:
        app = service(db, Settings(closed=False))
        running = server(app, port=0)
        thread = threading.Thread(target=lambda: _announce(running, app, ready), daemon=True)
        thread.start()
        running.run()


def _announce(running: Any, app: Any, ready: Connection) -> None:
    while not running.started:
        time.sleep(0.01)
    ready.send((running.servers[0].sockets[0].getsockname()[1], _pages(app)))


def _pages(app: Any) -> list[str]:
    found = [f"/queues/{_QUEUE}"]
    for place in (place for _, places in MENU for place in places):
        with suppress(NoMatchFound):
            found.append(str(app.router.url_path_for(place.route)))
    return found


def _work(url: str) -> None:
    with QueueDB(url) as db:
        worker = Worker(db, _QUEUE, concurrency=10)
        worker.handles("n")(lambda job: None)
        worker.run()


@contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join(30)
        process.kill()


class Spent:
    """Processor seconds of a PostgreSQL server's processes, by the name of the program that is connected."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db
        self._seen: dict[int, tuple[float, float]] = {}
        self.seconds: Counter[str] = Counter()
        self.look(first=True)

    def look(self, *, first: bool = False) -> None:
        """Add what was spent since the last look."""
        with self._db.database.engine.connect() as connection:
            rows = connection.execute(text("SELECT pid, application_name FROM pg_stat_activity")).all()
            server_pid = psutil.Process(connection.execute(text("SELECT pg_backend_pid()")).scalar_one()).ppid()
        names: dict[int, str] = {int(pid): str(name) for pid, name in rows}
        for pid in [server_pid, *(child.pid for child in psutil.Process(server_pid).children(recursive=True))]:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                began, spent = process.create_time(), sum(process.cpu_times()[:2])
                before = self._seen.get(pid)
                known = before[1] if before and before[0] == began else (spent if first else 0.0)
                self.seconds[names.get(pid) or "server"] += spent - known
                self._seen[pid] = began, spent


def _feed(db: QueueDB, rate: int, stop: threading.Event) -> None:
    queue = db.queue(_QUEUE)
    while not stop.wait(0.1):
        queue.enqueue_many(("n", None) for _ in range(max(1, rate // 10)))


def _measure(url: str, asked: argparse.Namespace, program: str) -> None:
    seen_as = make_url(url).update_query_dict({"application_name": _DASHBOARD}).render_as_string(hide_password=False)
    with ExitStack() as stack:
        db = stack.enter_context(QueueDB(url))
        db.migrate()
        stack.enter_context(_process(_work, url))
        ready, theirs = multiprocessing.Pipe(duplex=False)
        process = psutil.Process(stack.enter_context(_process(_serve, seen_as, theirs)).pid)
        if not ready.poll(60):
            raise TimeoutError("the service did not start within a minute")
        port, pages = ready.recv()
        stop = threading.Event()
        feeding = threading.Thread(target=_feed, args=(db, asked.rate, stop))
        feeding.start()
        stack.callback(feeding.join)
        stack.callback(stop.set)
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=program, chromium_sandbox=False)
        stack.callback(browser.close)
        answers: Counter[int] = Counter()
        for number in range(asked.tabs):
            tab = browser.new_page()
            tab.on("response", lambda response: answers.update([response.status]))
            tab.goto(f"http://127.0.0.1:{port}{pages[number % len(pages)]}")
        answers.clear()
        spent, memory, began = Spent(db), process.memory_info().rss / 1e6, time.perf_counter()
        used = sum(process.cpu_times()[:2])
        while (passed := time.perf_counter() - began) < asked.seconds:
            tab.wait_for_timeout(1000)
            spent.look()
            if int(passed) // 60 != int(passed - 1) // 60:
                say(f"{passed:,.0f} of {asked.seconds:,} s: {_share(spent):.2%} of the server's time")
        _show(db, spent, answers, passed, (memory, process.memory_info().rss / 1e6, sum(process.cpu_times()[:2]) - used), asked)


def _share(spent: Spent) -> float:
    return spent.seconds[_DASHBOARD] / max(1e-9, spent.seconds.total())


def _show(
    db: QueueDB, spent: Spent, answers: Counter[int], passed: float, used: tuple[float, float, float], asked: argparse.Namespace
) -> None:
    shown = Table(title=f"{db.database.server}: {asked.tabs} tabs for {passed:,.0f} s, {asked.rate:,} jobs/s")
    for column in ("share of the server's time", "server, s", "dashboard, s", "of one core", "answers", "not 200", "MB", "s"):
        shown.add_column(column, justify="right")
    dashboard, whole = spent.seconds[_DASHBOARD], spent.seconds.total()
    shown.add_row(
        f"{_share(spent):.2%}",
        f"{whole:,.1f}",
        f"{dashboard:,.2f}",
        f"{dashboard / passed:.2%}",
        f"{answers.total():,}",
        f"{answers.total() - answers[200]:,}",
        f"{used[0]:.0f} → {used[1]:.0f}",
        f"{used[2]:.1f}",
    )
    Console(width=130).print(shown)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks tabs",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", action="append", metavar="URL", help="PostgreSQL on this machine. Without: a private one")
    parser.add_argument("--tabs", type=int, default=10, metavar="N", help="tabs (default 10)")
    parser.add_argument("--seconds", type=int, default=3600, metavar="N", help="how long (default 3600)")
    parser.add_argument("--rate", type=int, default=500, metavar="N", help="jobs per second (default 500)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    asked = _parse(arguments)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.stderr.write("apt-get install chromium\n")
        return 1
    exit_on_sigterm()
    try:
        with addresses(asked.url, {"PostgreSQL"}) as urls:
            for url in urls:
                _measure(url, asked, program)
    except (KeyboardInterrupt, QueueDBError) as error:
        return ended(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
