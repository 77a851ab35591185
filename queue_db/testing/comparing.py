"""Compare locking strategies in a test suite, on its own databases."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sqlalchemy import URL

from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.model import Fault
from queue_db.removal import Removal, removal_for
from queue_db.strategies import Strategy, strategy_for

if TYPE_CHECKING:
    from queue_db.compare.product import Product
    from queue_db.compare.results import Bench, Row

StrategyFactory = Callable[[], Strategy]


@dataclass(frozen=True)
class ComparedRow:
    """What one strategy with one removal did on one database, over all its runs."""

    url: str  #: of the database, passwords masked
    server: str  #: its name and version
    strategy: str
    removal: str
    batch: int  #: jobs per claim
    jobs: int  #: that were enqueued, over all runs
    finished: bool  #: whether every job left the queue before the time limit
    jobs_per_second: float  #: median of the finished runs; 0 if none finished
    executions: int  #: of jobs; more than ``jobs`` if some were executed again
    duplicates: int  #: jobs that were executed more than once
    lost: int  #: completions that came after the lease had been lost
    deadlocks: int
    errors: int  #: of the driver, with the deadlocks; the transactions were repeated
    displacement: float  #: mean distance between a job's place in the order of execution and in the queue
    max_displacement: int  #: the largest one
    refused: str | None = None  #: what the database lacks for this row, which did not run: then all figures are 0


def compare(
    urls: str | URL | Sequence[str | URL],
    *,
    strategies: Sequence[str | StrategyFactory] = ("adaptive", "optimistic", "skip_locked", "pessimistic"),
    removals: Sequence[str | Removal] = ("delete",),
    jobs: int = 1_000,
    workers: int = 4,
    batch: int = 1,
    repeat: int = 1,
    work_ms: float = 0.0,
    kind: Literal["processes", "threads"] = "processes",
    limit: float = 60.0,
) -> list[ComparedRow]:
    """Drain a queue with each strategy and removal on each database; return a row for each, in this order.

    It works in a schema of its own (on MySQL and MariaDB a database, on SQLite a file beside yours), which it drops at the end.
    Each row gets new tables, and the rows of a database take turns. It puts the server under full load.

    :param strategies: names, or callables that make one: ``functools.partial(Optimistic, window=16)``. ``optimistic`` by name has a
        window of ``workers`` batches, as in ``queue-db compare``.
    :param removals: names or objects, as for ``QueueDB(removal=…)``.
    :param jobs: in the queue at the start of each run; 5 times as many with a ``batch`` from 10, 10 times as many from 100.
    :param workers: processes, or threads (``kind``), that claim and complete the jobs.
    :param batch: jobs per claim.
    :param repeat: runs of each row.
    :param work_ms: duration of a job, milliseconds.
    :param limit: time limit of a run, seconds.
    :raises ConfigurationError: an unknown name, an unusable database, or no right to create a schema in it; or the extra
        ``compare`` is not installed.
    :raises ArgumentError: a value is outside its range.
    :raises WorkerPoolError: a worker failed.
    :raises StorageError: a server does not answer.
    """
    if importlib.util.find_spec("msgspec") is None:
        raise ConfigurationError('msgspec is not installed: pip install "queue-db[compare]"')
    from queue_db.compare.laboratory import compare as measure
    from queue_db.compare.plan import Plan
    from queue_db.compare.worker_pool import WorkerPoolError

    places = [urls] if isinstance(urls, str | URL) else list(urls)
    if not places:
        raise ArgumentError("urls: give at least one database")
    for name, given in (("strategies", strategies), ("removals", removals)):
        if isinstance(given, str):
            raise ArgumentError(f"{name}={given!r}: must be a list, such as [{given!r}]")
    pairs = [(strategy, removal_for(removal)) for strategy in strategies for removal in removals]
    if not pairs:
        raise ArgumentError("strategies and removals: give at least one of each")
    products = [_product(number, strategy, removal, batch) for number, (strategy, removal) in enumerate(pairs)]
    if kind == "processes":
        _require_picklable(products)
    plan = Plan(
        strategies=("peers",), jobs=jobs, workers=workers, repeat=repeat, work_ms=work_ms, batches=(batch,), limit=limit, kind=kind
    )
    texts = [url.render_as_string(hide_password=False) if isinstance(url, URL) else url for url in places]
    found: list[ComparedRow] = []
    for bench in measure(texts, plan, more=products).benches:
        for row, (strategy, removal) in zip(bench.rows, pairs, strict=True):
            if row.failed is not None:
                raise WorkerPoolError(f"{_name(strategy)} with {removal.name} on {bench.server}: {row.failed}")
            found.append(_compared(bench, row, _name(strategy), removal.name))
    return found


def _name(strategy: str | StrategyFactory) -> str:
    return strategy if isinstance(strategy, str) else strategy().name


@dataclass(frozen=True)
class _Always:
    """A new strategy for each worker, the same for every number of workers."""

    strategy: str | StrategyFactory

    def __call__(self, workers: int) -> Strategy:
        return strategy_for(self.strategy if isinstance(self.strategy, str) else self.strategy())


def _product(number: int, strategy: str | StrategyFactory, removal: Removal, batch: int) -> Product:
    from queue_db.compare.product import PRODUCT, Product

    given: object = strategy
    if not isinstance(given, str) and not callable(given):
        made = type(given).__name__
        raise ArgumentError(f"strategies: a name or a callable that makes one, such as functools.partial({made}), not an object")
    # A row of the laboratory is found by its name, and two strategies may have the same one.
    name = f"{_name(strategy)}, {removal.name}, {number}"
    row = next((one for one in PRODUCT if one.name == strategy), None)
    if row is None:
        make = _Always(strategy)
        make(1)  # what is unknown or no strategy is refused before anything is created
        row = Product(name, f"strategy {_name(strategy)}", make)
    return replace(row, name=name, batch=batch, removes=removal)


def _require_picklable(products: Sequence[Product]) -> None:
    for product in products:
        try:
            pickle.dumps(product)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ArgumentError(
                f"{product.name}: cannot be sent to a worker process ({error}): use functools.partial of a class at the top of a "
                'module, or kind="threads"'
            ) from error


def _compared(bench: Bench, row: Row, strategy: str, removal: str) -> ComparedRow:
    return ComparedRow(
        url=bench.url,
        server=bench.server,
        strategy=strategy,
        removal=removal,
        batch=row.batch,
        jobs=row.total("jobs"),
        finished=row.finished,
        jobs_per_second=row.rate.median if row.rate is not None else 0.0,
        executions=row.total("executions"),
        duplicates=sum(sum(run.duplicates.values()) for run in row.runs),
        lost=row.total("lost"),
        deadlocks=row.faults.get(Fault.DEADLOCK, 0),
        errors=sum(row.faults.values()),
        displacement=row.diff.mean,
        max_displacement=row.diff.max,
        refused=row.refused,
    )
