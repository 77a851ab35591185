"""``queue-db serve``: the REST API and the dashboard, on a port."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queue_db import __version__
from queue_db.cli import output, panels, profiles, statuses
from queue_db.cli.commands import command
from queue_db.cli.logs import log_to_stderr
from queue_db.cli.options import CommonOptions, ReplicasOption
from queue_db.cli.recording import user
from queue_db.cli.work_options import LogOptions
from queue_db.database.urls import missing_file, parse_url
from queue_db.db import QueueDB
from queue_db.dialects import dialect_for
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.operations import tokens
from queue_db.operations.tokens import NewToken
from queue_db.tokens.tokens import SCOPES
from queue_db.worker.signals import STOPS

if TYPE_CHECKING:
    from queue_db.processes.supervisor import SupervisorLink
    from queue_db.service import Settings
    from queue_db.service.http.requests import Service
    from queue_db.service.http.server import Server

log = logging.getLogger("queue_db.service")

#: The name of the token that the first start makes.
FIRST_TOKEN = "first"  # noqa: S105 - a name

# File descriptors beside the connections of clients.
_OTHER_FILES = 200

# Connections that stay open: what its threads for claims, settlements and tokens use at once. With fewer, many claims open one.
_CONNECTIONS = 20

app = typer.Typer(rich_help_panel=panels.SETUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressOptions:
    """Where the service listens, and by which names."""

    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Default: only this machine can connect.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="Port to listen on; 0: a free one.")] = 8321
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A host name, without port, by which clients call the service; may be repeated. Loopback names are always "
            "allowed; requests for other names are refused.",
        ),
    ] = None
    open_to_all: Annotated[
        bool, typer.Option("--open", help="No tokens and no login: each user and program of this machine may do everything.")
    ] = False

    def hosts(self) -> tuple[str, ...]:
        """The names that clients may use.

        :raises ConfigurationError: the service would be open to a network, or no client could name it.
        """
        names = tuple(self.allow_host or ())
        if _is_loopback(self.host):
            return names
        if self.open_to_all:
            raise ConfigurationError(
                f"--open lets everyone in who can connect to {self.host}: use it without --host, or leave it out"
            )
        if self.host in {"0.0.0.0", "::", ""}:  # noqa: S104 - it is compared
            if not names:
                raise ConfigurationError(f"--host {self.host} has no name: give --allow-host with each name that clients use")
            return names
        return (*names, self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """The reverse proxy in front of the service."""

    root_path: Annotated[
        str,
        typer.Option(
            "--root-path",
            metavar="PATH",
            help="Path under which a proxy shows the service, as in https://example.com/queue/; the proxy may cut it off or not.",
        ),
    ] = ""
    forwarded_allow_ips: Annotated[
        list[str] | None,
        typer.Option(
            "--forwarded-allow-ips",
            metavar="ADDRESS",
            help="Address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-For count; may be repeated. Default: "
            "127.0.0.1 and ::1.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Limits on the requests and the waiting jobs of clients."""

    max_rate: Annotated[
        float | None,
        typer.Option(
            "--max-rate",
            metavar="NUMBER",
            help="Most requests of one token in a second to the API; more are answered with 429. Default: any number.",
        ),
    ] = None
    max_depth: Annotated[
        list[str] | None,
        typer.Option(
            "--max-depth",
            metavar="PATTERN=N",
            help="Most waiting jobs of the queues whose names match the glob pattern; beyond it enqueuing through the API is "
            "answered with 429. May be repeated; the first pattern that matches counts.",
        ),
    ] = None

    def rate(self) -> float | None:
        """Requests in a second.

        :raises ConfigurationError: not more than 0, or not a number.
        """
        if self.max_rate is not None and not 0 < self.max_rate < math.inf:
            raise ConfigurationError(f"--max-rate {self.max_rate}: must be more than 0 requests in a second")
        return self.max_rate

    def depths(self) -> dict[str, int]:
        """Jobs by pattern.

        :raises ConfigurationError: not PATTERN=N.
        """
        found: dict[str, int] = {}
        for given in self.max_depth or ():
            pattern, _, number = given.rpartition("=")
            if not pattern or not (number.isascii() and number.isdecimal()):
                raise ConfigurationError(f"--max-depth {given}: must be a pattern and a whole number, as in 'mail-*=1000'")
            found.setdefault(pattern, int(number))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """How many processes answer."""

    processes: Annotated[
        int,
        typer.Option(
            "--processes", min=1, max=64, metavar="N", help="Processes that answer on the port. If one dies, it is replaced."
        ),
    ] = 1
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=1,
            max=65535,
            metavar="PORT",
            help="A port for the first process alone; the second one has the next port, and so on. Prometheus scrapes /metrics of "
            "each.",
        ),
    ] = None


