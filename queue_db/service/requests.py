"""What an endpoint gets from its request: the service's objects, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from queue_db.db import QueueDB
from queue_db.service.identity import ANYBODY, Identity
from queue_db.service.settings import Settings


@dataclass(frozen=True, slots=True)
class Service:
    """The objects behind one application."""

    db: QueueDB
    settings: Settings


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
