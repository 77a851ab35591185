"""Runs a plan: every row on every database, as often as planned, in schemas that are dropped afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from queue_db.compare import nodes
from queue_db.compare.arrivals import Arriving, arriving_rows, offered_rate
from queue_db.compare.article import ARTICLE, Article
from queue_db.compare.contestant import Contestant, Target
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.compare.history import History
from queue_db.compare.machine import machine, server_clock
from queue_db.compare.plan import Plan, ProgressListener
from queue_db.compare.product import PRODUCT
from queue_db.compare.protocol import Protocol
from queue_db.compare.results import ArrivalRow, ArrivalTurn, Bench, Comparison, Row, Run
from queue_db.compare.scratch import scratch_target
from queue_db.compare.worker_pool import Assignment, WorkerPool, WorkerPoolError
from queue_db.database.masking import mask, secrets_in
from queue_db.dialects import dialect_for
from queue_db.errors import ArgumentError


def contestants(wanted: Sequence[str], batches: Sequence[int], more: Sequence[Contestant] = ()) -> list[Contestant]:
    """Return the rows of these names, in a fixed order.

    :param wanted: ``all``, ``article``, ``product``, ``peers``, or names: ``adaptive``, ``DBO-1``, ``DBP-0-1-1``.
    :param more: rows that do not belong to the package.
    :raises ArgumentError: an unknown name; the message lists the known ones.
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
    """Return the name of a row on the command line: an article's row without the database."""
    return row.pattern.replace("-{db}", "") if isinstance(row, Article) else row.name


def compare(
    urls: Sequence[str],
    plan: Plan,
    *,
    more: Sequence[Contestant] = (),
    listener: ProgressListener | None = None,
    keep: Callable[[Comparison], None] = lambda _: None,
) -> Comparison:
    """Run ``plan`` on each database and return the results. The schemas that it creates are dropped even after an error.

    :param keep: called after each run with what has been measured so far, marked as interrupted.
    :raises ArgumentError: an unknown strategy.
    :raises ConfigurationError: an unusable database, or no right to create a schema.
    :raises StorageError: the server does not answer.
    :raises WorkerPoolError: every row failed in a worker. If only some rows fail, their results contain the error.
    """
    rows = contestants(plan.strategies, plan.batches, more)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    comparison = Comparison(plan=plan.options(), machine=machine(), began=began, benches=[])
    runner = _Runner(plan, listener or ProgressListener(), lambda: keep(replace(comparison, interrupted=True)))
    with nodes.hushed(), runner:
        for url in urls:
            grown = list(nodes.grown(url))
            _require_all(grown, plan)
            for each, count in grown:
                with scratch_target(each, plan, count) as (target, bench):
                    if count and nodes.on_one_machine(url):
                        bench.facts["nodes"] = "share one machine"
                    comparison.benches.append(bench)
                    runner.run_bench(target, bench, rows)
                    if plan.arrivals:
                        runner.run_arrivals(target, bench)
    ran = [row for bench in comparison.benches for row in bench.rows if row.refused is None]
    if ran and all(row.failed is not None for row in ran):
        raise WorkerPoolError(ran[0].failed)
    return comparison


