"""Settlements of clients that come at the same time: one statement for each verb settles the jobs of all of them.

Each client gets the verdicts of its own jobs. An error that the jobs of one client cause is an answer for this client alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from queue_db.database.masking import mask, secrets_in
from queue_db.db import QueueDB
from queue_db.errors import StorageError, TransientStorageError
from queue_db.leased_job import LeasedJob, own_token
from queue_db.model import MOST_VERSION, Capability, StoredResult, Verdict
from queue_db.queue import Queue
from queue_db.service.api.answers import WrittenLease, encode
from queue_db.service.api.settlements import Given, SettledAs, WrittenVerdict, WrittenVerdicts, error_of, retained
from queue_db.service.http.requests import Service
from queue_db.service.http.times import rfc3339
from queue_db.service.live.leases import Leases, handed
from queue_db.service.live.together import AloneError, Together

log = logging.getLogger("queue_db.service")

# Most jobs of several clients that are settled together.
_TOGETHER = 500

# Verbs that need of a job only what is remembered of a lease.
_WITHOUT_PAYLOAD = frozenset({"complete", "snooze", "release", "extend"})


@dataclass(eq=False, slots=True)
class _Client:
    """A request."""

    given: Sequence[Given]
    #: Ids and versions of the leases: numbers, since "05" is the job "5".
    pairs: Sequence[tuple[int, int]] = ()
    #: By position; None: nothing is retained.
    results: Sequence[StoredResult | None] | None = None
    leases: Sequence[LeasedJob | None] = ()
    verdicts: list[SettledAs] = field(default_factory=list)
    #: Why some of its verdicts are unknown.
    error: Exception | None = None


@dataclass(eq=False, slots=True)
class _Share:
    """The jobs of one client that a verb settles, by their positions in the request."""

    client: _Client
    places: list[int] = field(default_factory=list)
    leases: list[LeasedJob] = field(default_factory=list)

    @property
    def given(self) -> list[Given]:
        """What the client says of the jobs."""
        return [self.client.given[at] for at in self.places]

    @property
    def results(self) -> list[StoredResult | None]:
        """What is retained of the jobs."""
        results = self.client.results
        return [None if results is None else results[at] for at in self.places]


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
        source = self._db.queue(queue)
        clients = [_Client(given, [(int(one.lease.id), int(one.lease.version)) for one in given]) for given in requests]
        for turn in _turns(clients):
            _Turn(self._db, self._handed, source, turn, together=len(clients) > 1).settle()
        return [_answer(client) for client in clients]


class _Turn:
    """Settlements of clients that have no job in common.

    :param together: others wait for them. Who has to wait for a locked row then does so by themselves.
    """

    def __init__(self, db: QueueDB, handed: Leases, source: Queue, clients: Sequence[_Client], *, together: bool) -> None:
        self._db = db
        self._handed = handed
        self._source = source
        self._clients = clients
        self._hasty = together and Capability.ROW_LOCKS in db.database.capabilities
        # What is to be done for one client, since a part of its request is done.
        self._rest: list[tuple[str, float, _Share]] = []

    def settle(self) -> None:
        """Set the verdicts of each client, or its error."""
        ready = [client for client in self._clients if self._prepared(client)]
        if not ready:
            return
        self._look_up(ready)
        ready = [client for client in ready if client.error is None]
        by_verb: dict[tuple[str, float], list[_Share]] = {}
        for client in ready:
            for key, share in _shares(client).items():
                by_verb.setdefault(key, []).append(share)
        with self._db.database.haste if self._hasty else nullcontext():
            for (verb, seconds), shares in by_verb.items():
                self._apply(verb, seconds, [share for share in shares if share.client.error is None])
            for verb, seconds, share in self._rest:
                if share.client.error is None:
                    self._apply(verb, seconds, [share])
        for client in ready:
            self._remember_extended(client)

    def _prepared(self, client: _Client) -> bool:
        """Whether nothing in a request is wrong: that is found before its first job is settled."""
        try:
            if any(one.result_ttl is not None for one in client.given):
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
            tokens = [one.lease.token for one in client.given]
            known = self._handed.take(self._source, client.pairs, tokens)
            for at, one in enumerate(client.given):
                if known[at] is None or one.verb not in _WITHOUT_PAYLOAD or one.result_ttl is not None:
                    known[at] = None
                    job_id, version = client.pairs[at]
                    # No lease has the highest number, which the columns can hold.
                    missing.append((min(job_id, MOST_VERSION), min(version, MOST_VERSION), tokens[at]))
            found.append((client, known))
        read = iter(self._source.leases_from_tokens(missing) if missing else ())
        for client, known in found:
            client.leases = _once([next(read) if job is None else job for job in known])
            client.verdicts = ["lost" if job is None else "unknown" for job in client.leases]

    def _apply(self, verb: str, seconds: float, shares: Sequence[_Share]) -> None:
        """Settle jobs; where that fails by what one client has given, each client's jobs by themselves."""
        if not shares:
            return
        try:
            self._run(verb, seconds, shares)
        except Exception as error:  # noqa: BLE001 - an answer for each client
            if self._hasty and isinstance(error, StorageError) and self._db.database.dialect.errors.is_lock_timeout(error):
                self._locked(error, verb, seconds, shares)
                return
            if len(shares) > 1 and not _fails_for_all(error):
                for share in shares:
                    self._apply(verb, seconds, [share])
                return
            for share in shares:
                share.client.error = error
                if "applied" in share.client.verdicts and isinstance(error, StorageError):
                    log.warning("only some jobs were settled: %s", mask(str(error), secrets_in(self._db.database.engine.url)))

    def _locked(self, error: StorageError, verb: str, seconds: float, shares: Sequence[_Share]) -> None:
        """Another transaction holds the row of one of the jobs: no client waits for that of another one."""
        for share in shares:
            if "applied" not in share.client.verdicts:
                share.client.error = AloneError()
            elif len(shares) > 1:
                self._rest.append((verb, seconds, share))
            else:
                # Its own row: the others have waited long enough, and its verdicts are unknown.
                share.client.error = error

    def _run(self, verb: str, seconds: float, shares: Sequence[_Share]) -> None:
        leases = [lease for share in shares for lease in share.leases]
        verdicts = iter(_VERBS[verb](self._source, leases, shares, seconds))
        for share in shares:
            of_client = share.client.verdicts
            for at in share.places:
                of_client[at] = next(verdicts).value

    def _remember_extended(self, client: _Client) -> None:
        self._handed.remember(
            handed(lease)
            for one, lease, verdict in zip(client.given, client.leases, client.verdicts, strict=True)
            if lease is not None and one.verb == "extend" and verdict == "applied"
        )


