"""The code of the previous version, from the history of this checkout."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = "migrations/versions"


class NoHistory(Exception):
    """This folder cannot say what the previous version was: it is no clone, or one that is cut off."""


@dataclass(frozen=True)
class Version:
    """Code in a folder, and the revision of the tables that it was written for."""

    folder: Path
    name: str
    head: str


def this() -> Version:
    """The code beside this file."""
    return Version(CHECKOUT, "this checkout", _head(CHECKOUT))


def previous(folder: Path, commit: str | None = None) -> Version:
    """Unpack the previous version into a folder: the commit that is named, else the last tag, else the commit before the newest
    migration came to this branch.

    :raises NoHistory: there is no such commit here.
    """
    chosen = commit or _last_tag() or _before_the_newest_migration()
    packed = _git("archive", "--format=tar", chosen)
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    return Version(folder, _git("log", "-1", "--format=%h of %as", chosen).decode().strip(), _head(folder))


def _last_tag() -> str | None:
    tags = _git("tag", "--merged", "HEAD", "--sort=-creatordate").decode().split()
    return next((tag for tag in tags if _git("rev-parse", f"{tag}^{{commit}}") != _git("rev-parse", "HEAD")), None)


def _before_the_newest_migration() -> str:
    newest = max(path.name for path in (CHECKOUT / SCRIPTS).glob("[0-9]*.py"))
    # Of a merge, its first parent: the other one is the work on the migration, perhaps under another number.
    added = _git("log", "--first-parent", "-m", "--diff-filter=A", "--format=%H", "--", f"{SCRIPTS}/{newest}").decode().split()
    if not added:  # not committed yet
        return "HEAD"
    before = f"{added[0]}^1"
    try:
        _git("rev-parse", "--verify", "--quiet", before)
    except NoHistory:
        raise NoHistory(f"the history of this clone begins with migration {newest}: git fetch --unshallow") from None
    return before


def _git(*arguments: str) -> bytes:
    if not (CHECKOUT / ".git").exists():
        raise NoHistory(f"{CHECKOUT} is no clone: it has no history")
    command = ["git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    except OSError as error:
        raise NoHistory(f"git does not run: {error}") from error
    if done.returncode:
        raise NoHistory(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip() or done.returncode}")
    return done.stdout


def _head(folder: Path) -> str:
    text = (folder / "queue_db" / "store" / "schema" / "tables.py").read_text()
    return re.findall(r'^HEAD = "(\w+)"', text, re.MULTILINE)[0]
