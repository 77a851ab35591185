"""``queue-db doctor``: what is there, what works, and what to do about the rest."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy
import typer
from sqlalchemy import Connection

from queue_db import __version__
from queue_db.cli import output, rights, statuses
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, command, opened
from queue_db.database import migrate as migrations
from queue_db.db import QueueDB
from queue_db.errors import PermanentStorageError, SchemaOutOfDateError, StorageError
from queue_db.insights import Finding, findings
from queue_db.model import Capability
from queue_db.removal import known_removals, removal_for
from queue_db.strategies import known_strategies, strategy_for

#: Seconds by which this machine's clock may differ from the database's before the doctor mentions it.
SKEW = 1.0

_LOOKS = 5


@dataclass(frozen=True, slots=True)
class _Clock:
    """How far the database's clock is ahead of this machine's, and how long the answer took; seconds."""

    skew: float
    round_trip: float


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "doctor", "queue-db doctor", "queue-db doctor --strict", "queue-db doctor --json | jq -r '.problems[]'")
    def doctor(
        *,
        strict: Annotated[bool, typer.Option("--strict", help="What is slow and each warning count as well: status 1.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Connect, print versions, capabilities, state of the tables, clock skew, what is stuck or slow and why, and what to fix.

        Status 1 (not healthy) if there is a problem or something is stuck. Problems are tables that are missing or of another
        version, and each right that a worker needs and this user lacks: run it as the user of your workers. Stuck is a queue whose
        jobs have been due for more than a minute without a worker at work on it, a kind of jobs that no worker has a handler for,
        a schedule that is late because no worker carries
        it out, and a worker's slot whose handler does not come back.

        Slow is a queue whose jobs have been due for more than a minute while workers work, or while it is paused or limited; a
        worker without a heartbeat; a group with too many jobs at once. This, and each warning, is status 1 with --strict.
        """
        with opened(url, table, schema) as db:
            found = _examine(db, strict=strict)
        if as_json:
            output.record(found)
        else:
            _print(found)
        if not found["healthy"]:
            raise typer.Exit(statuses.NOT_SO)


def _examine(db: QueueDB, *, strict: bool = False) -> dict[str, Any]:
    database, dialect, tables = db.database, db.store.dialect, db.store.tables
    sql = database.engine.dialect
    isolation, facts, clock = database.run(
        lambda connection: (connection.get_isolation_level(), dialect.facts(connection, tables.jobs), _clock(connection, db)),
        name="doctor",
        write=False,
    )
    version = migrations.SchemaVersion(None)
    problems: list[str] = []
    noticed: list[Finding] = []
    try:
        version = migrations.found(database, tables)
        db.check()
    except SchemaOutOfDateError as error:
        problems.append(str(error))
    except PermanentStorageError:
        # Most likely the first of several rights that are missing.
        problems += rights.missing(db)
        if not problems:
            raise
    else:
        problems += rights.missing(db)
        noticed += _noticed(db, problems)
    stuck = [one.sentence for one in noticed if one.stuck]
    slow = [one.sentence for one in noticed if not one.stuck]
    warnings: list[str] = []
    if abs(clock.skew) > SKEW + clock.round_trip / 2:
        way = "behind" if clock.skew > 0 else "ahead of"
        warnings.append(
            f"this machine's clock is {abs(clock.skew):.1f} s {way} the database's: leases and delays are not affected, since only "
            "the database's clock counts, but times given with --run-at and times in logs are; set the clock (NTP)"
        )
    return {
        "healthy": not (problems or stuck or (strict and (slow or warnings))),
        "url": db.url,
        "queue_db": __version__,
        "python": platform.python_version(),
        "sqlalchemy": sqlalchemy.__version__,
        "driver": f"{sql.driver} {getattr(sql.dbapi, '__version__', '(part of Python)')}",
        "server": database.server,
        "minimum": ".".join(map(str, dialect.minimum_for(sql))),
        "capabilities": sorted(capability.value for capability in database.capabilities),
        "strategies": {name: _lacking(db, strategy_for(name).needs) for name in known_strategies()},
        "removals": {name: _lacking(db, removal_for(name).needs) for name in known_removals()},
        "isolation": isolation,
        "table": tables.name,
        "schema": tables.schema,
        "revision": version.revision,
        "works_since": version.works_since,
        "required_revision": migrations.HEAD,
        "clock_skew": round(clock.skew, 6),
        "round_trip": round(clock.round_trip, 6),
        "facts": facts,
        "problems": problems,
        "stuck": stuck,
        "slow": slow,
        "warnings": warnings,
    }


def _noticed(db: QueueDB, problems: list[str]) -> list[Finding]:
    """What is stuck or slow, as far as this user may see it."""
    try:
        return findings(db)
    except StorageError as error:
        problems.append(f"what is stuck cannot be seen: {error}")
        return []


def _lacking(db: QueueDB, needs: frozenset[Capability]) -> list[str]:
    return sorted(capability.value for capability in needs - db.database.capabilities)


def _clock(connection: Connection, db: QueueDB) -> _Clock:
    """The look with the shortest round trip tells best; the answer was given about halfway through it."""
    looks = []
    for _ in range(_LOOKS):
        wall, began = time.time(), time.monotonic()
        theirs = connection.execute(db.store.dialect.clock_query()).scalar_one() / 1_000_000
        round_trip = time.monotonic() - began
        looks.append(_Clock(theirs - (wall + round_trip / 2), round_trip))
    return min(looks, key=lambda look: look.round_trip)


def _print(found: dict[str, Any]) -> None:
    output.sheet(
        {
            "database": found["url"],
            "server": f"{found['server']} (needed: {found['minimum']} or later)",
            "driver": found["driver"],
            "queue_db": f"{found['queue_db']}, SQLAlchemy {found['sqlalchemy']}, Python {found['python']}",
            "tables": f"{found['table']}, revision {found['revision'] or 'none'} (needed: {found['required_revision']})",
            "isolation": found["isolation"],
            "clock": f"{found['clock_skew']:+.3f} s against this machine's, round trip {found['round_trip'] * 1000:.1f} ms",
            "capabilities": ", ".join(found["capabilities"]),
            "strategies": _choices(found["strategies"]),
            "removals": _choices(found["removals"]),
        }
        | found["facts"]
    )
    for one in found["stuck"]:
        output.line(f"stuck: {one}")
    for one in found["slow"]:
        output.line(f"slow: {one}")
    for warning in found["warnings"]:
        output.line(f"warning: {warning}")
    for problem in found["problems"]:
        output.line(f"problem: {problem}")
    output.line("healthy" if found["healthy"] else "not healthy")


def _choices(choices: dict[str, list[str]]) -> str:
    return ", ".join(name if not lacking else f"not {name} (needs {', '.join(lacking)})" for name, lacking in choices.items())
