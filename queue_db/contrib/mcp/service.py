"""The REST API of a service, with one token."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2
from mcp.server.mcpserver.exceptions import ToolError

from queue_db.contrib.mcp.answers import cut, printable
from queue_db.errors import ConfigurationError

# Seconds for a request. It is not repeated: the agent may ask again.
_TIMEOUT = 30.0


class Service:
    """A client of ``/api/v1`` of a service.

    :param url: of the service, such as ``http://127.0.0.1:8321``; over a network it must be ``https``.
    :param token: an API token.
    :raises ConfigurationError: the URL is none, or would carry the token over a network in the clear; the token is no token.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise ConfigurationError("QUEUE_DB_SERVICE_URL must be the URL of a service, such as http://127.0.0.1:8321")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ConfigurationError(
                f"QUEUE_DB_SERVICE_URL: http://{parts.hostname} would show the token to the network: use https"
            )
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise ConfigurationError("the token is no API token: queue-db tokens create NAME --scope read prints one")
        self._client = httpx2.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token.strip()}"},
            timeout=_TIMEOUT,
            trust_env=False,  # no proxy of the environment gets the token
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.aclose()

    async def get(self, path: str, /, **query: Any) -> dict[str, Any]:
        """The answer to ``GET /api/v1{path}``; a parameter that is None is left out.

        :raises ToolError: the service refuses it or does not answer; the agent reads the text.
        """
        found, _ = await self._send("GET", path, query=query)
        return found

    async def tagged(self, path: str) -> tuple[dict[str, Any], str]:
        """:meth:`get`, with the ETag of the answer."""
        return await self._send("GET", path)

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The answer to another request.

        :raises ToolError: as :meth:`get`.
        """
        found, _ = await self._send(method, path, body=body, headers=headers)
        return found

    async def ready(self) -> str:
        """What ``/readyz`` says of the database."""
        answer = await self._request("GET", "/readyz")
        return "ok" if answer.status_code == 200 else _problem(answer)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, Any], str]:
        params = {name: value for name, value in (query or {}).items() if value is not None}
        answer = await self._request(method, f"/api/v1{path}", params=params, json=body, headers=headers)
        if not 200 <= answer.status_code < 300:
            raise ToolError(_problem(answer))
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found, answer.headers.get("etag", "")

    async def _request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        try:
            return await self._client.request(method, path, **options)
        except httpx2.HTTPError as error:
            raise ToolError(f"the service does not answer ({type(error).__name__}): is it running?") from error


def path_of(*parts: str) -> str:
    """A path of names, which may have any characters."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _problem(answer: httpx2.Response) -> str:
    """The problem in an answer of the service (RFC 9457)."""
    try:
        problem = answer.json()
        text = f"{problem.get('title', '')}: {problem.get('detail', '')}"
    except (ValueError, AttributeError):
        text = "the answer is not of this service"
    return f"the service answers {answer.status_code}: {printable(cut(text))}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
