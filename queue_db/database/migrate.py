"""Migrations of the tables: find the scripts, run them, check the version, print the DDL.

Alembic is imported only for a migration; reading the version needs only SQLAlchemy.
"""

from __future__ import annotations

import io
import logging
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Select, inspect, literal_column, select, table
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from queue_db.arguments import shown
from queue_db.database.database import Database
from queue_db.database.masking import MASK, masked
from queue_db.database.urls import URL_VARIABLE, parse_url
from queue_db.dialects.server import long_statements
from queue_db.errors import ConfigurationError, SchemaOutOfDateError, StorageError, TransientStorageError
from queue_db.model import Fault
from queue_db.store.schema import HEAD, Tables
from queue_db.store.schema import tables as described

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

__all__ = [
    "HEAD",
    "SchemaVersion",
    "configuration",
    "found",
    "include_migration",
    "include_object",
    "losses",
    "offline_sql",
    "prepare",
    "repair",
    "require",
    "run",
    "scripts",
    "works_since",
]

log = logging.getLogger("queue_db")

#: Alembic's filter: (object, name, type, reflected, compare_to) → whether autogenerate compares the object.
IncludeObject = Callable[[Any, str | None, str, bool, Any], bool]

# Columns that the jobs table, the dead table and the view ``jobs_state`` have all had since the first revision.
_COMMON = frozenset(
    (
        *("id", "queue", "kind", "payload", "priority", "attempts", "max_attempts"),
        *("unique_key", "worker", "created_at", "last_error"),
    )
)

# Columns that the jobs table and the dead table have both had since the first revision.
_FIRST_COLUMNS = _COMMON | {"headers", "version"}

# A view or table with these columns is taken for our view.
_VIEW_COLUMNS = _COMMON | {"state", "group_key", "due_at", "leased_until", "died_at"}

# The number of checks for tables that another process is creating, and the pause between two checks (seconds).
_LOOKS = 20
_BETWEEN_LOOKS = 0.25


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The version of the tables, as stored in the database."""

    #: The latest migration that was run; None if there are no tables.
    revision: str | None
    #: The ``HEAD`` of the oldest package that works with these tables; None if no migration has recorded it.
    works_since: str | None = None

    @property
    def fits(self) -> bool:
        """Whether this package works with the tables: they are at its own revision, or at a newer one that only adds to it."""
        return self.revision == HEAD or self.newer_and_fits

    @property
    def newer_and_fits(self) -> bool:
        """Whether the tables are newer than this package, and the package works with them."""
        if self.revision is None or self.works_since is None:
            return False
        return self.works_since <= HEAD < self.revision


def scripts() -> Path:
    """The folder of the migration scripts: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigurationError("the migration scripts are missing from this installation: reinstall queue-db")


def configuration(tables: Tables, connection: Connection | None = None, **attributes: Any) -> Config:
    """Alembic's configuration for the tables of one queue database.

    :raises ConfigurationError: Alembic is not installed.
    """
    try:
        from alembic.config import Config
    except ImportError:
        raise ConfigurationError('Alembic runs the migrations and is not installed: pip install "queue-db[migrate]"') from None
    # Pass the current stdout: Alembic's default is the one at the time when it was imported.
    config = Config(stdout=sys.stdout)
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(tables=tables, connection=connection, **attributes)
    return config


def found(database: Database, tables: Tables) -> SchemaVersion:
    """The version of the tables in the database."""
    return database.run(partial(_found, tables=tables), name="migrate.found", write=False)


def _found(connection: Connection, tables: Tables) -> SchemaVersion:
    if not inspect(connection).has_table(tables.version, schema=tables.schema):
        return SchemaVersion(None)
    # Select every column: tables before revision 0008 have no column works_since.
    query: Select[Any] = select(literal_column("*")).select_from(table(tables.version, schema=tables.schema))
    row = connection.execute(query).mappings().first()
    return SchemaVersion(None) if row is None else SchemaVersion(row["version_num"], row.get("works_since"))


def require(version: SchemaVersion, tables: Tables, url: str) -> None:
    """Refuse tables with which this package does not work.

    :raises SchemaOutOfDateError: the package does not work with the tables; the message says what to do.
    """
    if version.fits:
        if version.newer_and_fits:
            _accept(version, tables)
        return
    command = f"{repair(url, tables.name, tables.schema)}  (or QueueDB.migrate())"
    if version.revision is None:
        message = f"the table {tables.name!r} of the queue is not there yet; make it with: {command}"
    elif version.revision > HEAD:
        raise _too_old(version, tables)
    else:
        message = f"the tables {tables.name!r} are at revision {version.revision}, {HEAD} is required; run: {command}"
    raise SchemaOutOfDateError(message, found=version.revision, required=HEAD)


