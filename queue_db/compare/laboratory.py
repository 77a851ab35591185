"""Run a plan: every row on every database, as often as wished, in places of its own that are gone afterwards."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, Self

from sqlalchemy.exc import SQLAlchemyError

from queue_db import arguments
from queue_db.compare.article import ARTICLE, Article
from queue_db.compare.contestant import Contestant, Place
from queue_db.compare.crew import Assignment, Crew, CrewError, Kind
from queue_db.compare.engines import autocommitting
from queue_db.compare.machine import machine, server_clock
from queue_db.compare.product import PRODUCT
from queue_db.compare.protocol import Protocol as ProtocolTable
from queue_db.compare.results import Bench, Comparison, Row, Run
from queue_db.database.database import Database, parse_url
from queue_db.database.masking import mask, masked, secrets_in
from queue_db.dialects import dialect_for
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.store.schema import tables

#: Prefix of the schemas that the laboratory makes. What a killed one has left may be dropped.
PREFIX = "queue_db_compare_"

#: Runs with batches get more jobs, so that they last: so many times as many, from this batch on.
_MORE = ((100, 10), (10, 5))

#: Seconds without a job begun or left in all workers are what the article's lease makes; more is a run that will not end.
_DEFAULT_LIMIT = 300.0


@dataclass(frozen=True)
class Plan:
    """What to run.

    :param jobs: in one run with single claims; runs with batches of 10 get 5 times, of 100 and more 10 times as many.
    :param repeat: runs of each row.
    :param work_ms: how long a job takes, milliseconds.
    :param clone: probability that a job enqueues another one.
    :param batches: jobs per claim, for the rows that can.
    :param verify: write the protocol table.
    :param lease: seconds: the article's ``retry_after``.
    :param limit: seconds for one run.
    """

    strategies: tuple[str, ...] = ("all",)
    jobs: int = 10_000
    workers: int = 10
    repeat: int = 10
    work_ms: float = 0.0
    clone: float = 0.0
    batches: tuple[int, ...] = (1, 10, 100)
    verify: bool = False
    lease: float = 4.0
    limit: float = _DEFAULT_LIMIT
    kind: Kind = "processes"

    def __post_init__(self) -> None:
        arguments.whole("jobs", self.jobs, 1, 100_000_000)
        arguments.whole("workers", self.workers, 1, 1000)
        arguments.whole("repeat", self.repeat, 1, 1000)
        for batch in self.batches:
            arguments.whole("batch", batch, 1, 10_000)
        if not self.batches:
            raise ArgumentError("batch: give at least one number of jobs per claim")
        if not 0.0 <= self.clone < 1.0:
            raise ArgumentError(f"clone={self.clone}: must be 0 to less than 1, or the jobs never end")
        if not (math.isfinite(self.work_ms) and self.work_ms >= 0):
            raise ArgumentError(f"work_ms={self.work_ms}: must be 0 or more milliseconds")
        if not 1.0 <= arguments.seconds("lease", self.lease) / 1_000_000 == int(self.lease):
            raise ArgumentError(f"lease={self.lease}: must be whole seconds, 1 or more: the article's layout has no others")
        if not self.strategies:
            raise ArgumentError("strategies: give at least one name")
        if self.kind not in ("processes", "threads"):
            raise ArgumentError(f"kind={self.kind!r}: must be processes or threads")
        arguments.seconds("limit", self.limit, zero=False)

    def jobs_for(self, batch: int) -> int:
        """Jobs in a run with claims of ``batch``."""
        return self.jobs * next((times for size, times in _MORE if batch >= size), 1)

    def told(self) -> dict[str, str]:
        """For people and files."""
        return {
            "strategies": ",".join(self.strategies),
            "jobs": str(self.jobs),
            "workers": f"{self.workers} {self.kind}",
            "repeat": str(self.repeat),
            "work-ms": f"{self.work_ms:g}",
            "clone": f"{self.clone:g}",
            "batch": ",".join(map(str, self.batches)),
            "verify": "yes" if self.verify else "no",
            "lease": f"{self.lease:g} s",
        }


class Audience(Protocol):
    """Who is told how far the comparison is."""

    def bench(self, server: str, rows: int, runs: int) -> None:
        """A database begins."""
        ...

    def run(self, name: str, batch: int, number: int, jobs: int) -> None:
        """A run begins."""
        ...

    def progress(self, left: int, seconds: float) -> None:
        """So many jobs have left so far."""
        ...

    def ran(self) -> None:
        """A run has ended."""
        ...

    def done(self, row: Row, skipped: int) -> None:
        """A row has all its runs, or was refused: then so many were left out."""
        ...


class Silence:
    """Nobody."""

    def bench(self, server: str, rows: int, runs: int) -> None:
        """Nothing."""

    def run(self, name: str, batch: int, number: int, jobs: int) -> None:
        """Nothing."""

    def progress(self, left: int, seconds: float) -> None:
        """Nothing."""

    def ran(self) -> None:
        """Nothing."""

    def done(self, row: Row, skipped: int) -> None:
        """Nothing."""


def contestants(wanted: Sequence[str], batches: Sequence[int], more: Sequence[Contestant] = ()) -> list[Contestant]:
    """The rows of these names, in a fixed order.

    :param wanted: ``all``, ``article``, ``product``, ``peers``, or names: ``adaptive``, ``DBO-1``, ``DBP-0-1-1``.
    :param more: rows that are not part of the package.
    :raises ArgumentError: for an unknown name, with those that are known.
    """
    known: dict[str, list[Contestant]] = {"article": list(ARTICLE), "product": [], "peers": list(more)}
    for product in PRODUCT:
        known["product"].extend(replace(product, batch=batch) for batch in batches)
    known["all"] = [*known["product"], *known["article"], *known["peers"]]
    for row in known["all"]:
        known.setdefault(short_name(row), []).append(row)
    chosen: list[Contestant] = []
    for name in wanted:
        if name not in known:
            raise ArgumentError(f"unknown strategy {name!r}; known: {', '.join(known)}")
        chosen.extend(row for row in known[name] if row not in chosen)
    return chosen


def short_name(row: Contestant) -> str:
    """The name to ask for a row by: an article's without the database."""
    return row.pattern.replace("-{db}", "") if isinstance(row, Article) else row.name


