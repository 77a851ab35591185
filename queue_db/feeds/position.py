"""Positions: where a reader of a feed stands, as a text that it can store anywhere."""

from __future__ import annotations

from typing import NamedTuple, Self

from queue_db import arguments
from queue_db.errors import ArgumentError, PositionError, TrimmedError
from queue_db.feeds.store.rows import FeedRow

# Where a reader can start again, in Python and over HTTP.
_ENDS = "feed.start() or feed.end()"
_ENDS_ON_THE_WIRE = "`start` or `end` of GET /api/v1/feeds/{feed}"
_ENDS_IN_COMMANDS = "start or end"

_PARTS = 3
_ID_PARTS = 4
# Numbers are BIGINT.
_HIGHEST = (1 << 63) - 1
_DIGITS = len(str(_HIGHEST))


class Position(NamedTuple):
    """After the message with number ``seq``. The text is ``token.epoch.seq``; users do not look into it."""

    token: str
    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.token}.{self.epoch}.{self.seq}"

    @classmethod
    def parse(cls, text: object) -> Self:
        """The position with this text.

        :raises ArgumentError: it is not the text of a position.
        """
        if isinstance(text, str):
            token, *numbers = text.split(".")
            if token and all(_is_number(number) for number in numbers):
                if len(numbers) == _PARTS - 1:
                    return cls(token, int(numbers[0]), int(numbers[1]))
                if len(numbers) == _ID_PARTS - 1:
                    unnumbered = "is the id of a message that had no number yet: "
                    raise ArgumentError(
                        f"position={text!r}: {unnumbered}feed.get has its position",
                        wire=f"position {text!r}: {unnumbered}GET /api/v1/feeds/{{feed}}/messages/{{message}} has its position",
                    )
        must = ": must be a position that the feed returned "
        raise ArgumentError(
            f"position={arguments.shown(text)}{must}(page.position, message.position)",
            wire=f"position {arguments.shown(text)}{must}(`after` of a page, `id` of a message)",
            cli=f"position {arguments.shown(text)}{must}(as queue-db feeds read prints it), start, or end",
        )


class Unnumbered(NamedTuple):
    """The id of a message that had no number when it was published. The text is ``token.epoch.seq.uid``."""

    token: str
    epoch: int
    seq: int  #: the lowest number that it can have
    uid: int

    def __str__(self) -> str:
        return f"{self.token}.{self.epoch}.{self.seq}.{self.uid}"

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """The id with this text; None: it is another one."""
        token, *numbers = text.split(".") if isinstance(text, str) else ("",)
        if token and len(numbers) == _ID_PARTS - 1 and all(_is_number(number) for number in numbers):
            return cls(token, int(numbers[0]), int(numbers[1]), int(numbers[2]))
        return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) <= _HIGHEST


def belongs(position: Position | Unnumbered, row: FeedRow) -> None:
    """Refuse a position of another feed, database or epoch.

    :raises PositionError: it is one.
    """
    name = f"feed {row.name!r}"
    if position.token != row.token:
        raise PositionError(f"position {position} is of another feed or another database, not of {name}")
    if position.epoch != row.epoch:
        unknown = (
            f"position {position} is of epoch {position.epoch}, {name} is at {row.epoch}: it was purged, or its database was "
            "restored from a backup, so the messages after this position are unknown. Start again at "
        )
        raise PositionError(unknown + _ENDS, wire=unknown + _ENDS_ON_THE_WIRE, cli=unknown + _ENDS_IN_COMMANDS)


def not_ahead(position: Position, row: FeedRow) -> None:
    """Refuse a position that the feed has not reached.

    :raises PositionError: it is one.
    """
    if position.seq >= row.next_seq:
        name = f"feed {row.name!r}"
        ahead = (
            f"position {position} is ahead of {name}, whose last message has number {row.next_seq - 1}: it is mistyped, or the "
            "database was restored from a backup. Then "
        )
        raise PositionError(
            f"{ahead}call db.feeds.restored() once, and start again at {_ENDS}",
            wire=f"{ahead}run queue-db feeds restored once, and start again at {_ENDS_ON_THE_WIRE}",
            cli=f"{ahead}run queue-db feeds restored once, and start again at {_ENDS_IN_COMMANDS}",
        )


def check(position: Position, row: FeedRow) -> None:
    """Refuse a position from which this feed cannot be read without a gap or a repetition.

    :param row: read after the messages that follow the position.
    :raises TrimmedError: messages after it are trimmed.
    :raises PositionError: :func:`belongs`, or a restored database does not have the position.
    """
    belongs(position, row)
    not_ahead(position, row)
    if position.seq < row.first_seq - 1:
        name = f"feed {row.name!r}"
        first = str(position._replace(seq=row.first_seq - 1))
        skipped = row.first_seq - 1 - position.seq
        gone = (
            f"{skipped:,} messages of {name} after position {position} were trimmed by its retention before they were read; "
            f"{first} is the first position that is complete "
        )
        raise TrimmedError(
            gone + '(on_trimmed="skip" goes on from there, and feed.seek moves a cursor there)',
            wire=gone
            + "(on_trimmed=skip goes on from there, and POST /api/v1/feeds/{feed}/cursors/{cursor}/seek moves a cursor there)",
            cli=gone + "(--on-trimmed skip goes on from there, and queue-db cursors seek FEED CURSOR start moves a cursor there)",
            skipped=skipped,
            first=first,
        )
