"""The rules of schedules: intervals, and cron lines in a time zone. No input or output; times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from queue_db import arguments
from queue_db.errors import ConfigurationError
from queue_db.model import from_micros, to_micros

_EVERY = "every "


class Rule(Protocol):
    """The rule by which a schedule has its occurrences."""

    def after(self, moment: int) -> int:
        """The first occurrence later than ``moment``."""
        ...

    def last(self, first: int, moment: int) -> int:
        """The last occurrence not later than ``moment``.

        :param first: an occurrence not later than ``moment``.
        """
        ...


class Interval:
    """A fixed interval in microseconds, counted from an occurrence."""

    def __init__(self, micros: int) -> None:
        self.micros = micros

    def after(self, moment: int) -> int:
        return moment + self.micros

    def last(self, first: int, moment: int) -> int:
        return first + (moment - first) // self.micros * self.micros

    def __str__(self) -> str:
        seconds = self.micros / 1_000_000
        return f"{_EVERY}{int(seconds) if seconds.is_integer() else seconds!r}"  # exact, since rule_of() reads it


class Cron:
    """A line of cron: five fields, or six with seconds first.

    Clock changes are handled as in Debian's cron. An occurrence in the skipped hour comes at the end of that hour. In the repeated
    hour, an occurrence with a fixed hour comes once, and intervals of minutes continue.
    """

    def __init__(self, line: str, zone: str) -> None:
        self.line = " ".join(line.split())
        self._zone = zone_of(zone)
        self._occurrences(from_micros(0).astimezone(self._zone))  # raises if the line is not valid

    def after(self, moment: int) -> int:
        occurrence = next(self._occurrences(from_micros(moment).astimezone(self._zone)), None)
        if occurrence is None:
            raise arguments.wrong("cron", self.line, ": there is no such day in the next years")
        return to_micros(occurrence)

    def last(self, first: int, moment: int) -> int:
        # A backward search excludes its start, so start one second later.
        start = (from_micros(moment) + timedelta(seconds=1)).replace(microsecond=0).astimezone(self._zone)
        for occurrence in self._occurrences(start, reverse=True):
            if to_micros(occurrence) <= moment:
                return max(first, to_micros(occurrence))
        return first

    def _occurrences(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise ConfigurationError('cronsim reads cron lines and is not installed: pip install "queue-db[cron]"') from None
        try:
            occurrences: Iterator[datetime] = CronSim(self.line, start, reverse=reverse)
        except CronSimError as error:
            raise arguments.wrong(
                "cron", self.line, f": {str(error).lower()}; the fields are minute hour day month weekday"
            ) from None
        return occurrences

    def __str__(self) -> str:
        return self.line


def rule_of(text: str, zone: str) -> Rule:
    """The rule whose :func:`str` is ``text``."""
    if text.startswith(_EVERY):
        return Interval(arguments.seconds("every", float(text.removeprefix(_EVERY)), zero=False))
    return Cron(text, zone)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name.

    :raises ArgumentError: there is no such time zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise arguments.wrong("zone", name, ": no such time zone; names are like Europe/Berlin or UTC") from None
