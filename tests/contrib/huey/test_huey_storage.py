"""What Huey's own tests of a storage leave: transactions, processes that want the same, what is kept apart, killed consumers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from huey.constants import EmptyData
from huey.exceptions import ConfigurationError

from queue_db import ConfigurationError as QueueConfigurationError
from queue_db import QueueDB, TransientStorageError
from queue_db.contrib.huey import QueueHuey, QueueStorage, publishing_in
from tests.patience import PATIENCE, wait_for

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "huey.md"


class RolledBack(Exception):
    """Ends a transaction without a commit."""


@pytest.fixture
def open_storage(url: str, name: str) -> Iterator[Callable[..., QueueStorage]]:
    """``open_storage(name=…)``: a storage of the shared database, closed after the test."""
    opened: list[QueueStorage] = []

    def open_it(**options: Any) -> QueueStorage:
        opened.append(QueueStorage(**{"name": name, "database": url} | options))
        return opened[-1]

    yield open_it
    for storage in opened:
        storage.flush_all()
        storage.close()


@pytest.mark.parametrize("fail", [True, False])
def test_a_task_is_enqueued_with_the_transaction_or_not_at_all(open_storage, db, name, fail):
    huey = QueueHuey(name, database=db)

    @huey.task()
    def welcome(user):
        return user

    with suppress(RolledBack), db.queue(name).transaction() as connection:
        with publishing_in(connection):
            welcome(7)
        if fail:
            raise RolledBack
    assert huey.pending_count() == (0 if fail else 1)
    welcome(8)
    assert huey.pending_count() == (1 if fail else 2)
    huey.flush()


def test_a_thread_that_outlives_the_block_is_refused(open_storage, db, name):
    huey = QueueHuey(name, database=db)

    @huey.task()
    def welcome(user):
        return user

    with db.queue(name).transaction() as connection, publishing_in(connection):
        context = copy_context()
    with pytest.raises(QueueConfigurationError, match="the block of publishing_in"):
        context.run(welcome, 7)
    assert huey.pending_count() == 0


def test_the_job_of_another_program_is_dropped_by_name_and_is_not_pending(open_storage, db, name, caplog):
    storage = open_storage()
    foreign = db.queue(name).enqueue("of another", {"a": 1})
    storage.enqueue(b"mine")
    assert storage.enqueued_items() == [b"mine"]
    assert storage.dequeue() == b"mine"
    assert storage.dequeue() is None
    assert f"job {foreign} (of another) in '{name}' is no task of Huey, and was dropped" in caplog.text


def test_a_change_that_the_database_gave_up_is_made_again(open_storage, monkeypatch):
    storage = open_storage()
    put, refused = storage._tables.put, []

    def refuse_once(*arguments: Any) -> None:
        put(*arguments)
        if not refused:
            refused.append(1)
            raise TransientStorageError("deadlock")

    monkeypatch.setattr(storage._tables, "put", refuse_once)
    storage.put_data("key", b"v")
    assert (refused, storage.peek_data("key")) == ([1], b"v")


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_schedule_is_that_of_all_hosts_wherever_they_are(open_storage, monkeypatch):
    storage, due = open_storage(), datetime(2026, 7, 1, 12)  # noqa: DTZ001 - as Huey has them
    try:
        for zone, until, taken in (("America/New_York", -1, []), ("Asia/Tokyo", -1, []), ("Asia/Tokyo", 0, [b"t"])):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            if not taken and zone == "America/New_York":
                storage.add_to_schedule(b"t", due)
            assert storage.read_schedule(due + timedelta(seconds=until)) == taken
    finally:
        monkeypatch.undo()
        time.tzset()


def together(storages: list[QueueStorage], change: Callable[[QueueStorage], Any]) -> list[Any]:
    """Call it for each storage at the same moment."""
    barrier = threading.Barrier(len(storages))

    def run(storage: QueueStorage) -> Any:
        barrier.wait(PATIENCE)
        return change(storage)

    with ThreadPoolExecutor(len(storages)) as pool:
        return list(pool.map(run, storages))


def test_of_several_processes_one_has_a_lock_and_one_gets_a_value(open_storage):
    storages = [open_storage() for _ in range(4)]
    for number in range(10):
        key = f"key-{number}"
        assert sorted(together(storages, lambda one, key=key: one.put_if_empty(key, b"v"))) == [False, False, False, True]
        got = together(storages, lambda one, key=key: one.pop_data(key))
        assert sorted(value is EmptyData for value in got) == [False, True, True, True]


def test_counters_and_first_values_of_several_processes(open_storage):
    storages = [open_storage() for _ in range(4)]
    for number in range(5):
        counted = together(storages, lambda one, number=number: one.incr(f"counter-{number}"))
        assert sorted(counted) == [1, 2, 3, 4]
        together(storages, lambda one, number=number: one.put_data(f"key-{number}", b"v"))
        assert storages[0].peek_data(f"key-{number}") == b"v"


def test_a_scheduled_task_is_taken_once(open_storage):
    storages = [open_storage() for _ in range(3)]
    for number in range(20):
        storages[0].add_to_schedule(b"%d" % number, datetime(2020, 1, 1 + number))  # noqa: DTZ001 - as Huey has them
    taken = together(storages, lambda one: one.read_schedule(datetime(2021, 1, 1)))  # noqa: DTZ001 - as Huey has them
    assert sorted(int(data) for some in taken for data in some) == list(range(20))


def test_storages_of_two_names_share_nothing_and_keys_differ_by_case(open_storage, name):
    mine, other = open_storage(), open_storage(name=f"{name}-other")
    mine.put_data("Key", b"\x00\xff" * 100_000)  # longer than a BLOB of MySQL
    mine.put_data(b"key", b"")
    assert (mine.peek_data("Key"), mine.peek_data("key")) == (b"\x00\xff" * 100_000, b"")
    assert other.peek_data("Key") is EmptyData
    mine.incr("c")
    mine.enqueue(b"\x00\xff")
    other.flush_all()
    assert (mine.queue_size(), mine.result_store_size(), mine.incr("c")) == (1, 2, 2)
    assert mine.dequeue() == b"\x00\xff"


def test_a_lock_expires_by_the_clock_of_the_database(url, name):
    now = 1_000_000_000
    with QueueDB(url, clock=lambda: now) as db:
        storage = QueueStorage(name, db)
        assert storage.put_if_empty("lock", b"a", ttl=10)
        now += 9_990_000
        assert not storage.put_if_empty("lock", b"b", ttl=10)
        assert (storage.peek_data("lock"), storage.result_store_size()) == (b"a", 1)
        now += 10_000
        assert (storage.peek_data("lock"), storage.result_store_size(), storage.peek_many(["lock"])) == (EmptyData, 0, {})
        assert storage.pop_data("lock") is EmptyData
        assert storage.put_if_empty("lock", b"c", ttl=10)
        assert storage.pop_data("lock") == b"c"


def test_tables_that_are_missing_are_named(fresh_url):
    with QueueDB(fresh_url) as db:
        db.migrate()
    with pytest.raises(ConfigurationError, match="huey_counters"):
        QueueStorage(database=fresh_url, create_tables=False)
    QueueStorage(database=fresh_url).close()
    QueueStorage(database=fresh_url, create_tables=False).close()
    with pytest.raises(ConfigurationError, match="database="):
        QueueStorage()


MORE = """