def repair(url: URL | str, table: str = "jobs", schema: str | None = None) -> str:
    """The command that makes the tables or brings them up to date. It does not show the password.

    It leaves out the URL if the environment variable of the command line already contains it.
    """
    options = "" if table == "jobs" else f" --table {table}"
    options += "" if schema is None else f" --schema {schema}"
    if _in_environment(url):
        return f"queue-db migrate{options}"
    printed = masked(url)
    hint = f"  (put the password in place of {MASK})" if MASK in printed else ""
    return f"queue-db migrate --url '{printed}'{options}{hint}"


def _in_environment(url: URL | str) -> bool:
    try:
        return masked(parse_url(os.environ.get(URL_VARIABLE, ""))) == masked(url)
    except ConfigurationError:
        return False


def _accept(version: SchemaVersion, tables: Tables) -> None:
    log.info(
        "the tables %r are at revision %s; this queue-db was written for %s and works with them: upgrade it when convenient",
        tables.name,
        version.revision,
        HEAD,
    )


def _too_old(version: SchemaVersion, tables: Tables) -> SchemaOutOfDateError:
    needed = "" if version.works_since is None else f", works with {version.works_since} or later"
    return SchemaOutOfDateError(
        f"the tables {tables.name!r} are at revision {version.revision}, made by a newer queue-db{needed}; this one knows {HEAD}: "
        "upgrade the package (pip install -U queue-db)",
        found=version.revision,
        required=HEAD,
    )


def run(database: Database, tables: Tables, connection: Connection | None, revision: str) -> None:
    """Migrate up or down to ``revision``. With ``connection``, the migration runs in the caller's transaction.

    Several processes may call this at the same time when they start: one of them makes the tables, and the others wait for these.

    :raises TransientStorageError: for example, another transaction keeps a table locked for longer than ten seconds.
    """
    if connection is not None:
        _to(connection, tables, revision)
        return
    try:
        database.run(_in_full, tables, revision, name="migrate", attempts=1)
    except StorageError as error:
        if revision == "head" and _made_by_another(database, tables):
            return
        cause = error.__cause__
        if isinstance(cause, DBAPIError) and database.dialect.errors.fault(cause) is Fault.LOCK_TIMEOUT:
            raise TransientStorageError(
                f"{error}: an open transaction of another session uses the tables; end it, then run the migration again",
                sqlstate=error.sqlstate,
                statement_name=error.statement_name,
            ) from cause
        raise


def _in_full(connection: Connection, tables: Tables, revision: str) -> None:
    with long_statements(connection):
        _to(connection, tables, revision)


def _made_by_another(database: Database, tables: Tables) -> bool:
    """Whether another process migrates the tables within a few seconds, after our own attempt has failed."""
    for _ in range(_LOOKS):
        if found(database, tables).fits:
            return True
        database.pause(random.uniform(0.5, 1.0) * _BETWEEN_LOOKS)
    return False


def _to(connection: Connection, tables: Tables, revision: str) -> None:
    version = _found(connection, tables)
    if revision == "head" and version.fits:
        # Programs call this at every start, so the usual case neither imports Alembic nor lets it write log records.
        if version.newer_and_fits:
            _accept(version, tables)
        return
    config = configuration(tables, connection)
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    prepare(connection, tables, version)
    try:
        # For new tables, skip this check: it reads all scripts, which takes as long as running three of them.
        new = version.revision is None and revision == "head"
        down = not new and _leads_down(ScriptDirectory.from_config(config), version, revision, tables)
        with _within_another():
            (command.downgrade if down else command.upgrade)(config, revision)
    except CommandError as error:
        raise ConfigurationError(f"migrate to {revision!r}: {error}") from error


def prepare(connection: Connection, tables: Tables, version: SchemaVersion | None = None) -> None:
    """Check that a migration may run.

    :param version: the version of the tables, if the caller knows it.
    :raises ConfigurationError: Alembic does not know the database, or a table or view of another application has one of our names.
    """
    _require_support(connection.dialect)
    if (version or _found(connection, tables)).revision is None:
        _refuse_foreign(connection, tables)
    _refuse_foreign_view(connection, tables)


@contextmanager
def _within_another() -> Iterator[None]:
    """Restore Alembic's global ``context`` and ``op`` after the block: it may run within an application's migration."""
    from alembic import context, op

    outer = [proxy for module in (context, op) if (proxy := getattr(module, "_proxy", None)) is not None]
    try:
        yield
    finally:
        for proxy in outer:
            proxy._install_proxy()  # noqa: SLF001 - there is no public way


