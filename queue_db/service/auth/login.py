"""The login of people: with the secret of an API token, for a cookie."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import jinja2
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from queue_db.service.auth import session
from queue_db.service.auth.session import CrossSiteError
from queue_db.service.http.requests import Db, Fields, Person, of
from queue_db.service.live.incidents import IncidentType, described

router = APIRouter(include_in_schema=False)

_templates = jinja2.Environment(
    loader=jinja2.PackageLoader("queue_db.service"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
)


def root(request: Request) -> str:
    """The path that the service is mounted at, without a slash at its end."""
    return str(request.scope.get("app_root_path", ""))


def to_login(request: Request) -> Response:
    """Send a person to the login, and from there to the page that they wanted."""
    if request.method != "GET":
        return RedirectResponse(f"{root(request)}/login", 303)
    wanted = quote(request.url.path, safe="/%")
    if request.url.query:
        wanted += f"?{request.url.query}"
    return RedirectResponse(f"{root(request)}/login?next={quote(wanted, safe='')}", 303)


def _wanted(request: Request, path: str) -> str:
    """Where to go after the login: a page of this service and no other place."""
    home = f"{root(request)}/"
    try:
        parts = urlsplit(path)
    except ValueError:  # such as a bracket without an address
        return home
    ours = not (parts.scheme or parts.netloc or "\\" in path or path.startswith("//")) and path.startswith(home)
    return path if ours and path.isprintable() else home


def _page(request: Request, wanted: str, problem: str = "", status: int = 200) -> HTMLResponse:
    text = _templates.get_template("login.html.jinja").render(
        root=root(request), wanted=_wanted(request, wanted), problem=problem, instance=of(request).settings.name
    )
    return HTMLResponse(text, status)


def problem_page(
    request: Request, status: int, title: str, detail: str | None, advice: str, headers: Mapping[str, str] | None
) -> HTMLResponse:
    """An error, for a person."""
    text = _templates.get_template("problem.html.jinja").render(root=root(request), title=title, detail=detail, advice=advice)
    return HTMLResponse(text, status, headers)


@router.get("/login", name="login")
def login(request: Request, next: str = "") -> Response:  # noqa: A002 - the name in the address
    """The form."""
    if not of(request).settings.closed:
        return RedirectResponse(f"{root(request)}/", 303)
    return _page(request, next)


@router.post("/login")
def log_in(request: Request, db: Db, given: Fields) -> Response:
    """Check the token and set the cookie."""
    if not session.is_own(request.headers):
        raise CrossSiteError
    wanted = given.get("next", "")
    key = session.begin(db, of(request).memory, given.get("token", "").strip())
    if key is None:
        of(request).incidents.record(IncidentType.LOGIN_FAILED, described(request.scope))
        return _page(request, wanted, "This token is unknown, has expired or was revoked.", 401)
    response = RedirectResponse(_wanted(request, wanted), 303)
    session.remember(request, response, key)
    return response


@router.post("/logout", name="logout")
def log_out(request: Request, db: Db, who: Person) -> Response:
    """End the session."""
    key = session.key_of(request)
    if key is not None:
        session.end(db, of(request).memory, key)
    response = RedirectResponse(f"{root(request)}/login", 303)
    session.forget(request, response)
    return response
