"""Bulk loads that are all or nothing: attempts stage chunks of jobs, and one transaction publishes those that are named.

The protocol. An *attempt* stages its chunks in one transaction under a fresh number. :func:`publish` begins with a row of the
ledger, ``(app, version, queue)``: if it is there, this load was published before and nothing happens. Then it copies the named
attempts' jobs into the queue and deletes their chunks, and refuses if a chunk is missing. :func:`discard` deletes an attempt's
chunks unless they have been published: both delete the same rows, so of the two one comes first and the other finds nothing.
Attempts that no publication names are never published; :func:`sweep` deletes them by age. A small chunk need not be staged: it is
passed to the publication itself.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice, repeat
from typing import Any, ClassVar, Protocol, cast

from sqlalchemy import delete, func, insert, literal, select

from queue_db.dialects.clock import due_time
from queue_db.dialects.copy_stream import Value
from queue_db.errors import StagingError
from queue_db.spark.dialects import SparkDialect
from queue_db.spark.staging.chunks import FIELDS, jobs_of, unpack, whole
from queue_db.spark.tables import spark_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction
from queue_db.store.enqueue import OnDuplicate, after, insert_jobs
from queue_db.store.schema import DEFAULT_KIND, DEFAULT_MAX_ATTEMPTS

#: What a job has that its chunk does not say.
DEFAULTS: Mapping[str, Any] = {
    "kind": DEFAULT_KIND,
    "headers": None,
    "priority": 0,
    "max_attempts": DEFAULT_MAX_ATTEMPTS,
    "unique_key": None,
    "group_key": None,
    "callback_id": None,
    "unique_for": 0,
    "after": 0,
    "not_before": 0,
}

# An attempt's number: milliseconds since 1970, then so many random bits. Two attempts of one millisecond that draw the same bits
# meet at their first chunk, which has the same key.
_RANDOM_BITS = 22

# Fields that are columns of the jobs table; the others are due times, or are handled one by one.
_LOADED = frozenset({"queue", "payload", "kind", "headers", "priority", "max_attempts"})

# The ledger's name of a set of queues begins so; no queue has a name that begins with a blank.
_SEVERAL = " queues "

# Attempts in one statement, and jobs in one call of insert_jobs.
_ATTEMPTS = 200
_JOBS = 1000

# Jobs that are put together to be loaded at once.
_GATHERED = 5000


class Entry(Protocol):
    """What the ledger and errors show of a load."""

    @property
    def app(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def kept(self) -> bool: ...
    @property
    def noun(self) -> str: ...
    @property
    def into(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Load:
    """What is published in one go: an entry of the ledger, and what was staged for it.

    If the jobs go into several queues, the field ``queue`` says into which, and ``queue`` here is not used but in errors.
    """

    queue: str
    app: str
    version: int
    #: Fields that the chunks have, of :data:`queue_db.spark.staging.chunks.FIELDS`.
    fields: tuple[str, ...]
    #: What a job has that its chunk does not say.
    defaults: Mapping[str, Any]
    on_duplicate: OnDuplicate
    #: Whether the same (app, version) may come again to this queue, however late.
    kept: bool
    noun: ClassVar[str] = "jobs"

    @property
    def into(self) -> str:
        """Where it goes, for errors."""
        return f"queue {self.queue!r}"

    @property
    def one_by_one(self) -> bool:
        """Whether its jobs are inserted as any other enqueue, in their order: those with unique keys or groups."""
        return bool({"unique_key", "group_key"} & set(self.fields)) or self.defaults.get("group_key") is not None


@dataclass(frozen=True, slots=True)
class Published:
    """An entry of the ledger."""

    jobs: int  #: added to the queue, or messages added to the feed
    skipped: int  #: not added, because a live job had their unique key


def new_attempt(tx: Transaction) -> int:
    """A number that no other attempt has."""
    return (tx.read_clock() // 1000 << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)


def chunks_of(tx: Transaction, attempt: int, fields: Sequence[str]) -> Iterator[dict[str, Sequence[Any]]]:
    """Field → values, of each chunk of an attempt, in their order."""
    staged = spark_tables(tx.tables).staged
    places = tx.connection.execute(select(staged.c.place).where(staged.c.attempt == attempt).order_by(staged.c.place))
    for place in places.scalars().all():
        chunk = select(staged.c.chunk).where(staged.c.attempt == attempt, staged.c.place == place)
        yield unpack(tx.connection.execute(chunk).scalar_one(), fields)


def stage(tx: Transaction, attempt: int, chunks: Iterable[tuple[int, str]]) -> tuple[int, int]:
    """Store ``chunks``, each ``(jobs, text)``, under ``attempt``; return how many chunks and jobs there were."""
    places = staged_jobs = 0
    for jobs, chunk in chunks:
        row: dict[str, Sequence[Value]] = {"attempt": (attempt,), "place": (places,), "size": (jobs,), "chunk": (chunk,)}
        SparkDialect.of(tx.dialect).append(tx, spark_tables(tx.tables).staged, row)
        places += 1
        staged_jobs += jobs
    return places, staged_jobs


def ledger(tx: Transaction, app: str, version: int, queue: str) -> Published | None:
    """What was published into ``queue`` as ``(app, version)``; None if nothing was."""
    published = spark_tables(tx.tables).published
    query = select(published.c.size, published.c.skipped).where(by_key.matches(published, _entry(app, version, queue)))
    row = tx.connection.execute(query).first()
    return None if row is None else Published(row.size, row.skipped)


def published_in(tx: Transaction, app: str, version: int) -> Published | None:
    """What was published into all queues together as ``(app, version)``; None if nothing was."""
    published = spark_tables(tx.tables).published
    query = select(published.c.queue, published.c.size, published.c.skipped)
    rows = tx.connection.execute(query.where(published.c.app == app, published.c.version == version)).all()
    rows = [row for row in rows if not row.queue.startswith(" ")]
    return Published(sum(row.size for row in rows), sum(row.skipped for row in rows)) if rows else None


def publish(
    tx: Transaction,
    load: Load,
    attempts: Mapping[int, int],
    jobs: int,
    parts: Sequence[int | bytes] | None = None,
    queues: Mapping[str, int] | None = None,
) -> Published | None:
    """Make jobs of what was staged: all of it, or, if ``(app, version)`` was published into this queue before, nothing (None).

    Jobs with a unique key or a group are inserted in the order of ``parts``.

    :param attempts: attempt → number of its chunks.
    :param jobs: in all parts.
    :param parts: the attempts, and small chunks that were not staged but come along (:func:`queue_db.spark.staging.chunks.small`),
        in the order of their jobs; default: the attempts.
    :param queues: for jobs that go into several queues: queue → its jobs. Each has an entry in the ledger, and so has their set.
    :raises StagingError: chunks are missing: swept, discarded, or lost with an unlogged table; or what was published as
        ``(app, version)`` into this queue had another number of jobs, or into some of the queues only. Nothing was published.
    """
    entries = {load.queue: jobs} if queues is None else {_name_of(queues): jobs, **queues}
    if not _enter_all(tx, load, entries):
        return None
    found, skipped = _copy(tx, load, list(attempts) if parts is None else parts)
    take_away(tx, load, attempts, found, jobs)
    lacking = sum(skipped.values())
    published = spark_tables(tx.tables).published
    for queue, rows in skipped.items():
        change = {"size": entries[queue] - rows, "skipped": rows}
        by_key.change(tx, published, _entry(load.app, load.version, queue), change)
    if queues is not None and lacking:
        change = {"size": jobs - lacking, "skipped": lacking}
        by_key.change(tx, published, _entry(load.app, load.version, _name_of(queues)), change)
    return Published(found - lacking, lacking)


def _name_of(queues: Collection[str]) -> str:
    """The ledger's name of a set of queues: a repetition that goes into fewer of them is not the same load."""
    return _SEVERAL + hashlib.sha256(json.dumps(sorted(queues)).encode()).hexdigest()


