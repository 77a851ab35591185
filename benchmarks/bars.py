"""The bars (performance targets): their bounds, their databases and the functions that measure them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.claims import batches, batches_mysql, single
from benchmarks.depth import bloat, depth
from benchmarks.enqueue import enqueue, threads
from benchmarks.figures import Line
from benchmarks.following import following
from benchmarks.lab import Lab
from benchmarks.memory import memory
from benchmarks.raw import overhead
from benchmarks.rule import rule
from benchmarks.sqlite_peers import sqlite_peers
from benchmarks.steady import steady

_POSTGRESQL = ("PostgreSQL",)
_MYSQL = ("MariaDB", "MySQL")
_SQLITE = ("SQLite",)
_ALL = (*_POSTGRESQL, *_MYSQL, *_SQLITE)


@dataclass(frozen=True)
class Bar:
    """One row of the table.

    :param on: titles of the databases on which it is measured.
    :param asks: the bounds, for people.
    """

    name: str
    on: tuple[str, ...]
    asks: str
    measure: Callable[[Lab], Iterator[Line]]


BARS: tuple[Bar, ...] = (
    Bar(
        "single",
        _POSTGRESQL,
        "1 job per claim: ≥ 0.95 × skip_locked, ≥ 1.35 × pgmq, ≥ 1.5 × the article's DBO-1, ≥ 4 × procrastinate",
        single,
    ),
    Bar(
        "batches",
        _POSTGRESQL,
        "drain ×100: ≥ 1 × skip_locked, ≥ 1.3 × pgmq, ≥ 4.5 × pgqueuer, ≥ 3 × graphile-worker; ×10 shown",
        batches,
    ),
    Bar("steady", _POSTGRESQL, "produce and consume ×100: ≥ 0.65 × drain, not slower if prepared on an empty table", steady),
    Bar("batches-mysql", _MYSQL, "drain ×1, ×10 and ×100: ≥ 1.2 × skip_locked, no deadlock", batches_mysql),
    Bar("sqlite", _SQLITE, "×1: ≥ 1.5 × persist-queue, ≥ 1.5 × litequeue; ×100: ≥ 0.4 × DELETE … RETURNING", sqlite_peers),
    Bar(
        "following",
        _POSTGRESQL + _MYSQL,
        "adaptive ×1, ×100: ≥ 0.97 × the best of skip_locked and fixed windows, 2, 10, 32 workers; window follows 2 → 50 → 2",
        following,
    ),
    Bar("rule", _POSTGRESQL + _MYSQL, "windows and SKIP LOCKED ×1, 3, 5, 10, 30, 100, as ratios: shown", rule),
    Bar("overhead", _ALL, "the API compared with the same statements on the raw driver: ×1 ≥ 0.7, ×100 ≥ 0.85", overhead),
    Bar("enqueue", _ALL, "enqueue_many: ≥ 0.45 × COPY with ids, ≥ 0.55 × without; ≥ 0.6 × the best multi-row INSERT", enqueue),
    Bar("threads", (*_POSTGRESQL, *_MYSQL), "enqueue of one job from 64 threads: ≥ 3 × an insert for each call", threads),
    Bar("depth", (*_POSTGRESQL, *_MYSQL), "claim p50 with 1,000,000 and 10,000,000 waiting jobs: ≤ 1.2 × that with 10,000", depth),
    Bar("bloat", (*_POSTGRESQL, *_MYSQL), "claim p50 with 1,000,000 rows churned under a snapshot: ≤ 1.5 × clean", bloat),
    Bar("memory", _ALL, "a process draining 1,000,000 jobs: ≤ 150 MB", memory),
)


def bars(names: str | None) -> list[Bar]:
    """Return the bars of these names (``a,b``), or all.

    :raises ValueError: an unknown name.
    """
    if names is None:
        return list(BARS)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {bar.name: bar for bar in BARS}
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(f"unknown bar {', '.join(unknown) or names!r}; known: {', '.join(known)}")
    return [known[name] for name in wanted]
