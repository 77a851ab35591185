"""Plain ``alembic`` in a checkout, and the queue's tables as a step of an application's own Alembic."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from alembic import command
from alembic.config import CommandLine, Config
from alembic.util.exc import CommandError
from sqlalchemy import create_engine, inspect, text

from queue_db import ConfigurationError, QueueDB
from queue_db.store.schema.tables import HEAD
from tests.migrations.conftest import ask, run

ROOT = Path(__file__).parents[2]
ALEMBIC = Path(sys.executable).with_name("alembic")


def alembic(*arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command as people run it at the top of a checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUEUE_DB_URL")}
    if url is not None:
        environment["QUEUE_DB_URL"] = url
    return subprocess.run([ALEMBIC, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def in_checkout(monkeypatch: pytest.MonkeyPatch, *settings: str) -> tuple[Config, StringIO]:
    """What the command hands over for its ``-x``, and where it prints, in this process."""
    monkeypatch.chdir(ROOT)
    printed = StringIO()
    return Config(toml_file="pyproject.toml", stdout=printed, output_buffer=printed, cmd_opts=Namespace(x=list(settings))), printed


def test_up_and_down_in_a_checkout(fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = alembic("upgrade", "head", url=fresh_url)
    assert raised.returncode == 0, raised.stderr
    assert f"-> {HEAD}, " in raised.stderr, "each step is reported"
    with QueueDB(fresh_url) as db:
        db.check()
        assert db.queue("q").enqueue("k") is not None
        assert ask(db, "SELECT works_since FROM jobs_schema_version") is not None
    for act, expected in {
        command.current: f"{HEAD} (head)",
        command.check: "No new upgrade operations detected",
        partial(command.downgrade, revision="base"): "",
    }.items():
        config, printed = in_checkout(monkeypatch, f"url={fresh_url}")
        act(config)
        assert expected in printed.getvalue()
    with QueueDB(fresh_url) as db, db.database.engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) - {"sqlite_sequence"} == {"jobs_schema_version"}


def test_the_statements_without_a_server(fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, printed = in_checkout(monkeypatch, f"url={fresh_url}", "table=mail")
    command.upgrade(config, "head", sql=True)
    with QueueDB(fresh_url, table="mail") as db:
        assert printed.getvalue() == db.migration_sql()


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_another_table_and_schema(fresh_url: str, side_by_side: str) -> None:
    given = ["-x", f"url={fresh_url}", "-x", "table=mail", "-x", f"schema={side_by_side}"]
    done = alembic(*given, "upgrade", "head", url="sqlite:///not-this-one.db")
    assert done.returncode == 0, done.stderr
    with QueueDB(fresh_url, table="mail", schema=side_by_side) as db:
        db.check()


def test_without_a_database_the_command_says_how_to_give_one() -> None:
    done = alembic("upgrade", "head")
    assert done.returncode != 0
    assert "no database given: set QUEUE_DB_URL, or use alembic -x url=" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_what_is_wrong_is_said_with_the_fix(empty: QueueDB, fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(empty, "CREATE TABLE jobs (id INTEGER)")
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("QUEUE_DB_URL", raising=False)
    for arguments, message in {
        ("upgrade", "head", "--sql"): "no database given",
        ("-x", "tables=mail", "current"): "-x tables=…: known are url, table, schema",
        ("-x", "url=sqlite:////nowhere/at/all.db", "current"): "cannot open sqlite",
        ("-x", "url=nonsense", "current"): "this is not a database URL",
        ("-x", f"url={fresh_url}", "-x", "table=My Jobs", "current"): "use 1 to 40 lower-case letters",
        ("-x", f"url={fresh_url}", "upgrade", "head"): "is not queue_db's; choose another name: .* alembic -x table=…",
    }.items():
        with pytest.raises(CommandError, match=message):
            CommandLine().main(["--raiseerr", *arguments])
    CommandLine().main(["history"])  # needs no database


ENVIRONMENT = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from queue_db.administration.migrate import include_object

metadata = MetaData()
for name in ("customers", "orders"):
    Table(name, metadata, Column("id", Integer, primary_key=True))
options = {"target_metadata": metadata, "include_object": include_object()}
url = context.config.attributes["url"]
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url).connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
"""

REVISION = """
import sqlalchemy as sa
from alembic import op
from queue_db.administration.migrate import include_migration

revision, down_revision = "a1", None

def upgrade():
    op.create_table("customers", sa.Column("id", sa.Integer, primary_key=True))
    include_migration(op, "base", "0009")
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))

def downgrade():
    op.drop_table("orders")
    include_migration(op, "0009", "base")
    op.drop_table("customers")
"""

SECOND = f"""
from alembic import op
from queue_db.administration.migrate import include_migration

revision, down_revision = "a2", "a1"

def upgrade():
    include_migration(op, "0009", "{HEAD}")

def downgrade():
    include_migration(op, "{HEAD}", "0009")
"""


@pytest.fixture
def application(tmp_path: Path, fresh_url: str) -> Config:
    """An application with an Alembic of its own."""
    versions = tmp_path / "versions"
    versions.mkdir()
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    (versions / "a1.py").write_text(REVISION)
    (versions / "a2.py").write_text(SECOND)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.attributes["url"] = fresh_url
    return config


def tables_of(url: str) -> set[str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = set(inspect(connection).get_table_names())
    engine.dispose()
    return found


def test_as_a_step_of_an_applications_own_alembic(application: Config, fresh_url: str) -> None:
    command.upgrade(application, "a1")
    with QueueDB(fresh_url) as db:
        assert ask(db, "SELECT version_num FROM jobs_schema_version") == "0009"
    command.upgrade(application, "head")
    with QueueDB(fresh_url) as db:
        db.queue("q").enqueue("k")
    assert {"customers", "orders", "jobs"} <= tables_of(fresh_url)
    command.check(application)
    command.downgrade(application, "base")
    assert tables_of(fresh_url) - {"sqlite_sequence"} == {"alembic_version", "jobs_schema_version"}
    with QueueDB(fresh_url) as db:
        db.migrate()  # by a command, before the application's revisions run
        db.queue("q").enqueue("k")
        command.upgrade(application, "a1")
        assert db.queue("q").stats().available == 1, "the tables do not go down in an upgrade"


def test_as_a_step_without_a_server(application: Config, fresh_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    command.upgrade(application, "head", sql=True)
    printed = capsys.readouterr().out
    engine = create_engine(fresh_url)
    with engine.connect() as connection:
        for statement in printed.split(";\n"):
            if statement.strip() and statement.strip() not in ("BEGIN", "COMMIT"):
                connection.execute(text(statement))
        connection.commit()
    engine.dispose()
    assert printed.count("COMMIT;") <= 1, "one transaction, the application's"
    with QueueDB(fresh_url) as db:
        db.check()
    command.check(application)


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
@pytest.mark.parametrize(("start", "to"), [("base", "head"), ("0042", "base"), ("0009", "0009")])
def test_a_step_names_two_revisions(application: Config, start: str, to: str) -> None:
    path = Path(str(application.get_main_option("script_location"))) / "versions" / "a2.py"
    path.write_text(SECOND.replace(f'"0009", "{HEAD}"', f'"{start}", "{to}"'))
    with pytest.raises(ConfigurationError, match="give base or one of 0001, .*, two different ones"):
        command.upgrade(application, "head")
