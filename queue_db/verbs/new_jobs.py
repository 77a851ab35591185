"""Builds new jobs: checks arguments, encodes payloads, and cuts iterables into chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from queue_db import arguments
from queue_db.codecs import Codec, JSONCodec, Schema, described
from queue_db.errors import ArgumentError, PayloadError
from queue_db.model import NewJob
from queue_db.store.enqueue import OnDuplicate
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS, KEY_LENGTH, KIND_LENGTH

#: The most jobs in one chunk, and in one INSERT of ``enqueue_many``.
CHUNK = 1000

#: The keyword arguments of ``enqueue`` that ``enqueue_many`` takes as options of one job.
OPTIONS = frozenset({"delay", "run_at", "priority", "unique_key", "max_attempts", "headers", "group", "unique_for"})

_SINGLE, _PAIR, _TRIPLE = 1, 2, 3

# The most bytes of one character in UTF-8.
_UTF_8 = 4

# The most kinds in the cache of checked kinds. A program has few kinds, so the cache is hardly ever full.
_KINDS = 1000
_HEADER_CODEC = JSONCodec()


def policy(on_duplicate: str) -> OnDuplicate:
    """The policy with this name.

    :raises ArgumentError: there is no such policy.
    """
    try:
        return OnDuplicate(on_duplicate)
    except ValueError:
        raise arguments.wrong("on_duplicate", on_duplicate, ": must be raise, skip, replace or debounce") from None


def policy_for(job: NewJob, on_duplicate: str) -> OnDuplicate:
    """The policy with this name, for one job.

    :raises ArgumentError: there is no such policy, or the policy needs a unique key and the job has none.
    """
    chosen = policy(on_duplicate)
    if job.unique_key is None and chosen is not OnDuplicate.RAISE:
        raise arguments.wrong("on_duplicate", on_duplicate, " compares jobs by their unique_key: give one")
    return chosen


def _window(key: object, unique_for: object) -> int:
    if key is None:
        raise ArgumentError(argument="unique_for", problem=" is the time for which a unique key stays taken: give a unique key")
    return arguments.seconds("unique_for", unique_for, zero=False)


def due_at_once(job: NewJob) -> bool:
    """Whether the job is due when it is enqueued."""
    return not job.after and not job.not_before


def with_headers(item: Any, provided: Mapping[str, Any]) -> Any:
    """Add the headers ``provided`` to an item; the headers of the item win. A malformed item is returned unchanged."""
    if not isinstance(item, tuple | list) or len(item) not in (_SINGLE, _PAIR, _TRIPLE):
        return item
    options = item[2] if len(item) == _TRIPLE else {}
    if not isinstance(options, Mapping) or not isinstance(options.get("headers") or {}, Mapping):
        return item
    payload = item[1] if len(item) > _SINGLE else None
    return item[0], payload, {**options, "headers": {**provided, **(options.get("headers") or {})}}


class JobBuilder:
    """Builds the jobs of one queue: checks arguments, encodes payloads.

    :param queue: the name of the queue, already checked.
    :param max_payload: most bytes of an encoded payload.
    :param schemas: payload schemas by kind.
    :param item: the noun for one job in error messages.
    """

    def __init__(
        self,
        queue: str,
        codec: Codec,
        max_payload: int,
        schemas: Mapping[str, Schema] = MappingProxyType({}),
        *,
        item: str = "job",
    ) -> None:
        self._item_name = item
        self._queue = queue
        self._schemas = schemas
        self._codec = codec
        self._max_payload = max_payload
        # Kinds that were checked.
        self._kinds: set[str] = set()

    def job(
        self,
        kind: str,
        payload: Any,
        *,
        delay: Any = 0.0,
        run_at: Any = None,
        priority: Any = 0,
        unique_key: Any = None,
        unique_for: Any = None,
        group: Any = None,
        max_attempts: Any = DEFAULT_MAX_ATTEMPTS,
        headers: Any = None,
    ) -> NewJob:
        """One job, checked and encoded.

        :raises ArgumentError, PayloadError: an argument is wrong; the message names the argument.
        """
        if type(kind) is not str or kind not in self._kinds:
            kind = self._kind(kind)
        if headers is not None:
            headers = arguments.headers(headers)
        schema = self._schemas.get(kind)
        # The defaults need no check. Types are compared because False equals 0, but must be refused.
        return NewJob(
            self._queue,
            kind,
            self._encode(kind, payload if schema is None else schema.write(kind, payload), self._codec),
            None if headers is None else self._encode(kind, headers, _HEADER_CODEC, "headers"),
            0 if type(priority) is int and not priority else arguments.whole("priority", priority, -(2**31)),
            max_attempts if max_attempts is DEFAULT_MAX_ATTEMPTS else arguments.whole("max_attempts", max_attempts, 1),
            None if unique_key is None else arguments.name("unique_key", unique_key, KEY_LENGTH),
            None if group is None else arguments.name("group", group, KEY_LENGTH),
            unique_for=0 if unique_for is None else _window(unique_key, unique_for),
            after=0 if type(delay) is float and not delay else arguments.seconds("delay", delay),
            not_before=0 if run_at is None else arguments.moment("run_at", run_at) or 0,
        )

    def _kind(self, kind: object) -> str:
        checked = arguments.name("kind", kind, KIND_LENGTH)
        if len(self._kinds) < _KINDS:
            self._kinds.add(checked)
        return checked

    def chunks(self, jobs: Iterable[Any], provided: Mapping[str, Any] | None = None) -> Iterator[list[NewJob]]:
        """Build jobs from ``(kind, payload)`` or ``(kind, payload, options)``; return an iterator of chunks.

        :param provided: headers to add to all jobs.
        """
        if not isinstance(jobs, Iterable):
            raise arguments.wrong("jobs", jobs, ": must be an iterable of (kind, payload) or (kind, payload, options)")
        if type(jobs) in (list, tuple) and not provided:
            return self._chunks_of(cast("Sequence[Any]", jobs))
        return self._chunks(enumerate(jobs), provided)

    def _chunks_of(self, jobs: Sequence[Any]) -> Iterator[list[NewJob]]:
        for start in range(0, len(jobs), CHUNK):
            chunk = jobs[start : start + CHUNK]
            yield self._alike(chunk) or [self._item(position, item) for position, item in enumerate(chunk, start)]

    def _alike(self, items: Sequence[Any]) -> list[NewJob] | None:
        """Encode the jobs of ``items`` together, in half the time; return None if an item needs a check or an encoding of its own.

        ``items`` must not come from an iterator: an iterator may change a payload after it has yielded the item.
        """
        if set(map(type, items)) != {tuple} or set(map(len, items)) != {_PAIR} or type(self._codec) is not JSONCodec:
            return None
        kinds, payloads = zip(*items, strict=True)
        if set(map(type, kinds)) != {str} or not self._kinds.issuperset(kinds) or not self._schemas.keys().isdisjoint(kinds):
            return None
        try:
            texts = self._codec.encode_all(payloads)
        except Exception:  # noqa: BLE001 - encoding one by one shows which payload is wrong
            return None
        if max(map(len, texts)) > self._max_payload // _UTF_8:
            return None
        return [NewJob(self._queue, kind, text, None, 0, DEFAULT_MAX_ATTEMPTS) for kind, text in zip(kinds, texts, strict=True)]

    def _chunks(self, numbered: Iterator[tuple[int, Any]], provided: Mapping[str, Any] | None) -> Iterator[list[NewJob]]:
        if provided:
            numbered = ((position, with_headers(item, provided)) for position, item in numbered)
        while chunk := [self._item(position, item) for position, item in islice(numbered, CHUNK)]:
            yield chunk

    def _item(self, position: int, item: Any) -> NewJob:
        try:
            return self._item_job(item)
        except (ArgumentError, PayloadError) as error:
            error.place = f"job {position}: "
            raise

    def _item_job(self, item: Any) -> NewJob:
        if not isinstance(item, tuple | list) or len(item) not in (_SINGLE, _PAIR, _TRIPLE):
            raise ArgumentError(f"must be (kind, payload) or (kind, payload, options), not {arguments.shown(item)}")
        if len(item) < _TRIPLE:
            return self.job(item[0], item[1] if len(item) == _PAIR else None)
        kind, payload, options = item
        if not isinstance(options, Mapping):
            raise ArgumentError(f"options must be a mapping, not {type(options).__name__}")
        if unknown := set(options) - OPTIONS:
            raise ArgumentError(f"unknown options {', '.join(sorted(map(str, unknown)))}; known: {', '.join(sorted(OPTIONS))}")
        return self.job(kind, payload, **options)

    def _encode(self, kind: str, value: Any, codec: Codec, part: str = "payload") -> str:
        """The text of a payload or of headers.

        :raises PayloadError: the value cannot be stored.
        """
        try:
            encoded = codec.encode(value)
        except Exception as error:
            # JSONCodec raises a TypeError for types that JSON does not have, such as date, Decimal and set.
            remedy = "; make it text or numbers first" if isinstance(error, TypeError) and type(codec) is JSONCodec else ""
            raise self._refused(kind, part, f"cannot be encoded: {described(error)}{remedy}") from error
        encoder = type(codec).__name__
        if not isinstance(encoded, str):
            raise self._refused(kind, part, f"cannot be encoded: {encoder}.encode returned {type(encoded).__name__}, not str")
        if "\x00" in encoded:
            reason = f"cannot be encoded: {encoder}.encode returned a NUL character, which PostgreSQL cannot store"
            raise self._refused(kind, part, reason)
        try:
            size = len(encoded) if encoded.isascii() else len(encoded.encode())
        except UnicodeEncodeError as error:
            raise self._refused(kind, part, f"cannot be encoded: {error}") from error
        if size > self._max_payload:
            limit = f"{self._max_payload:,} is the limit (QueueDB(max_payload=…))"
            reason = f"{size:,} bytes encoded, {limit}; store large data elsewhere, and its name in the {self._item_name}"
            raise self._refused(kind, part, reason)
        return encoded

    def _refused(self, kind: str, part: str, reason: str) -> PayloadError:
        return PayloadError(kind=kind, reason=reason, subject=f"{part} of {self._item_name}")


def columns_of(job: NewJob) -> dict[str, Any]:
    """The columns in which a batch or a schedule stores a job to enqueue later."""
    return {name: getattr(job, name) for name in ("queue", "kind", "payload", "headers", "priority", "max_attempts")}


def job_of(row: Any, headers: Mapping[str, Any]) -> NewJob:
    """The job that a batch or a schedule has stored in ``row``, with ``headers`` added."""
    stored: Mapping[str, Any] = json.loads(row.headers) if row.headers else {}
    merged = json.dumps({**stored, **headers}, separators=(",", ":"))
    return NewJob(row.queue, row.kind, row.payload, merged, row.priority, row.max_attempts)
