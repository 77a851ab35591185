"""``queue-db doctor``: a diagnosis of the database, the tables, the rights and the workers."""

from __future__ import annotations

import platform
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy
import typer
from sqlalchemy import Connection

from queue_db import __version__
from queue_db.cli import output, panels, rights, statuses
from queue_db.cli.commands import command
from queue_db.cli.diagnosis import Diagnosis, OpenTransaction
from queue_db.cli.loading import load
from queue_db.cli.options import CommonOptions, ReplicasOption
from queue_db.database import addresses, schema_version
from queue_db.database.database import Database
from queue_db.db import QueueDB
from queue_db.dialects.clock import clock_query
from queue_db.errors import ArgumentError, PermanentStorageError, QueueDBError, SchemaOutOfDateError, StorageError
from queue_db.model import Capability
from queue_db.monitoring.insights import Finding, findings
from queue_db.removal import known_removals, removal_for
from queue_db.store import Transaction
from queue_db.store.schema.tables import HEAD
from queue_db.strategies import known_strategies, strategy_for
from queue_db.tasks import Tasks
from queue_db.tasks.drift import drift

#: Largest difference between this machine's clock and the database's without a warning, seconds.
SKEW = 1.0

#: Longest time for which a transaction may be open without a warning, seconds.
LONG_OPEN = 60.0

_CLOCK_READINGS = 5

app = typer.Typer(rich_help_panel=panels.SETUP)


@dataclass(frozen=True, slots=True)
class _Clock:
    """How far the database's clock is ahead of this machine's, and how long the answer took, seconds."""

    skew: float
    round_trip: float


@command(
    app,
    "doctor",
    "queue-db doctor",
    "queue-db doctor --strict",
    "queue-db doctor --app shop.jobs:tasks",
    "queue-db doctor --json | jq -r '.problems[]'",
)
def doctor(
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit status 1 also for what is slow and for warnings.")] = False,
    tasks: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:NAME", help="A Tasks object: also tell of waiting jobs that none of its tasks runs."),
    ] = None,
    replicas: ReplicasOption = None,
    common: CommonOptions,
) -> None:
    """Check the database, the tables, the rights and the workers, and print what to fix. Run it as the user of your workers.

    The exit status is 1 if there is a problem or something is stuck.

    problem: tables are missing or have the wrong revision, or this user lacks a right that a worker needs.

    stuck: jobs of a queue have been due for more than a minute and it has no worker; no worker has a handler for a kind of job; no
    task of --app has it; a schedule is late because no worker enqueues its jobs; a handler does not return and occupies its slot.

    slow: jobs of a queue have been due for more than a minute although it has workers, or because it is paused or limited; a worker
    has missed its heartbeats; more jobs of a group run at a time than may.

    warning: a transaction has been open for more than a minute; this machine's clock is wrong; an address of the URL does not work.

    With --strict the exit status is 1 also for what is slow and for warnings.
    """
    app = None if tasks is None else _tasks(tasks)
    with common.open(replicas=replicas) as db:
        report = _examine(db, app, strict=strict)
    if common.as_json:
        output.record(report)
    else:
        _print(report)
    if not report["healthy"]:
        raise typer.Exit(statuses.NEGATIVE)


def _tasks(name: str) -> Tasks:
    found = load("app", name)
    if not isinstance(found, Tasks):
        raise ArgumentError(f"--app {name} is {found!r}: must be a queue_db.tasks.Tasks")
    return found


def _examine(db: QueueDB, app: Tasks | None, *, strict: bool = False) -> dict[str, Any]:
    database, dialect, tables = db.database, db.store.dialect, db.store.tables
    sql, diagnosis = database.engine.dialect, Diagnosis.of(dialect)
    # Without a transaction: a node that has lost its cluster refuses its BEGIN.
    isolation, facts, clock, cluster = database.run(
        lambda connection: (
            connection.get_isolation_level(),
            diagnosis.facts(connection, tables.jobs),
            _clock(connection, db),
            diagnosis.cluster(connection),
        ),
        name="doctor",
        write=False,
        lazy=True,
    )
    facts, problems, warnings = cluster.facts | facts, cluster.problems, cluster.warnings
    version, found = schema_version.SchemaVersion(None), list[Finding]()
    if not problems:  # otherwise the server may refuse other statements, or not answer
        version, found = _check(db, problems)
        if app is not None and not problems:
            found += [Finding(one.sentence, stuck=True, queue=one.queue, kind=one.kind) for one in drift(db, app)]
        long_open, hidden = database.run(
            lambda connection: (diagnosis.open_transactions(connection, LONG_OPEN), diagnosis.hidden_transactions(connection)),
            name="doctor",
            write=False,
        )
        warnings += map(_warning, long_open)
        if hidden is not None:
            facts["open transactions"] = f"this user does not see all of them: run this as an administrator, or {hidden}"
    _try_addresses(db, facts, warnings)
    stuck = [one.sentence for one in found if one.stuck]
    slow = [one.sentence for one in found if not one.stuck]
    if (replicas := db.core.replicas) is not None:
        if replicas.read("doctor", Transaction.read_clock) is None:
            warnings.append(f"the replica {replicas.url} is {replicas.words}")
        facts["replica"] = f"{replicas.url}, {replicas.words}"
    if abs(clock.skew) > SKEW + clock.round_trip / 2:
        warnings.append(_skew_warning(clock.skew, several_writers=Capability.SEVERAL_WRITERS in database.capabilities))
    return {
        "healthy": not (problems or stuck or (strict and (slow or warnings))),
        "url": db.url,
        "queue_db": __version__,
        "python": platform.python_version(),
        "sqlalchemy": sqlalchemy.__version__,
        "driver": f"{sql.driver} {getattr(sql.dbapi, '__version__', '(part of Python)')}",
        "server": database.server,
        "minimum": ".".join(map(str, dialect.product(sql).minimum)),
        "capabilities": sorted(capability.value for capability in database.capabilities),
        "strategies": {name: _lacking(db, strategy_for(name).needs) for name in known_strategies()},
        "removals": {name: _lacking(db, removal_for(name).needs) for name in known_removals()},
        "isolation": isolation,
        "table": tables.name,
        "schema": tables.schema,
        "revision": version.revision,
        "works_since": version.works_since,
        "required_revision": HEAD,
        "clock_skew": round(clock.skew, 6),
        "round_trip": round(clock.round_trip, 6),
        "facts": facts,
        "problems": problems,
        "stuck": stuck,
        "slow": slow,
        "warnings": warnings,
    }