@huey.task()
def work(folder, number):
    import os
    import pathlib
    import time

    (pathlib.Path(folder) / f"begun-{number}").write_text(str(os.getpid()))
    while "HOLD" in os.environ:
        time.sleep(1)
    (pathlib.Path(folder) / f"done-{number}").touch()
"""


@pytest.mark.rest("processes of Huey")
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
def test_a_killed_consumer_loses_what_it_runs_as_the_page_says(url, name, tmp_path):
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code, replaced = re.subn(r'QueueHuey\("shop", database="[^"]*"\)', f'QueueHuey("{name}", database="{url}")', block[1])
    assert replaced == 1
    (tmp_path / "shop.py").write_text(code + MORE)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"}
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "shop.huey"]

    def consumer(**more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=tmp_path, env=environment | more, stderr=subprocess.DEVNULL, start_new_session=True)

    calls = f"import shop\nfor number in range(3): shop.work({str(tmp_path)!r}, number)"
    subprocess.run([sys.executable, "-c", calls], cwd=tmp_path, env=environment, check=True)
    first = consumer(HOLD="1")
    try:
        wait_for(lambda: [one for one in tmp_path.glob("begun-*") if one.read_text()])
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        second = consumer()
        try:
            wait_for(lambda: len([*tmp_path.glob("done-*")]) == 2)
            with QueueDB(url) as db:
                assert db.next_due([name]) == {name: None}
            os.kill(second.pid, signal.SIGINT)
            second.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(second.pid, signal.SIGKILL)
            second.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert sorted(path.name for path in tmp_path.glob("done-*")) == ["done-1", "done-2"]
