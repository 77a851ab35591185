"""The database as Spark's driver and tasks use it: short transactions, no state of a session, one connection at a time."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import URL, create_engine
from sqlalchemy.pool import QueuePool

from queue_db import QueueDB
from queue_db.database.database import parse_url
from queue_db.database.masking import mask, masked, secrets_in
from queue_db.dialects import dialect_for
from queue_db.errors import QueueDBError

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, repr=False)
class Place:
    """Where the queue is: all that a task needs to open it. Travels to the tasks in serialized form, and shows itself masked."""

    url: URL
    table: str = "jobs"
    schema: str | None = None
    local_infile: bool = False

    def __repr__(self) -> str:
        return f"<{masked(self.url)} table={self.table!r}>"

    @contextmanager
    def open(self, *, csv: bool = False, **settings: Any) -> Iterator[QueueDB]:
        """The database for this block, over one connection that is closed at its end.

        :param csv: many rows are to be read, as CSV where the database writes that.
        """
        dialect = dialect_for(self.url.get_backend_name())
        options = dialect.short_lived_options(self.url, local_infile=self.local_infile)
        engine = create_engine(self.url, poolclass=QueuePool, pool_size=1, max_overflow=0, hide_parameters=True, **options)
        dialect.limit_waits(engine)
        try:
            with _Visit(engine, table=self.table, schema=self.schema, **settings) as db:
                if csv:
                    db.core.store = replace(db.store, csv=True)
                yield db
        finally:
            engine.dispose()


class _Visit(QueueDB):
    """A database that is opened for a moment: the tables are looked at by the first verb that needs that, if there is one."""

    def _look(self) -> None:
        return None


def place_of(url: str | URL, table: str = "jobs", schema: str | None = None, *, local_infile: bool = False) -> Place:
    """Check what can be checked without the database.

    :raises ConfigurationError: as :class:`queue_db.QueueDB` does.
    """
    parsed = parse_url(url)
    # Tasks run in another folder than the driver.
    return Place(dialect_for(parsed.get_backend_name()).from_anywhere(parsed), table, schema, local_infile)


class SparkTaskError(QueueDBError):
    """What went wrong in the data source, without secrets: Spark copies it to the client, into logs and onto pages."""


def scrubbed(text: str, url: URL | None) -> str:
    """``text`` without the secrets of the URL."""
    return mask(text, secrets_in(url))


@contextmanager
def telling(url: URL | None) -> Iterator[None]:
    """Raise what goes wrong in this block as one clean exception, with the traceback of what it came from, as clean, in a note."""
    try:
        yield
    except SparkTaskError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, Spark would show it
        trace = "".join(traceback.format_exception(error))
        told = SparkTaskError(scrubbed(f"{type(error).__name__}: {error}", url))
        # Not as its cause, which Spark leaves out of what it shows.
        told.add_note(scrubbed(f"It came from: {trace}", url))
        raise told from None


def clean(function: _Function) -> _Function:
    """A method of an object with a ``place``, so that its exceptions tell no secrets."""

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kw: Any) -> Any:
        with telling(self.place.url):
            return function(self, *args, **kw)

    return wrapper  # type: ignore[return-value]
