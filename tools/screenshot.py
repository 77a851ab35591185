#!/usr/bin/env python3
"""Write docs/top.svg: a frame of ``queue-db top`` on a live queue. ``python tools/screenshot.py``, in the project's environment.

It starts two worker processes on a database in a temporary folder, enqueues jobs, runs the command in a pseudo-terminal for some
seconds, and draws the last frame. Nothing of it is invented, so the numbers differ from run to run.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from queue_db import QueueDB

TARGET = Path(__file__).resolve().parent.parent / "docs" / "top.svg"
COLUMNS, SECONDS = 138, 20

SHOP = """
import random, time
from queue_db import QueueDB
from queue_db.worker import Worker

db = QueueDB("sqlite:///shop.db")
worker = Worker(db, queues={"mail": 8, "thumbnails": 4, "reports": 2})

@worker.handles("send", max_attempts=1)
def send(job):
    time.sleep(random.uniform(0.02, 0.1))
    if job.payload % 97 == 0:
        raise ValueError("mailbox full")

@worker.handles("scale")
def scale(job):
    time.sleep(random.uniform(0.1, 0.3))

@worker.handles("monthly")
def monthly(job):
    for page in range(100):
        job.progress(page / 100)
        time.sleep(0.3)
"""

# A web font would be loaded from another host.
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> int:
    """Write the drawing."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(SHOP)
        text = last_frame(folder)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), soft_wrap=True)
    svg = console.export_svg(title="queue-db top", theme=DIMMED_MONOKAI)
    svg = _WEB_FONT.sub("", svg).replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    TARGET.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")
    return 0


def last_frame(folder: str) -> str:
    """Run two workers and the command on the same queues; return what the command showed last."""
    program = str(Path(sys.executable).with_name("queue-db"))
    environment = dict(os.environ, QUEUE_DB_URL="sqlite:///shop.db", COLUMNS=str(COLUMNS), LINES="30", TERM="xterm-256color")
    here = Path.cwd()
    os.chdir(folder)
    with QueueDB("sqlite:///shop.db") as db:
        db.migrate()
        db.queue("mail").enqueue_many(("send", number) for number in range(12_000))
        db.queue("mail").enqueue_many(("send", number, {"delay": 3600}) for number in range(350))
        db.queue("thumbnails").enqueue_many(("scale", number, {"group": f"album-{number % 12}"}) for number in range(900))
        db.queue("reports").enqueue_many(("monthly", number) for number in range(6))
        db.queue("reports").limit(concurrency=3)
        workers = subprocess.Popen(
            [program, "work", "shop:worker", "--processes", "2", "--grace", "0"], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(6)
            return frame_of([program, "top", "--every", "1"], environment)
        finally:
            workers.terminate()
            workers.wait()
            os.chdir(here)


def frame_of(command: list[str], environment: dict[str, str]) -> str:
    """Run a live view in a pseudo-terminal; return its last whole frame with the colours."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the command itself is the child
    seen, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            break
    os.kill(child, 2)
    os.waitpid(child, 0)
    frames = seen.decode(errors="ignore").split("\x1b[H")
    return frames[-2].replace("\r", "").rstrip()


if __name__ == "__main__":
    sys.exit(main())