def _require_support(dialect: SQLAlchemyDialect) -> None:
    """Refuse a database that Alembic does not know, with its name in the message: Alembic only raises a KeyError."""
    from alembic.ddl.impl import DefaultImpl

    try:
        DefaultImpl.get_by_dialect(dialect)
    except KeyError:
        raise ConfigurationError(
            f"Alembic, which runs the migrations, does not know {dialect.name!r}: import a subclass of "
            f"alembic.ddl.impl.DefaultImpl with __dialect__ = {dialect.name!r} before you migrate"
        ) from None


def _leads_down(directory: ScriptDirectory, version: SchemaVersion, revision: str, tables: Tables) -> bool:
    """Whether ``revision`` is older than the tables.

    :raises SchemaOutOfDateError: the tables are at a revision that these scripts do not know.
    :raises ConfigurationError: there is no such revision.
    """
    order = _known(directory)
    if version.revision is not None and version.revision not in order:
        raise _too_old(version, tables)
    _check_name(directory, revision)
    place = {name: number for number, name in enumerate(order)}
    if revision == "base":
        return True
    wanted = order[-1] if revision == "head" else directory.get_revision(revision).revision
    return version.revision is not None and place[wanted] < place[version.revision]


def works_since(directory: ScriptDirectory, revision: str) -> str:
    """The oldest revision whose code works with the tables of ``revision``.

    That is the latest migration, up to and including ``revision``, that is not declared ``additive = True``.
    """
    for script in directory.iterate_revisions(revision, "base"):
        if getattr(script.module, "additive", False) is not True:
            return script.revision
    return revision


def _known(directory: ScriptDirectory) -> list[str]:
    """All revisions of the scripts, oldest first."""
    return [script.revision for script in reversed(list(directory.walk_revisions()))]


def losses(tables: Tables, version: SchemaVersion, revision: str) -> list[str]:
    """Texts for people about what each step of a downgrade from ``version`` to ``revision`` drops; empty for an upgrade.

    :raises ConfigurationError: there is no such revision.
    :raises SchemaOutOfDateError: the tables are at a revision that these scripts do not know.
    """
    if version.revision is None:
        return []
    config = configuration(tables)
    from alembic.script import ScriptDirectory

    directory = ScriptDirectory.from_config(config)
    if not _leads_down(directory, version, revision, tables):
        return []
    texts = [str(getattr(step.module, "loses", "")) for step in directory.iterate_revisions(version.revision, revision)]
    return [text.replace("{jobs}", tables.name) for text in texts if text]


def _check_name(directory: ScriptDirectory, revision: object) -> None:
    known = _known(directory)
    if not isinstance(revision, str) or revision not in ("head", "base", *known):
        raise ConfigurationError(f"there is no revision {shown(revision)}: give head, base, or one of {', '.join(known)}")


def _refuse_foreign(connection: Connection, tables: Tables) -> None:
    """Refuse a jobs or dead table of another application. Our own tables without a version are left by an interrupted migration."""
    inspector = inspect(connection)
    for ours in (tables.jobs, tables.dead):
        if not inspector.has_table(ours.name, schema=ours.schema):
            continue
        columns = {column_info["name"] for column_info in inspector.get_columns(ours.name, schema=ours.schema)}
        # Later revisions add columns, so tables of an interrupted migration may lack those.
        if not _FIRST_COLUMNS <= columns <= {column.name for column in ours.c}:
            raise ConfigurationError(
                f"there is a table {ours.name!r} in this database that is not queue_db's; choose another name: "
                "QueueDB(url, table=…), queue-db --table … or alembic -x table=…"
            )


def _refuse_foreign_view(connection: Connection, tables: Tables) -> None:
    """Refuse a view or table ``jobs_state`` of another application, which a migration would replace or drop."""
    name, schema = f"{tables.name}_state", tables.schema
    inspector = inspect(connection)
    is_view = name in inspector.get_view_names(schema=schema)
    if not is_view and not inspector.has_table(name, schema=schema):
        return
    try:
        if {column_info["name"] for column_info in inspector.get_columns(name, schema=schema)} >= _VIEW_COLUMNS:
            return
    except NoSuchTableError:
        return  # another process is migrating, and has just dropped the view
    except DBAPIError as error:
        # MySQL does not show the columns of a view whose tables were dropped.
        if error.connection_invalidated:
            raise
    kind = "view" if is_view else "table"
    raise ConfigurationError(
        f"there is a {kind} {name!r} in this database that is not queue_db's, and the queue needs its name: rename that {kind}, "
        "or choose another name for the queue's tables: QueueDB(url, table=…), queue-db --table … or alembic -x table=…"
    )


