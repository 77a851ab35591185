"""Errors without secrets: Spark copies exception texts to the client, into logs and onto pages of its UI."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL

from queue_db.database.masking import mask, secrets_in
from queue_db.errors import QueueDBError

_Function = TypeVar("_Function", bound=Callable[..., Any])


class SparkTaskError(QueueDBError):
    """An error of the data source or of a task, with the secrets of its URL masked."""


@contextmanager
def masked_errors(url: URL | None) -> Iterator[None]:
    """Raise any error of this block as a SparkTaskError; a note has the original traceback. The secrets of ``url`` are masked."""
    try:
        yield
    except SparkTaskError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark would show any of them
        trace = "".join(traceback.format_exception(error))
        problem = SparkTaskError(described(error, url))
        # A note, since Spark does not show causes.
        problem.add_note(mask(f"It came from: {trace}", secrets_in(url)))
        raise problem from None


def described(error: BaseException, url: URL | None) -> str:
    """``Type: message`` of an error, with the secrets of ``url`` masked."""
    return mask(f"{type(error).__name__}: {error}", secrets_in(url))


def masks_errors(method: _Function) -> _Function:
    """Run a method of an object with a ``target`` within :func:`masked_errors`."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kw: Any) -> Any:
        with masked_errors(self.target.url):
            return method(self, *args, **kw)

    return wrapper  # type: ignore[return-value]