def _enter_all(tx: Transaction, load: Load, entries: Mapping[str, int]) -> bool:
    """Begin a publication into these queues; False: it was published before."""
    # In one order, so that no two publications wait for each other; the set of queues comes last, since errors name a queue.
    ordered = sorted(entries, key=lambda queue: (queue.startswith(" "), queue))
    new = [queue for queue in ordered if enter(tx, replace(load, queue=queue), entries[queue])]
    if new and len(new) != len(entries):
        before = [queue for queue in ordered if queue not in new and not queue.startswith(" ")]
        where = ", ".join(map(repr, before[:5])) or "these queues"
        raise StagingError(
            f"{load.app!r}, version {load.version}, was published into {where} before, and not into the same "
            "set of queues: they are not the same load, and nothing was published. Give other data another "
            "version (or txnAppId); a streaming query whose checkpoint was restored needs a new one"
        )
    return bool(new)


def enter(tx: Transaction, load: Entry, rows: int) -> bool:
    """Begin a publication: add its entry to the ledger. False: it is there, from an earlier publication, and nothing is to do.

    :param rows: how many are to be published.
    :raises StagingError: what was published as this entry had another number of rows.
    """
    published = spark_tables(tx.tables).published
    entry = {**_entry(load.app, load.version, load.queue), "size": rows, "kept": int(load.kept)}
    # It waits for a concurrent publication of the same load.
    if not by_key.insert_new(tx, published, {**entry, "published_at": tx.now}):
        before = ledger(tx, load.app, load.version, load.queue)
        had = rows if before is None else before.jobs + before.skipped
        if had != rows:
            raise StagingError(
                f"{load.app!r}, version {load.version}, was published into {load.into} before with {had} {load.noun}, and this "
                f"time it has {rows}: they are not the same load, and nothing was published. Give other data another version (or "
                "txnAppId); a streaming query whose checkpoint was restored needs a new one"
            )
        return False
    return True


