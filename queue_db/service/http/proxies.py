"""Behind a reverse proxy: the prefix that it shows the service under, and the addresses whose headers about the client count."""

from __future__ import annotations

import re
from ipaddress import ip_network

from starlette.types import ASGIApp, Receive, Scope, Send

from queue_db.errors import ConfigurationError
from queue_db.service.api import BESIDE
from queue_db.service.auth import login
from queue_db.service.pages import PAGES

#: Proxies on this machine.
TRUSTED = ("127.0.0.1", "::1")

_SEGMENTS = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")

# How paths of the service itself begin.
_OWN = frozenset(str(getattr(route, "path", "/")).split("/")[1] for one in (*BESIDE, login.router, *PAGES) for route in one.routes)


class Prefix:
    """Let the application see each path with its prefix ``root``, whether the proxy has cut it off or passes paths as they are."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self.app = app
        self.root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            scope = {
                **scope,
                "path": self._prefixed(scope["path"]),
                "raw_path": self._prefixed(raw.decode("latin-1")).encode("latin-1"),
                "root_path": self.root,
            }
        await self.app(scope, receive, send)

    def _prefixed(self, path: str) -> str:
        if path == self.root:
            return f"{path}/"
        return path if path.startswith(f"{self.root}/") else self.root + path


def prefix(given: str) -> str:
    """Check the path under which a proxy shows the service; without a slash at its end.

    :raises ConfigurationError: it is no path, or one of the service's own: then a path would have two meanings.
    """
    root = given.rstrip("/")
    if not root:
        return ""
    if not _SEGMENTS.fullmatch(root):
        raise ConfigurationError(f"--root-path {given}: must be a path of letters, digits and - . _ ~ that begins with a slash")
    if root.split("/")[1] in _OWN | {"api"}:
        raise ConfigurationError(f"--root-path {given}: the service has this path itself, choose another one")
    return root


def trusted(given: list[str] | None) -> list[str]:
    """Addresses and networks of proxies, checked; default: this machine."""
    if given is None:
        return list(TRUSTED)
    found = [one.strip() for text in given for one in text.split(",") if one.strip()]
    for one in found:
        try:
            ip_network(one)
        except ValueError as error:
            raise ConfigurationError(f"--forwarded-allow-ips {one}: must be an address or a network: {error}") from None
    return found
