"""PostgreSQL behind a pooler that gives each transaction another session, such as PgBouncer in transaction mode.

Settings from the start of a session have no effect. Settings and prepared statements of one transaction are missing in the next.
So each statement runs in a transaction, and one message contains the BEGIN and the settings of the transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, event

from queue_db.dialects import server_probe
from queue_db.errors import ConfigurationError

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect

#: A setting that the library sends with the options of a connection, and that has no effect. If a session lacks this setting, the
#: options did not reach the server.
MARK = "queue_db.session"

_SETTINGS = {"lock_timeout": "10000", "enable_seqscan": "off", "jit": "off"}

#: Begins each transaction at READ COMMITTED, whatever the server's default is. At other levels a lost version check is an error
#: instead of an empty result.
_BEGINS = "BEGIN ISOLATION LEVEL READ COMMITTED"

_PIECE = re.compile(r"(?:\\.|\S)+", re.DOTALL)
_SETTING = re.compile(r"([A-Za-z_][\w$-]*(?:\.[A-Za-z_][\w$-]*)*)=(.*)", re.DOTALL | re.ASCII)


def settings_in(options: str) -> dict[str, str]:
    """The settings in libpq's ``options``: name in lower case → value.

    :raises ConfigurationError: ``options`` contains something that is not a setting.
    """
    settings: dict[str, str] = {}
    pieces = iter(re.sub(r"\\(.)", r"\1", piece, flags=re.DOTALL) for piece in _PIECE.findall(options))
    for piece in pieces:
        setting = next(pieces, "") if piece == "-c" else piece[2:] if piece.startswith(("-c", "--")) else ""
        parts = _SETTING.fullmatch(setting)
        if parts is None:
            raise ConfigurationError(
                "the database URL leads to a pooler such as PgBouncer, through which its options= can only be settings: "
                "write each as -c name=value"
            )
        settings[parts[1].replace("-", "_").lower()] = parts[2]
    return settings


class PoolerDetection:
    """Detects at the first connection whether an engine connects through a pooler in transaction mode, and adapts the dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        #: Whether the engine connects through a pooler in transaction mode. None: not known yet.
        self.pooled: bool | None = None
        self._options = ""

    def watch(self, engine: Engine) -> None:
        """Check new connections of the engine."""
        given = engine.url.query.get("options", "")
        self._options = given if isinstance(given, str) else " ".join(given)
        event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "connect", self._look)

    def _connect(self, dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        if not self.pooled:
            try:
                return dialect.loaded_dbapi.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if self.pooled is False or not _refuses_options(options):
                    raise
                self._use_pooler()
        return dialect.loaded_dbapi.connect(*arguments, **{name: value for name, value in options.items() if name != "options"})

    def _look(self, driver: Any, _record: Any) -> None:
        if self.pooled is not None:
            return
        with driver.cursor() as cursor:
            cursor.execute(f"SELECT current_setting('{MARK}', true)")
            (mark,) = cursor.fetchone()
        driver.rollback()
        if mark:
            self.pooled = False
        else:
            self._use_pooler()

    def _use_pooler(self) -> None:
        given = settings_in(self._options)
        own = "".join(f"; SET LOCAL {name} = {value}" for name, value in _SETTINGS.items() if name not in given)
        theirs = f"; SELECT {', '.join(['set_config(%s, %s, true)'] * len(given))}" if given else ""
        self._dialect.begins_each = _BEGINS + theirs + own, tuple(part for setting in given.items() for part in setting)
        self._dialect.uses_raw_cursor = False
        self.pooled = True


def refuse_pooler(dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    """A listener of ``do_connect`` events, which connects with asyncpg.

    :raises ConfigurationError: a pooler such as PgBouncer refuses the settings that asyncpg needs.
    """
    try:
        return dialect.loaded_dbapi.connect(*arguments, **options)
    except dialect.loaded_dbapi.Error as error:
        if error.sqlstate != server_probe.UNSUPPORTED or not _refuses_options(options):
            raise
        raise ConfigurationError(
            "the database URL leads to a pooler such as PgBouncer, which refuses the settings of a session; asyncpg needs them: "
            "give AsyncQueueDB a URL that leads to the PostgreSQL server itself, or use QueueDB, which works through the pooler"
        ) from None


def _refuses_options(options: Mapping[str, Any]) -> bool:
    targets = server_probe.targets(options)
    return bool(targets) and server_probe.refuses(targets[0], options)