def take_away(tx: Transaction, load: Entry, attempts: Mapping[int, int], found: int, rows: int) -> None:
    """End a publication: delete the chunks that were published, and compare the counts.

    :param found: rows that were in the chunks; there should have been ``rows``.
    :raises StagingError: something was missing.
    """
    gone = _delete(tx, list(attempts))
    expected = sum(attempts.values())
    if gone != expected or found != rows:
        raise StagingError(
            f"{gone} of {expected} staged chunks and {found} of {rows} {load.noun} were found: they were swept, discarded, or lost "
            "in a crash of the server. Nothing was published; run the load again"
        )


def load_at_once(tx: Transaction, load: Load, columns: Mapping[str, Sequence[Any]]) -> int:
    """Put jobs straight into the queue, without staging them; return how many were added.

    :param columns: field (``load.fields``) → values, all of the same length.
    """
    if load.one_by_one:
        found, skipped = _one_by_one(tx, load, columns)
        return found - skipped.total()
    now = tx.read_clock()
    given = {name: _filled(columns, load, name) for name in _LOADED & columns.keys()}
    same = {"queue": load.queue, **{name: load.defaults.get(name) for name in _LOADED - columns.keys() - {"queue"}}}
    same |= {"created_at": now}
    if "queue" in columns:
        del same["queue"]
    if {"after", "not_before"} & columns.keys():
        delays, moments = (_filled(columns, load, name) for name in ("after", "not_before"))
        given["available_at"] = [max(now + after, not_before) for after, not_before in zip(delays, moments, strict=True)]
    else:
        same["available_at"] = now
    SparkDialect.of(tx.dialect).append(
        tx, tx.tables.jobs, given, {name: value for name, value in same.items() if value is not None}
    )
    return len(columns["payload"])


def _filled(columns: Mapping[str, Sequence[Any]], load: Load, name: str) -> Sequence[Any]:
    """The values of a field, its default where there are none."""
    default, values = load.defaults.get(name), columns.get(name)
    if values is None:
        return [default] * len(columns["payload"])
    return values if default is None else [default if value is None else value for value in values]


def rows_with_key(
    tx: Transaction, load: Load, partitions: Sequence[int | bytes | None], queue: str, key: str
) -> Iterator[tuple[int, int]]:
    """The rows with this unique key that were to be published into the queue: partition and place in it, both from 0.

    :param partitions: the attempt of each, or the small chunk that was not staged; None: it has no rows.
    """
    for partition, part in enumerate(partitions):
        if isinstance(part, int):
            chunks: Iterable[Mapping[str, Sequence[Any]]] = chunks_of(tx, part, load.fields)
        else:
            chunks = () if part is None else (unpack(whole(part), load.fields),)
        keys = chain.from_iterable(
            zip(columns.get("queue") or repeat(load.queue), columns["unique_key"], strict=False) for columns in chunks
        )
        yield from ((partition, place) for place, found in enumerate(keys) if found == (queue, key))


def discard(tx: Transaction, attempts: Collection[int]) -> int:
    """Delete what these attempts have staged, unless it has been published; return the number of chunks."""
    return _delete(tx, list(attempts))


def sweep(tx: Transaction, age: float, limit: int) -> int:
    """Delete up to ``limit`` chunks and ledger entries older than ``age`` (seconds) that are no longer needed."""
    ours = spark_tables(tx.tables)
    staged, published = ours.staged, ours.published
    oldest = (tx.read_clock() - int(age * 1_000_000)) // 1000 << _RANDOM_BITS
    late = select(staged.c.attempt, staged.c.place).where(staged.c.attempt < oldest).order_by(staged.c.attempt).limit(limit)
    gone = 0
    # Skip rows that other transactions have locked, such as another sweep.
    for attempt, place in tx.connection.execute(tx.dialect.lock_rows(late, skip=True)).all():
        gone += by_key.delete(tx, staged, {"attempt": attempt, "place": place})
    past = tx.now - int(age * 1_000_000)
    old = select(published.c.app, published.c.version, published.c.queue)
    old = old.where(published.c.kept == 0, published.c.published_at < past).limit(limit)
    for app, version, queue in tx.connection.execute(tx.dialect.lock_rows(old, skip=True), tx.time()).all():
        gone += by_key.delete(tx, published, _entry(app, version, queue))
    return gone


