"""Sessions of people in a browser: who is logged in, and the token that each of their forms carries.

The cookie has a random text, and the database its SHA-256. Where the database takes no writes, the process keeps the session in its
memory; it ends with the process.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response

from queue_db.db import QueueDB
from queue_db.errors import StorageError
from queue_db.operations.actor import ANYBODY, Actor
from queue_db.tokens.tokens import SESSION_LASTS

#: The name of the hidden input of each form, and of the header of a request by script.
FIELD = "csrf"
HEADER = "X-CSRF-Token"

#: Most sessions in the memory of a process; the oldest ones end.
MOST_SESSIONS = 10_000

_GUEST = re.compile(r"[A-Za-z0-9_-]{43}")

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Session:
    """A person's session."""

    who: Actor
    #: What each form has in a hidden input of the name ``csrf``.
    csrf: str = field(repr=False)
    #: Whether they logged in; no where the service is open to everybody.
    named: bool = True


class CrossSiteError(Exception):
    """The request comes from another site, or from a page that is too old: load the page again."""


class LoginNeededError(Exception):
    """A page for people who have logged in."""


# --- the session ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    secret: str = field(repr=False)
    csrf: str = field(repr=False)
    ends: float


class Memory:
    """Sessions of one process, by the SHA-256 of the text of their cookie."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, _Kept] = {}

    def begin(self, secret: str) -> str:
        """Keep a session of the token with this secret; the text of its cookie."""
        key, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[_sha256(key)] = _Kept(secret, csrf, time.monotonic() + SESSION_LASTS)
        return key

    def find(self, key: str) -> _Kept | None:
        """The session with this cookie, unless it has ended."""
        found = self._sessions.get(_sha256(key))
        return found if found is None or time.monotonic() < found.ends else None

    def end(self, key: str) -> bool:
        """End a session; False if there is none."""
        with self._lock:
            return self._sessions.pop(_sha256(key), None) is not None


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def begin(db: QueueDB, memory: Memory, secret: str) -> str | None:
    """Begin a session with the secret of an API token and return the text of its cookie; None: there is no such token."""
    try:
        return db.tokens.log_in(secret)
    except StorageError:
        if db.tokens.find(secret) is None:
            raise
        return memory.begin(secret)


def find_session(db: QueueDB, memory: Memory, key: str) -> Session | None:
    """The session of a cookie; None: it has ended, or there was none."""
    kept = memory.find(key)
    if kept is not None:
        token = db.tokens.find(kept.secret)
        return None if token is None else Session(Actor.of(token), kept.csrf)
    found = db.tokens.session(key)
    return None if found is None else Session(Actor.of(found.token), found.csrf)


def end(db: QueueDB, memory: Memory, key: str) -> None:
    """End the session of a cookie."""
    if not memory.end(key):
        db.tokens.log_out(key)


def guest(request: Request) -> Session:
    """The session of a person where nobody logs in. The token of the forms is in a cookie, too, so that every process knows it."""
    csrf = request.cookies.get(_guest_cookie(request), "")
    return Session(ANYBODY, csrf if _GUEST.fullmatch(csrf) else secrets.token_urlsafe(32), named=False)


# --- the cookie -------------------------------------------------------------------------------------------------------


def cookie(request: Request) -> str:
    """The name of the cookie. A browser sends cookies to all ports of a host, so it has the port."""
    # A browser takes no cookie with this prefix from another host of the domain.
    prefix = "__Host-" if request.url.scheme == "https" and _place(request) == "/" else ""
    return f"{prefix}queue_db_session_{request.url.port or request.url.scheme}"


def _guest_cookie(request: Request) -> str:
    return f"queue_db_form_{request.url.port or request.url.scheme}"


def key_of(request: Request) -> str | None:
    """The text of the request's cookie."""
    return request.cookies.get(cookie(request))


def _place(request: Request) -> str:
    return request.scope.get("app_root_path") or "/"


def _options(request: Request) -> dict[str, Any]:
    return {"path": _place(request), "secure": request.url.scheme == "https", "httponly": True}


def remember(request: Request, response: Response, key: str) -> None:
    """Set the cookie."""
    response.set_cookie(cookie(request), key, samesite="strict", **_options(request))


def remember_guest(request: Request, response: Response, csrf: str) -> None:
    """Set the cookie of somebody who has not logged in, unless they have it."""
    name = _guest_cookie(request)
    if request.cookies.get(name) != csrf:
        # Lax: with a link from another site it comes, too; otherwise that page would get another one.
        response.set_cookie(name, csrf, samesite="lax", **_options(request))


def forget(request: Request, response: Response) -> None:
    """Delete the cookie."""
    response.delete_cookie(cookie(request), samesite="strict", **_options(request))


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
    if origin is None:
        return True
    scheme, _, place = origin.partition("://")
    host = headers.get("host", "")
    return bool(place and host) and _with_port(place, scheme) == _with_port(host, scheme)


def _with_port(place: str, scheme: str) -> str:
    """Host and port, also where the port is the usual one of the scheme and left out."""
    usual = f":{_PORTS.get(scheme)}"
    return place.lower() if re.search(r":\d+$", place) else place.lower() + usual


async def check(request: Request, session: Session) -> None:
    """Refuse a change that comes from another site, or without the token of this session's forms."""
    given = request.headers.get(HEADER) or (await fields(request)).get(FIELD, "")
    if not is_own(request.headers) or not secrets.compare_digest(given.encode(), session.csrf.encode()):
        raise CrossSiteError
