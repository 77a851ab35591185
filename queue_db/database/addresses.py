"""Several addresses of one database: how a URL names them, and which of them a connection goes to.

``postgresql://a:1,b:2/db`` is kept as SQLAlchemy's ``postgresql:///db?host=a,b&port=1,2``. The options ``target_session_attrs``
(as libpq has it) and ``nodes`` (``first`` or ``all``) of such a URL are ours, for every driver.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import Dialect
from queue_db.dialects.nodes import Role
from queue_db.errors import ConfigurationError, PermanentStorageError, TransientStorageError

log = logging.getLogger("queue_db.database")

#: Values of ``target_session_attrs`` → what speaks against a server; None: nothing.
_AGAINST: dict[str, Callable[[Role], str | None]] = {
    "any": lambda role: None,
    "read-write": lambda role: "it is read-only" if role.standby or role.read_only else None,
    "read-only": lambda role: None if role.standby or role.read_only else "it is not read-only",
    "primary": lambda role: "it is a standby" if role.standby else None,
    "standby": lambda role: None if role.standby else "it is no standby",
}
_WISHES = {wish: (wish,) for wish in _AGAINST} | {"prefer-standby": ("standby", "any")}

#: Options of a URL with several addresses that no driver gets.
_CHOICES = {"nodes": ("first", "all"), "target_session_attrs": tuple(_WISHES)}

# The last part has no @: a password that contains an unescaped @ is not taken for addresses.
_SEVERAL = re.compile(r"([\w+]+://(?:[^:/@]*(?::[^@]*)?@|(?!.*@)))([^/?@]*,[^/?@]*)((?:[/?][^@]*)?)", re.DOTALL)
_ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?")
_JDBC = re.compile(r"jdbc:(\w+://[^?;]*)", re.DOTALL)

#: Seconds for an attempt to connect, shared by the addresses; libpq takes 2 at least.
_PATIENCE, _LEAST = 10, 2

#: Seconds in which an address that has failed is tried after the others.
_LAST_FOR = 10.0

#: The longest pause (seconds) before a process goes from a server that it has used to the next: others go there too.
_JITTER = 0.2

#: The longest pause (seconds) before all addresses are tried again.
_AGAIN = 1.0


class Address(NamedTuple):
    """A server."""

    host: str
    port: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host


def parsed(url: str | URL) -> URL:
    """``make_url``, also for several addresses and for a simple URL of JDBC.

    :raises ConfigurationError: an address cannot be read, or a URL of JDBC has options or a mode.
    :raises ArgumentError, ValueError: SQLAlchemy's.
    """
    found = None
    if isinstance(url, str):
        if url.startswith("jdbc:"):
            if (simple := _JDBC.fullmatch(url)) is None:
                raise ConfigurationError(
                    "this URL is for JDBC: write it without jdbc:, modes and JDBC's options, as postgresql://user:password@a:1,b:2/database"
                )
            url = simple[1]
        if found := _SEVERAL.fullmatch(url):
            url = found[1] + found[3]
    made = make_url(url)
    hosts = found[2] if found else made.host if made.host and "," in made.host and "@" not in made.host else None
    if hosts is None:
        return made
    return placed(made._replace(host=None, port=None), [_address(text.strip(), str(made.port or "")) for text in hosts.split(",")])


def _address(text: str, port: str = "") -> Address:
    parts = _ADDRESS.fullmatch(text)
    if parts is None or (parts[3] is not None and not 0 < int(parts[3]) < 2**16):
        raise ConfigurationError(
            "an address in the database URL cannot be read: write host:port, or [host]:port for IPv6; the port must be 1 to 65,535"
        )
    return Address(parts[1] or parts[2], parts[3] or port)


def placed(url: URL, addresses: list[Address]) -> URL:
    """The URL with these addresses."""
    hosts, ports = (",".join(parts) for parts in zip(*addresses, strict=True))
    return url.update_query_dict({"host": hosts, "port": ports})


def several(url: URL) -> list[Address]:
    """The addresses of a URL that has several, or one whose server must be of a kind; otherwise an empty list.

    :raises ConfigurationError: they cannot be read.
    """
    hosts, ports = (url.query.get(name, "") for name in ("host", "port"))
    if not isinstance(hosts, str):
        return [_address(text) for text in hosts]
    if "," not in hosts and not (hosts and "target_session_attrs" in url.query):
        return []
    if hosts.count(":") == 1 and "," not in hosts:
        return [_address(hosts)]
    names, numbers = hosts.split(","), ports.split(",") if isinstance(ports, str) else list(ports)
    if len(numbers) not in (1, len(names)) or not all(number.isdigit() for number in filter(None, numbers)):
        raise ConfigurationError("port= in the database URL must have one port, or as many ports as addresses")
    return [Address(*pair) for pair in zip(names, numbers if len(numbers) > 1 else numbers * len(names), strict=True)]


def one_by_one(url: URL) -> dict[Address, URL]:
    """The addresses of a URL that has several, each with the URL of this server alone."""
    rest = url.difference_update_query(["host", "port", *_CHOICES])
    return {address: rest.set(host=address.host, port=int(address.port)) for address in several(url)}


def option(url: URL, name: str, default: str) -> str:
    """One of our options.

    :raises ConfigurationError: an unknown value.
    """
    value = url.query.get(name, default)
    if value not in _CHOICES[name]:
        raise ConfigurationError(f"{name}={value} in the database URL: must be one of {', '.join(_CHOICES[name])}")
    return str(value)


def completed(url: URL, port: int | None) -> URL:
    """The URL with this port where an address has none; checked. A URL with one address gets no option of several.

    :raises ConfigurationError: the database takes one address, or an option has an unknown value.
    """
    if url.host and "target_session_attrs" in url.query:
        url = placed(url._replace(host=None, port=None), [Address(url.host, str(url.port or url.query.get("port", "")))])
    addresses = several(url)
    if not addresses:
        return url.difference_update_query(["nodes"])
    if port is None:
        raise ConfigurationError(f"{url.get_backend_name()} has no servers: its URL takes no addresses")
    option(url, "nodes", "first")
    option(url, "target_session_attrs", "any")
    return placed(url, [Address(address.host, address.port or str(port)) for address in addresses])


def shown(url: URL) -> str:
    """The URL as text with ``***`` in place of its password, with its addresses where people write them."""
    addresses = several(url)
    if not addresses or any("/" in address.host for address in addresses):  # folders of sockets
        return url.render_as_string(hide_password=True)
    text = url.difference_update_query(["host", "port"]).render_as_string(hide_password=True)
    return re.sub("://(?:[^@/?]*@)?", lambda found: found[0] + ",".join(map(str, addresses)), text, count=1)


def follow(
    engine: Engine,
    dialect: Dialect,
    pause: Callable[[float], None] = time.sleep,
    count: Callable[[], None] = lambda: None,
    *,
    failover: float = 0.0,
    in_step: bool = False,
) -> None:
    """Let a new engine connect to the addresses in its URL, if there are several.

    :param count: called when a server that was in use, or was away at the first connection, is left for another.
    :param failover: seconds in which a new connection waits until one of the servers takes changes.
    :param in_step: other processes may use other servers at the same time: see all that they have committed.
    """
    if found := several(engine.url):
        _Addresses(engine, dialect, found, pause, count, failover, in_step=in_step)


class _Addresses:
    """Chooses the address of each new connection of an engine: the first that works, or with ``nodes=all`` each in turn.

    All connections of a process stay with the address that works, until it fails. Other listeners of ``do_connect`` are called for
    each address.
    """

    def __init__(
        self,
        engine: Engine,
        dialect: Dialect,
        found: list[Address],
        pause: Callable[[float], None],
        count: Callable[[], None],
        failover: float,
        *,
        in_step: bool,
    ) -> None:
        self._dialect, self._all, self._pause, self._count, self._failover = dialect, found, pause, count, failover
        self._engine = engine
        self._wishes = _WISHES[option(engine.url, "target_session_attrs", "read-write")]
        self._given = engine.url.query
        self._turns = None if option(engine.url, "nodes", "first") == "first" else itertools.count(random.randrange(len(found)))
        self._in_step = in_step or self._turns is not None
        # Threads share these without a lock: each change is one operation.
        self._current: Address | None = None
        self._used: set[Address] = set()
        self._failed: dict[Address, tuple[float, str]] = {}
        event.listen(engine, "do_connect", self._connect, insert=True)

    def _connect(self, sql: SQLAlchemyDialect, record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        until = time.monotonic() + self._failover
        while True:
            try:
                return self._try_all(sql, record, arguments, options)
            except TransientStorageError as error:
                # Without a code the password may be wrong, unless it was right before or no server accepts connections.
                if time.monotonic() >= until or not (
                    error.sqlstate or self._current or self._dialect.server.nodes.is_down(self._engine)
                ):
                    raise
            self._pause(random.uniform(0.0, _AGAIN))

    def _try_all(self, sql: SQLAlchemyDialect, record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        reasons: dict[Address, str] = {}
        passed: dict[Address, tuple[float, str]] = {}  # if no other one fits better, nothing has happened to them
        known, cause, last = False, None, self._wishes[-1]
        for wish, address in itertools.product(self._wishes, self._order()):
            if address in reasons:
                continue  # it has failed
            try:
                driver = self._reach(address, sql, record, arguments, options)
                try:
                    against = _AGAINST[wish](self._dialect.server.nodes.role(driver))
                    if against is None and self._in_step:
                        self._dialect.server.nodes.keep_in_step(driver)
                except BaseException:
                    driver.close()
                    raise
            except (sql.loaded_dbapi.Error, OSError) as error:
                # Not at every address: each might count a wrong password, and then lock the account.
                transient, code, against = self._judged(error, sql)
                if not transient:
                    raise
                known, cause = known or code is not None, error
                reasons[address] = against
                self._leave(address, against, dead=True)
                continue
            if against is None:
                if wish != last:
                    self._failed.update(passed)
                self._reached(address)
                return driver
            known = True
            driver.close()
            if wish != last:
                passed[address] = (time.monotonic() + _LAST_FOR, against)
                continue
            reasons[address] = against
            self._leave(address, against, dead=False)
        text = f"none of {len(self._all)} addresses works: " + "; ".join(f"{address}: {why}" for address, why in reasons.items())
        # 08001: no connection. None: the driver does not say whether the servers are away or the password is wrong.
        raise TransientStorageError(
            text, sqlstate="08001" if known else None, statement_name="connect", server_away=True
        ) from cause

    def _order(self) -> list[Address]:
        """All addresses, the best first."""
        if self._turns is None:
            order = sorted(self._all, key=lambda address: address != self._current)
        else:
            first = self._all[next(self._turns) % len(self._all)]
            others = [address for address in self._all if address != first]
            order = [first, *random.sample(others, len(others))]
        now = time.monotonic()
        return sorted(order, key=lambda address: self._failed.get(address, (0.0, ""))[0] > now)

    def _reach(self, address: Address, sql: SQLAlchemyDialect, record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        theirs = {name: value for name, value in options.items() if name not in _CHOICES}
        theirs |= {"host": address.host, "port": int(address.port)}

        def connect(options: dict[str, Any]) -> Any:
            for listener in sql.dispatch.do_connect:
                if listener != self._connect and (made := listener(sql, record, arguments, options)) is not None:
                    return made
            return sql.connect(*arguments, **options)

        named = "timeout" if "timeout" in theirs else "connect_timeout"
        # What the URL says holds for each address, as in libpq.
        seconds = float(theirs[named]) if named in self._given else max(_LEAST, _PATIENCE // len(self._all))
        return self._dialect.server.nodes.connect_within(int(seconds), named, connect, sql, theirs)

    def _judged(self, error: Exception, sql: SQLAlchemyDialect) -> tuple[bool, str | None, str]:
        """Whether the next address is tried after this error, its code, and its text in one line."""
        if isinstance(error, sql.loaded_dbapi.Error):
            wrapped = DBAPIError.instance(None, None, error, sql.loaded_dbapi.Error, dialect=sql)
            translated = self._dialect.errors.translate(cast("DBAPIError", wrapped), "connect")
            translated.place = ""
            return not isinstance(translated, PermanentStorageError), translated.sqlstate, str(translated)
        return True, "08001", str(error) or type(error).__name__

    def _leave(self, address: Address, why: str, *, dead: bool) -> None:
        self._failed[address] = (time.monotonic() + _LAST_FOR, why)
        if address in self._used:
            self._pause(random.uniform(0.0, _JITTER))
        elif dead and self._current is None:
            self._used.add(address)  # whoever starts while a server is away has left it too

    def _reached(self, address: Address) -> None:
        self._failed.pop(address, None)
        before, self._current = self._current, address
        others = [f"{one}: {why}" for one, (_, why) in list(self._failed.items()) if one not in self._used]
        if before is None and others:
            log.info("connected to %s, not to %s", address, "; ".join(others))
        for lost in [one for one in list(self._used) if one in self._failed]:
            try:
                self._used.remove(lost)
            except KeyError:
                continue  # another thread has counted it
            self._count()
            why = self._failed.get(lost, (0.0, "it is back"))[1]
            log.warning("new connections go to %s, no longer to %s: %s", address, lost, why, extra={"outcome": "failover"})
        self._used.add(address)
