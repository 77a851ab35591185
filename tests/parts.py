"""Which command runs a test: ``make check``, ``test``, ``test-rest``, or only ``make test-nightly`` or ``make test-clusters``.

Each test belongs to one part. ``make test`` runs on the databases of ``DATABASES``; a test for others alone runs on one of these.
What is left, and tests with the mark ``rest``, is for ``make test-rest``; the end of ``make test`` says how many those are. CI runs
both. ``pytest FILE`` runs both parts of a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import pytest

from tests.databases import FILES, KINDS


class Part(StrEnum):
    """The parts of the suite, and what ``--part`` chooses."""

    CHECK = "check"  # what needs neither a server nor a browser nor a JVM: SQLite, and tests without a database
    TEST = "test"
    REST = "rest"
    NIGHTLY = "nightly"
    CLUSTERS = "clusters"  # what needs several nodes of one database: tests/clusters
    ALL = "all"

    @property
    def command(self) -> str:
        """The target of ``make`` that runs it."""
        return {Part.CHECK: "check", Part.TEST: "test"}.get(self, f"test-{self}")


#: Folder or file → the databases on which ``make test`` runs its tests; of several the longest counts. ``make check`` runs
#: SQLite's.
DATABASES: dict[str, Sequence[str]] = {
    "tests": ("postgresql",),
    # What the dialects differ in.
    "tests/conformance": ("sqlite", "postgresql", "mariadb"),
    "tests/migrations/test_migrate.py": ("sqlite", "postgresql", "mariadb"),
    "tests/plans": ("sqlite", "postgresql"),
    "tests/races": ("sqlite", "postgresql", "mariadb"),
    "tests/races/test_complete_and_claim_loses.py": ("mariadb",),
    "tests/races/test_stress.py": ("postgresql",),
    "tests/sql": KINDS,
    # What the drivers differ in.
    "tests/aio": ("sqlite", "postgresql"),
    "tests/drivers": ("sqlite", "postgresql", "mariadb"),
    # An interrupt while a statement runs: on SQLite a cursor that is kept holds the lock of the file.
    "tests/faults/test_interrupts": ("sqlite", "postgresql"),
    # A command, or a request, calls a verb, which tests/conformance runs on each database.
    "tests/chaos": ("sqlite",),
    "tests/contrib/django": ("sqlite",),
    # The connection of each driver is Django's.
    "tests/contrib/django/test_django_transactions.py": ("sqlite", "postgresql"),
    "tests/contrib/django/test_django_atomic.py": ("postgresql",),
    "tests/contrib/django/test_django_running.py": ("postgresql",),
    "tests/cli": ("sqlite",),
    # What the drivers and the notifications differ in.
    "tests/contrib/kombu": ("sqlite", "postgresql"),
    "tests/contrib/taskiq": ("sqlite", "postgresql"),
    "tests/feeds/test_cli_feeds.py": ("sqlite",),
    "tests/routes/test_cli_routes.py": ("sqlite",),
    "tests/service": ("sqlite",),
    "tests/spark/test_cli_streams.py": ("sqlite",),
    # A wait with notifications, and one that polls.
    "tests/worker/test_worker_arrivals.py": ("sqlite", "postgresql"),
}

#: Folder or file → the databases that are left to ``make test-nightly`` where MySQL runs the same function: MariaDB gets the
#: statements and the driver of MySQL. Not where the two differ: SQL, plans, locks, privileges, RETURNING through asyncio.
TWINS: dict[str, Sequence[str]] = {
    "tests": ("mariadb",),
    "tests/aio": (),
    "tests/aio/test_conformance_in_greenlets.py": ("mariadb",),
    "tests/cli/test_cli_commands.py": (),
    "tests/conformance": (),
    # Savepoints, what a COMMIT has locked, and what a killed worker leaves.
    "tests/contrib/django/test_django_atomic.py": (),
    "tests/contrib/django/test_django_transactions.py": (),
    "tests/drivers": (),
    "tests/faults": (),
    "tests/feeds/plans": (),
    "tests/feeds/test_isolation.py": (),
    "tests/feeds/test_opposite_orders.py": (),
    "tests/guide": (),
    "tests/migrations": (),
    "tests/plans": (),
    "tests/races": (),
    "tests/routes/test_routes_race.py": (),
    "tests/spark/staging": (),
    "tests/spark/streams": (),
    "tests/sql": (),
    "tests/test_servers.py": (),
}

#: The folder whose tests are for :attr:`Part.CLUSTERS`.
CLUSTERS = "tests/clusters"

#: The parts that only their own commands run.
APART = (Part.NIGHTLY, Part.CLUSTERS)

#: Of a test that is for none of these, the first.
INSTEAD = ("postgresql", "mariadb", "mysql", "sqlite")

#: Folders and files that are not for the loop while writing: they start a JVM, a browser, or many processes, or take longest.
NOT_IN_CHECK = (
    "tests/chaos",
    "tests/compare",
    "tests/contrib/mcp/test_mcp.py",
    "tests/contrib/mcp/test_mcp_page.py",
    "tests/contrib/django/test_django_atomic.py",
    "tests/contrib/django/test_django_docs.py",
    "tests/contrib/django/test_django_drivers.py",
    "tests/contrib/django/test_django_processes.py",
    "tests/contrib/django/test_django_project.py",
    "tests/cli/test_cli_work.py",
    "tests/crash",
    "tests/docs/test_site.py",
    "tests/faults/test_interrupts_at_every_line.py",
    "tests/monitoring/test_board.py",
    "tests/monitoring/test_reporting.py",
    "tests/guide/test_restore.py",
    "tests/packaging",
    "tests/properties/test_interleavings.py",
    "tests/service/browser",
    "tests/service/test_api_away.py",
    "tests/service/test_incidents.py",
    "tests/service/test_serve_command.py",
    "tests/service/test_service_pages.py",
    "tests/spark/test_jdbc.py",
    "tests/spark/test_spark_",
    "tests/tasks/test_task_types.py",
    "tests/test_servers.py",
    "tests/test_typing.py",
    "tests/worker/test_worker_executor.py",
    "tests/worker/test_worker_in_application.py",
    "tests/worker/test_worker_interruptions.py",
    "tests/worker/test_worker_process.py",
    "tests/worker/test_worker_recycling.py",
    "tests/worker/test_worker_storms.py",
    "tests/worker/test_worker_supervisor.py",
)

MARKS = {
    Part.REST: "rest(reason): make test leaves it to make test-rest, on a twin to the night; what in make test stands for it",
    Part.NIGHTLY: "nightly(reason): only make test-nightly runs it; what in the other parts stands for it",
}


def database_of(item: pytest.Item) -> str | None:
    """The database that a test is parametrized with, by the name ``kind`` or by an object that has a ``kind``.

    None: it is not, or it starts what it needs by itself.
    """
    spec = getattr(item, "callspec", None)
    found = [value if name == "kind" else getattr(value, "kind", None) for name, value in spec.params.items()] if spec else []
    return next((kind for kind in found if isinstance(kind, str) and kind in KINDS), None)


def part_of(item: pytest.Item, databases: Collection[str]) -> Part:
    """The part that a test belongs to. ``databases``: those of the same function.

    :raises pytest.UsageError: a mark has no reason.
    """
    marked = marked_part(item)
    database = database_of(item)
    wanted = _longest(DATABASES, item.nodeid)
    if not any(name in databases for name in wanted):
        wanted = [next((name for name in INSTEAD if name in databases), "")]
    if database is None or database in wanted or marked in APART:
        return marked
    twin = database in _longest(TWINS, item.nodeid) and "mysql" in databases
    return Part.NIGHTLY if twin else Part.REST


def marked_part(test: pytest.Item) -> Part:
    """The part that the marks of a test name, or its folder; TEST: neither does.

    :raises pytest.UsageError: a mark has no reason; it shows the form.
    """
    found = Part.CLUSTERS if test.nodeid.startswith(CLUSTERS) else Part.TEST
    for part in MARKS:
        if mark := test.get_closest_marker(part):
            if not (mark.args[0] if mark.args else mark.kwargs.get("reason")):
                raise pytest.UsageError(f'{test.nodeid}: write @pytest.mark.{part}("what in make test stands for this test")')
            found = part
    return found


def in_check(item: pytest.Item) -> bool:
    """Whether ``make check`` runs a test."""
    return marked_part(item) is Part.TEST and (database_of(item) or FILES[0]) in FILES and not item.nodeid.startswith(NOT_IN_CHECK)


def _longest(table: dict[str, Sequence[str]], path: str) -> Sequence[str]:
    return table[max((name for name in table if path.startswith(name)), key=len)]


Databases = Mapping[str, Collection[str]]


def databases_of(items: Sequence[pytest.Item]) -> Databases:
    """The function of a test → the databases on which it was collected."""
    found: dict[str, set[str]] = {}
    for item in items:
        found.setdefault(_function(item), set()).add(database_of(item) or "")
    return found


def divided(items: Sequence[pytest.Item], databases: Databases, chosen: Part | None) -> tuple[list[pytest.Item], dict[str, int]]:
    """The tests to run, and what is left to others, counted: part, folder and database → number. None: all but those of APART."""
    runs: list[pytest.Item] = []
    left: Counter[str] = Counter()
    for item in items:
        part = part_of(item, databases[_function(item)])
        wanted = {
            None: part not in APART,
            Part.ALL: True,
            Part.CHECK: in_check(item),
        }.get(chosen, part is chosen)
        if wanted:
            runs.append(item)
        else:
            folder = "/".join(item.nodeid.partition("::")[0].split("/")[:2])
            left[f"{part} {folder} {database_of(item) or _NONE}"] += 1
    return runs, dict(left)


def _function(item: pytest.Item | pytest.TestReport) -> str:
    return item.nodeid.partition("[")[0]


def only_skipped(reports: Mapping[str, Sequence[pytest.TestReport]]) -> list[str]:
    """The functions of which each test was skipped, from the reports of a run by outcome."""
    ran = {
        _function(report) for outcome in ("passed", "failed", "error", "xfailed", "xpassed") for report in reports.get(outcome, ())
    }
    return sorted({_function(report) for report in reports.get("skipped", ())} - ran)


#: The column of tests that are for no database, or start what they need by themselves.
_NONE = "others"


def table_of(left: dict[str, int], part: Part) -> list[str]:
    """The lines that show what is left to a part: one for each folder, with the number of tests on each database."""
    found = {tuple(name.split()): count for name, count in left.items()}
    folders = sorted({folder for of, folder, _ in found if of == part})
    columns = (*KINDS, _NONE)
    width = max(map(len, folders), default=0)
    rows = [(folder, *(found.get((part, folder, column), 0) or "" for column in columns)) for folder in folders]
    return [f"{name:{width}}" + "".join(f"{count:>12}" for count in counts) for name, *counts in [("", *columns), *rows]]
