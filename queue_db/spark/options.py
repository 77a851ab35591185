"""The options of the data source: one table, and the check of what a user has given."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

from queue_db.errors import ConfigurationError
from queue_db.spark.filters import conditions
from queue_db.spark.option_values import app, days, flag, name_of, one_of, text, whole
from queue_db.store.schema import KIND_LENGTH, QUEUE_LENGTH, STREAM_LENGTH


class Use(Flag):
    """What a DataFrame does with the queue."""

    READ = auto()
    WRITE = auto()
    READ_STREAM = auto()
    WRITE_STREAM = auto()
    ALL = READ | WRITE | READ_STREAM | WRITE_STREAM

    @property
    def words(self) -> str:
        """Spark's name for it."""
        return {Use.READ: "read", Use.WRITE: "write", Use.READ_STREAM: "readStream", Use.WRITE_STREAM: "writeStream"}[self]


@dataclass(frozen=True)
class Option:
    """One option of the data source."""

    name: str
    uses: Use
    #: Name and text → value; raises ArgumentError.
    parse: Callable[[str, str], Any]
    default: Any
    help: str
    required: bool = False


_WRITES = Use.WRITE | Use.WRITE_STREAM

OPTIONS = (
    Option(
        "url",
        Use.ALL,
        text,
        None,
        "the database, as a SQLAlchemy URL; `env:NAME` reads it from an environment variable of the driver, `file:/path` from a "
        "file on the driver, so that no password is in an option",
        required=True,
    ),
    Option("queue", Use.ALL, name_of(QUEUE_LENGTH), None, "name of the queue", required=True),
    Option("table", Use.ALL, text, "jobs", "name of the jobs table"),
    Option("tableSchema", Use.ALL, text, None, "schema prefix of the tables"),
    Option(
        "guarantee",
        Use.WRITE,
        one_of("exactly_once", "at_least_once"),
        "exactly_once",
        "`exactly_once`: all rows or none, however often tasks are retried; `at_least_once`: rows are not staged, and a retried "
        "task repeats its rows unless they have a unique_key",
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        app,
        None,
        "with txnVersion: a load of this name and version is published into each queue once, permanently",
    ),
    Option("txnVersion", Use.WRITE, whole(0, 2**63 - 1), None, "version of the load, such as the batch id of foreachBatch"),
    Option("kind", _WRITES, name_of(KIND_LENGTH), "default", "kind of the jobs whose rows have none"),
    Option(
        "onDuplicate",
        _WRITES,
        one_of("skip", "raise", "replace"),
        "skip",
        "what happens to a row whose unique_key a live job has",
    ),
    Option(
        "payloadFormat",
        _WRITES,
        one_of("json", "text", "raw"),
        "json",
        "of string payloads: `json`: JSON text, checked; `text`: any text, stored as a JSON string; `raw`: stored unchanged, for "
        "queues with a codec of their own",
    ),
    Option(
        "localInfile",
        _WRITES,
        flag,
        True,
        "MySQL, MariaDB: use LOAD DATA LOCAL where the server allows it; `false` for a server that is not trusted with that",
    ),
    Option("partitions", Use.READ | Use.READ_STREAM, whole(1, 100_000), 8, "most partitions of a read, or of a micro-batch"),
    Option(
        "filter",
        Use.READ,
        conditions,
        [],
        "read only these jobs: comparisons of id, kind, priority, attempts and enqueued_at, joined by AND, as in "
        "`kind = 'mail' AND attempts > 3`",
    ),
    Option("stream", Use.READ_STREAM, name_of(STREAM_LENGTH), None, "name of the stream; one running query each", required=True),
    Option("maxJobsPerTrigger", Use.READ_STREAM, whole(1, 10_000_000), 100_000, "most jobs in a micro-batch"),
    Option(
        "maxDeliveries",
        Use.READ_STREAM,
        whole(2, 1_000_000),
        None,
        "a micro-batch that was delivered this often without being completed is split, and a part of one job goes to the dead "
        "table; default: it is delivered again without limit",
    ),
    Option(
        "retentionDays",
        Use.READ_STREAM,
        days,
        7.0,
        "after this many days without a reader, claimed jobs return to the queue and the old checkpoint is refused",
    ),
)

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

# Options that Spark itself adds.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "__datasource_options_json"})


@dataclass(frozen=True, repr=False)
class Settings:
    """Checked options by name, with defaults for those that were not given."""

    use: Use
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __repr__(self) -> str:
        return f"<Settings for {self.use.words} of queue {self.values['queue']!r}>"


def parse(given: Mapping[str, str], use: Use) -> Settings:
    """Check the options of one use.

    :raises ConfigurationError: an option is missing, unknown, of another use, or has an impossible value.
    """
    if not given:
        raise ConfigurationError(
            "no options have arrived: after CREATE TABLE … USING queue_db OPTIONS (…) Spark passes none to its Python sources (and "
            "writes the URL into its event log): use CREATE TEMPORARY VIEW … USING queue_db OPTIONS (…) instead"
        )
    values = {option.name: option.default for option in OPTIONS if use in option.uses}
    for key, value in given.items():
        if key.lower() not in _SPARKS_OWN:
            option = _option(key, use)
            values[option.name] = option.parse(option.name, value)
    for option in OPTIONS:
        if option.required and use in option.uses and values[option.name] is None:
            raise ConfigurationError(f'option {option.name!r} is missing: .option("{option.name}", …): {option.help}')
    if use is Use.WRITE:
        _check_load(values)
    return Settings(use, values)


def _option(key: str, use: Use) -> Option:
    """The option of that name, in any case, if it belongs to ``use``."""
    option = _BY_NAME.get(key.lower())
    if option is None:
        near = difflib.get_close_matches(key.lower(), _BY_NAME, n=1, cutoff=0.5)
        hint = f"; did you mean {_BY_NAME[near[0]].name!r}?" if near else "."
        names = ", ".join(option.name for option in OPTIONS if use in option.uses)
        raise ConfigurationError(f"unknown option {key!r}{hint} Options of {use.words}: {names}")
    if use not in option.uses:
        uses = ", ".join(one.words for one in Use if one in option.uses)
        raise ConfigurationError(f"option {option.name!r} belongs to {uses}, not to {use.words}")
    return option


def _check_load(values: Mapping[str, Any]) -> None:
    """Check the options that name a load."""
    if (values["txnAppId"] is None) != (values["txnVersion"] is None):
        raise ConfigurationError("txnAppId and txnVersion belong together: give both or neither")
    if values["txnAppId"] is not None and values["guarantee"] != "exactly_once":
        raise ConfigurationError("txnAppId needs guarantee=exactly_once: at_least_once has no ledger")