def forget_versions(tx: Transaction, app: str, below: int) -> None:
    """Remove the ledger's entries of ``app`` with versions below ``below``, which cannot be published again."""
    published = spark_tables(tx.tables).published
    tx.connection.execute(delete(published).where(published.c.app == app, published.c.version < below))


def _entry(app: str, version: int, queue: str) -> dict[str, Any]:
    """The key of an entry of the ledger: the same load into another queue has its own."""
    return {"app": app, "version": version, "queue": queue}


def _copy(tx: Transaction, load: Load, parts: Sequence[int | bytes]) -> tuple[int, Counter[str]]:
    """Make jobs of the parts; how many were found, and how many of these were skipped, by queue."""
    staged = spark_tables(tx.tables).staged
    unpacked = None if load.one_by_one else SparkDialect.of(tx.dialect).unpacked(staged.c.chunk, load.fields)
    found, skipped = 0, Counter[str]()
    if unpacked is None:
        for columns in columns_of(tx, load.fields, parts):
            read, refused = _one_by_one(tx, load, columns)
            found += read
            skipped += refused
        return found, skipped
    for some in _parts([part for part in parts if isinstance(part, int)], _ATTEMPTS):
        found += _insert(tx, load, unpacked.fields, unpacked.rows, staged, some)
    for columns in gathered((part for part in parts if isinstance(part, bytes)), load.fields):
        found += load_at_once(tx, load, columns)
    return found, skipped


def columns_of(tx: Transaction, fields: Sequence[str], parts: Sequence[int | bytes]) -> Iterator[Mapping[str, Sequence[Any]]]:
    """The columns of all parts, in their order; small chunks that follow each other are put together."""
    for there, some in groupby(parts, lambda part: isinstance(part, int)):
        if there:
            for attempt in some:
                yield from chunks_of(tx, cast("int", attempt), fields)
        else:
            yield from gathered(cast("Iterator[bytes]", some), fields)


def _insert(tx: Transaction, load: Load, given: Mapping[str, Any], rows: Any, staged: Any, attempts: Sequence[int]) -> int:
    """The database takes the chunks apart and inserts their jobs."""
    jobs = tx.tables.jobs
    # Read once and not for each row, which takes PostgreSQL a tenth of the time.
    now = select(tx.now).scalar_subquery()
    value: dict[str, Any] = {}
    for name, kind in FIELDS.items():
        default = load.defaults.get(name)
        fallback = None if default is None else literal(default, kind)
        if name not in given:
            value[name] = fallback
        else:
            value[name] = given[name] if fallback is None else func.coalesce(given[name], fallback)
    columns = {name: value[name] for name in FIELDS if name in _LOADED and value[name] is not None}
    columns["queue"] = given.get("queue", literal(load.queue, jobs.c.queue.type))
    columns["available_at"] = due_time(now, value["after"], value["not_before"]) if {"after", "not_before"} & set(given) else now
    columns["created_at"] = now
    joined = staged.join(rows, literal(1) == literal(1))
    source = select(*columns.values()).select_from(joined).where(staged.c.attempt.in_(attempts))
    return tx.connection.execute(insert(jobs).from_select(list(columns), source), tx.time()).rowcount


def _one_by_one(tx: Transaction, load: Load, columns: Mapping[str, Sequence[Any]]) -> tuple[int, Counter[str]]:
    """Insert jobs as any other enqueue, in their order: for unique keys and groups, or where the database cannot unpack chunks.

    Return how many there were, and how many of these were skipped, by queue.
    """
    jobs = jobs_of(columns, load.queue, {**DEFAULTS, **load.defaults})
    found, skipped = 0, Counter[str]()
    while some := list(islice(jobs, _JOBS)):
        with after(found):
            ids = insert_jobs(tx, some, load.on_duplicate, more=True)
        skipped.update(job.queue for job, job_id in zip(some, ids, strict=True) if job_id is None)
        found += len(some)
    return found, skipped


def gathered(chunks: Iterable[bytes], fields: Sequence[str]) -> Iterator[dict[str, Sequence[Any]]]:
    """Small chunks put together, up to about so many rows at a time."""
    columns: dict[str, list[Any]] = {name: [] for name in fields}
    for chunk in chunks:
        for name, values in unpack(whole(chunk), fields).items():
            columns[name].extend(values)
        if len(columns["payload"]) >= _GATHERED:
            yield dict(columns)
            columns = {name: [] for name in fields}
    if columns["payload"]:
        yield dict(columns)


def _delete(tx: Transaction, attempts: Sequence[int]) -> int:
    staged = spark_tables(tx.tables).staged
    # In order, so that a publication and a discard of the same attempts wait for each other in one direction only.
    return sum(
        tx.connection.execute(delete(staged).where(staged.c.attempt.in_(some))).rowcount
        for some in _parts(sorted(attempts), _ATTEMPTS)
    )


def _parts(items: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (items[start : start + size] for start in range(0, len(items), size))
