"""New jobs as the text of a COPY, made while the server loads those before: both work at the same time, without a thread."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from time import monotonic

from queue_db.dialects.tabbed import Value, written
from queue_db.model import NewJob

#: The columns. Those that are mostly the same in all rows come first: they are written once for a chunk.
COLUMNS = ("queue", "created_at", "headers", "max_attempts", "priority", "available_at", "kind", "payload")

# Characters and seconds after which a COPY ends. A limit for the duration of a statement, as statement_timeout, then does not count
# for all jobs together, even if it takes long to encode them.
_AT_ONCE = 1 << 24
_SECONDS = 1.0


class UnreadableError(Exception):
    """Ends a COPY. Its text goes to the server, and into the server's log."""


class Lines:
    """A file to read for one COPY after the other, until :attr:`ended`: the lines of jobs, a chunk at a time.

    ``read(size)`` returns up to ``size`` characters, and none at the end of a COPY.

    :param ids: at least as many as there are jobs, for the column ``id`` after :data:`COLUMNS`; empty: there is no such column.
    :param now: microseconds.
    """

    def __init__(self, chunks: Iterable[Sequence[NewJob]], ids: Sequence[int], now: int) -> None:
        self._chunks = iter(chunks)
        self._ids = ids
        self._now = now
        #: How many jobs have been read.
        self.jobs = 0
        self.ended = False
        #: What ``chunks`` raised: the COPY fails with an error that does not say it.
        self.error: BaseException | None = None
        # A generator and not a method: it goes on within its try, so Ctrl-C cannot come before that.
        self._generator = self._pieces()
        next(self._generator)
        self.read = self._generator.send

    def close(self) -> None:
        """Read no more, and keep nothing."""
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
        except BaseException as error:  # noqa: BLE001 - raised again by who runs the COPY
            self.error = error
            raise UnreadableError("the program could not give the next jobs") from None

    def _next(self) -> str:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.ended = True
            return ""
        varying = _columns(chunk, self._now)
        same: dict[str, Value] = {}
        for name in COLUMNS[:-1]:
            values = varying[name]
            if values.count(values[0]) < len(chunk):
                break
            same[name] = values[0]
            del varying[name]
        if self._ids:
            varying["id"] = self._ids[self.jobs : self.jobs + len(chunk)]
        self.jobs += len(chunk)
        return written(varying, same)


def _columns(chunk: Sequence[NewJob], now: int) -> dict[str, Sequence[Value]]:
    fields = dict(zip(NewJob._fields, zip(*chunk, strict=True), strict=False))
    after, not_before = fields["after"], fields["not_before"]
    fields["created_at"] = dues = (now,) * len(chunk)
    if any(after) or any(not_before):
        dues = tuple([max(now + wait, moment) for wait, moment in zip(after, not_before, strict=True)])
    fields["available_at"] = dues
    return {name: fields[name] for name in COLUMNS}
