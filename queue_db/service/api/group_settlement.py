"""Settlements of clients that come at the same time: one statement for each verb settles the jobs of all of them.

Each client gets the verdicts of its own jobs. An error that the jobs of one client cause is an answer for this client alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from queue_db.database.masking import mask, secrets_in
from queue_db.db import QueueDB
from queue_db.errors import StorageError, TransientStorageError
from queue_db.leased_job import LeasedJob, own_token
from queue_db.model import MOST_VERSION, StoredResult, Verdict
from queue_db.queue import Queue
from queue_db.service.api.answers import WrittenLease, encode
from queue_db.service.api.settlements import Given, SettledAs, WrittenVerdict, WrittenVerdicts, error_of, retained
from queue_db.service.http.requests import Service
from queue_db.service.http.times import rfc3339
from queue_db.service.live.leases import Leases
from queue_db.service.live.together import Together

log = logging.getLogger("queue_db.service")

# Most jobs of several clients that are settled together.
_TOGETHER = 500

# Verbs that need of a job only what is remembered of a lease.
_WITHOUT_PAYLOAD = frozenset({"complete", "snooze", "release", "extend"})


@dataclass(frozen=True, slots=True)
class _Job:
    """A settlement of a client, by its position among those of the client."""

    of: _Client
    at: int

    @property
    def given(self) -> Given:
        """What the client says of the job."""
        return self.of.given[self.at]


@dataclass(eq=False, slots=True)
class _Client:
    """A request."""

    given: Sequence[Given]
    results: Sequence[StoredResult | None] = ()
    leases: Sequence[LeasedJob | None] = ()
    verdicts: list[SettledAs] = field(default_factory=list)
    #: Why some of its verdicts are unknown.
    error: Exception | None = None


class Settling:
    """The settlements of one application. Its methods run on the event loop."""

    def __init__(self, service: Service) -> None:
        self._db = service.db
        self._handed = service.leases
        self._together: Together[str, Sequence[Given], bytes] = Together(self._settle, service.working, len, _TOGETHER)

    def settle(self, queue: str, given: Sequence[Given]) -> asyncio.Future[bytes]:
        """Settle jobs of a queue; the verdicts as JSON.

        :raises PayloadError: a result cannot be stored; nothing is settled.
        :raises QueueDBError: nothing is settled, or nobody knows whether it is.
        """
        return self._together.call(queue, given)

    def _settle(self, queue: str, requests: list[Sequence[Given]]) -> list[bytes | BaseException]:
        source, clients = self._db.queue(queue), [_Client(given) for given in requests]
        for turn in _turns(clients):
            _Turn(self._db, self._handed, source, turn).settle()
        return [_answer(client) for client in clients]


class _Turn:
    """Settlements of clients that have no job in common."""

    def __init__(self, db: QueueDB, handed: Leases, source: Queue, clients: Sequence[_Client]) -> None:
        self._db = db
        self._handed = handed
        self._source = source
        self._clients = clients

    def settle(self) -> None:
        """Set the verdicts of each client, or its error."""
        ready = [client for client in self._clients if self._prepared(client)]
        if not ready:
            return
        self._look_up(ready)
        ready = [client for client in ready if client.error is None]
        by_verb: dict[tuple[str, float], list[_Job]] = {}
        for client in ready:
            for at, one in enumerate(client.given):
                if client.leases[at] is not None:
                    seconds = one.seconds if one.verb in {"snooze", "extend"} else None
                    by_verb.setdefault((one.verb, seconds or 0.0), []).append(_Job(client, at))
        for (verb, seconds), jobs in by_verb.items():
            self._apply(verb, seconds, [job for job in jobs if job.of.error is None])
        for client in ready:
            self._remember_extended(client)

    def _prepared(self, client: _Client) -> bool:
        """Whether nothing in a request is wrong: that is found before its first job is settled."""
        try:
            client.results = [
                retained(self._source, one.result, one.result_ttl) if one.verb == "complete" else None for one in client.given
            ]
        except Exception as error:  # noqa: BLE001 - an answer for this client
            client.error = error
            return False
        return True

    def _look_up(self, clients: Sequence[_Client]) -> None:
        """Find the leased jobs; where that fails by what one client has given, those of each client by themselves."""
        try:
            self._find_leases(clients)
        except Exception as error:  # noqa: BLE001 - an answer for each client
            if len(clients) > 1 and not isinstance(error, StorageError):
                for client in clients:
                    self._look_up([client])
                return
            for client in clients:
                client.error = error

    def _find_leases(self, clients: Iterable[_Client]) -> None:
        """Find the leased jobs: those that were handed out here in memory, if the verb needs no payload, the others in one read."""
        missing: list[tuple[int, int, str]] = []
        found: list[tuple[_Client, list[LeasedJob | None]]] = []
        for client in clients:
            wanted = [(_whole(one.lease.id), _whole(one.lease.version), one.lease.token) for one in client.given]
            known = self._handed.take(self._source, wanted)
            for at, one in enumerate(client.given):
                if one.verb not in _WITHOUT_PAYLOAD or one.result_ttl is not None:
                    known[at] = None
                if known[at] is None:
                    missing.append(wanted[at])
            found.append((client, known))
        read = iter(self._source.leases_from_tokens(missing) if missing else ())
        for client, known in found:
            client.leases = [next(read) if job is None else job for job in known]
            client.verdicts = ["lost" if job is None else "unknown" for job in client.leases]

    def _apply(self, verb: str, seconds: float, jobs: Sequence[_Job]) -> None:
        """Settle jobs; where that fails by what one client has given, each client's jobs by themselves."""
        if not jobs:
            return
        try:
            self._run(verb, seconds, jobs)
        except Exception as error:  # noqa: BLE001 - an answer for each client
            by_client: dict[_Client, list[_Job]] = {}
            for job in jobs:
                by_client.setdefault(job.of, []).append(job)
            if len(by_client) > 1 and not _fails_for_all(error):
                for some in by_client.values():
                    self._apply(verb, seconds, some)
                return
            for client in by_client:
                client.error = error
                if "applied" in client.verdicts and isinstance(error, StorageError):
                    log.warning("only some jobs were settled: %s", mask(str(error), secrets_in(self._db.database.engine.url)))

    def _run(self, verb: str, seconds: float, jobs: Sequence[_Job]) -> None:
        leases = [lease for job in jobs if (lease := job.of.leases[job.at]) is not None]
        verdicts = _VERBS[verb](self._source, leases, jobs, seconds)
        for job, verdict in zip(jobs, verdicts, strict=True):
            job.of.verdicts[job.at] = verdict.value

    def _remember_extended(self, client: _Client) -> None:
        self._handed.remember(
            (lease, lease.snapshot_row())
            for one, lease, verdict in zip(client.given, client.leases, client.verdicts, strict=True)
            if lease is not None and one.verb == "extend" and verdict == "applied"
        )


