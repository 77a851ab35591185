"""Sessions of people in a browser: who is logged in, and the token that each of their forms carries."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi import Request

from queue_db.service.identity import Identity

#: The name of the hidden input of each form, and of the header of a request by script.
FIELD = "csrf"
HEADER = "X-CSRF-Token"


@dataclass(frozen=True, slots=True)
class Session:
    """A person's session."""

    who: Identity
    #: What each form has in a hidden input of the name ``csrf``.
    csrf: str
    #: Whether they logged in; no where the service is open to everybody.
    named: bool = True


class CrossSiteError(Exception):
    """The request comes from another site, or from a page that is too old: load the page again."""


async def fields(request: Request) -> Mapping[str, str]:
    """The fields of a submitted form (urlencoded); of several with one name the last."""
    body = (await request.body()).decode("utf-8", "replace")
    return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=1000))


def check_origin(request: Request) -> None:
    """Refuse a change that a page of another site caused.

    :raises CrossSiteError: the browser says so.
    """
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise CrossSiteError
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise CrossSiteError


async def check(request: Request, session: Session) -> None:
    """Refuse a POST that does not come from a form of this session.

    :raises CrossSiteError: it comes from another site, or without the session's token.
    """
    check_origin(request)
    given = request.headers.get(HEADER) or (await fields(request)).get(FIELD, "")
    if not secrets.compare_digest(given.encode(), session.csrf.encode()):
        raise CrossSiteError