def _once(leases: list[LeasedJob | None]) -> list[LeasedJob | None]:
    """One lease of each job, the latest one that comes first: only that one can hold, and the others are lost."""
    if len({lease.id for lease in leases if lease is not None}) + leases.count(None) == len(leases):
        return leases
    latest: dict[int, tuple[int, int]] = {}
    for at, lease in enumerate(leases):
        if lease is not None and (lease.id not in latest or latest[lease.id][0] < lease.version):
            latest[lease.id] = lease.version, at
    places = {at for _, at in latest.values()}
    return [lease if at in places else None for at, lease in enumerate(leases)]


def _shares(client: _Client) -> dict[tuple[str, float], _Share]:
    """The jobs of a client whose leases were found, by verb and seconds."""
    shares: dict[tuple[str, float], _Share] = {}
    for at, lease in enumerate(client.leases):
        if lease is not None:
            one = client.given[at]
            key = one.verb, (one.seconds if one.verb in {"snooze", "extend"} else None) or 0.0
            share = shares.get(key)
            if share is None:
                share = shares[key] = _Share(client)
            share.places.append(at)
            share.leases.append(lease)
    return shares


def _turns(clients: Sequence[_Client]) -> list[list[_Client]]:
    """The clients in turns: a job that two of them settle is settled by the first one, and the second one finds it settled."""
    turns: list[tuple[set[int], list[_Client]]] = []
    for client in clients:
        ids = {job_id for job_id, _ in client.pairs}
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


def _complete(queue: Queue, leases: list[LeasedJob], shares: Sequence[_Share], _: float) -> list[Verdict]:
    if all(share.client.results is None for share in shares):
        return queue.complete_many(leases)
    return queue.complete_many(leases, results=[result for share in shares for result in share.results])


def _fail(queue: Queue, leases: list[LeasedJob], shares: Sequence[_Share], _: float) -> list[Verdict]:
    given = [one for share in shares for one in share.given]
    return queue.fail_many(leases, [error_of(one.error) for one in given], retry_in=[one.retry_in for one in given])


def _bury(queue: Queue, leases: list[LeasedJob], shares: Sequence[_Share], _: float) -> list[Verdict]:
    return queue.bury_many(leases, [error_of(one.error) for share in shares for one in share.given])


_VERBS: dict[str, Callable[[Queue, list[LeasedJob], Sequence[_Share], float], list[Verdict]]] = {
    "complete": _complete,
    "fail": _fail,
    "bury": _bury,
    "snooze": lambda queue, leases, _, seconds: queue.snooze_many(leases, seconds),
    "extend": lambda queue, leases, _, seconds: queue.extend_many(leases, seconds),
    "release": lambda queue, leases, _, __: queue.release_many(leases),
    "cancel": lambda queue, leases, _, __: queue.cancel_many(leases),
}
