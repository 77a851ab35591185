"""What the tables must have that no query of the library would miss at first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine, make_url, text

from queue_db import Queue, QueueDB
from tests.migrations.conftest import ask, run

INNODB = pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_jobs_table_is_told_that_its_rows_change_often(empty: QueueDB) -> None:
    empty.migrate()
    options = set(ask(empty, "SELECT reloptions FROM pg_class WHERE relname = 'jobs' AND relkind = 'r'"))
    assert {
        "fillfactor=50",
        "autovacuum_vacuum_scale_factor=0",
        "autovacuum_vacuum_threshold=5000",
        "autovacuum_vacuum_cost_delay=0",
    } <= options
    assert ask(empty, "SELECT indexdef FROM pg_indexes WHERE indexname = 'jobs_unique_key'").endswith("(unique_key IS NOT NULL)")


@pytest.fixture
def latin(kind: str, shared_urls: Callable[[str], str]) -> Iterator[QueueDB]:
    """A migrated database whose own character set is latin1."""
    shared = make_url(shared_urls(kind))
    name = f"{shared.database}_latin"
    admin = create_engine(shared, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET latin1"))
        try:
            with QueueDB(shared.set(database=name)) as db:
                db.migrate()
                yield db
        finally:
            connection.execute(text(f"DROP DATABASE {name}"))
    admin.dispose()


@INNODB
def test_innodb_and_a_binary_collation_also_where_the_servers_defaults_are_others(latin: QueueDB) -> None:
    facts = "table_name, engine, table_collation FROM information_schema.tables"
    with latin.database.engine.connect() as connection:
        query = text(f"SELECT {facts} WHERE table_schema = database() AND table_name LIKE 'jobs%'")
        found = {row[0]: (row[1], row[2]) for row in connection.execute(query)}
        assert found["jobs"] == found["jobs_dead"] == ("InnoDB", "utf8mb4_bin")
        query = text(
            "SELECT count(*) FROM information_schema.columns WHERE table_schema = database() "
            "AND table_name IN ('jobs', 'jobs_dead') AND collation_name <> 'utf8mb4_bin'"
        )
        assert connection.execute(query).scalar_one() == 0
    face = "\N{GRINNING FACE}"
    latin.queue(face).enqueue(face, face, unique_key=face)
    (job,) = latin.queue(face).claim()
    assert (job.kind, job.payload, job.unique_key) == (face, face, face)


@INNODB
def test_groups_run_one_job_at_a_time_also_where_the_servers_defaults_are_others(latin: QueueDB) -> None:
    """Keys that latin1 lacks, keys that its collation takes for the same, and keys that JSON escapes."""
    keys = ["ключ", "ключи", "\N{GRINNING FACE}", "日本", "é", "e", "ß", "ss", "A", "a", "?", "????", "\"\\'"]
    keys.append("\N{GRINNING FACE}" * 200)
    queue = latin.queue("q")
    for job in range(3):
        queue.enqueue_many([("k", [job, key], {"group": key}) for key in keys])
    for job in range(3):
        claimed = queue.claim(1000)
        assert sorted(one.payload for one in claimed) == sorted([job, key] for key in keys)
        queue.complete_many(claimed)
    assert queue.claim(1000) == []


def test_names_and_keys_keep_their_case_and_accents(db: QueueDB, name: str) -> None:
    mails = [f"{name}-{word}" for word in ("mail", "Mail", "MAIL", "maïl", "mail\N{COMBINING DIAERESIS}")]
    for mail in mails:
        assert db.queue(mail).enqueue("k", mail) is not None
    for mail in mails:
        assert [job.payload for job in db.queue(mail).claim(10)] == [mail]
    queue = db.queue(name)
    keys = ["key", "Key", "kéy", "ke\N{COMBINING ACUTE ACCENT}y", "straße", "strasse"]
    ids = queue.enqueue_many([("k", key, {"unique_key": key}) for key in keys])
    assert len(set(ids)) == len(keys)
    assert [queue.enqueue("k", unique_key=key, on_duplicate="skip") for key in keys] == [None] * len(keys)


def test_an_id_is_never_used_again(queue: Queue) -> None:
    last = 0
    for _ in range(3):
        job_id = queue.enqueue("k")
        assert job_id is not None
        assert job_id > last
        last = job_id
        queue.claim()[0].complete().require()


def test_an_insert_by_hand_needs_a_queue_and_a_payload_and_no_more(queue: Queue) -> None:
    run(queue.db, f"INSERT INTO jobs (queue, payload) VALUES ('{queue.name}', 'null'), ('{queue.name}', '7')")
    first, second = queue.claim(10)
    assert (first.payload, second.payload) == (None, 7)
    assert first.kind == second.kind == "default"
    assert first.complete()
    assert second.fail("later")


@INNODB
@pytest.mark.parametrize("upgraded", [False, True])
def test_a_claim_makes_no_row_longer(empty: QueueDB, fresh_url: str, upgraded: bool) -> None:
    """Full pages of jobs stay as many. With a column that the server adds without writing the rows, they would not."""
    if upgraded:
        empty.migrate(revision="0013")
        run(empty, "INSERT INTO jobs (queue, payload) VALUES ('other', '1')")
    empty.migrate()
    before = "INSERT INTO jobs (queue, payload) VALUES " + ", ".join(["('q', '123456789')"] * 2_000)
    run(empty, before)
    full = leaf_pages(empty)
    with QueueDB(fresh_url, worker="w" * 39) as db:
        assert len(db.queue("q").claim(2_000)) == 2_000
    assert leaf_pages(empty) == full
    run(empty, "UPDATE jobs SET last_error = 'a text of forty characters, with its end'")
    assert leaf_pages(empty) > full, "this test cannot see it"


def leaf_pages(db: QueueDB) -> int:
    """Pages of the table that have rows."""
    ask(db, "ANALYZE TABLE jobs")
    name = "database_name = database() AND table_name = 'jobs' AND index_name = 'PRIMARY' AND stat_name = 'n_leaf_pages'"
    return int(ask(db, f"SELECT stat_value FROM mysql.innodb_index_stats WHERE {name}"))
