"""Code of one version on the tables of the next: it works as long as the migration only adds, and is refused otherwise."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from queue_db import QueueDB, SchemaOutOfDateError, State
from queue_db.administration import migrate as migrations
from queue_db.administration.migrate import configuration, works_since
from queue_db.store.schema.tables import HEAD, tables
from queue_db.worker import Worker
from tests.migrations.conftest import ask, run
from tests.spark.staging.conftest import load, publish, stage
from tests.spark.streams.conftest import open_stream

#: What a migration that only adds may add: columns that may be left out of an INSERT, indexes, tables.
NEXT = '''
"""What a later version adds."""

import sqlalchemy as sa
from alembic import context, op

revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None
additive = {additive}


def upgrade():
    tables = context.config.attributes["tables"]
    for table in tables.metadata.tables.values():
        op.add_column(table.name, sa.Column("later_note", sa.String(20)), schema=tables.schema)
        later_count = sa.Column("later_count", sa.Integer, nullable=False, server_default=sa.text("7"))
        op.add_column(table.name, later_count, schema=tables.schema)
    op.create_index("jobs_later", "jobs", ["later_count", "id"], schema=tables.schema)
    op.create_table("jobs_after", sa.Column("id", sa.Integer, primary_key=True), schema=tables.schema)


def downgrade():
    raise NotImplementedError
'''

Upgrade = Callable[..., None]


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """Migrate with the scripts of a package that has these migrations more, by revision: whether each says that it only adds."""

    def migrate_with(db: QueueDB, **steps: bool) -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(migrations.scripts(), folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        before = HEAD
        for name, additive in steps.items():
            revision = name.removeprefix("r")
            script = NEXT.format(revision=revision, before=before, additive=additive)
            if before != HEAD:  # nothing more to add
                script = script.split("def upgrade")[0] + "def upgrade():\n    pass\n\n\ndef downgrade():\n    pass\n"
            (folder / "versions" / f"{revision}_later.py").write_text(script)
            before = revision
        with monkeypatch.context() as newer:
            newer.setattr(migrations, "scripts", lambda: folder)
            newer.setattr("queue_db.database.schema_version.HEAD", before)
            db.migrate()
            db.check()

    return migrate_with


def test_code_works_on_newer_tables_that_only_have_additions(
    empty: QueueDB, fresh_url: str, later: Upgrade, caplog: pytest.LogCaptureFixture
) -> None:
    empty.migrate()
    empty.queue("q").enqueue("before", unique_key="before")
    later(empty, r9001=True, r9002=True)
    caplog.set_level(logging.INFO, "queue_db")
    with QueueDB(fresh_url) as db:
        _use_every_table(db)
        # Once, whatever is done.
        (line,) = [record.getMessage() for record in caplog.records if "was written for" in record.getMessage()]
        db.check()
        db.migrate()  # programs do this when they start: it neither fails nor changes anything
    assert f"are at revision 9002; this queue-db was written for {HEAD} and works with them" in line
    assert ask(empty, "SELECT version_num FROM jobs_schema_version") == "9002"
    assert ask(empty, "SELECT works_since FROM jobs_schema_version") == works_since(directory(), HEAD)


def test_a_process_that_is_running_goes_on_over_the_migration(empty: QueueDB, fresh_url: str, later: Upgrade) -> None:
    """Statements that its connections have prepared still hold."""
    empty.migrate()
    with QueueDB(fresh_url) as running:
        queue = running.queue("q")

        def rounds() -> None:
            for number in range(10):
                queue.enqueue_many(("k", number, {"max_attempts": 1}) for _ in range(4))
                first, *others = queue.claim(10)
                assert first.fail("no")
                assert all(queue.complete_many(others))
                assert [job.payload for job in (first, *others)] == [number] * 4
                assert queue.get(first.id).state is State.DEAD

        rounds()
        queue.enqueue("held")
        (held,) = queue.claim()
        later(empty, r9001=True)
        assert held.complete()
        rounds()


def test_code_is_refused_by_newer_tables_that_have_other_changes(empty: QueueDB, fresh_url: str, later: Upgrade) -> None:
    later(empty, r9001=False, r9002=True)
    with QueueDB(fresh_url) as db:
        for verb in (db.check, db.queue("q").claim, db.migrate):
            with pytest.raises(SchemaOutOfDateError, match="newer queue-db, works with 9001 or later.*upgrade the package"):
                verb()


def test_a_way_down_is_refused_by_scripts_that_do_not_know_the_way(empty: QueueDB, fresh_url: str, later: Upgrade) -> None:
    later(empty, r9001=True)
    with QueueDB(fresh_url) as db, pytest.raises(SchemaOutOfDateError, match="upgrade the package"):
        db.migrate(revision="0004")
    assert ask(empty, "SELECT version_num FROM jobs_schema_version") == "9001"


def test_tables_older_than_the_note_and_newer_than_the_code_are_refused(empty: QueueDB, fresh_url: str) -> None:
    empty.migrate()
    run(empty, "UPDATE jobs_schema_version SET version_num = '9999', works_since = NULL")
    with QueueDB(fresh_url) as db, pytest.raises(SchemaOutOfDateError, match="upgrade the package"):
        db.check()


def _use_every_table(db: QueueDB) -> None:
    """Every way in and out of a queue, as old code goes it."""
    queue = db.queue("q")
    assert queue.enqueue("again", unique_key="before", on_duplicate="skip") is None
    queue.enqueue("window", unique_key="w", unique_for=60)
    queue.enqueue_many([("many", number, {"group": "g"}) for number in range(3)])
    queue.enqueue_batch([("part", 1), ("part", 2)], then=("whole", None))
    poison = queue.enqueue("poison", max_attempts=1)
    queue.enqueue("off", delay=60)
    queue.limit(concurrency=5)
    db.schedules.set("nightly", "q", "build", cron="0 3 * * *")
    worker = Worker(db, "q", concurrency=2)
    done: list[str] = []
    for kind in ("before", "window", "many", "part", "whole"):
        worker.handles(kind, result_ttl=60)(lambda job, kind=kind: done.append(kind) or {"kind": kind})

    @worker.handles("poison")
    def poisoned(job: object) -> None:
        raise ValueError("no")

    worker.run(until_empty=True)
    assert sorted(done) == ["before", *["many"] * 3, "part", "part", "whole", "window"]
    assert db.get(poison).state is State.DEAD
    assert [error.message for error in db.errors(poison)] == ["no"]
    assert db.dead.redrive(poison) == [poison]
    (job,) = queue.claim()
    assert job.extend(30)
    assert job.snooze(60)
    assert queue.cancel(poison)
    assert len(db.finished_jobs("q")) == 8
    assert queue.stats().scheduled == 1
    queue.purge()
    assert publish(db, load("q", "app"), stage(db, ['{"n": 1}', '{"n": 2}'])).jobs == 2
    reader = open_stream(db, "q")
    start = reader.initial()
    end = reader.allocate(start)
    assert len(reader.ids(start, end)) == 2
    reader.complete(end)
    assert queue.stats().available == 0


# --- what the migrations say of themselves --------------------------------------------------------------------------------


def directory() -> ScriptDirectory:
    return ScriptDirectory.from_config(configuration(tables()))


REVISIONS = sorted(script.revision for script in directory().walk_revisions())

#: What PostgreSQL is asked by a migration that only adds.
ADDS = re.compile(r"CREATE (TABLE|INDEX|UNIQUE INDEX|VIEW|OR REPLACE VIEW) |COMMENT ON |INSERT INTO |UPDATE \S+_schema_version ")


def written(revision: str) -> list[str]:
    """The statements of one migration."""
    script = directory().get_revision(revision)
    with QueueDB("sqlite://") as db:
        from sqlalchemy.dialects import postgresql

        start = "base" if script.down_revision is None else str(script.down_revision)
        text = migrations.offline_sql(postgresql.dialect(), db.store.tables, revision, start=start)
    statements = [" ".join(part.split()) for part in re.sub(r"^--.*$", "", text, flags=re.MULTILINE).split(";")]
    return [part for part in statements if part and part not in ("BEGIN", "COMMIT")]


def not_additive(statements: list[str]) -> list[str]:
    """Those with which code of the version before may not work."""
    new = {match[1] for one in statements if (match := re.match(r"CREATE TABLE (?:IF NOT EXISTS )?(\S+)", one))}
    found = []
    for one in statements:
        unique = re.match(r"CREATE UNIQUE INDEX .*? ON (\S+)", one)
        column = one.startswith("ALTER TABLE ") and " ADD COLUMN " in one and ("NOT NULL" not in one or "DEFAULT" in one)
        if not (column or ADDS.match(one)) or (unique and unique[1] not in new):
            found.append(one)
    return found


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_migration_declares_whether_it_only_adds(revision: str) -> None:
    """Nothing can be left to a default: whoever writes a migration has to think of the code that runs meanwhile."""
    declared = getattr(directory().get_revision(revision).module, "additive", None)
    assert isinstance(declared, bool), "write additive = True or False into it; docs/upgrading.md has the rule"
    if declared:
        assert not_additive(written(revision)) == [], "old code may not work with these: additive = False"


@pytest.mark.parametrize(
    ("statement", "adds"),
    [
        ("CREATE TABLE jobs_more (id INTEGER)", True),
        ("CREATE INDEX jobs_i ON jobs (kind)", True),
        ("CREATE UNIQUE INDEX jobs_u ON jobs (kind)", False),
        ("ALTER TABLE jobs ADD COLUMN note VARCHAR(20)", True),
        ("ALTER TABLE jobs ADD COLUMN note INTEGER DEFAULT 0 NOT NULL", True),
        ("ALTER TABLE jobs ADD COLUMN note INTEGER NOT NULL", False),
        ("ALTER TABLE jobs DROP COLUMN kind", False),
        ("ALTER TABLE jobs ALTER COLUMN kind SET NOT NULL", False),
        ("ALTER TABLE jobs ADD CONSTRAINT c CHECK (priority > 0)", False),
        ("DROP INDEX jobs_claim", False),
        ("UPDATE jobs SET priority = 0", False),
    ],
)
def test_the_check_of_what_only_adds(statement: str, adds: bool) -> None:
    assert (not_additive([statement]) == []) is adds


def test_works_since_is_the_latest_migration_that_changes_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.scripts(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    steps = [("9001", "True"), ("9002", "True"), ("9003", "False"), ("9004", "True"), ("9005", "1")]
    for number, (revision, additive) in enumerate(steps):
        before = HEAD if number == 0 else steps[number - 1][0]
        (folder / "versions" / f"{revision}.py").write_text(NEXT.format(revision=revision, before=before, additive=additive))
    monkeypatch.setattr(migrations, "scripts", lambda: folder)
    found = directory()
    now = works_since(found, HEAD)
    assert [works_since(found, revision) for revision, _ in steps] == [now, now, "9003", "9003", "9005"]
