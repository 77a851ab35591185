"""What the owner of a service chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a service."""

    #: What people call this service, such as "production": pages show it beside the database, in their titles, too.
    name: str = ""
    #: Requests need a token, and people log in with one. False: everybody who reaches the port may do everything.
    closed: bool = True
    #: Nothing can be changed, whatever a token allows, and whether the database takes changes or not.
    read_only: bool = False
    #: Names that the ``Host`` header may have, without port; loopback names are always allowed. ``*``: every name.
    hosts: tuple[str, ...] = ()
    #: Keys of payloads whose values the dashboard and the lists of jobs do not show.
    masked: tuple[str, ...] = ("password", "passwd", "secret", "token", "api_key", "authorization")
    #: A file of ``queue-db compare --json``; the page of the strategy shows it.
    report: Path | None = None
    #: Largest body of a request, bytes.
    max_body: int = 8 * 1024 * 1024
    #: Largest sum of the bodies of all requests that are being answered, bytes; beyond it requests are answered with 503.
    max_bodies: int = 64 * 1024 * 1024
    #: Largest headers of a request, bytes.
    max_headers: int = 16 * 1024
    #: A request must have arrived within this many seconds.
    arrival: float = 30.0
    #: Most requests of one token in a second, to the API; more are answered with 429. None: any number.
    max_rate: float | None = None
    #: Strangers may send the signals of callbacks, each with its token: ``POST /api/v1/callbacks/{token}``.
    callbacks: bool = False
    #: Most callbacks of one address in a second, right and wrong ones together; more are answered with 429.
    callback_rate: float = 50.0
    #: Most waiting jobs of a queue, by glob pattern of its name, the first that matches; beyond it enqueuing is answered with 429.
    #: It is as exact as the metrics, which are taken every 10 s.
    max_depths: Mapping[str, int] = field(default_factory=dict)