def _turns(clients: Sequence[_Client]) -> list[list[_Client]]:
    """The clients in turns: a job that two of them settle is settled by the first one, and the second one finds it settled."""
    turns: list[tuple[set[int], list[_Client]]] = []
    for client in clients:
        ids = {int(one.lease.id) for one in client.given}  # numbers: "05" is the job "5"
        # After the last turn with one of its jobs.
        after = max((place for place, (taken, _) in enumerate(turns) if not taken.isdisjoint(ids)), default=-1) + 1
        if after == len(turns):
            turns.append((set(), []))
        turns[after][0].update(ids)
        turns[after][1].append(client)
    return [some for _, some in turns]


def _fails_for_all(error: Exception) -> bool:
    """Whether what has failed must not, or need not, be tried for each client.

    It may have happened; or nothing can; or it was tried again and again, and each client would wait as long, one after the other.
    """
    return isinstance(error, TransientStorageError) or (
        isinstance(error, StorageError) and (error.outcome_unknown or error.server_away)
    )


def _answer(client: _Client) -> bytes | BaseException:
    error = client.error
    if error is not None and not (isinstance(error, StorageError) and "applied" in client.verdicts):
        return error
    settled = [_settled(*each) for each in zip(client.given, client.leases, client.verdicts, strict=True)]
    return encode(WrittenVerdicts(settled))


def _settled(one: Given, lease: LeasedJob | None, verdict: SettledAs) -> WrittenVerdict:
    if one.verb == "extend" and verdict == "applied" and lease is not None:
        now = WrittenLease(str(lease.id), str(lease.version), own_token(lease.token, lease.id))
        return WrittenVerdict(one.lease.id, verdict, now, rfc3339(lease.lease_expires))
    return WrittenVerdict(one.lease.id, verdict)


def _whole(text: str) -> int:
    """An id or a version; no lease has the highest one."""
    return min(int(text), MOST_VERSION)


def _complete(queue: Queue, leases: list[LeasedJob], jobs: Sequence[_Job], _: float) -> list[Verdict]:
    results = [job.of.results[job.at] for job in jobs]
    return queue.complete_many(leases, results=results) if any(results) else queue.complete_many(leases)


def _fail(queue: Queue, leases: list[LeasedJob], jobs: Sequence[_Job], _: float) -> list[Verdict]:
    given = [job.given for job in jobs]
    return queue.fail_many(leases, [error_of(one.error) for one in given], retry_in=[one.retry_in for one in given])


def _bury(queue: Queue, leases: list[LeasedJob], jobs: Sequence[_Job], _: float) -> list[Verdict]:
    return queue.bury_many(leases, [error_of(job.given.error) for job in jobs])


_VERBS: dict[str, Callable[[Queue, list[LeasedJob], Sequence[_Job], float], list[Verdict]]] = {
    "complete": _complete,
    "fail": _fail,
    "bury": _bury,
    "snooze": lambda queue, leases, _, seconds: queue.snooze_many(leases, seconds),
    "extend": lambda queue, leases, _, seconds: queue.extend_many(leases, seconds),
    "release": lambda queue, leases, _, __: queue.release_many(leases),
    "cancel": lambda queue, leases, _, __: queue.cancel_many(leases),
}
