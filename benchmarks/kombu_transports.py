"""Kombu's transports beside each other: ``python -m benchmarks.kombu_transports --url postgresql://…``.

Each in turn publishes messages, one commit each, and consumes and acknowledges them with a prefetch count of 10. Then a consumer is
killed (SIGKILL) that has received a message and has not acknowledged it: whether the message comes back, and after how long.
``sqla`` is Kombu's transport for SQLAlchemy. ``pgmq`` needs its package, and the extension in the server or its SQL as a file,
``--pgmq FILE`` (``pgmq/sql/pgmq.sql`` of the package), which is installed into the schema ``pgmq`` for the run; without them it is
left out, with the reason. The tables of ``queue_db`` are created in the database, under the name ``kombu_benchmark``.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kombu
from sqlalchemy import make_url

from benchmarks.peers.common import installed
from benchmarks.peers.sql_files import Pgmq
from queue_db.contrib.kombu import close_all

#: Seconds for which a message of a killed consumer may stay away, and those after which it is given up.
_VISIBILITY, _GIVEN_UP = 2, 15

_CONSUMER = """
import sys, time
from benchmarks.kombu_transports import transports
import kombu
one = {one.name: one for one in transports(sys.argv[1], extension=False)}[sys.argv[2]]
connection = one.connect()
queues, got = [kombu.Queue(sys.argv[3])], lambda message: print("got", flush=True)
with connection.channel() as channel, kombu.Consumer(channel, queues, on_message=got):
    connection.drain_events(timeout=60)
    time.sleep(1000)
"""


@dataclass(frozen=True)
class Transport:
    """One transport, and how its connections are made."""

    name: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    missing: Callable[[], str | None] = lambda: None

    def connect(self) -> kombu.Connection:
        """A connection of its own."""
        return kombu.Connection(self.url, transport_options=dict(self.options))


def transports(url: str, *, extension: bool) -> list[Transport]:
    """Those that can be compared on this database.

    :param extension: whether the first connection of ``pgmq`` creates its extension; if not, its functions are there already.
    """
    plain = make_url(url)
    driver = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}
    full = plain.set(drivername=driver[plain.get_backend_name()]).render_as_string(hide_password=False)
    ours = {"migrate": True, "table": "kombu_benchmark", "visibility_timeout": _VISIBILITY}
    pgmq = plain.set(drivername="pgmq").render_as_string(hide_password=False)
    return [
        Transport("queue_db", f"queuedb+{full}", ours),
        Transport("sqla", f"sqla+{full}"),
        Transport(
            "pgmq",
            pgmq,
            {"visibility_timeout": _VISIBILITY, "wait_time_seconds": 0, "init_extension": extension},
            lambda: _without_pgmq(plain.get_backend_name()),
        ),
    ]


def _without_pgmq(database: str) -> str | None:
    if database != "postgresql":
        return "it is for PostgreSQL"
    if not installed("pgmq") or not installed("psycopg"):
        return 'its package is not installed: pip install "kombu[pgmq]"'
    return None


@dataclass(frozen=True)
class Figures:
    """Of one turn: messages per second, and seconds until the message of a killed consumer came back; None: it did not."""

    published: float
    consumed: float
    returned: float | None


def turn(one: Transport, url: str, messages: int, queue: str) -> Figures:
    """Measure one transport once."""
    with one.connect() as connection:
        declared = kombu.Queue(queue)
        with connection.channel() as channel:
            declared(channel).declare()
            declared(channel).purge()
            producer = kombu.Producer(channel)
            began = time.perf_counter()
            for number in range(messages):
                producer.publish(number, exchange="", routing_key=queue)
            published = messages / (time.perf_counter() - began)
        got: list[int] = []

        def take(message: Any) -> None:
            got.append(message.payload)
            message.ack()

        with connection.channel() as channel:
            began = time.perf_counter()
            with kombu.Consumer(channel, [declared], on_message=take, prefetch_count=10):
                while len(got) < messages:
                    connection.drain_events(timeout=60)
            consumed = messages / (time.perf_counter() - began)
        if sorted(got) != list(range(messages)):
            raise AssertionError(f"{one.name} delivered {len(got)} messages, {len(set(got))} different ones, of {messages}")
        return Figures(published, consumed, _killed(one, connection, url, f"{queue}-killed"))


def _killed(one: Transport, connection: kombu.Connection, url: str, queue: str) -> float | None:
    """Seconds until the message of a killed consumer comes back."""
    with connection.channel() as channel:
        kombu.Queue(queue)(channel).declare()
        kombu.Queue(queue)(channel).purge()
        kombu.Producer(channel).publish(1, exchange="", routing_key=queue)
    command = [sys.executable, "-c", _CONSUMER, url, one.name, queue]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:  # noqa: S603 - our own program
        if consumer.stdout is None or consumer.stdout.readline() != "got\n":
            raise AssertionError(f"{one.name}: the consumer that is killed got nothing")
        consumer.send_signal(signal.SIGKILL)
    began = time.perf_counter()
    with connection.channel() as channel:
        while time.perf_counter() - began < _GIVEN_UP:
            message = kombu.Queue(queue)(channel).get()
            if message is not None:
                message.ack()
                return time.perf_counter() - began
            time.sleep(0.05)
    return None


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kombu_transports", description=__doc__)
    parser.add_argument("--url", required=True, help="a database for this alone")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3, help="turns, in which the transports alternate")
    parser.add_argument("--pgmq", type=Path, metavar="FILE", help="the SQL of pgmq, where its extension is not installed")
    options = parser.parse_args(arguments)
    found: dict[str, list[Figures]] = {}
    with nullcontext() if options.pgmq is None else Pgmq(options.pgmq, 1).installed(options.url):
        for number in range(options.repeat):
            for one in transports(options.url, extension=options.pgmq is None):
                if (why := one.missing()) is not None:
                    if not number:
                        _say(f"{one.name} is left out: {why}")
                    continue
                queue = f"benchmark-{os.getpid()}-{number}"
                found.setdefault(one.name, []).append(turn(one, options.url, options.messages, queue))
    load = os.getloadavg()[0]
    _say(f"{options.messages} messages, medians of {options.repeat} turns, load average {load:.1f}, kombu {kombu.__version__}")
    _say("| transport | publish /s | consume and ack /s | after SIGKILL of a consumer |\n|---|---|---|---|")
    for name, turns in found.items():
        published, consumed = (statistics.median(getattr(one, side) for one in turns) for side in ("published", "consumed"))
        back = [one.returned for one in turns if one.returned is not None]
        lost = (
            f"back after {max(back):.1f} s at most"
            if len(back) == len(turns)
            else f"lost in {len(turns) - len(back)} of {len(turns)} turns"
        )
        _say(f"| {name} | {published:,.0f} | {consumed:,.0f} | {lost} |")
    close_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
