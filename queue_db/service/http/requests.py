"""What an endpoint gets from its request: the service's objects, and who asks."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from queue_db.db import QueueDB
from queue_db.errors import SchemaOutOfDateError, StorageError
from queue_db.operations.actor import ANYBODY, Actor
from queue_db.service.auth import identity as identities
from queue_db.service.auth import session
from queue_db.service.auth.identity import FoundTokens, UnauthorizedError
from queue_db.service.auth.session import LoginNeededError, Session
from queue_db.service.live.incidents import REQUEST_ID, Incidents, described
from queue_db.service.live.kept import Clock, Probe
from queue_db.service.live.leases import Leases
from queue_db.service.live.outage import Outage
from queue_db.service.settings import Settings

if TYPE_CHECKING:
    from queue_db.service.http.pressure import Pressure

log = logging.getLogger("queue_db.service")

#: Methods that change nothing.
LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})

# Threads for this alone, so that it works while endpoints wait for a table in all other threads.
_ASKING = 8

# Threads for claims and settlements. More of them compete for the interpreter and for connections, and wait longer; all other
# threads are left to the other endpoints.
_WORKING = 10

#: Where the scope of a request says that the client wants only the headers of the answer to GET.
HEAD = "queue_db.head"

# Where the scope of a request has who asks, once that is known.
_WHO = "queue_db.identity"

# Where it says that the request was counted.
_COUNTED = "queue_db.counted"


@dataclass(frozen=True, slots=True)
class Service:
    """The objects behind one application."""

    db: QueueDB
    settings: Settings
    #: Sessions where the database takes no writes.
    memory: session.Memory = field(default_factory=session.Memory, repr=False)
    #: Set when the server ends: a request that waits for something is to be answered.
    ending: threading.Event = field(default_factory=threading.Event, repr=False)
    #: The leases that were handed out here.
    leases: Leases = field(default_factory=Leases, repr=False)
    #: Threads for finding out who asks.
    asking: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_ASKING), repr=False)
    #: Threads for claims and settlements.
    working: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_WORKING), repr=False)
    #: Whether the database answers.
    probe: Probe = field(init=False, repr=False)
    #: The database's clock.
    clock: Clock = field(init=False, repr=False)
    #: Who has just asked.
    tokens: FoundTokens = field(init=False, repr=False)
    #: Reads of tokens, by secret and revocations before them: when each began.
    reading: dict[tuple[str, int], tuple[float, asyncio.Future[Actor]]] = field(default_factory=dict, repr=False)
    #: What was refused, cut off or lost.
    incidents: Incidents = field(default_factory=Incidents, repr=False)
    #: Whether the database is away, or takes no changes.
    outage: Outage = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clock", Clock(self.db))
        object.__setattr__(self, "probe", Probe(self.db))
        object.__setattr__(self, "tokens", FoundTokens(self.db.tokens, self.clock))
        object.__setattr__(self, "outage", Outage(self.db, self.incidents, changes=not self.settings.read_only))

    @property
    def read_only(self) -> bool:
        """Whether changes are refused now: by the settings, or by the database."""
        return self.settings.read_only or self.outage.read_only


def of(request: Request) -> Service:
    """The service of the application that got this request."""
    found: Service = request.app.state.service
    return found


async def _db(request: Request) -> QueueDB:
    return of(request).db


#: The database, as a parameter of an endpoint.
Db = Annotated[QueueDB, Depends(_db)]


async def identity(request: Request) -> Actor:
    """Who asks: the owner of the token in the ``Authorization`` header, or of the session in the cookie, which may only look.

    The first call for a request counts it against the rate of the token.

    :raises UnauthorizedError: the service is closed, and nobody has this token.
    :raises RefusedError: 429, the token sends too many.
    """
    known: Actor | UnauthorizedError | None = request.scope.get(_WHO)
    if known is None:
        try:
            known = _as_allowed(of(request), await _asker(request))
        except UnauthorizedError as error:
            known = error
        request.scope[_WHO] = known
    if isinstance(known, UnauthorizedError):
        raise known
    if not request.scope.get(_COUNTED):
        request.scope[_COUNTED] = True
        pressure: Pressure = request.app.state.pressure
        pressure.request(known.name)
    return known


async def _asker(request: Request) -> Actor:
    service = of(request)
    if not service.settings.closed:
        return ANYBODY
    secret = _secret(request)
    found = service.tokens.recall(secret) if secret else None
    if found is not None:
        return found
    if not secret:
        return await to_thread.run_sync(_found, request, service, secret, limiter=service.asking)
    # Requests of one token that come while it is read need no read of their own, unless a token was revoked since.
    key = secret, service.db.tokens.revocations
    began, reading = service.reading.get(key, (-math.inf, None))
    now = time.monotonic()
    if reading is None or now - began >= identities.REMEMBERED_FOR or reading.get_loop() is not asyncio.get_running_loop():
        read = to_thread.run_sync(_found, request, service, secret, limiter=service.asking)
        reading = asyncio.ensure_future(read)
        service.reading[key] = now, reading
        reading.add_done_callback(partial(_read, service, key))
    return await asyncio.shield(reading)


def _read(service: Service, key: tuple[str, int], reading: asyncio.Future[Actor]) -> None:
    """A token was read, perhaps for requests that are gone."""
    if service.reading.get(key, (0.0, None))[1] is reading:
        del service.reading[key]
    if not reading.cancelled():
        reading.exception()


async def scraper(request: Request) -> Actor:
    """Who asks for metrics, with the scope ``read``.

    While the database is away, a token that was found within an hour is known: what it gets is of this process.

    :raises StorageError: the database is away or has not answered in time, and the token is not known.
    """
    service = of(request)
    failed: StorageError | None = None
    if not service.outage.away:
        try:
            with suppress(SchemaOutOfDateError):
                await service.probe.ask()
            return await _reader(request)
        except StorageError as error:
            service.outage.note(error)
            failed = error
    secret = _secret(request)
    found = service.tokens.recall(secret, identities.SCRAPES_FOR) if secret and service.settings.closed else None
    if found is not None:
        request.scope[_WHO] = _as_allowed(service, found)
    elif service.settings.closed and (secret or session.key_of(request)):
        if failed is not None:
            raise failed  # asked again, it would be as long
        await service.probe.ask()
    return await _reader(request)


async def _reader(request: Request) -> Actor:
    who = await identity(request)
    who.check("read")
    return who


async def count(request: Request) -> None:
    """Count a request that no operation may look at: its path or its body may be wrong.

    :raises UnauthorizedError: it is a change, and nobody has this token.
    :raises RefusedError: 429, the token sends too many.
    """
    if request.method not in LOOKING:
        await identity(request)
    elif "authorization" in request.headers or not of(request).settings.closed:
        # What needs no token is answered, whatever came as one.
        with suppress(UnauthorizedError):
            await identity(request)


@dataclass(slots=True)
class Standing:
    """Whether who asks still may: the token of a request that waits can be revoked or expire meanwhile, and a session can end."""

    request: Request
    #: What the request needs, for the queue or feed ``name``, or for some if None.
    scope: str
    name: str | None = None
    # Of the last look at a session: when it was, and the revocations before it.
    _looked: float = -math.inf
    _revocations: int = -1

    async def check(self) -> None:
        """Look again, as for a new request; to be called before anything is handed over. A session is read once a second.

        :raises UnauthorizedError: the token was revoked or has expired, or the session has ended.
        :raises StorageError: the database does not answer.
        """
        service = of(self.request)
        secret = _secret(self.request)
        found = service.tokens.recall(secret) if secret and service.settings.closed else None
        if found is not None:
            _as_allowed(service, found).check(self.scope, self.name)
            return
        now, revocations = time.monotonic(), service.db.tokens.revocations
        if secret is None and now - self._looked < identities.REMEMBERED_FOR and revocations == self._revocations:
            return
        self.request.scope.pop(_WHO, None)
        (await identity(self.request)).check(self.scope, self.name)
        self._looked, self._revocations = now, revocations


def _secret(request: Request) -> str | None:
    """The secret in the ``Authorization`` header, empty if it has another scheme; None: there is no such header."""
    given = next((value for name, value in request.scope["headers"] if name == b"authorization"), None)
    if given is None:
        return None
    scheme, _, secret = given.decode("latin-1").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def _found(request: Request, service: Service, secret: str | None) -> Actor:
    if secret is not None:
        # While this request waited for its thread, another one of the same token may have found it.
        who = (service.tokens.recall(secret) or service.tokens.find(secret)) if secret else None
        if who is None:
            raise UnauthorizedError
        return who
    key = session.key_of(request)
    # A cookie comes with every request of the browser, so it must not be enough for a change.
    looks = request.method in LOOKING and session.is_own(request.headers)
    found = session.find_session(service.db, service.memory, key) if key and looks else None
    if found is None:
        raise UnauthorizedError
    return found.who


def _as_allowed(service: Service, who: Actor) -> Actor:
    return who.reading() if service.settings.read_only else who


def needs(scope: str) -> Any:
    """A parameter of an endpoint: who asks. They have this scope for some queue; :meth:`Actor.check` looks at the queue."""

    async def checked(request: Request, who: Annotated[Actor, Depends(identity)]) -> Actor:
        who.check(scope)
        return _named(who, request) if scope == "manage" else who

    return Depends(checked)


def _named(who: Actor, request: Request) -> Actor:
    """Who asks, with this request."""
    return replace(who, source=described(request.scope), request=request.scope.get(REQUEST_ID))


Reader = Annotated[Actor, needs("read")]
Scraper = Annotated[Actor, Depends(scraper)]
Enqueuer = Annotated[Actor, needs("enqueue")]
WorkerClient = Annotated[Actor, needs("work")]
Manager = Annotated[Actor, needs("manage")]


# --- people -----------------------------------------------------------------------------------------------------------


async def session_of(request: Request) -> Session:
    """The session of a person, who is sent to the login without one. Its ``csrf`` is the token of a page's forms."""
    service = of(request)
    if service.settings.closed:
        key = session.key_of(request)
        found = (
            await to_thread.run_sync(session.find_session, service.db, service.memory, key, limiter=service.asking) if key else None
        )
        if found is None:
            raise LoginNeededError
    else:
        found = session.guest(request)
    found = replace(found, who=_as_allowed(service, found.who))
    request.state.session = found
    return found


async def person(request: Request, found: Annotated[Session, Depends(session_of)]) -> Actor:
    """Who looks at a page; without a session they are sent to the login. A POST must come from a form of theirs."""
    if request.method not in LOOKING:
        await session.check(request, found)
        return _named(found.who, request)
    return found.who


#: Who looks at a page, as a parameter of its handler.
Person = Annotated[Actor, Depends(person)]

#: The fields of a submitted form.
Fields = Annotated[Mapping[str, str], Depends(session.fields)]
