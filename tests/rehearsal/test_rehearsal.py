"""The upgrade from the previous version and the way back, with workers of both at work; what breaks is noticed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert

from tests.known_differences import DIFFERENCES
from tests.rehearsal import ledger, versions
from tests.rehearsal.program import FAILS
from tests.rehearsal.rehearsal import Failed, Rehearsal
from tests.rehearsal.versions import NoHistory, Version, previous, this

REST = pytest.mark.rest("tests/migrations runs code on tables that are one migration newer, in one process")

#: Of each process in each stage.
EACH = 20


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    try:
        return previous(tmp_path_factory.mktemp("old"))
    except NoHistory as error:
        pytest.skip(f"no history: {DIFFERENCES['no history'][1]}: {error}")


@REST
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"], scope="session")
def test_an_upgrade_and_its_way_back_lose_nothing_and_repeat_nothing(
    fresh_url: str, tmp_path: Path, old: Version, record_property: Callable[[str, object], None]
) -> None:
    with Rehearsal(fresh_url, tmp_path, old, this(), EACH, say=print) as rehearsal:
        assert rehearsal.run() == []
    record_property("upgrade", f"{old.name}, tables {old.head} to {this().head}")


#: What a version after this one might do.
LATER = '''
"""A later version."""

from alembic import op

revision = "9001"
down_revision = "{before}"
branch_labels = None
depends_on = None
additive = {additive}
loses = "a note"


def upgrade():
    op.execute("ALTER TABLE jobs {change}")


def downgrade():
    op.execute("ALTER TABLE jobs DROP COLUMN later_note")
'''


def later(folder: Path, change: str, *, additive: bool) -> Version:
    """This checkout with one migration more."""
    now = this()
    for name in ("queue_db", "migrations"):
        shutil.copytree(now.folder / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    script = LATER.format(before=now.head, change=change, additive=additive)
    (folder / "migrations" / "versions" / "9001_later.py").write_text(script)
    head = folder / "queue_db/store/schema/tables.py"
    head.write_text(head.read_text().replace(f'HEAD = "{now.head}"', 'HEAD = "9001"'))
    return Version(folder, "a later version", "9001")


@REST
@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_all_processes_stop_for_a_migration_that_is_not_additive(fresh_url: str, tmp_path: Path) -> None:
    new = later(tmp_path / "later", "ADD COLUMN later_note VARCHAR(20)", additive=False)
    stages: list[str] = []
    with Rehearsal(fresh_url, tmp_path, this(), new, EACH, say=stages.append) as rehearsal:
        assert rehearsal.run() == []
    assert [stage for stage in stages if "all processes stop" in stage]
    assert not [stage for stage in stages if "side by side" in stage]


@REST
@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_migration_that_only_says_that_it_is_additive_is_noticed(fresh_url: str, tmp_path: Path) -> None:
    new = later(tmp_path / "later", "RENAME COLUMN kind TO later_note", additive=True)
    stages: list[str] = []
    with (
        Rehearsal(fresh_url, tmp_path, this(), new, EACH, say=stages.append) as rehearsal,
        pytest.raises(Failed, match="(?s)the old version works on new tables: .*kind"),
    ):
        rehearsal.run()
    assert "the old version works" in stages[-2]


def test_the_ledger_notices_what_is_lost_doubled_or_said(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/ledger.db")
    ledger.create(engine)
    jobs = [("a", None), ("b", None), ("c", "g"), ("d", "g"), ("e-fails", None)]
    with engine.begin() as connection:
        connection.execute(insert(ledger.WANTED), [{"what": what, "made_by": "p", "in_group": group} for what, group in jobs])
    begun = tmp_path / "w.begun"

    def found(effects: str, runs: str) -> list[str]:
        with engine.begin() as connection:
            connection.execute(ledger.EFFECTS.delete())
            connection.execute(insert(ledger.EFFECTS), [{"what": what, "done_by": "w"} for what in effects.split()])
        begun.write_text("".join(f"{run.replace(':', ' q ')}\n" for run in runs.split()))
        return ledger.violations(engine, tmp_path)

    runs = "a:1-2 b:2-2 c:3-2 d:4-2 e-fails:5-2 e-fails:5-4"
    assert found("a b c d e-fails", runs) == []
    assert found("a c d e-fails", runs) == ["b: made 1 times, had 0 effects"]
    assert found("a b b c d e-fails", runs) == ["b: made 1 times, had 2 effects"]
    assert found("a b d c e-fails", runs) == ["group g: not in its order: ['d', 'c']"]
    assert found("a b c d e-fails", f"{runs} a:1-3") == ["a: ran 2 times"]
    assert found("a b c d e-fails", runs.replace("5-4", "5-2")) == ["lease q 5-2 ran 2 times"]
    for says, kind in (("job 1 failed", "ValueError"), ("the database does not answer", "TransientStorageError")):
        line = json.dumps({"level": "ERROR", "logger": "queue_db.worker", "says": says, "error": kind})
        (tmp_path / "w.log").write_text(line + "\n")
        assert found("a b c d e-fails", runs) == [f"w logged: ERROR queue_db.worker: {says} ({kind})"]
    (tmp_path / "w.log").write_text(json.dumps({"level": "WARNING", "logger": "l", "says": f"1: {FAILS}", "error": None}) + "\n")
    assert found("a b c d e-fails", runs) == []
    (tmp_path / "w.err").write_text("Traceback")
    assert found("a b c d e-fails", runs) == ["w printed: Traceback"]
    engine.dispose()


def _git(folder: Path, *arguments: object) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *map(str, arguments)], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two migrations, the second from a merged branch, and one commit after it."""
    if shutil.which("git") is None:
        pytest.skip(f"no history: {DIFFERENCES['no history'][1]}")
    folder = tmp_path / "history"
    scripts, head = folder / versions.SCRIPTS, folder / "queue_db/store/schema/tables.py"
    for place in (scripts, head.parent):
        place.mkdir(parents=True)

    def commit(number: str) -> None:
        (scripts / f"{number}_n.py").touch()
        head.write_text(f'HEAD = "{number}"\n')
        _git(folder, "add", ".")
        _git(folder, "commit", "-q", "-m", number)

    _git(folder, "init", "-q", "-b", "main")
    commit("0001")
    _git(folder, "checkout", "-q", "-b", "side")
    commit("0002")
    _git(folder, "checkout", "-q", "main")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    _git(folder, "merge", "-q", "--no-ff", "side", "-m", "merge")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "after")
    monkeypatch.setattr(versions, "CHECKOUT", folder)
    return folder


def test_the_previous_version_is_the_last_tag_or_the_commit_before_the_newest_migration(history: Path, tmp_path: Path) -> None:
    assert previous(tmp_path / "one").head == "0001"
    _git(history, "tag", "v1", "HEAD~1")
    assert previous(tmp_path / "two").head == "0002"
    assert previous(tmp_path / "three", "main~2").head == "0001"
    _git(history, "tag", "v2")  # of this very version
    assert previous(tmp_path / "four").head == "0002"
    with pytest.raises(NoHistory, match="nonsense"):
        previous(tmp_path / "five", "nonsense")


def test_a_folder_without_history_says_so(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tmp_path, "clone", "-q", "--depth", "1", f"file://{history}", "shallow")
    monkeypatch.setattr(versions, "CHECKOUT", tmp_path / "shallow")
    with pytest.raises(NoHistory, match=re.escape("begins with migration 0002_n.py: git fetch --unshallow")):
        previous(tmp_path / "old")
    shutil.rmtree(history / ".git")
    monkeypatch.setattr(versions, "CHECKOUT", history)
    with pytest.raises(NoHistory, match="is no clone"):
        previous(tmp_path / "old")
