"""A migration while others write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import text

from queue_db import QueueDB, StorageError
from tests.migrations.conftest import run

#: The state of a migration 0015 that was cut off in the middle: code of both revisions can write.
_CUT_OFF = (
    "ALTER TABLE jobs DROP INDEX jobs_unique_key, ADD UNIQUE INDEX jobs_unique_key (queue, unique_key)",
    "UPDATE jobs_schema_version SET version_num = '0014'",
)


def writes(db: QueueDB, number: int, ended: threading.Event) -> None:
    queue = db.queue("q")
    while not ended.is_set():
        with suppress(StorageError):
            for how in ("skip", "replace", "debounce"):
                queue.enqueue("k", 1, unique_key=f"{number % 2} {how}", on_duplicate=how)
            for job in queue.claim(3):
                job.complete()


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")
def test_the_index_of_unique_keys_is_sound_after_a_migration_under_load(empty: QueueDB) -> None:
    """On MariaDB, what was written during the statement came into the index without its queue."""
    empty.migrate()
    for number in range(20):
        rows = ", ".join(f"('other {number}', '1', '{place}')" for place in range(1000))
        run(empty, f"INSERT INTO jobs (queue, payload, unique_key) VALUES {rows}")
    ended = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(writes, empty, number, ended) for number in range(4)]
        try:
            for _ in range(3):
                run(empty, *_CUT_OFF)
                empty.migrate(revision="0015")
        finally:
            ended.set()
    assert [one.result() for one in writers] == [None] * 4
    run(empty, "DELETE FROM jobs WHERE queue = 'q'")  # a wrong entry stays
    with empty.database.engine.connect() as connection:
        checked = [row.Msg_text for row in connection.execute(text("CHECK TABLE jobs EXTENDED"))]
    assert checked == ["OK"]
