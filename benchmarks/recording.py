"""The statements that our API sends, as templates to be sent again: recorded from the API itself, so they cannot differ.

What changes from claim to claim (the claim's token, the low-water mark, ids and versions) is found among the recorded values by the
values themselves, and becomes a placeholder in the template; all else is sent again as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sqlalchemy import event

from queue_db import LeasedJob, Optimistic, Queue, QueueDB
from queue_db.compare.contestant import Target

#: Claims to record. Workers draw among these, so there must be many of one job, or they meet more often than the API's do. One of
#: sixteen is of the head (``queue_db.strategies.optimistic.HEAD_EVERY``).
_CLAIMS = 160
_CLAIMS_OF_BATCHES = 32
_QUEUE = "recorded"
_LEASE = 600.0

_TOKEN = re.compile(r"[0-9a-f]{32}\Z")
_NAMED = re.compile(r"%\((\w+)\)s")

#: Microseconds: larger numbers are times, smaller than −this is a low-water mark that is not set.
_TIMES = 10**15


class Spot(Enum):
    """What stands in a placeholder of a template."""

    QUEUE = "queue"
    TOKEN = "token"  # noqa: S105 - of a claim
    FLOOR = "floor"  #: the low-water mark
    UNTIL = "until"  #: the end of the lease
    ID_ARRAY = "id array"  #: one value, an array in PostgreSQL's own text
    VERSION_ARRAY = "version array"
    IDS = "ids"  #: one value for each job
    PAIRS = "pairs"  #: two values for each job


@dataclass(frozen=True)
class Template:
    """A statement with places."""

    text: str
    values: tuple[Any, ...]
    each: str = ""  #: how the driver writes a placeholder

    def filled(self, fill: Mapping[Spot, Any], pairs: Sequence[tuple[int, int]]) -> tuple[str, list[Any]]:
        """Text and values for these jobs."""
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
            else:
                values.append(fill[value] if isinstance(value, Spot) else value)
        return text, values


@dataclass
class Recorded:
    """All that the API sends to claim and complete.

    :param prepares: sent once on a connection.
    :param claims: the first statement of each recorded claim; workers draw among them as the strategy did.
    :param take: the second one where a claim has two, for one job and for several.
    :param read_back: the third one, after a part of the candidates was lost.
    :param completes: for one job and for several, in order.
    """

    prepares: list[str] = field(default_factory=list)
    claims: list[Template] = field(default_factory=list)
    take: dict[bool, Template] = field(default_factory=dict)
    read_back: Template | None = None
    completes: dict[bool, list[Template]] = field(default_factory=dict)

    def from_the_head(self, claim: Template) -> bool:
        """Whether a claim begins at the head of the queue, so that it tells where that is."""
        name = claim.text.split(" ")[1]
        return "OFFSET" not in next((text for text in self.prepares if text.startswith(f"PREPARE {name} ")), claim.text)


def record(target: Target, batch: int) -> Recorded:
    """Let the API claim and complete on tables of its own, and write down what it sends."""
    recorded = Recorded()
    with QueueDB(target.url, Optimistic(window=target.workers, pick="slice"), schema=target.schema, pool_size=1) as db:
        db.migrate(revision="base")
        db.migrate()
        try:
            queue = db.queue(_QUEUE)
            queue.enqueue_many([("job", number) for number in range(batch * (_claims(batch) + target.workers + 5) + 10)])
            each = "?" if db.database.engine.dialect.paramstyle == "qmark" else "%s"
            # A single claim first: a claim of many whose other candidates were lost completes one.
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
        with _heard(db) as heard:
            jobs = queue.claim(limit, _LEASE)
        sent = _without_prepares(heard, recorded)
        before = sorted((job.id, job.version - 1) for job in jobs)
        if len(jobs) != limit or not 1 <= len(sent) <= 2:
            raise AssertionError(f"a claim of {limit} with {len(jobs)} jobs and these statements: {[text for text, _ in sent]}")
        # Left out: the first one, and the rescan that comes once a second and starts lower than the claim before it. Both are more
        # careful than the others.
        before_it, floor = floor, min(value for value in sent[0][1] if isinstance(value, int))
        if keep and not first and floor >= before_it:
            recorded.claims.append(_template(*sent[0], [], each))
        first = False
        if len(sent) == 2:
            recorded.take[limit > 1] = _template(*sent[1], before, each)
        with _heard(db) as heard:
            queue.complete_many(jobs)
        after = sorted((job.id, job.version) for job in jobs)
        recorded.completes[limit > 1] = [_template(*one, after, each) for one in _without_prepares(heard, recorded)]
        if not keep or len(recorded.claims) == _claims(limit):
            return


def _record_read_back(db: QueueDB, queue: Queue, batch: int, each: str) -> Template:
    """Let a claim lose one of its candidates between its two statements, and see how it finds out which."""
    with QueueDB(db.database.engine.url, schema=db.store.tables.schema, pool_size=1) as rival, _heard(db) as heard:
        robbed: list[list[LeasedJob]] = []

        def rob(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
            if text.startswith("UPDATE") and not robbed:
                robbed.append(rival.queue(_QUEUE).claim(batch * db.strategy.window // 2 or 1, _LEASE))  # type: ignore[attr-defined]

        event.listen(db.database.engine, "before_cursor_execute", rob)
        try:
            for _ in range(50):
                robbed.clear()
                heard.clear()
                queue.complete_many(mine := queue.claim(batch, _LEASE))
                for jobs in robbed:
                    rival.queue(_QUEUE).release_many(jobs)
                found = [one for one in heard if one[0].startswith("SELECT") and any(_is_token(value) for value in one[1])]
                if found:
                    tried = sorted(value for value in found[0][1] if isinstance(value, int))
                    return _template(*found[0], [(job_id, 0) for job_id in tried], each)
                queue.enqueue_many([("job", 0)] * len(mine))
        finally:
            event.remove(db.database.engine, "before_cursor_execute", rob)
    raise AssertionError("no claim lost a part of its candidates")


@contextmanager
def _heard(db: QueueDB) -> Iterator[list[tuple[str, list[Any]]]]:
    """What is sent inside the block, with values by position."""
    heard: list[tuple[str, list[Any]]] = []

    def note(_connection: Any, _cursor: Any, text: str, values: Any, *_: Any) -> None:
        if isinstance(values, Mapping):
            ordered = [values[name] for name in _NAMED.findall(text)]
            heard.append((_NAMED.sub("%s", text), ordered))
        else:
            heard.append((text, list(values)))

    event.listen(db.database.engine, "before_cursor_execute", note)
    try:
        yield heard
    finally:
        event.remove(db.database.engine, "before_cursor_execute", note)


def _without_prepares(heard: list[tuple[str, list[Any]]], recorded: Recorded) -> list[tuple[str, list[Any]]]:
    for text, _ in heard:
        if text.startswith("PREPARE") and text not in recorded.prepares:
            recorded.prepares.append(text)
    return [one for one in heard if not one[0].startswith(("PREPARE", "DEALLOCATE"))]


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and bool(_TOKEN.match(value))


def _template(text: str, values: list[Any], pairs: Sequence[tuple[int, int]], each: str) -> Template:
    ids, flat = [job_id for job_id, _ in pairs], [part for pair in pairs for part in pair]
    # In the first statement of a claim a time is where to look from, in the second where the lease ends.
    time = Spot.UNTIL if pairs else Spot.FLOOR
    places: list[Any] = []
    at = 0
    while at < len(values):
        value = values[at]
        step = 1
        if isinstance(value, str) and value.startswith("{"):
            places.append(Spot.ID_ARRAY if value == _array(ids) else Spot.VERSION_ARRAY)
        elif len(pairs) > 1 and values[at : at + len(flat)] == flat:
            places.append(Spot.PAIRS)
            step = len(flat)
        elif len(pairs) > 1 and values[at : at + len(ids)] == ids:
            places.append(Spot.IDS)
            step = len(ids)
        elif len(pairs) == 1 and at == len(values) - 2:
            # Of a single job id and version come last, and numbers like theirs may stand before them.
            if values[at:] != flat:
                raise AssertionError(f"id and version are not where they were: {text}")
            places.append(Spot.PAIRS)
            step = 2
        else:
            places.append(_spot(value, time))
        at += step
    if pairs and values and not {Spot.IDS, Spot.PAIRS, Spot.ID_ARRAY} & {one for one in places if isinstance(one, Spot)}:
        raise AssertionError(f"the jobs are not among the values of {text}")
    if len(pairs) > 1:
        text = text.replace(", ".join([f"({each}, {each})"] * len(pairs)), "\0pairs\0")
        text = text.replace(", ".join([each] * len(pairs)), "\0ids\0")
    return Template(text, tuple(places), each)


def _array(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _spot(value: Any, time: Spot) -> Any:
    """The placeholder that a value stands for, or the value."""
    if _is_token(value):
        return Spot.TOKEN
    if value == _QUEUE:
        return Spot.QUEUE
    if isinstance(value, int) and abs(value) > _TIMES:
        return time
    return value