def _check(db: QueueDB, problems: list[str]) -> tuple[schema_version.SchemaVersion, list[Finding]]:
    """Add what is wrong with the tables and the rights to ``problems``; return the revision, and what is stuck or slow."""
    version = schema_version.SchemaVersion(None)
    try:
        version = schema_version.found(db.database, db.store.tables)
        db.check()
    except SchemaOutOfDateError as error:
        problems += rights.closed_schema(db) or [str(error)]
    except PermanentStorageError:
        # Probably the first of several missing rights.
        problems += rights.missing(db)
        if not problems:
            raise
    else:
        problems += rights.missing(db)
        return version, _findings(db, problems)
    return version, []


def _try_addresses(db: QueueDB, facts: dict[str, Any], warnings: list[str]) -> None:
    """Connect to each address of a URL with several: all else is asked of one of them, and a wrong one shows at a failover."""
    for address, url in addresses.one_by_one(db.database.engine.url).items():
        try:
            with closing(Database(url)) as alone:
                clock = alone.run(_clock, db, name="doctor", write=False, lazy=True)
            facts[f"address {address}"] = f"answers, clock {clock.skew:+.3f} s"
        except QueueDBError as error:
            facts[f"address {address}"] = "does not work"
            warnings.append(f"one of the addresses does not work, so nothing can fail over to it: {error}")


def _skew_warning(skew: float, *, several_writers: bool) -> str:
    way = "behind" if skew > 0 else "ahead of"
    harm = (
        "leases and delays are not affected, because they use the database's clock, but --run-at and the times in logs are"
        if not several_writers
        else "if another node's clock is right, leases of one node seem to end too early on the other, and jobs run twice"
    )
    return f"this machine's clock is {abs(skew):.1f} s {way} the database's: {harm}; set the clock (NTP)"


def _findings(db: QueueDB, problems: list[str]) -> list[Finding]:
    """Return what is stuck or slow; a missing right becomes a problem."""
    try:
        return findings(db)
    except StorageError as error:
        problems.append(f"stuck jobs and workers cannot be checked: {error}")
        return []


def _warning(transaction: OpenTransaction) -> str:
    return (
        f"a transaction of {transaction.user} has been open for {output.span(transaction.age)} ({transaction.state}): its locks "
        f"stay, deleted rows are not removed from the disk, and claims get slower until it ends; end it: {transaction.end}"
    )


def _lacking(db: QueueDB, needs: frozenset[Capability]) -> list[str]:
    return sorted(capability.value for capability in needs - db.database.capabilities)


def _clock(connection: Connection, db: QueueDB) -> _Clock:
    """Read the database's clock several times; the reading with the shortest round trip is the most exact.

    The server reads its clock about halfway through the round trip.
    """
    readings = []
    for _ in range(_CLOCK_READINGS):
        wall, began = time.time(), time.monotonic()
        server_time = connection.execute(clock_query()).scalar_one() / 1_000_000
        round_trip = time.monotonic() - began
        readings.append(_Clock(server_time - (wall + round_trip / 2), round_trip))
    return min(readings, key=lambda reading: reading.round_trip)


def _print(report: dict[str, Any]) -> None:
    output.sheet(
        {
            "database": report["url"],
            "server": f"{report['server']} (required: {report['minimum']} or later)",
            "driver": report["driver"],
            "queue_db": f"{report['queue_db']}, SQLAlchemy {report['sqlalchemy']}, Python {report['python']}",
            "tables": f"{report['table']}, revision {report['revision'] or 'none'} (required: {report['required_revision']})",
            "isolation": report["isolation"],
            "clock": f"{report['clock_skew']:+.3f} s relative to this machine's, round trip {report['round_trip'] * 1000:.1f} ms",
            "capabilities": ", ".join(report["capabilities"]),
            "strategies": _choices(report["strategies"]),
            "removals": _choices(report["removals"]),
        }
        | report["facts"]
    )
    for finding in report["stuck"]:
        output.line(f"stuck: {finding}")
    for finding in report["slow"]:
        output.line(f"slow: {finding}")
    for warning in report["warnings"]:
        output.line(f"warning: {warning}")
    for problem in report["problems"]:
        output.line(f"problem: {problem}")
    output.line("healthy" if report["healthy"] else "not healthy")


def _choices(choices: dict[str, list[str]]) -> str:
    return ", ".join(name if not lacking else f"not {name} (needs {', '.join(lacking)})" for name, lacking in choices.items())
