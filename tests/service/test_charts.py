"""Charts have a scale and times, and begin where something is known."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert

from queue_db import QueueDB
from queue_db.model import to_micros
from queue_db.monitoring.tables import COUNTS, DEPTHS, monitoring_tables
from queue_db.service.pages import words
from queue_db.service.pages.charts import RANGES, Chart, charts, top_of
from queue_db.store import Transaction

MINUTE = 60_000_000


def sampled(db: QueueDB, queue: str, jobs: dict[int, int], now: datetime) -> None:
    """Write what samples say: due jobs by minutes before now."""
    minute = to_micros(now) // MINUTE * MINUTE
    rows = [
        {**dict.fromkeys((*DEPTHS, *COUNTS), 0), "queue": queue, "width": 10, "at": minute - ago * MINUTE, "available": due}
        for ago, due in jobs.items()
    ]

    def write(tx: Transaction) -> None:
        tx.connection.execute(insert(monitoring_tables(tx.tables).metrics), rows)

    db.core.write("test", write)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        yield db


@pytest.mark.parametrize(
    ("shown", "largest", "text"),
    [
        (words.number, 0, "1"),
        (words.number, 1.4, "2"),
        (words.number, 7, "8"),
        (words.number, 247, "250"),
        (words.number, 251, "300"),
        (words.number, 14_200, "15.0k"),
        (words.rate, 0, "1.0/min"),
        (words.rate, 0.7 / 60, "1.0/min"),
        (words.rate, 0.09, "0.1/s"),
        (words.rate, 0.23, "0.3/s"),
        (words.rate, 12.3, "15.0/s"),
        (words.rate, 140, "150/s"),
        (words.span, 0, "0.1 s"),
        (words.span, 16.9, "20 s"),
        (words.span, 130, "5 min"),
        (words.span, 86_000, "24 h"),
        (words.span, 200_000, "3 d"),
    ],
)
def test_a_scale_ends_at_the_next_short_value(shown: Callable[[float | None], str], largest: float, text: str) -> None:
    assert top_of(largest, shown) >= largest
    assert shown(top_of(largest, shown)) == text


def test_a_chart_begins_where_something_is_known(db: QueueDB) -> None:
    now = datetime.now(UTC)
    sampled(db, "mail", {20: 5, 10: 247, 1: 7}, now)
    chart = charts(db, "mail", RANGES["hour"], now)[0]
    assert (chart.values[0], chart.values[10], chart.values[-1], len(chart.values)) == (5, 247, 7, 20)
    assert (chart.texts[:2], chart.texts[-2:], chart.top) == ("5|", "|7", 250)
    assert chart.last - chart.first == timedelta(minutes=19)
    assert timedelta(minutes=20) <= now - chart.first < timedelta(minutes=21)


def test_a_chart_of_one_value_has_two_ends(db: QueueDB) -> None:
    now = datetime.now(UTC)
    sampled(db, "mail", {1: 7}, now)
    chart = charts(db, "mail", RANGES["hour"], now)[0]
    assert chart.values == (None, 7)


def test_what_a_chart_shows_is_said() -> None:
    first = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    chart = Chart("due", (1.0, None, 3.0), first, 60, words.number)
    assert chart.text == "due: now 3, at most 3, 2026-01-01 12:00 UTC to 2026-01-01 12:02 UTC"
