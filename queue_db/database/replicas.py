"""Reads from replicas of a database: the answers may be a little late."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL

from queue_db.database import addresses
from queue_db.database.database import Database
from queue_db.database.masking import mask, masked, secrets_in
from queue_db.database.transaction import OwnTransaction, Run
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for
from queue_db.errors import ConfigurationError, QueueDBError
from queue_db.store import Store, Transaction

log = logging.getLogger("queue_db.database")

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Seconds in which a replica is not asked again after it was too late, and after it failed; and at least this many times the
#: duration of what failed: an attempt to connect may take as long as its timeout.
_LATE, _AWAY, _TIMES = 2.0, 30.0, 20

_ONE = {"target_session_attrs": "any"}
#: A late one is left for the next.
_SEVERAL = {"target_session_attrs": "prefer-standby", "nodes": "all"}


class Replicas:
    """Answers reads from a replica that is at most ``max_lag`` seconds behind. Without one, the caller reads the primary.

    :param url: one address or several.
    :param store: that of the primary.
    :raises ConfigurationError: the URL cannot be read, or names another kind of database.
    """

    def __init__(self, url: str | URL, primary: Database, store: Store, max_lag: float) -> None:
        parsed = parse_url(url, asynchronous=primary.asynchronous)
        if not primary.dialect.served or type(dialect_for(parsed.get_backend_name())) is not type(primary.dialect):
            raise ConfigurationError(f"{masked(parsed)} cannot be a replica of {primary.url}")
        # Also for one address: a connection to a silent server then has a time limit with every driver.
        options = _SEVERAL if addresses.several(parsed) else _ONE if parsed.host else {}
        if missing := {name: value for name, value in options.items() if name not in parsed.query}:
            parsed = parse_url(parsed.update_query_dict(missing), asynchronous=primary.asynchronous)
        self.url, self.max_lag = masked(parsed), max_lag
        #: Seconds that the replica of the last read was behind; inf: it does not answer or replicate; nan: unknown.
        self.lag = math.nan
        self._target, self._primary, self._store = parsed, primary, store
        self._opened: tuple[Database, Store] | None = None
        self._next = 0.0  # it is not asked before
        self._why: str | None = None

    def read(
        self, name: str, query: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[_T] | None:
        """The answer of ``query``; None: the primary must be asked."""
        self._primary.check_open()
        began = time.monotonic()
        if not self._has_turn(began):
            return None
        why: str | None = None
        rest = _LATE
        try:
            # Measured on the connection of the read: each connection may lead to another replica.
            tx = OwnTransaction(*self._open(), Run(name, write=False, attempts=1))
            try:
                with tx:
                    why = self._late(tx)
                    answer = None if why else (query(tx, *args, **kwargs),)
            finally:
                tx.give_back()
        except QueueDBError as error:
            self._primary.check_open()  # otherwise it was closed meanwhile
            self.lag, answer = math.inf, None
            why = mask(str(error).removeprefix(f"cannot open {self.url}: "), secrets_in(self._target))
            rest = max(_AWAY, _TIMES * (time.monotonic() - began))
        if why is not None and self._opened is not None:
            self._opened[0].connections.renew()  # the next one may lead to another replica
        self._tell(why, rest)
        return answer

    @property
    def words(self) -> str:
        """What people read of it."""
        if (why := self._why) is not None:
            return f"not read: {why}"
        return "not read yet" if math.isnan(self.lag) else f"{self.lag:.1f} s behind"

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened[0].close()

    def _has_turn(self, now: float) -> bool:
        """Whether this caller asks a replica. While it is not known that one answers, one caller at a time does: others go on."""
        with self._primary.counting:
            if now < self._next:
                return False
            if self._opened is None or self._why is not None:
                self._next = now + _AWAY
            return True

    def _open(self) -> tuple[Database, Store]:
        if self._opened is None:
            made = type(self._primary)(self._target)
            made.counters, made.counting = self._primary.counters, self._primary.counting
            self._opened = made, replace(self._store, dialect=made.dialect, capabilities=made.capabilities, beside={})
            if self._primary.closed:
                self.close()
        return self._opened

    def _late(self, tx: Transaction) -> str | None:
        """Why the replica is not read; None: it is recent enough."""
        lag = self.lag = tx.dialect.server.nodes.lag(tx.connection)
        if lag <= self.max_lag:
            return None
        if math.isnan(lag):
            return "its lag is unknown: its user needs the right REPLICATION CLIENT, or REPLICA MONITOR"
        return "it does not replicate" if math.isinf(lag) else f"it is {lag:.1f} s behind"

    def _tell(self, why: str | None, rest: float) -> None:
        """Keep why the replica is not read. When this begins, count and log it."""
        with self._primary.counting:
            before, self._why = self._why, why
            self._next = 0.0 if why is None else time.monotonic() + rest
            begins = before is None and why is not None
            self._primary.counters.replica_fallbacks += begins
        if begins:
            log.warning("the primary is read in place of the replica %s: %s", self.url, why, extra={"outcome": "replica"})
        elif before is not None and why is None:
            log.info("the replica %s is read again", self.url)