def compare(
    urls: Sequence[str],
    plan: Plan,
    *,
    more: Sequence[Contestant] = (),
    audience: Audience | None = None,
) -> Comparison:
    """Run ``plan`` on each database and return what was measured.

    Whatever happens, what it made in the databases is gone afterwards.

    :raises ArgumentError: a strategy that nobody knows.
    :raises ConfigurationError: a database that cannot be used, or the right to make a schema is missing.
    :raises StorageError: the server does not answer.
    :raises CrewError: no row could be run, because a worker could not do its part. Where others could, the row says so.
    """
    listening = audience or Silence()
    rows = contestants(plan.strategies, plan.batches, more)
    comparison = Comparison(plan=plan.told(), machine=machine(), began=datetime.now(UTC).isoformat(timespec="seconds"), benches=[])
    with _Shifts(plan) as shifts:
        for url in urls:
            with own_place(url, plan) as (place, bench):
                comparison.benches.append(bench)
                _run_bench(place, bench, rows, plan, shifts, listening)
    ran = [row for bench in comparison.benches for row in bench.rows if row.refused is None]
    if ran and all(row.failed is not None for row in ran):
        raise CrewError(ran[0].failed)
    return comparison


class _Shifts:
    """The crew at work, and a fresh one after one that has failed: of its workers nobody knows what they are at."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.relieve()

    @property
    def crew(self) -> Crew:
        """Who works now."""
        if self._crew is None:
            self._crew = Crew(self._plan.workers, self._plan.kind)
        return self._crew

    def relieve(self) -> None:
        """Send everybody home."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()