@command(
    app,
    "serve",
    "queue-db serve --url sqlite:///queue.db",
    "queue-db serve --name staging --read-only --port 8322",
    "queue-db serve --host 0.0.0.0 --allow-host queue.example.com",
    "queue-db serve --allow-host example.com --root-path /queue",
    "queue-db serve --processes 4 --metrics-port 9400",
)
def serve(
    *,
    address: AddressOptions,
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What people call this service, as in production: the dashboard shows it, in the titles of browser tabs, too.",
        ),
    ] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Change nothing, whatever a token allows.")] = False,
    callbacks: Annotated[
        bool,
        typer.Option("--callbacks", help="Who has the token of job.callback() may send its signal: POST /api/v1/callbacks/TOKEN."),
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="KEY",
            help="Show no values of this key of payloads; may be repeated. Values of password, secret, token and a few more are "
            "never shown.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help='Show the results of "queue-db compare --json FILE" on the page of the strategy.'
        ),
    ] = None,
    replicas: ReplicasOption = None,
    limits: LimitOptions,
    proxy: ProxyOptions,
    several: ProcessOptions,
    log: LogOptions,
    common: CommonOptions,
) -> None:
    """Serve the dashboard and the REST API of a database until stopped.

    First start: the tables are created where the SQLite file is new; other databases need "queue-db migrate". If there is no token
    yet, one with all scopes is made and printed on standard error, once. Open the printed URL and log in with it.

    Tokens: "queue-db tokens create NAME --scope read" makes more, for people and programs. Programs send a token in the header
    "Authorization: Bearer SECRET"; the description of the API is at /api/v1/openapi.json.

    Start: while the database is away the command waits for it, for a minute at most.

    Network: by default only this machine can connect. For others, give --host and --allow-host, and put a proxy with HTTPS in
    front: without it, others in the network can read tokens and cookies.

    Read-only: with --read-only changes are forbidden. Without it the service asks the database every 5 s whether it takes changes,
    while it does not: on a standby, a read-only server or file, or without the right to change jobs. Until then changes are
    answered with status 503, and pages have no buttons. Where that is as it should be, use --read-only.

    Processes: with --processes a supervisor starts them, opens the port, and replaces a process that dies, with a line in the log
    and an incident. Each has its own connections to the database, limits of rate, incidents and metrics: a scrape of the port gets
    those of any of them, so give --metrics-port and scrape each. Tokens, logins and forms work on all; where the database takes no
    changes, a login holds on one process only. If the supervisor dies, the processes stop.

    Signals: SIGTERM and Ctrl-C stop the service when the running requests are answered, after at most 10 s. The exit status is 130
    after Ctrl-C and 0 after SIGTERM; 1 if it waits for the database even then, and is ended after 12 s.
    """
    try:
        from queue_db.service import Settings, processes
        from queue_db.service.http import proxies
        from queue_db.service.http.requests import Service
    except ImportError as error:
        raise ConfigurationError(
            f'the service needs {error.name}, which is not installed: pip install "queue-db[service]"'
        ) from None
    root, trusted = proxies.prefix(proxy.root_path), proxies.trusted(proxy.forwarded_allow_ips)
    settings = Settings(
        name=name,
        closed=not address.open_to_all,
        read_only=read_only,
        callbacks=callbacks,
        hosts=address.hosts(),
        masked=(*Settings().masked, *(mask or ())),
        report=report,
        max_rate=limits.rate(),
        max_depths=limits.depths(),
    )
    answers = _Answers(settings, common, address, several, root, trusted, replicas)
    new = _is_new(common.required_url(), read_only=read_only)
    with log_to_stderr([url for url in (common.url, replicas) if url], log.log_format, verbose=log.verbose):
        for quiet in ("uvicorn", "alembic"):
            logging.getLogger(quiet).setLevel(logging.WARNING)
        if (supervisor := processes.link()) is not None:
            answers.answer_supervised(supervisor)
            return
        if not read_only:
            profiles.confirm(f"serve: {'the file will be created, and ' * new}changes will be allowed")
        with _open(common, replicas) as db:
            _prepare(db, new=new)
            with _listening(address.host, address.port) as listening:
                if several.processes == 1:
                    interrupted = answers.answer(db, listening).interrupted
                else:
                    answers.check_metrics_ports()
                    answers.announce(Service(db, settings), listening)
                    db.close()
                    interrupted = processes.supervise(listening, several.processes) == -signal.SIGINT
    if interrupted:
        raise typer.Exit(statuses.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Answers:
    """How a process answers."""

    settings: Settings
    common: CommonOptions
    address: AddressOptions
    several: ProcessOptions
    root: str
    trusted: Sequence[str]
    replicas: str | None

    def announce(self, service: Service, listening: socket.socket) -> None:
        """Print where the service is, and how to log in."""
        service.outage.look()
        _note_access(service, self.address.host)
        place = _url(listening, self.root)
        fields = {"url": place, "read_only": service.read_only, "open": self.address.open_to_all}
        self.common.print(fields, f"dashboard: {place}")
        sys.stdout.flush()

    def answer(self, db: QueueDB, listening: socket.socket, supervisor: SupervisorLink | None = None) -> Server:
        """Answer until the end; the server."""
        from queue_db.service import processes, service
        from queue_db.service.http.server import MOST_CONNECTIONS, collect_less, server

        _raise_file_limit(MOST_CONNECTIONS + _OTHER_FILES)
        application = service(db, self.settings)
        made: Service = application.state.service
        if supervisor is None:
            self.announce(made, listening)
            running = server(application, root_path=self.root, trusted=self.trusted)
        else:
            made.outage.look()
            running = server(application, root_path=self.root, trusted=self.trusted, at_once=processes.AT_ONCE, signals=STOPS)
            processes.report(supervisor, running, made.incidents)
        running.ends_process = True
        collect_less()
        with ExitStack() as stack:
            sockets = [listening]
            if self.several.metrics_port is not None:
                own = processes.own_port(self.several.metrics_port)
                sockets.append(stack.enter_context(_listening(self.address.host, own, "--metrics-port")))
            stack.enter_context(_told(db, self.settings, _url(listening, self.root), running))
            running.run(sockets=sockets)
        return running

    def check_metrics_ports(self) -> None:
        """See that each process can have its port, before the first one starts.

        :raises ConfigurationError: one of them cannot.
        """
        if (first := self.several.metrics_port) is None:
            return
        with ExitStack() as stack:
            for port in range(first, first + self.several.processes):
                stack.enter_context(_listening(self.address.host, port, "--metrics-port"))

    def answer_supervised(self, supervisor: SupervisorLink) -> None:
        """Answer as one of several processes."""
        from queue_db.service import processes

        with processes.inherited() as listening, _open(self.common, self.replicas) as db:
            self.answer(db, listening, supervisor)
        supervisor.report_ended()


def _is_new(given: str, *, read_only: bool) -> bool:
    """Whether the database is a file that does not exist or is empty.

    :raises ConfigurationError: it is, and nothing may be created.
    """
    url = parse_url(given)
    file = dialect_for(url.get_backend_name()).server.file(url)
    new = missing_file(url) is not None or (file is not None and file.is_file() and file.stat().st_size == 0)
    if new and read_only:
        raise ConfigurationError(f"{url.database} does not exist or is empty, and --read-only creates nothing: check --url")
    return new


@contextmanager
def _told(db: QueueDB, settings: Settings, place: str, running: Server) -> Iterator[None]:
    """Log the start and the end of the service."""
    kind = {"read_only": settings.read_only, "open": not settings.closed}
    fields = {"version": __version__, "database": db.url, "url": place, "strategy": db.strategy.name, **kind}
    how = "".join(f"{text}, " for text, holds in zip(("read-only", "open"), kind.values(), strict=True) if holds)
    message = "serving %s at %s: %sstrategy %s, queue_db %s, pid %d"
    log.info(message, db.url, place, how, db.strategy.name, __version__, os.getpid(), extra=fields)
    began, why = time.monotonic(), "an error"
    try:
        yield
        why = running.ended_by or why
    finally:
        ran, requests = time.monotonic() - began, running.server_state.total_requests
        fields = {"why": why, "uptime": round(ran, 3), "requests": requests}
        log.info("stopped serving after %.1f s (%s): %d requests", ran, why, requests, extra=fields)


def _open(common: CommonOptions, replicas: str | None) -> AbstractContextManager[QueueDB]:
    return common.open(create=True, waits=True, pool_size=_CONNECTIONS, replicas=replicas)


def _prepare(db: QueueDB, *, new: bool) -> None:
    """Create the tables in a new file; other databases are migrated by hand.

    :raises SchemaOutOfDateError: the tables are missing or of another version.
    """
    if new:
        db.migrate()
        output.note("a new file: the tables are created")
    db.check()


def _note_access(service: Service, host: str) -> None:
    """Print how to log in; make the first token."""
    from queue_db.service.live.outage import takes_changes

    if not _is_loopback(host):
        output.note(f"the service listens on {host}: put a proxy with HTTPS in front of it, tokens are readable without")
    db = service.db
    if not service.settings.closed:
        output.note("the service is open: each user and program of this machine may do everything")
    elif not db.tokens.list():
        if service.read_only and not takes_changes(db):
            output.note("there is no token: make one as a user who may write: queue-db tokens create NAME --scope read")
            return
        try:
            secret = tokens.create(db, user(), NewToken(FIRST_TOKEN, SCOPES))
        except ArgumentError:
            return  # another process that starts now has made it
        output.note(f"log in with this token, which allows everything and is not shown again: {secret}")


def _listening(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket on the address.

    :raises ConfigurationError: another program has the port, or this machine does not have the address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot listen on {host} port {port}: {reason}; choose another {option}") from None


def _url(listening: socket.socket, root: str) -> str:
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - it is compared
        host = "127.0.0.1"
    return f"http://[{host}]:{port}{root}/" if ":" in host else f"http://{host}:{port}{root}/"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _raise_file_limit(wanted: int) -> None:
    """Let this process open as many files as it may have connections, as far as the system allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (resource.RLIM_INFINITY, -1) and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (wanted if hard in (resource.RLIM_INFINITY, -1) else min(wanted, hard), hard)
            )