@dataclass
class _Runner:
    """Runs rows on one worker pool, and replaces the pool after a failure: the state of its workers is unknown then."""

    plan: Plan
    listener: ProgressListener
    keep: Callable[[], None]
    _pool: WorkerPool | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close_pool()

    def run_bench(self, target: Target, bench: Bench, rows: Sequence[Contestant]) -> None:
        """Run each row once, then each again, and add them to ``bench``: what slows the machine for a while slows all rows."""
        database = {"PostgreSQL": "pgsql"}.get(bench.title, bench.title.lower())
        here = [replace(one, name=one.pattern.format(db=database)) if isinstance(one, Article) else one for one in rows]
        self.listener.bench_started(bench.server, len(rows), len(rows) * self.plan.repeat)
        bench.rows.extend(replace(_row(one, target), quick=self.plan.quick) for one in here)
        for number in range(self.plan.repeat):
            for at, contestant in enumerate(here):
                bench.rows[at] = self._run_turn(contestant, target, bench.rows[at], number)
                if number == self.plan.repeat - 1:
                    self.listener.row_finished(bench.rows[at], self.plan.repeat - len(bench.rows[at].runs))
                self.keep()

    def run_arrivals(self, target: Target, bench: Bench) -> None:
        """Measure the product's strategies under a fixed arrival rate and add them to ``bench``."""
        rate = self.plan.rate or offered_rate(bench.rows)
        if rate is None:
            return
        workers = max(2, self.plan.workers)
        target = replace(target, workers=workers)
        for row in arriving_rows(bench.rows):
            product = next(one for one in PRODUCT if one.name == row.name)
            self.listener.arrivals_started(row.name, rate)
            arriving = Arriving.like(replace(product, batch=row.batch), rate, max(1, round(rate * self.plan.arrivals)))
            found = ArrivalRow(row.name, row.batch, workers - 1, rate, refused=row.refused, quick=self.plan.quick)
            for _ in range(self.plan.turns if row.refused is None else 0):
                try:
                    found.turns.append(self._run_arrivals(arriving, target))
                except WorkerPoolError as error:
                    self._close_pool()
                    found = replace(found, failed=mask(str(error), secrets_in(target.url)))
                    break
            bench.arrivals.append(found)
            self.keep()
            self.listener.arrivals_finished(found)

    def _run_arrivals(self, arriving: Arriving, target: Target) -> ArrivalTurn:
        try:
            _set_up(arriving, target, arriving.jobs)
            history = self._workers(target.workers).run(
                Assignment(arriving, target, self.plan.work_ms / 1000, 0.0, verify=False),
                arriving.jobs,
                limit=min(self.plan.limit, 5 * self.plan.arrivals),
            )
        finally:
            arriving.tear_down(target)
        return arriving.turn(history)

    def _run_turn(self, contestant: Contestant, target: Target, row: Row, number: int) -> Row:
        if row.refused is not None or row.failed is not None:
            return row
        jobs = self.plan.jobs_for(contestant.batch)
        self.listener.run_started(row.name, row.batch, number, jobs)
        try:
            row.runs.append(self._run_once(contestant, target, jobs))
        except WorkerPoolError as error:
            self._close_pool()
            return replace(row, failed=mask(str(error), secrets_in(target.url)))
        self.listener.run_finished()
        return row

    def _run_once(self, contestant: Contestant, target: Target, jobs: int) -> Run:
        try:
            _set_up(contestant, target, jobs)
            history, server_cpu = self._race(contestant, target, jobs)
        finally:
            contestant.tear_down(target)
        return Run.of(history, client_cpu=history.total("cpu"), server_cpu=server_cpu)

    def _race(self, contestant: Contestant, target: Target, jobs: int) -> tuple[History, float | None]:
        """Let the workers process the jobs; return the history and the server's processor time, seconds."""
        plan, protocol = self.plan, Protocol(target)
        with autocommitting(target.url) as engine:
            if plan.verify:
                protocol.make(engine)
            # Of a cluster it would be one node's; the others apply the changes too.
            clock = None if target.nodes else server_clock(engine, dialect_for(engine.dialect.name))
            spent: list[float | None] = []
            began = time.monotonic()
            history = self._workers(target.workers).run(
                Assignment(contestant, target, plan.work_ms / 1000, plan.clone, plan.verify),
                jobs,
                limit=plan.limit,
                before=lambda: spent.append(clock()) if clock else None,
                progress=lambda left: self.listener.run_progress(left, time.monotonic() - began),
            )
            server_cpu = _difference(spent[0], clock()) if clock else None
            if plan.verify:
                history = replace(history, protocol=protocol.read(engine))
        return history, server_cpu

    def _workers(self, count: int) -> WorkerPool:
        if self._pool is not None and self._pool.workers != count:
            self._close_pool()
        if self._pool is None:
            plan = self.plan
            self._pool = WorkerPool(count, plan.kind, start_limit=plan.start_limit, stop_limit=plan.stop_limit)
        return self._pool

    def _close_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _require_all(grown: Sequence[tuple[str, int]], plan: Plan) -> None:
    """Refuse a cluster with a node that does not answer or takes no changes, before anything is measured."""
    every, count = grown[-1]
    for url in nodes.of_each(every) if count > 1 else ():
        with scratch_target(url, plan):
            pass


def _set_up(contestant: Contestant, target: Target, jobs: int) -> None:
    """Create its tables, and wait until each node has them with all jobs."""
    contestant.set_up(target, jobs)
    try:
        for url in nodes.of_each(target.url) if target.nodes > 1 else ():
            with autocommitting(url) as engine, engine.connect() as connection:
                Laboratory.of(dialect_for(engine.dialect.name)).catch_up(connection)
    except SQLAlchemyError as error:
        raise WorkerPoolError(f"a node is away: {getattr(error, 'orig', error)}") from error


def _row(contestant: Contestant, target: Target) -> Row:
    return Row(
        name=contestant.name,
        family=contestant.family,
        batch=contestant.batch,
        claim=contestant.claim,
        removal=contestant.removal,
        index=contestant.index,
        workers=target.workers,
        window=contestant.window(target.workers),
        refused=contestant.refused(target),
        configuration=contestant.configuration(),
        runs=[],
    )


def _difference(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else last - first