@contextmanager
def own_place(url: str, plan: Plan) -> Iterator[tuple[Place, Bench]]:
    """A schema of the laboratory's own in this database, and what the database is; the schema is gone afterwards."""
    name = PREFIX + secrets.token_hex(4)
    dialect = dialect_for(parse_url(url).get_backend_name())
    # Not the user's file, on SQLite: it is not opened at all.
    home, schema = dialect.annex(parse_url(url), name)
    address = home.render_as_string(hide_password=False)
    made = False
    try:
        with contextlib.closing(Database(address)) as database:
            with autocommitting(address) as engine, engine.connect() as connection:
                try:
                    dialect.make_annex(connection, name)
                except SQLAlchemyError as error:
                    raise ConfigurationError(
                        f"the comparison works in a schema of its own, and may not make one in {database.url}: {_reason(error)}. "
                        f"Give the user the right to create schemas (databases, on MySQL and MariaDB) called {PREFIX}…, "
                        "or name another user"
                    ) from error
            made = True
            bench = Bench(
                url=masked(url), title=database.server.split()[0], server=database.server, facts=_facts(database), rows=[]
            )
        yield Place(address, schema, plan.lease, plan.workers), bench
    finally:
        # Also if nothing says that it was made: a signal may have come right after.
        careful = contextlib.nullcontext() if made else contextlib.suppress(SQLAlchemyError)
        with careful, autocommitting(address) as engine, engine.connect() as connection:
            dialect.drop_annex(connection, name)


def _reason(error: BaseException) -> str:
    return str(getattr(error, "orig", error)).strip().splitlines()[0]


def _facts(database: Database) -> dict[str, str]:
    # No table is there yet: the facts of one are those of the migration.
    with database.engine.connect() as connection:
        return database.dialect.facts(connection, tables("jobs", None).jobs)


def _run_bench(place: Place, bench: Bench, rows: Sequence[Contestant], plan: Plan, shifts: _Shifts, audience: Audience) -> None:
    short = {"PostgreSQL": "pgsql"}.get(bench.title, bench.title.lower())
    audience.bench(bench.server, len(rows), len(rows) * plan.repeat)
    for one in rows:
        contestant = replace(one, name=one.pattern.format(db=short)) if isinstance(one, Article) else one
        row = Row(
            name=contestant.name,
            family=contestant.family,
            batch=contestant.batch,
            claim=contestant.claim,
            removal=contestant.removal,
            index=contestant.index,
            workers=plan.workers,
            window=contestant.window(plan.workers),
            pick=contestant.pick,
            refused=contestant.refused(place),
            configuration=contestant.configuration(),
            runs=[],
        )
        bench.rows.append(row)
        if row.refused is None:
            for number in range(plan.repeat):
                jobs = plan.jobs_for(contestant.batch)
                audience.run(row.name, row.batch, number, jobs)
                try:
                    row.runs.append(_run_once(contestant, place, row, plan, shifts.crew, audience, jobs))
                except CrewError as error:
                    bench.rows[-1] = row = replace(row, failed=mask(str(error), secrets_in(place.url)))
                    shifts.relieve()
                    break
                audience.ran()
        audience.done(row, plan.repeat - len(row.runs))


def _run_once(contestant: Contestant, place: Place, row: Row, plan: Plan, crew: Crew, audience: Audience, jobs: int) -> Run:
    try:
        contestant.set_up(place, jobs)
        with autocommitting(place.url) as engine:
            protocol = ProtocolTable(place)
            if plan.verify:
                protocol.make(engine)
            clock = server_clock(engine, dialect_for(engine.dialect.name))
            spent: list[float | None] = []
            began = time.monotonic()
            history = crew.run(
                Assignment(contestant, place, plan.work_ms / 1000, plan.clone, plan.verify),
                jobs,
                limit=plan.limit,
                before=lambda: spent.append(clock()) if clock else None,
                progress=lambda left: audience.progress(left, time.monotonic() - began),
            )
            server_cpu = _between(spent[0], clock()) if clock else None
            if plan.verify:
                history = replace(history, protocol=protocol.read(engine))
    finally:
        contestant.tear_down(place)
    picked = row.window if row.pick in ("head", "uniform") else None
    return Run.of(history, window=picked, client_cpu=history.total("cpu"), server_cpu=server_cpu)


def _between(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else last - first
