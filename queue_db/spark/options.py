"""The options of the data source: known by name, checked, and told apart by what they are used for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Flag, auto
from typing import Any

from queue_db import arguments
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.model import to_micros
from queue_db.store.ranges import Condition
from queue_db.store.schema import APP_LENGTH, KIND_LENGTH, QUEUE_LENGTH, STREAM_LENGTH


class Use(Flag):
    """What a DataFrame does with the queue."""

    READ = auto()
    WRITE = auto()
    READ_STREAM = auto()
    WRITE_STREAM = auto()
    ALL = READ | WRITE | READ_STREAM | WRITE_STREAM

    @property
    def words(self) -> str:
        """How users write it."""
        return {Use.READ: "read", Use.WRITE: "write", Use.READ_STREAM: "readStream", Use.WRITE_STREAM: "writeStream"}[self]


@dataclass(frozen=True)
class Option:
    """One option of the data source."""

    name: str
    uses: Use
    #: What checks the text and gives the value.
    parse: Callable[[str, str], Any]
    default: Any
    help: str
    required: bool = False


def _text(name: str, value: str) -> str:
    return value


def _whole(lowest: int, highest: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        try:
            number = int(value.replace("_", ""))
        except ValueError:
            raise ArgumentError(f"{name}={value!r}: must be a whole number") from None
        return arguments.whole(name, number, lowest, highest)

    return parse


def _name(longest: int) -> Callable[[str, str], str]:
    return lambda name, value: arguments.name(name, value, longest)


def _one_of(*known: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.lower() not in known:
            raise ArgumentError(f"{name}={value!r}: must be {', '.join(known[:-1])} or {known[-1]}")
        return value.lower()

    return parse


def _app(name: str, value: str) -> str:
    app = arguments.name(name, value, APP_LENGTH)
    if _OURS.match(app):
        raise ArgumentError(f"{name}={value!r}: names that begin with write: or query: are queue_db's own")
    return app


def _days(name: str, value: str) -> float:
    try:
        days = float(value)
    except ValueError:
        raise ArgumentError(f"{name}={value!r}: must be a number of days") from None
    if not 0 < days < _LONGEST:
        raise ArgumentError(f"{name}={value!r}: must be more than 0 and less than {_LONGEST:,} days")
    return days


# Days; a hundred years.
_LONGEST = 36_500


# Column of a DataFrame that is read → column of the jobs table, and what its values are.
_FILTERED: Mapping[str, tuple[str, type]] = {
    "id": ("id", int),
    "kind": ("kind", str),
    "priority": ("priority", int),
    "attempts": ("attempts", int),
    "enqueued_at": ("created_at", datetime),
}
_TERM = re.compile(r"\s*(\w+)\s*(<=|>=|=|<|>)\s*(-?\d{1,18}|'(?:[^']|'')*')\s*(AND\b|\Z)", re.IGNORECASE)


def _filter(name: str, value: str) -> list[Condition]:
    """``kind = 'mail' AND attempts > 3`` as conditions."""
    conditions: list[Condition] = []
    at = 0
    while at < len(value):
        term = _TERM.match(value, at)
        if term is None or (term[4] and term.end() == len(value)) or term[1].lower() not in _FILTERED:
            raise ArgumentError(
                f"{name}={value!r}: must be comparisons with =, <, <=, > or >=, joined by AND, of {', '.join(_FILTERED)}, as in "
                "kind = 'mail' AND attempts > 3 AND enqueued_at >= '2026-03-01T00:00:00Z'"
            )
        column, kind = _FILTERED[term[1].lower()]
        conditions.append(Condition(column, term[2], _literal(name, term[1], term[2], term[3], kind)))
        at = term.end()
    return conditions


def _literal(name: str, column: str, comparison: str, text: str, kind: type) -> int | str:
    quoted = text.startswith("'")
    if quoted is (kind is int):
        raise ArgumentError(f"{name}: {column} is compared with {'a number' if kind is int else 'a text in single quotes'}")
    if kind is int:
        return int(text)
    plain = text[1:-1].replace("''", "'")
    if kind is datetime:
        try:
            return to_micros(datetime.fromisoformat(plain).astimezone(UTC))
        except (ValueError, OverflowError):
            raise ArgumentError(f"{name}: {column} is compared with a time such as '2026-03-01T00:00:00Z'") from None
    if comparison != "=":
        raise ArgumentError(f"{name}: {column} is compared with = only, since databases and Spark put texts into other orders")
    return arguments.name(f"{name}: {column}", plain, KIND_LENGTH)


def _flag(name: str, value: str) -> bool:
    return _one_of("true", "false")(name, value) == "true"


# Loads without a name have a random one; streaming queries have their id.
_OURS = re.compile(r"query:|write:(?![0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z)")

_WRITES = Use.WRITE | Use.WRITE_STREAM

OPTIONS = (
    Option(
        "url",
        Use.ALL,
        _text,
        None,
        "the database, as SQLAlchemy writes it; `env:NAME` takes it from an environment variable of the driver, `file:/path` "
        "from a file of the driver, so that no password stands in an option",
        required=True,
    ),
    Option("queue", Use.ALL, _name(QUEUE_LENGTH), None, "name of the queue", required=True),
    Option("table", Use.ALL, _text, "jobs", "name of the jobs table"),
    Option("tableSchema", Use.ALL, _text, None, "schema prefix of the tables"),
    Option(
        "guarantee",
        Use.WRITE,
        _one_of("exactly_once", "at_least_once"),
        "exactly_once",
        "`exactly_once`: all rows or none, however often tasks are retried; `at_least_once`: without the second write, a retried "
        "task repeats its rows unless they have a unique_key",
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        _app,
        None,
        "with txnVersion: a load of this name and version is published into each queue once, for ever",
    ),
    Option("txnVersion", Use.WRITE, _whole(0, 2**63 - 1), None, "the version of txnAppId's load, such as foreachBatch's batch id"),
    Option("kind", _WRITES, _name(KIND_LENGTH), "default", "kind of the jobs of rows that have none"),
    Option(
        "onDuplicate",
        _WRITES,
        _one_of("skip", "raise", "replace"),
        "skip",
        "what happens to a row whose unique_key a live job has",
    ),
    Option(
        "payloadFormat",
        _WRITES,
        _one_of("json", "text", "raw"),
        "json",
        "what a string payload is: `json`: JSON text, checked; `text`: any text, stored as a JSON string; `raw`: stored as it is, "
        "for queues with a codec of their own",
    ),
    Option(
        "localInfile",
        _WRITES,
        _flag,
        True,
        "MySQL, MariaDB: load with LOAD DATA LOCAL where the server allows it; `false` where the server is not to be trusted "
        "with that",
    ),
    Option("partitions", Use.READ | Use.READ_STREAM, _whole(1, 100_000), 8, "most partitions of a read, or of a micro-batch"),
    Option(
        "filter",
        Use.READ,
        _filter,
        [],
        "jobs that the database is to leave out: comparisons of id, kind, priority, attempts and enqueued_at, joined by AND, as in "
        "`kind = 'mail' AND attempts > 3`",
    ),
    Option("stream", Use.READ_STREAM, _name(STREAM_LENGTH), None, "name of the stream; one running query for each", required=True),
    Option("maxJobsPerTrigger", Use.READ_STREAM, _whole(1, 10_000_000), 100_000, "most jobs in a micro-batch"),
    Option(
        "maxDeliveries",
        Use.READ_STREAM,
        _whole(2, 1_000_000),
        None,
        "a micro-batch that was given to the query so often, and never completed, is cut in pieces, and a piece of one job goes to "
        "the dead; default: it comes again for ever",
    ),
    Option(
        "retentionDays",
        Use.READ_STREAM,
        _days,
        7.0,
        "after so many days without a reader, claimed jobs return to the queue and the old checkpoint is refused",
    ),
)

# What Spark itself puts among the options.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "__datasource_options_json"})


@dataclass(frozen=True, repr=False)
class Settings:
    """Checked options by name; those not given at their defaults."""

    use: Use
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __repr__(self) -> str:
        return f"<Settings for {self.use.words} of queue {self.values['queue']!r}>"


def parse(given: Mapping[str, str], use: Use) -> Settings:
    """Check the options of one use.

    :raises ConfigurationError: an option is missing, unknown, of another use, or has a value that cannot be.
    """
    known = {option.name.lower(): option for option in OPTIONS}
    values = {option.name: option.default for option in OPTIONS if use in option.uses}
    if not given:
        raise ConfigurationError(
            "no options have arrived: after CREATE TABLE … USING queue_db OPTIONS (…) Spark hands its Python sources none (and "
            "writes the URL into its event log): use CREATE TEMPORARY VIEW … USING queue_db OPTIONS (…) instead"
        )
    for key, text in given.items():
        if key.lower() in _SPARKS_OWN:
            continue
        option = known.get(key.lower())
        if option is None:
            near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
            hint = f"; did you mean {known[near[0]].name!r}?" if near else "."
            named = ", ".join(option.name for option in OPTIONS if use in option.uses)
            raise ConfigurationError(f"unknown option {key!r}{hint} Options of {use.words}: {named}")
        if use not in option.uses:
            where = ", ".join(one.words for one in Use if one in option.uses)
            raise ConfigurationError(f"option {option.name!r} belongs to {where}, not to {use.words}")
        values[option.name] = option.parse(option.name, text)
    for option in OPTIONS:
        if option.required and use in option.uses and values[option.name] is None:
            raise ConfigurationError(f'option {option.name!r} is missing: .option("{option.name}", …): {option.help}')
    if use is Use.WRITE and (values["txnAppId"] is None) != (values["txnVersion"] is None):
        raise ConfigurationError("txnAppId and txnVersion belong together: give both or neither")
    if use is Use.WRITE and values["txnAppId"] is not None and values["guarantee"] != "exactly_once":
        raise ConfigurationError("txnAppId needs guarantee=exactly_once: at_least_once keeps no ledger")
    return Settings(use, values)
