"""The options of the data source: one table, and the check of what a user has given."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

from queue_db.errors import ConfigurationError
from queue_db.spark.filters import conditions
from queue_db.spark.option_values import app, days, flag, name_of, names, one_of, position, some_of, span, text, time, whole
from queue_db.spark.queue_names import names_and_patterns
from queue_db.spark.ranges.places import READABLE
from queue_db.spark.tables import STREAM_LENGTH
from queue_db.store.schema import CURSOR_LENGTH, FEED_LENGTH, KEY_LENGTH, KIND_LENGTH, QUEUE_LENGTH


class Use(Flag):
    """What a DataFrame does with the queue or feed."""

    READ = auto()
    WRITE = auto()
    READ_STREAM = auto()
    WRITE_STREAM = auto()
    #: Before Spark says which of the two it is.
    LOAD = READ | READ_STREAM
    ALL = READ | WRITE | READ_STREAM | WRITE_STREAM

    @property
    def words(self) -> str:
        """Spark's name for it."""
        names = {Use.READ: "read", Use.WRITE: "write", Use.READ_STREAM: "readStream", Use.WRITE_STREAM: "writeStream"}
        return " or ".join(names[one] for one in self)


class Of(Flag):
    """What a DataFrame reads or writes."""

    QUEUE = auto()
    FEED = auto()
    BOTH = QUEUE | FEED

    @property
    def words(self) -> str:
        """Its name in errors, and the option that names it."""
        return {Of.QUEUE: "queue", Of.FEED: "feed"}[self]


@dataclass(frozen=True)
class Option:
    """One option of the data source."""

    name: str
    uses: Use
    #: Name and text → value; raises ArgumentError.
    parse: Callable[[str, str], Any]
    default: Any
    help: str
    #: Where it must be given. The rows of a write may have their queues.
    required: Use | None = None
    of: Of = Of.QUEUE
    #: For an option that queues or feeds do not have: what they have instead.
    instead: str = ""


#: The columns by which jobs are counted; others have too many values.
COUNTED = ("queue", "state", "kind", "priority")

_READS = Use.LOAD
_WRITES = Use.WRITE | Use.WRITE_STREAM

