"""Migrations of the tables: find the scripts, run them, print the DDL. Alembic is imported only here, and only for a migration."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, inspect
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from queue_db.arguments import shown
from queue_db.database.database import Database
from queue_db.database.schema_version import SchemaVersion, accept, found, found_on, too_old
from queue_db.dialects import dialect_for
from queue_db.dialects.server import long_statements
from queue_db.errors import ConfigurationError, StorageError, TransientStorageError
from queue_db.model import Fault
from queue_db.store.schema.tables import Tables
from queue_db.store.schema.tables import tables as described

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

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

# The number of checks for tables that another process is creating.
_LOOKS = 20

# The longest pause between two of these checks (seconds).
_BETWEEN_LOOKS = 0.25


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
    # Pass the current stdout: Alembic's default is the stdout at the time when Alembic was imported.
    config = Config(stdout=sys.stdout)
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(tables=tables, connection=connection, **attributes)
    return config


def run(database: Database, tables: Tables, connection: Connection | None, revision: str) -> None:
    """Migrate up or down to ``revision``. With ``connection``, the migration runs in the caller's transaction.

    Several processes may call this at the same time when they start: one of them makes the tables, and the others wait.

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
    """After our own attempt has failed, wait up to a few seconds and return whether another process has migrated the tables."""
    for _ in range(_LOOKS):
        if found(database, tables).fits:
            return True
        database.pause(random.uniform(0.5, 1.0) * _BETWEEN_LOOKS)
    return False


def _to(connection: Connection, tables: Tables, revision: str) -> None:
    version = found_on(connection, tables)
    if revision == "head" and version.fits:
        # Programs call this at every start, so the usual case neither imports Alembic nor lets it write log records.
        accept(version, tables)
        return
    config = configuration(tables, connection)
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    prepare(connection, tables, version)
    try:
        # For new tables, skip _leads_down: it reads all scripts, which takes as long as running three of them.
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
    if (version or found_on(connection, tables)).revision is None:
        _refuse_foreign(connection, tables)
    _refuse_foreign_view(connection, tables)


@contextmanager
def _within_another() -> Iterator[None]:
    """Restore Alembic's global ``context`` and ``op`` after the block, which may run within an application's migration."""
    from alembic import context, op

    outer = [proxy for module in (context, op) if (proxy := getattr(module, "_proxy", None)) is not None]
    try:
        yield
    finally:
        for proxy in outer:
            proxy._install_proxy()  # noqa: SLF001 - there is no public way


def _require_support(dialect: SQLAlchemyDialect) -> None:
    """Refuse a database that Alembic does not know. The message names the database; Alembic would only raise a KeyError."""
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
        raise too_old(version, tables)
    _check_name(directory, revision)
    place = {name: number for number, name in enumerate(order)}
    if revision == "base":
        return True
    wanted = order[-1] if revision == "head" else directory.get_revision(revision).revision
    return version.revision is not None and place[wanted] < place[version.revision]


def works_since(directory: ScriptDirectory, revision: str) -> str:
    """The oldest revision whose code works with the tables of ``revision``.

    This is the latest migration up to ``revision`` (inclusive) that is not declared ``additive = True``.
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
    """Refuse a jobs or dead table of another application. Accept our own tables, which an interrupted migration may have left."""
    inspector = inspect(connection)
    for ours in (tables.jobs, tables.dead):
        if not inspector.has_table(ours.name, schema=ours.schema):
            continue
        columns = {column_info["name"] for column_info in inspector.get_columns(ours.name, schema=ours.schema)}
        # Later revisions add columns, so the tables of an interrupted migration may lack the columns of later revisions.
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
    unseen = ""
    try:
        if {column_info["name"] for column_info in inspector.get_columns(name, schema=schema)} >= _VIEW_COLUMNS:
            return
    except NoSuchTableError:
        return  # another process is migrating, and has just dropped the view
    except DBAPIError as error:
        # MySQL does not show the columns of a view whose tables were dropped.
        if error.connection_invalidated:
            raise
        unseen = f" (or this user may not look at it: {error.orig})"
    kind = "view" if is_view else "table"
    raise ConfigurationError(
        f"there is a {kind} {name!r} in this database that is not queue_db's{unseen}, and the queue needs its name: "
        f"rename that {kind}, or choose another name for the queue's tables: QueueDB(url, table=…), queue-db --table … "
        "or alembic -x table=…"
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

    Call ``include_migration(op, "base", "0010")`` in the ``upgrade()`` of the revision, and
    ``include_migration(op, "0010", "base")`` in its ``downgrade()``. The migration runs in the application's transaction; with
    ``--sql`` the statements are printed. Tables that have already reached or passed ``to`` stay as they are.

    :param op: ``alembic.op`` of the application.
    :param start: the revision of the tables; "base": there are no tables.
    :param to: the revision to reach; "base" drops the tables.
    :param table: as for :class:`~queue_db.QueueDB`.
    :param schema: as for :class:`~queue_db.QueueDB`.
    :raises ConfigurationError: there is no such revision, or ``start`` and ``to`` are the same. "head" is refused, because its
        meaning changes with the package.
    """
    tables = described(table, schema, unique_queue=dialect_for(op.get_context().dialect.name).unique_queue)
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
    revision = found_on(connection, tables).revision or "base"
    # A revision that is not known here comes from a newer package, so it is later than all known ones.
    place = order.index(revision) if revision in order else len(order)
    if (place < order.index(to)) is (order.index(start) < order.index(to)) and revision != to:
        _to(connection, tables, to)


# Suffixes of the tables that only earlier revisions have. A later migration of ours drops these tables.
_FORMER = ("ticked", "ticks")


def include_object(table: str = "jobs", schema: str | None = None, *, also: IncludeObject | None = None) -> IncludeObject:
    """For the ``env.py`` of an application in the same database: Alembic's autogenerate leaves the queue's tables alone.

    Call ``context.configure(…, include_object=include_object())``. Without this filter, ``alembic revision --autogenerate`` finds
    tables that the application's metadata does not know, and proposes to drop them.

    :param table: as for :class:`~queue_db.QueueDB`.
    :param schema: as for :class:`~queue_db.QueueDB`. Give None for the default schema of Alembic's connection.
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
