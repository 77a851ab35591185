"""What an endpoint gets from its request: the service's objects, and who asks."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from queue_db.db import QueueDB
from queue_db.service import session
from queue_db.service.identity import ANYBODY, Identity
from queue_db.service.session import Session
from queue_db.service.settings import Settings

log = logging.getLogger("queue_db.service")


@dataclass(frozen=True, slots=True)
class Service:
    """The objects behind one application."""

    db: QueueDB
    settings: Settings
    #: The token of forms where nobody logs in.
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


def of(request: Request) -> Service:
    """The service of the application that got this request."""
    found: Service = request.app.state.service
    return found


def _db(request: Request) -> QueueDB:
    return of(request).db


#: The database, as a parameter of an endpoint.
Db = Annotated[QueueDB, Depends(_db)]


def identity(request: Request) -> Identity:
    """Who asks: the owner of the token in the ``Authorization`` header, or of the session in the cookie."""
    return ANYBODY


def needs(scope: str) -> Any:
    """A parameter of an endpoint: who asks. They have this scope for some queue; :meth:`Identity.check` looks at the queue."""

    def checked(who: Annotated[Identity, Depends(identity)]) -> Identity:
        who.check(scope)
        return who

    return Depends(checked)


Checked = Callable[..., Identity]
Reader = Annotated[Identity, needs("read")]
Enqueuer = Annotated[Identity, needs("enqueue")]
WorkerClient = Annotated[Identity, needs("work")]
Manager = Annotated[Identity, needs("manage")]


# --- people -----------------------------------------------------------------------------------------------------------


def session_of(request: Request) -> Session:
    """The session of a person. A page gets the token of its forms from ``request.state.session.csrf``."""
    found = Session(ANYBODY, of(request).csrf, named=False)
    request.state.session = found
    return found


async def person(request: Request, found: Annotated[Session, Depends(session_of)]) -> Identity:
    """Who looks at a page; without a session they are sent to the login. A POST must come from a form of theirs."""
    if request.method not in {"GET", "HEAD"}:
        await session.check(request, found)
    return found.who


#: Who looks at a page, as a parameter of its handler.
Person = Annotated[Identity, Depends(person)]

#: The fields of a submitted form.
Fields = Annotated[Mapping[str, str], Depends(session.fields)]


def record(
    to: Request | Service,
    who: Identity,
    action: str,
    target: str,
    number: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write a change that somebody made into the log of actions, after it has happened.

    :param action: a verb: ``pause``, ``redrive``.
    :param target: what was changed: ``queue mail``, ``job 17``.
    :param number: how many jobs or rows.
    """
    log.info("%s: %s %s%s", who.name, action, target, "" if number is None else f" ({number})")
