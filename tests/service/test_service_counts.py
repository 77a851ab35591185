"""Numbers of the pages: when they were counted, and what an action changes; deaths on the page of the strategy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings
from queue_db.service.live import diagnosis
from queue_db.service.live.diagnosis import Watch
from queue_db.service.pages.numbers import Race
from tests.patience import PATIENCE
from tests.service.test_service_pages import look, submit

Serve = Callable[[Settings], httpx2.Client]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    """A database of its own, with a job since 2001, which has been due for long."""
    url = f"sqlite:///{tmp_path_factory.mktemp('counts')}/queue.db"
    with QueueDB(url, clock=lambda: 1_000_000_000_000_000) as old:
        old.migrate()
        old.queue("old").enqueue("mail")
    with QueueDB(url) as db:
        yield db


def test_pages_show_when_jobs_were_counted_and_an_action_forgets_the_rest(db: QueueDB, serve: Serve) -> None:
    queue = db.queue("mail")
    queue.enqueue("send")
    queue.claim()[0].bury("no")
    job_id = queue.enqueue("send", max_attempts=1)
    assert db.metrics.take()
    client = serve(Settings(closed=False))
    for path in ("/", "/queues/mail", "/jobs?queue=mail", "/dead"):
        page = look(client, path)
        assert "counted" in page, path
        assert "not counted yet" not in page, path
    assert "not counted yet" in look(client, "/queues/unknown")
    assert "1 since yesterday" in look(client, "/")
    queue.claim()[0].fail(ValueError("no"))
    db.metrics.flush()
    submit(client, f"/jobs/{job_id}", "/redrive")
    assert "2 since yesterday" in look(client, "/")  # deaths are remembered for a minute


@pytest.mark.parametrize("quick", [True, False])
def test_after_an_action_the_findings_are_looked_for_again(db: QueueDB, monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    """Not where a look takes long: people could make the database do nothing else."""
    monkeypatch.setattr(diagnosis, "_EVERY", 1e9)
    monkeypatch.setattr(diagnosis, "_QUICK", 1e9 if quick else -1.0)
    watch = Watch(db)
    db.queue("old").pause()
    assert "it is paused" in until(watch, "it is paused")
    db.queue("old").resume()
    assert "it is paused" in text_of(watch)
    watch.forget()
    if quick:
        assert until(watch, "no registered worker")
    else:
        assert "it is paused" in text_of(watch)


def until(watch: Watch, words: str) -> str:
    """The findings, once these words are among them."""
    for _ in range(int(PATIENCE / 0.05)):
        if words in text_of(watch):
            return text_of(watch)
        threading.Event().wait(0.05)
    pytest.fail(f"never found: {words}")


def text_of(watch: Watch) -> str:
    return " ".join(one.sentence for one in watch.look().found or ())


def test_the_strategy_page_shows_deaths(db: QueueDB, serve: Serve) -> None:
    queue = db.queue("print")
    queue.enqueue_many([("send", n) for n in range(6)])
    jobs = queue.claim(6)
    queue.complete_many(jobs[:1])
    queue.fail_many(jobs[1:3], ValueError("no"), retry_in=600)
    for job in jobs[3:]:
        job.bury("no")
    db.metrics.flush()
    row = next(text for text in serve(Settings(closed=False)).get("/strategy").text.split("<tr") if 'data-row="print"' in text)
    cells = [cell.partition(">")[2].partition("<")[0] for cell in row.split("<td")[1:]]
    assert cells[:3] == ["1", "2", "3"]  # completed, failed, died


def test_a_job_that_died_was_won() -> None:
    assert Race("mail", completed=1, missed=2, lost=0, failed=0, died=1).ratio == 0.5
