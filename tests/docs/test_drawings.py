"""The drawings show what is there: every table of the schema, and every thread of a worker."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_db import QueueDB
from queue_db.store.schema.tables import tables
from queue_db.worker import Worker
from queue_db.worker.maintenance import MOST_THREADS
from tests.patience import PATIENCE
from tools import drawings

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", list(drawings.drawings()))
def test_drawings_are_written_from_their_texts(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == drawings.drawings()[name], "run: python tools/drawings.py"


@pytest.mark.parametrize("name", list(drawings.drawings()))
def test_nothing_is_cut_at_the_edge_of_a_drawing(name: str) -> None:
    svg = drawings.drawings()[name]
    width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', svg)[0])
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"', svg)
    assert boxes
    assert texts
    assert max(float(x) + float(wide) for x, _, wide, _ in boxes) <= width
    assert max(float(y) + float(high) for _, y, _, high in boxes) <= height
    assert max(float(y) for _, y in texts) <= height


def test_the_drawing_of_the_tables_has_every_table() -> None:
    here = tables()
    drawn = {f"jobs{suffix}" for rows in drawings.TABLES.values() for suffix, *_ in rows}
    assert drawn == {*here.metadata.tables, here.version}
    reference = (DOCS / "reference.md").read_text()
    assert [name for name in drawn if f"`{name}`" not in reference] == []


def test_the_reference_has_every_column_of_a_job() -> None:
    section = (DOCS / "reference.md").read_text().split("\n## Tables")[1]
    text = section.split("\n`jobs`: ")[1].split("\n\n")[0]
    assert [column.name for column in tables().jobs.columns if f"`{column.name}`" not in text] == []


def test_the_drawing_of_the_worker_has_every_thread(tmp_path: Path) -> None:
    with QueueDB(f"sqlite:///{tmp_path}/threads.db") as db:
        db.migrate()
        worker = Worker(db, "drawn")
        claimed = threading.Event()
        worker.handles("function", timeout=60)(lambda job: claimed.set())

        @worker.handles("coroutine")
        async def coroutine(job):
            return None

        with worker:
            # The claimer is the last to start.
            db.queue("drawn").enqueue("function")
            assert claimed.wait(PATIENCE)
            running = set(threads_of("drawn"))
    drawn = {title for title, *_ in drawings.THREADS.values()}
    called = {"handler": "handler threads", "worker": "thread of run()"}
    assert {called.get(name, name) for name in running} == drawn - {"handler processes"}


def test_the_drawing_and_the_docs_have_the_connections_of_maintenance() -> None:
    text = f"and 1 for each task that waits, up to {MOST_THREADS}"
    assert text in drawings.drawings()["worker-threads.svg"]
    assert f"| 1, briefly, {text} |" in (DOCS / "workers.md").read_text(encoding="utf-8")


def threads_of(queue: str) -> Iterator[str]:
    """The names of a worker's threads, without numbers."""
    for thread in threading.enumerate():
        if found := re.fullmatch(rf"queue_db (.*?)( \d+)? of '{queue}'", thread.name):
            yield found[1]
