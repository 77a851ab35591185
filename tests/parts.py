"""Which command runs a test: ``make check``, ``make test``, ``make test-rest``, or only ``make test-nightly``.

Each test belongs to one part. ``make test`` runs on the databases of ``DATABASES``. The others, and tests with the mark ``rest``,
are left to ``make test-rest``; the end of ``make test`` says how many those are. CI runs both. ``pytest FILE`` runs both parts of
a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import pytest

from tests.databases import FILES, KINDS


class Part(StrEnum):
    """The parts of the suite, and what ``--part`` chooses."""

    CHECK = "check"  # of `test` what needs neither a server nor a browser nor a JVM
    TEST = "test"
    REST = "rest"
    NIGHTLY = "nightly"
    ALL = "all"

    @property
    def command(self) -> str:
        """The target of ``make`` that runs it."""
        return {Part.CHECK: "check", Part.TEST: "test"}.get(self, f"test-{self}")


#: Folder or file → the databases on which ``make test`` runs its tests; of several the longest counts.
DATABASES: dict[str, Sequence[str]] = {
    "tests": ("sqlite", "postgresql"),
    # What the dialects differ in.
    "tests/conformance": ("sqlite", "postgresql", "mariadb"),
    "tests/migrations": ("sqlite", "postgresql", "mariadb"),
    "tests/races": ("sqlite", "postgresql", "mariadb"),
    "tests/sql": KINDS,
    # The greenlets are the same on each driver; the statements are those of tests/conformance.
    "tests/aio/test_conformance_in_greenlets.py": ("postgresql",),
    # A command calls a verb, which tests/conformance runs on each database.
    "tests/cli": ("sqlite",),
}

#: Folders and files that are not for the loop while writing: they start a JVM, a browser, or many processes.
NOT_IN_CHECK = ("tests/chaos", "tests/compare", "tests/crash", "tests/packaging", "tests/spark")

MARKS = {
    Part.REST: "rest(reason): only make test-rest runs it; the reason names what stands for it in make test",
    Part.NIGHTLY: "nightly(reason): only make test-nightly runs it; the reason names what stands for it",
}


def database_of(item: pytest.Item) -> str | None:
    """The database that a test is parametrized with; None: it is not, or it starts what it needs by itself."""
    spec = getattr(item, "callspec", None)
    found = [getattr(value, "kind", value) for value in spec.params.values()] if spec else []
    return next((kind for kind in found if isinstance(kind, str) and kind in KINDS), None)


def part_of(item: pytest.Item) -> Part:
    """The part that a test belongs to."""
    for part in (Part.NIGHTLY, Part.REST):
        if mark := item.get_closest_marker(part):
            if not mark.args or not mark.args[0]:
                pytest.fail(
                    f"{item.nodeid}: the mark {part} needs a reason: what in make test stands for this test?", pytrace=False
                )
            return part
    database = database_of(item)
    if database is not None and database not in _longest(DATABASES, item.nodeid):
        return Part.REST
    return Part.TEST


def in_check(item: pytest.Item) -> bool:
    """Whether ``make check`` runs a test of ``make test``."""
    return (database_of(item) or FILES[0]) in FILES and not item.nodeid.startswith(NOT_IN_CHECK)


def _longest(table: dict[str, Sequence[str]], path: str) -> Sequence[str]:
    return table[max((name for name in table if path.startswith(name)), key=len)]


def divided(items: Iterable[pytest.Item], chosen: Part | None) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests to run and those to leave out. None: all but the nightly ones."""
    runs: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        part = part_of(item)
        wanted = {
            None: part is not Part.NIGHTLY,
            Part.ALL: True,
            Part.CHECK: part is Part.TEST and in_check(item),
        }.get(chosen, part is chosen)
        (runs if wanted else left).append(item)
    return runs, left


def left_out(items: Iterable[pytest.Item]) -> dict[str, int]:
    """What a run leaves to others, counted: part, folder and database → number of tests."""
    folders = ((item, "/".join(item.nodeid.partition("::")[0].split("/")[:2])) for item in items)
    return dict(Counter(f"{part_of(item)} {folder} {database_of(item) or _NONE}" for item, folder in folders))


_NONE = "none"


def table_of(left: dict[str, int], part: Part) -> list[str]:
    """The lines that show what is left to a part: one for each folder, with the number of tests on each database."""
    found = {tuple(name.split()): count for name, count in left.items()}
    folders = sorted({folder for of, folder, _ in found if of == part})
    columns = (*KINDS, _NONE)
    width = max(map(len, folders), default=0)
    rows = [(folder, *(found.get((part, folder, column), 0) or "" for column in columns)) for folder in folders]
    return [f"{name:{width}}" + "".join(f"{count:>12}" for count in counts) for name, *counts in [("", *columns), *rows]]
