"""The statements of the API as templates, recorded from the API itself.

Values that change from claim to claim (token, low-water mark, ids and versions) are recognized in the recorded statements and
become placeholders of the template; everything else is sent unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sqlalchemy import event

from queue_db import LeasedJob, Optimistic, Queue, QueueDB
from queue_db.compare.contestant import Target

#: Claims to record. Workers pick among them, so single claims need many, otherwise workers collide more often than with the API.
#: One in sixteen claims the head (``queue_db.strategies.optimistic.HEAD_EVERY``).
_CLAIMS = 160
_CLAIMS_OF_BATCHES = 32
_QUEUE = "recorded"
_LEASE = 600.0

_TOKEN = re.compile(r"[0-9a-f]{32}\Z")
_NAMED = re.compile(r"%\((\w+)\)s")

#: Microseconds: larger numbers are times; a number below its negative is a low-water mark that is not set.
_TIMES = 10**15


class Spot(Enum):
    """The kinds of placeholders."""

    QUEUE = "queue"
    TOKEN = "token"  # noqa: S105 - the token of a claim
    FLOOR = "floor"  #: the low-water mark
    UNTIL = "until"  #: the end of the lease
    ID_ARRAY = "id array"  #: one value, an array in PostgreSQL's own text
    VERSION_ARRAY = "version array"
    PAIR_ARRAY = "pair array"  #: the id and the version of a single job
    IDS = "ids"  #: one value for each job
    PAIRS = "pairs"  #: two values for each job
    EACH = "each"  #: the statement runs once for each job, with its id and version


@dataclass(frozen=True)
class Template:
    """A statement with placeholders."""

    text: str
    #: A tuple stands for an array.
    values: tuple[Any, ...]
    each: str = ""  #: the driver's notation of a placeholder

    @property
    def spots(self) -> set[Any]:
        """The placeholders, also those in arrays."""
        return {item for value in self.values for item in (value if isinstance(value, tuple) else (value,))} & {*Spot}

    @property
    def repeated(self) -> bool:
        """Whether it runs once for each job."""
        return self.values == (Spot.EACH,)

    def filled(self, fill: Mapping[Spot, Any], pairs: Sequence[tuple[int, int]]) -> tuple[str, list[Any]]:
        """Return text and values for these jobs."""
        text = self.text
        if "\0" in text:
            text = text.replace("\0ids\0", ", ".join([self.each] * len(pairs)))
            text = text.replace("\0pairs\0", ", ".join([f"({self.each}, {self.each})"] * len(pairs)))
        values: list[Any] = []
        for value in self.values:
            if value is Spot.IDS:
                values.extend(job_id for job_id, _ in pairs)
            elif value is Spot.PAIRS:
                values.extend(part for pair in pairs for part in pair)
            elif value is Spot.ID_ARRAY:
                values.append(_array([job_id for job_id, _ in pairs]))
            elif value is Spot.VERSION_ARRAY:
                values.append(_array([version for _, version in pairs]))
            elif value is Spot.PAIR_ARRAY:
                values.append(_array(pairs[0]))
            elif isinstance(value, tuple):
                values.append(_array([fill[item] if isinstance(item, Spot) else item for item in value]))
            else:
                values.append(fill[value] if isinstance(value, Spot) else value)
        return text, values


@dataclass
class Recorded:
    """The statements of claims and completions.

    :param prepares: sent once per connection.
    :param claims: the first statement of each recorded claim; workers pick among them.
    :param take: the second statement of a claim, if it has one, for one job and for several.
    :param read_back: the third statement, after some candidates were lost.
    :param completes: completions of one job and of several, in order.
    """

    prepares: list[str] = field(default_factory=list)
    claims: list[Template] = field(default_factory=list)
    take: dict[bool, Template] = field(default_factory=dict)
    read_back: Template | None = None
    completes: dict[bool, list[Template]] = field(default_factory=dict)

    def from_the_head(self, claim: Template) -> bool:
        """Return whether a claim starts at the head of the queue and therefore updates the low-water mark."""
        name = claim.text.split(" ")[1]
        return "OFFSET" not in next((text for text in self.prepares if text.startswith(f"PREPARE {name} ")), claim.text)


def record(target: Target, batch: int) -> Recorded:
    """Record the statements of the API while it claims and completes in tables of its own."""
    recorded = Recorded()
    with QueueDB(target.url, Optimistic(window=target.workers, pick="slice"), schema=target.schema, pool_size=1) as db:
        db.migrate(revision="base")
        db.migrate()
        try:
            queue = db.queue(_QUEUE)
            queue.enqueue_many([("job", number) for number in range(batch * (_claims(batch) + target.workers + 5) + 10)])
            each = "?" if db.database.engine.dialect.paramstyle == "qmark" else "%s"
            # Before its first claim a process reads once which queues are fair: of that claim only what it prepares is kept.
            with _record_statements(db) as statements:
                queue.complete_many(queue.claim(1, _LEASE))
            _without_prepares(statements, recorded)
            # Single claims first: a batch claim that lost its other candidates completes one job.
            for limit in dict.fromkeys([1, batch]):
                _record(db, queue, limit, recorded, each, keep=limit == batch)
            if True in recorded.take:
                recorded.read_back = _record_read_back(db, queue, batch, each)
        finally:
            db.migrate(revision="base")
    return recorded


def _claims(batch: int) -> int:
    return _CLAIMS if batch < 10 else _CLAIMS_OF_BATCHES


def _record(db: QueueDB, queue: Queue, limit: int, recorded: Recorded, each: str, *, keep: bool) -> None:
    first, floor = True, 0
    while True:
        with _record_statements(db) as statements:
            jobs = queue.claim(limit, _LEASE)
        sent = _without_prepares(statements, recorded)
        before = sorted((job.id, job.version - 1) for job in jobs)
        if len(jobs) != limit or not 1 <= len(sent) <= 2:
            raise AssertionError(f"a claim of {limit} with {len(jobs)} jobs and these statements: {[text for text, _ in sent]}")
        # Without the first claim, and the rescan once a second, which starts lower than the claim before it: both do more work.
        numbers = [item for value in sent[0][1] for item in (_items(value) or [value]) if isinstance(item, int)]
        before_it, floor = floor, min(numbers)
        if keep and not first and floor >= before_it:
            recorded.claims.append(_template(*sent[0], [], each))
        first = False
        if len(sent) == 2:
            recorded.take[limit > 1] = _template(*sent[1], before, each)
        with _record_statements(db) as statements:
            queue.complete_many(jobs)
        after = sorted((job.id, job.version) for job in jobs)
        recorded.completes[limit > 1] = [_template(*one, after, each) for one in _without_prepares(statements, recorded)]
        if not keep or len(recorded.claims) == _claims(limit):
            return


def _record_read_back(db: QueueDB, queue: Queue, batch: int, each: str) -> Template:
    """Record how a claim detects that it lost a candidate between its two statements."""
    with (
        QueueDB(db.database.engine.url, schema=db.store.tables.schema, pool_size=1) as rival,
        _record_statements(db) as statements,
    ):
        robbed: list[list[LeasedJob]] = []

        def rob(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
            if text.startswith("UPDATE") and not robbed:
                robbed.append(rival.queue(_QUEUE).claim(batch * db.strategy.window // 2 or 1, _LEASE))  # type: ignore[attr-defined]

        event.listen(db.database.engine, "before_cursor_execute", rob)
        try:
            for _ in range(50):
                robbed.clear()
                statements.clear()
                queue.complete_many(mine := queue.claim(batch, _LEASE))
                for jobs in robbed:
                    rival.queue(_QUEUE).release_many(jobs)
                found = [one for one in statements if one[0].startswith("SELECT") and any(_is_token(value) for value in one[1])]
                if found:
                    tried = sorted(value for value in found[0][1] if isinstance(value, int))
                    return _template(*found[0], [(job_id, 0) for job_id in tried], each)
                queue.enqueue_many([("job", 0)] * len(mine))
        finally:
            event.remove(db.database.engine, "before_cursor_execute", rob)
    raise AssertionError("no claim lost a part of its candidates")


@contextmanager
def _record_statements(db: QueueDB) -> Iterator[list[tuple[str, list[Any]]]]:
    """Record the statements of the ``with`` block, with values by position."""
    statements: list[tuple[str, list[Any]]] = []

    def note(_connection: Any, _cursor: Any, text: str, values: Any, *_: Any) -> None:
        if isinstance(values, Mapping):
            ordered = [values[name] for name in _NAMED.findall(text)]
            statements.append((_NAMED.sub("%s", text), ordered))
        else:
            statements.append((text, list(values)))

    event.listen(db.database.engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(db.database.engine, "before_cursor_execute", note)


def _without_prepares(statements: list[tuple[str, list[Any]]], recorded: Recorded) -> list[tuple[str, list[Any]]]:
    for text, _ in statements:
        if text.startswith("PREPARE") and text not in recorded.prepares:
            recorded.prepares.append(text)
    return [one for one in statements if not one[0].startswith(("PREPARE", "DEALLOCATE"))]


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and bool(_TOKEN.match(value))


def _template(text: str, values: list[Any], pairs: Sequence[tuple[int, int]], each: str) -> Template:
    ids, flat = [job_id for job_id, _ in pairs], [part for pair in pairs for part in pair]
    # In the first statement of a claim a time is the low-water mark, in the second the end of the lease.
    time = Spot.UNTIL if pairs else Spot.FLOOR
    if pairs and all(isinstance(value, tuple) for value in values) and sorted(values) == list(pairs):
        return Template(text, (Spot.EACH,), each)
    places: list[Any] = []
    at = 0
    while at < len(values):
        value = values[at]
        step = 1
        if items := _items(value):
            arrays = {tuple(flat[1::2]): Spot.VERSION_ARRAY, tuple(ids): Spot.ID_ARRAY, tuple(flat): Spot.PAIR_ARRAY}
            places.append(arrays.get(tuple(items)) or tuple([_spot(item, time) for item in items]))
        elif len(pairs) > 1 and values[at : at + len(flat)] == flat:
            places.append(Spot.PAIRS)
            step = len(flat)
        elif len(pairs) > 1 and values[at : at + len(ids)] == ids:
            places.append(Spot.IDS)
            step = len(ids)
        elif len(pairs) == 1 and at == len(values) - 2:
            # For a single job, id and version come last; earlier values may be equal numbers.
            if values[at:] != flat:
                raise AssertionError(f"id and version are not where they were: {text}")
            places.append(Spot.PAIRS)
            step = 2
        else:
            places.append(_spot(value, time))
        at += step
    if (
        pairs
        and values
        and not {Spot.IDS, Spot.PAIRS, Spot.ID_ARRAY, Spot.PAIR_ARRAY} & {one for one in places if isinstance(one, Spot)}
    ):
        raise AssertionError(f"the jobs are not among the values of {text}")
    if len(pairs) > 1:
        text = text.replace(", ".join([f"({each}, {each})"] * len(pairs)), "\0pairs\0")
        text = text.replace(", ".join([each] * len(pairs)), "\0ids\0")
    return Template(text, tuple(places), each)


def _array(items: Sequence[Any]) -> str:
    """An array as a text of PostgreSQL."""
    return f"{{{json.dumps(list(items), ensure_ascii=False)[1:-1]}}}"


def _items(value: Any) -> list[Any]:
    """The items of such a text; empty for another value."""
    return json.loads(f"[{value[1:-1]}]") if isinstance(value, str) and value.startswith("{") else []


def _spot(value: Any, time: Spot) -> Any:
    """Return the placeholder for a value, or the value itself."""
    if _is_token(value):
        return Spot.TOKEN
    if value == _QUEUE:
        return Spot.QUEUE
    if isinstance(value, int) and abs(value) > _TIMES:
        return time
    return value
