"""A schema of the comparison's own in a database, which is dropped at the end."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from queue_db.cli.diagnosis import Diagnosis
from queue_db.compare.contestant import Target
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.compare.plan import Plan
from queue_db.compare.results import Bench
from queue_db.database.database import Database
from queue_db.database.masking import masked
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for
from queue_db.errors import ConfigurationError
from queue_db.store.schema.tables import tables

#: Prefix of the schemas that comparisons create. The schema of a killed comparison may be dropped.
PREFIX = "queue_db_compare_"


@contextmanager
def scratch_target(url: str, plan: Plan, nodes: int = 0) -> Iterator[tuple[Target, Bench]]:
    """Create a schema in the database and yield it with a description of the database; drop the schema at the end.

    :param nodes: number of nodes that the workers are spread over; 0: they are not spread.
    :raises ConfigurationError: the user lacks the right to create a schema.
    """
    name = PREFIX + secrets.token_hex(4)
    laboratory = Laboratory.of(dialect_for(parse_url(url).get_backend_name()))
    # On SQLite this is a file beside the user's, which is not opened.
    home, schema = laboratory.scratch_schema(parse_url(url), name)
    address = home.render_as_string(hide_password=False)
    created = False
    try:
        with contextlib.closing(Database(address)) as database:
            with autocommitting(address) as engine, engine.connect() as connection:
                try:
                    laboratory.make_scratch_schema(connection, name)
                except SQLAlchemyError as error:
                    raise ConfigurationError(
                        f"the comparison needs a schema of its own and may not create one in {database.url}: {_reason(error)}. "
                        f"Give the user the right to create schemas (databases, on MySQL and MariaDB) called {PREFIX}…, "
                        "or use another user"
                    ) from error
            created = True
            server = database.server + (f", {nodes} {'node' if nodes == 1 else 'nodes'}" if nodes else "")
            bench = Bench(url=masked(url), title=server.split()[0], server=server, facts=_facts(database), nodes=nodes)
        yield Target(address, schema, plan.lease, plan.workers, nodes), bench
    finally:
        # A signal may have arrived between the creation and the assignment of ``created``.
        errors = contextlib.nullcontext() if created else contextlib.suppress(SQLAlchemyError)
        with errors, autocommitting(address) as engine, engine.connect() as connection:
            laboratory.drop_scratch_schema(connection, name)


def _reason(error: BaseException) -> str:
    return str(getattr(error, "orig", error)).strip().splitlines()[0]


def _facts(database: Database) -> dict[str, str]:
    # No table exists yet; the facts about one follow from the migration.
    with database.engine.connect() as connection:
        return Diagnosis.of(database.dialect).facts(connection, tables("jobs", None).jobs)