def offline_sql(
    dialect: SQLAlchemyDialect, tables: Tables, revision: str, *, start: str = "base", transactions: bool = True
) -> str:
    """The statements of a migration from ``start`` to ``revision``. Needs no server.

    :param start: a revision, or "base" for an empty database.
    :param transactions: include BEGIN and COMMIT if the database has transactions for DDL.
    :raises ConfigurationError: there is no such revision, or Alembic does not know the database.
    """
    config = configuration(tables, sql_dialect=dialect, transactional_ddl=None if transactions else False)
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    _require_support(dialect)
    output = io.StringIO()
    config.output_buffer = output
    directory = ScriptDirectory.from_config(config)
    _check_name(directory, start)
    try:
        here = None if start == "base" else directory.get_revision(start).revision
        if here == revision or (here is None and revision == "base"):
            return ""
        with _within_another():
            if _leads_down(directory, SchemaVersion(here), revision, tables):
                command.downgrade(config, f"{here}:{revision}", sql=True)
            else:
                command.upgrade(config, revision if here is None else f"{here}:{revision}", sql=True)
    except CommandError as error:
        raise ConfigurationError(f"migrate from {start!r} to {revision!r}: {error}") from error
    return output.getvalue()


def include_migration(op: Any, start: str, to: str, *, table: str = "jobs", schema: str | None = None) -> None:
    """For a revision of an application's own Alembic: bring the queue's tables from one of our revisions to another.

    ``include_migration(op, "base", "0010")`` in its ``upgrade()``, and ``include_migration(op, "0010", "base")`` in its
    ``downgrade()``. It runs in the application's transaction; with ``--sql`` it prints the statements. Tables that have already
    reached ``to``, or passed it, stay as they are.

    :param op: ``alembic.op`` of the application.
    :param start: the revision of the tables; "base": there are no tables.
    :param to: the revision to reach; "base" drops the tables.
    :param table: as for :class:`~queue_db.QueueDB`.
    :param schema: as for :class:`~queue_db.QueueDB`.
    :raises ConfigurationError: there is no such revision, or both are the same. "head" changes with the package and is refused.
    """
    tables = described(table, schema)
    from alembic.script import ScriptDirectory

    order = ["base", *_known(ScriptDirectory.from_config(configuration(tables)))]
    if not {start, to} <= set(order) or start == to:
        raise ConfigurationError(
            f"from {shown(start)} to {shown(to)}: give base or one of {', '.join(order[1:])}, two different ones"
        )
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(offline_sql(context.dialect, tables, to, start=start, transactions=False).rstrip())
        return
    connection = op.get_bind()
    revision = _found(connection, tables).revision or "base"
    # A revision that is not known here comes from a newer package, so it is later than all known ones.
    place = order.index(revision) if revision in order else len(order)
    if (place < order.index(to)) is (order.index(start) < order.index(to)) and revision != to:
        _to(connection, tables, to)


# Suffixes of the tables that only earlier revisions have. A later migration of ours drops these tables.
_FORMER = ("ticked", "ticks")


def include_object(table: str = "jobs", schema: str | None = None, *, also: IncludeObject | None = None) -> IncludeObject:
    """For the ``env.py`` of an application in the same database: Alembic's autogenerate leaves the queue's tables alone.

    ``context.configure(…, include_object=include_object())``. Without it, ``alembic revision --autogenerate`` finds tables that the
    application's metadata does not know, and proposes to drop them.

    :param table: as for :class:`~queue_db.QueueDB`.
    :param schema: as for :class:`~queue_db.QueueDB`. Give None if it is the default schema of Alembic's connection.
    :param also: the application's own filter, or the result of another call of this function. An object is included if both filters
        include it.
    :raises ArgumentError: ``table`` or ``schema`` is not a valid name.
    """
    ours = described(table, schema)
    former = {f"{ours.jobs.name}_{name}" for name in _FORMER}
    names = {table_of_ours.name for table_of_ours in ours.metadata.tables.values()} | {ours.version} | former

    def include(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
        # Alembic does not ask about indexes or columns of a table that is left out.
        if reflected and compare_to is None and name in names and getattr(item, "schema", None) == schema:
            return False
        return also is None or also(item, name, type_, reflected, compare_to)

    return include
