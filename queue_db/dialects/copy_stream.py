"""New jobs as the text of a COPY. While the server loads jobs, this process makes the text of the next ones, without a thread.

The text has the default format of PostgreSQL's COPY and MySQL's LOAD DATA: tabs between values, one line for each row.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from sqlalchemy import Connection, Table

from queue_db.dialects import raw_cursor
from queue_db.errors import PermanentStorageError
from queue_db.model import NewJob

Value = str | int | None

_ESCAPED = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_NULL = r"\N"


def written(columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value]) -> str:
    """Return the text of the rows, one line for each row.

    :param columns: the values of each column. All columns have the same length.
    :param same: values that are the same in all rows. Each line begins with these values.
    """
    before = "".join([_text(value) + "\t" for value in same.values()])
    texts = list(map(_texts, columns.values()))
    lines = texts[0] if len(texts) == 1 else map("\t".join, zip(*texts, strict=True))
    return before + f"\n{before}".join(lines) + "\n"


def _texts(values: Sequence[Value]) -> Iterable[str]:
    if values and isinstance(values[0], str):
        with suppress(TypeError):  # a value is not a text
            together = "".join(values)  # type: ignore[arg-type]
            if not any(special in together for special in _ESCAPED):
                return values  # type: ignore[return-value]
    return map(str if set(map(type, values)) == {int} else _text, values)


def _text(value: Value) -> str:
    if value is None:
        return _NULL
    if isinstance(value, int):
        return str(value)
    for special, escape in _ESCAPED.items():
        if special in value:
            value = value.replace(special, escape)
    return value


#: The columns of a COPY. The first ones usually have the same value in all rows of a chunk, so the value is encoded only once.
COLUMNS = ("queue", "created_at", "headers", "max_attempts", "priority", "available_at", "kind", "payload")

#: The same of jobs with a callback: a batch or a graph.
TIED_COLUMNS = ("callback_id", *COLUMNS)

# Characters after which a COPY ends and the next COPY begins. So a limit on the duration of a statement, such as statement_timeout,
# does not apply to all jobs together.
_AT_ONCE = 1 << 24
# Seconds after which a COPY ends, for the same reason.
_SECONDS = 1.0


class UnreadableError(Exception):
    """Ends a COPY with an error. The server logs the text of this error, so the text must not contain data of jobs."""


class Lines:
    """A file with the lines of jobs. Each COPY reads a part of the file. The caller starts another COPY until :attr:`ended`.

    ``read(size)`` returns up to ``size`` characters, and an empty text at the end of a COPY.

    :param ids: at least one id for each job, for the column ``id`` after ``columns``. Empty: the file has no column ``id``.
    :param now: the database's time, microseconds.
    :param columns: :data:`COLUMNS` or :data:`TIED_COLUMNS`.
    """

    def __init__(self, chunks: Iterable[Sequence[NewJob]], ids: Sequence[int], now: int, columns: Sequence[str] = COLUMNS) -> None:
        self._chunks = iter(chunks)
        self._ids = ids
        self._now = now
        self._names = columns
        #: The number of jobs that have been read.
        self.jobs = 0
        self.ended = False
        #: The exception that ``chunks`` raised. The error of the COPY does not contain this exception, so the caller raises it.
        self.error: BaseException | None = None
        # ``read`` resumes a generator inside its try block. In a method, Ctrl-C could come before the try block begins.
        self._generator = self._pieces()
        next(self._generator)
        self.read = self._generator.send

    def close(self) -> None:
        """Stop reading and free the generator."""
        self._generator.close()

    def _pieces(self) -> Generator[str, int, None]:
        try:
            size = yield ""
            while True:
                characters, until = 0, monotonic() + _SECONDS
                while characters < _AT_ONCE and monotonic() < until and (text := self._next()):
                    characters += len(text)
                    for at in range(0, len(text), size):
                        yield text[at : at + size]
                size = yield ""
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the caller of the COPY raises it again
            self.error = error
            raise UnreadableError("the program could not give the next jobs") from None

    def _next(self) -> str:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.ended = True
            return ""
        varying = _columns(chunk, self._now, self._names)
        same: dict[str, Value] = {}
        for name in self._names[:-1]:
            values = varying[name]
            if values.count(values[0]) < len(chunk):
                break
            same[name] = values[0]
            del varying[name]
        if self._ids:
            varying["id"] = self._ids[self.jobs : self.jobs + len(chunk)]
        self.jobs += len(chunk)
        return written(varying, same)


def _columns(chunk: Sequence[NewJob], now: int, names: Sequence[str]) -> dict[str, Sequence[Value]]:
    fields = dict(zip(NewJob._fields, zip(*chunk, strict=True), strict=False))
    after, not_before = fields["after"], fields["not_before"]
    fields["created_at"] = dues = (now,) * len(chunk)
    if any(after) or any(not_before):
        dues = tuple([max(now + wait, moment) for wait, moment in zip(after, not_before, strict=True)])
    fields["available_at"] = dues
    return {name: fields[name] for name in names}


def copy_in(connection: Connection, table: Table, columns: Iterable[str], file: Any) -> int:
    """COPY the lines of ``file`` into ``columns`` of ``table``; return the number of rows that the server has loaded."""
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(map(preparer.quote, columns))
    return raw_cursor.copy(connection, f"COPY {preparer.format_table(table)} ({names}) FROM STDIN", file)


def check_loaded(loaded: int, expected: int, table: Table) -> None:
    """Check that the server has loaded as many rows as were sent.

    :raises PermanentStorageError: the numbers differ.
    """
    if loaded != expected:
        raise PermanentStorageError(f"{loaded} of {expected} rows were loaded into {table.name}", statement_name="COPY")
