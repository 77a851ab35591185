"""Sessions of people in a browser: who is logged in, and the token that each of their forms carries.

The cookie has a random text, and the database its SHA-256. Where the database takes no writes, the cookie has the API token itself.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request, Response

from queue_db.db import QueueDB
from queue_db.errors import StorageError
from queue_db.service.identity import Identity
from queue_db.tokens import PREFIX

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


class LoginNeededError(Exception):
    """A page for people who have logged in."""


# --- the session ------------------------------------------------------------------------------------------------------


def begin(db: QueueDB, secret: str) -> str | None:
    """Begin a session with the secret of an API token and return the text of its cookie; None: there is no such token."""
    try:
        return db.tokens.log_in(secret)
    except StorageError:
        if db.tokens.find(secret) is None:
            raise
        return secret


def find(db: QueueDB, key: str) -> Session | None:
    """The session of a cookie; None: it has ended, or there was none."""
    if key.startswith(PREFIX):
        token = db.tokens.find(key)
        csrf = hmac.digest(key.encode(), b"csrf", hashlib.sha256).hex()
        return None if token is None else Session(Identity.of(token), csrf)
    found = db.tokens.session(key)
    return None if found is None else Session(Identity.of(found.token), found.csrf)


# --- the cookie -------------------------------------------------------------------------------------------------------


def cookie(request: Request) -> str:
    """The name of the cookie. A browser sends cookies to all ports of a host, so it has the port."""
    return f"queue_db_session_{request.url.port or request.url.scheme}"


def key_of(request: Request) -> str | None:
    """The text of the request's cookie."""
    return request.cookies.get(cookie(request))


def _place(request: Request) -> str:
    return request.scope.get("app_root_path") or "/"


def remember(request: Request, response: Response, key: str) -> None:
    """Set the cookie."""
    secure = request.url.scheme == "https"
    response.set_cookie(cookie(request), key, path=_place(request), secure=secure, httponly=True, samesite="strict")


def forget(request: Request, response: Response) -> None:
    """Delete the cookie."""
    secure = request.url.scheme == "https"
    response.delete_cookie(cookie(request), path=_place(request), secure=secure, httponly=True, samesite="strict")


# --- forms ------------------------------------------------------------------------------------------------------------


async def fields(request: Request) -> Mapping[str, str]:
    """The fields of a submitted form (urlencoded); of several with one name the last."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        return {}


def is_own(headers: Mapping[str, str]) -> bool:
    """Whether the browser says that the request comes from a page of this service, or no browser has sent it."""
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


async def check(request: Request, session: Session) -> None:
    """Refuse a change that does not come from a form of this session.

    :raises CrossSiteError: it comes from another site, or without the session's token.
    """
    given = request.headers.get(HEADER) or (await fields(request)).get(FIELD, "")
    if not is_own(request.headers) or not secrets.compare_digest(given.encode(), session.csrf.encode()):
        raise CrossSiteError