OPTIONS = (
    Option(
        "url",
        Use.ALL,
        text,
        None,
        "the database, as a SQLAlchemy URL; `env:NAME` reads it from an environment variable of the driver, `file:/path` from a "
        "file on the driver, so that no password is in an option",
        required=Use.ALL,
        of=Of.BOTH,
    ),
    Option(
        "queue",
        Use.ALL,
        name_of(QUEUE_LENGTH),
        None,
        "name of the queue; of a write, of the rows that have none",
        required=Use.LOAD,
    ),
    Option(
        "queues",
        _READS,
        names_and_patterns,
        None,
        "instead of queue: several names, separated by commas; `*` stands for any characters, as in `mail.*`",
        instead="one DataFrame reads one feed",
    ),
    Option("feed", Use.ALL, name_of(FEED_LENGTH), None, "name of the feed", required=Use.ALL, of=Of.FEED),
    Option("table", Use.ALL, text, "jobs", "name of the jobs table", of=Of.BOTH),
    Option("tableSchema", Use.ALL, text, None, "schema prefix of the tables", of=Of.BOTH),
    Option(
        "guarantee",
        Use.WRITE,
        one_of("exactly_once", "at_least_once"),
        "exactly_once",
        "`exactly_once`: all rows or none, however often tasks are retried; `at_least_once`: rows are not staged, and a retried "
        "task repeats its rows unless they have a unique_key",
        of=Of.BOTH,
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        app,
        None,
        "with txnVersion: a load of this name and version is published into each queue or feed once, permanently",
        of=Of.BOTH,
    ),
    Option(
        "txnVersion",
        Use.WRITE,
        whole(0, 2**63 - 1),
        None,
        "version of the load, such as the batch id of foreachBatch",
        of=Of.BOTH,
    ),
    Option("kind", _WRITES, name_of(KIND_LENGTH), "default", "kind of the jobs or messages whose rows have none", of=Of.BOTH),
    Option(
        "priority",
        _WRITES,
        whole(-(2**31), 2**31 - 1),
        0,
        "priority of the jobs whose rows have none",
        instead="messages have the order of their publication",
    ),
    Option(
        "groupKey",
        _WRITES,
        name_of(KEY_LENGTH),
        None,
        "group of the jobs whose rows have none",
        instead="a message has no group",
    ),
    Option(
        "uniqueFor",
        _WRITES,
        span,
        0,
        "seconds for which a unique_key stays taken, of rows with a unique_key and no unique_for",
        instead="a message has no unique_key",
    ),
    Option(
        "onDuplicate",
        _WRITES,
        one_of("skip", "raise", "replace"),
        "skip",
        "what happens to a row whose unique_key a live job has",
        instead="a message has no unique_key",
    ),
    Option(
        "payloadFormat",
        _WRITES,
        one_of("json", "text", "raw"),
        "json",
        "of string payloads: `json`: JSON text, checked; `text`: any text, stored as a JSON string; `raw`: stored unchanged, for "
        "queues with a codec of their own",
        of=Of.BOTH,
    ),
    Option(
        "localInfile",
        _WRITES,
        flag,
        True,
        "MySQL, MariaDB: use LOAD DATA LOCAL where the server allows it; `false` for a server that is not trusted with that",
        of=Of.BOTH,
    ),
    Option("partitions", _READS, whole(1, 100_000), 8, "most partitions of a read, or of a micro-batch", of=Of.BOTH),
    Option(
        "filter",
        Use.READ,
        conditions,
        [],
        "read only these jobs: comparisons of id, kind, priority, attempts and enqueued_at, joined by AND, as in "
        "`kind = 'mail' AND attempts > 3`",
        instead="use kinds",
    ),
    Option(
        "states",
        Use.READ,
        some_of(*READABLE),
        None,
        "read the jobs in these states, separated by commas, with columns that say more of them; default: the live jobs",
        instead="messages have no state",
    ),
    Option(
        "limit",
        Use.READ,
        whole(1, 2**31 - 1),
        None,
        "read at most so many jobs, in one task",
        instead="use endingPosition",
    ),
    Option(
        "countBy",
        Use.READ,
        some_of(*COUNTED),
        None,
        "count the jobs in the database: a row for each value of these columns, with the number as `jobs`",
        instead="seq counts the messages",
    ),
    Option(
        "stream",
        Use.READ_STREAM,
        name_of(STREAM_LENGTH),
        None,
        "name of the stream; one running query each",
        required=Use.READ_STREAM,
        instead="any number of queries read a feed, each from the position in its checkpoint; cursor names one of them",
    ),
    Option(
        "maxJobsPerTrigger",
        Use.READ_STREAM,
        whole(1, 10_000_000),
        100_000,
        "most jobs in a micro-batch",
        instead="use maxMessagesPerTrigger",
    ),
    Option(
        "maxDeliveries",
        Use.READ_STREAM,
        whole(2, 1_000_000),
        None,
        "a micro-batch that was delivered this often without being completed is split, and a part of one job goes to the dead "
        "table; default: it is delivered again without limit",
        instead="messages are not taken away, and there is no dead table for them",
    ),
    Option(
        "retentionDays",
        Use.READ_STREAM,
        days,
        7.0,
        "after this many days without a reader, claimed jobs return to the queue and the old checkpoint is refused",
        instead="the feed's own retention is set by db.feeds.set(…, keep_for=…)",
    ),
    Option(
        "startingPosition",
        _READS,
        position("earliest", "latest"),
        "earliest",
        "where a read begins, or a stream with a new checkpoint: `earliest`, `latest`, or a position",
        of=Of.FEED,
    ),
    Option(
        "startingTimestamp",
        _READS,
        time,
        None,
        "of a feed, instead of startingPosition: a read begins with the first message that was published at this time or later, "
        "such as `2026-03-01T00:00:00Z`; of a queue: a stream claims only jobs that were enqueued then or later",
        of=Of.BOTH,
    ),
    Option(
        "maxBytesPerTrigger",
        Use.READ_STREAM,
        whole(1, 2**62),
        None,
        "most bytes of payloads in a micro-batch, which has at least one job or message",
        of=Of.BOTH,
    ),
    Option("endingPosition", Use.READ, position("latest"), "latest", "where a read ends: `latest`, or a position", of=Of.FEED),
    Option(
        "failOnDataLoss",
        _READS,
        flag,
        True,
        "if messages were trimmed before they were read: `true`: an error; `false`: they are skipped, with a warning",
        of=Of.FEED,
    ),
    Option(
        "maxMessagesPerTrigger",
        Use.READ_STREAM,
        whole(1, 10_000_000),
        100_000,
        "most messages in a micro-batch, before kinds are chosen",
        of=Of.FEED,
        instead="use maxJobsPerTrigger",
    ),
    Option("kinds", _READS, names(KIND_LENGTH), None, "read only messages of these kinds, separated by commas", of=Of.FEED),
    Option(
        "cursor",
        Use.READ_STREAM,
        name_of(CURSOR_LENGTH),
        None,
        "a cursor that follows the query: it shows how far the query is behind, and retention waits for it",
        of=Of.FEED,
        instead="use stream",
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

    @property
    def of_feed(self) -> bool:
        """Whether a feed is read or written, and not a queue."""
        return "feed" in self.values

    def __repr__(self) -> str:
        of = (Of.FEED if self.of_feed else Of.QUEUE).words
        return f"<Settings for {self.use.words} of {of} {self.values[of]!r}>"


def of_options(given: Mapping[str, str]) -> Of:
    """Whether the options name a feed; else a queue."""
    return Of.FEED if any(key.lower() == "feed" for key in given) else Of.QUEUE


def parse(given: Mapping[str, str], use: Use) -> Settings:
    """Check the options of one use, or as far as possible those of :attr:`Use.LOAD`.

    :raises ConfigurationError: an option is missing, unknown, of another use, or has an impossible value.
    """
    if not given or "provider" in given:
        raise ConfigurationError(
            "Spark does not pass a table's options to Python sources, and writes them into its event log: "
            "CREATE TABLE jobs (queue STRING, kind STRING, payload STRING) USING queue_db, without OPTIONS and with the columns of "
            "your INSERTs; set QUEUE_DB_URL before register(spark); then SELECT … FROM jobs WITH ('queue' = 'mail')"
        )
    of = of_options(given)
    if of is Of.FEED and any(key.lower() == "queue" for key in given):
        raise ConfigurationError("there are both 'queue' and 'feed': leave one out; a DataFrame reads or writes one of them")
    values = {option.name: option.default for option in OPTIONS if use & option.uses and of in option.of}
    for key, value in given.items():
        if key.lower() not in _SPARKS_OWN:
            option = _option(key, use, of)
            values[option.name] = option.parse(option.name, value)
    for option in OPTIONS:
        _check_there(option, values, use)
    _check_together(use, of, values, given)
    return Settings(use, values)


def _option(key: str, use: Use, of: Of) -> Option:
    """The option of that name, in any case, if it belongs to ``use`` and ``of``."""
    option = _BY_NAME.get(key.lower())
    if option is None:
        near = difflib.get_close_matches(key.lower(), _BY_NAME, n=1, cutoff=0.5)
        hint = f"; did you mean {_BY_NAME[near[0]].name!r}?" if near else "."
        known = ", ".join(option.name for option in OPTIONS if use & option.uses and of in option.of)
        what = use.words + (" of a feed" if of is Of.FEED else "")
        raise ConfigurationError(f"unknown option {key!r}{hint} Options of {what}: {known}")
    if of not in option.of:
        has = Of.FEED if of is Of.QUEUE else Of.QUEUE
        fix = f": {option.instead}" if option.instead else ""
        raise ConfigurationError(f"option {option.name!r} belongs to a {has.words}, and this is a {of.words}{fix}")
    if not use & option.uses:
        uses = ", ".join(one.words for one in option.uses)
        raise ConfigurationError(f"option {option.name!r} belongs to {uses}, not to {use.words}")
    return option


def _check_there(option: Option, values: Mapping[str, Any], use: Use) -> None:
    """Refuse that an option is missing which must be given."""
    there = values.get(option.name, ...) is not None or (option.name == "queue" and values.get("queues") is not None)
    if option.required and use in option.required and not there:
        other = {
            "queue": "; 'queues' for several, or 'feed' for a feed; of a table in SQL: FROM … WITH ('queue' = '…')",
            "url": "; or QUEUE_DB_URL, set before register(spark)",
        }
        how = f'.option("{option.name}", …): {option.help}{other.get(option.name, "")}'
        raise ConfigurationError(f"option {option.name!r} is missing: {how}")


def _check_together(use: Use, of: Of, values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse options that contradict each other."""
    if use is Use.WRITE:
        _check_load(values)
    if of is Of.QUEUE and use is Use.READ and values["startingTimestamp"] is not None:
        raise ConfigurationError("startingTimestamp of a queue belongs to readStream: use filter with enqueued_at >= '…'")
    if values.get("queue") is not None and values.get("queues") is not None:
        raise ConfigurationError("there are both 'queue' and 'queues': leave one out")
    if values.get("startingTimestamp") is not None and any(key.lower() == "startingposition" for key in given):
        raise ConfigurationError("there are both startingPosition and startingTimestamp: give one of them")


def _check_load(values: Mapping[str, Any]) -> None:
    """Check the options that name a load."""
    if (values["txnAppId"] is None) != (values["txnVersion"] is None):
        raise ConfigurationError("txnAppId and txnVersion belong together: give both or neither")
    if values["txnAppId"] is not None and values["guarantee"] != "exactly_once":
        raise ConfigurationError("txnAppId needs guarantee=exactly_once: at_least_once has no ledger")
