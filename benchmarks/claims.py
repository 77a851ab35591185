"""Throughput of claims and completions: the product's strategies, the article's window, other queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.figures import Line, Side
from benchmarks.lab import Lab, title
from queue_db.compare.article import Article
from queue_db.compare.contestant import Contestant
from queue_db.compare.laboratory import contestants, short_name

if TYPE_CHECKING:
    from benchmarks.peers.common import Peer

#: The product's rows, each compared with every rival: the default, the same with one call for completion and claim, a fixed window.
OURS = ("adaptive", "complete_and_claim", "optimistic")

#: Peers whose single claims are slow, and the number of their jobs.
SLOW_PEERS = ("procrastinate",)
PEER_JOBS = 3_000


@dataclass(frozen=True)
class Rival:
    """A row to compare with, by name. ``bound``: None if there is no target."""

    name: str
    bound: float | None
    batch: int | None = None  #: if it differs from the product's
    peer: bool = False
    beside: tuple[str, ...] = OURS  #: the product's rows that it is compared with


#: The rows of another checkout, if one is given, each beside the same verbs.
OLD = (Rival("old", None, peer=True, beside=("adaptive",)), Rival("old exchange", None, peer=True, beside=("complete_and_claim",)))


def against(lab: Lab, batch: int, rivals: Sequence[Rival], *, without: tuple[str, ...] = ()) -> Iterator[Line]:
    """Measure the product's strategies with ``batch`` jobs per claim in turns with every rival."""
    ours = [_row(name, batch) for name in OURS]
    found: dict[Rival, Contestant] = {}
    absent: list[Line] = []
    shared = ExitStack()
    for rival in (*rivals, *(OLD if lab.old else ())):
        peer = _peer(lab, rival.name, rival.batch or batch) if rival.peer else None
        row = peer if rival.peer else _row(rival.name, batch)
        refused = f"{rival.name}: no such row in benchmarks.peers" if row is None else row.refused(lab.target)
        if row is None or refused is not None:
            absent.append(Line(f"{title(ours[0])} against {rival.name}", bound=rival.bound, missing=refused))
            continue
        found[rival] = row
        if peer is not None:
            shared.enter_context(peer.installed(lab.target))
    with shared:
        sides = _run(lab, [*ours, *found.values()])
    for rival, row in found.items():
        for own in (own for own in ours if own.name in rival.beside):
            # Strategies are compared with the same calls, other queues with the fastest loop that has the same guarantees.
            bound = rival.bound if own.name == ("complete_and_claim" if rival.peer else "adaptive") else None
            yield Line(f"{title(own)} against {title(row)}", sides[title(own)], sides[title(row)], bound, without=without)
    yield from absent


def _run(lab: Lab, rows: Sequence[Contestant]) -> Mapping[str, Side]:
    plans = []
    for row in rows:
        jobs = lab.jobs_for(row.batch)
        plans.append((row, min(jobs, lab.sized(PEER_JOBS, 10)) if row.name in SLOW_PEERS and row.batch == 1 else jobs))
    return {side.name: side for side in lab.turns(plans)}


def _row(name: str, batch: int) -> Contestant:
    row = contestants([name], [batch])[0]
    return replace(row, name=short_name(row)) if isinstance(row, Article) else row


def _peer(lab: Lab, name: str, batch: int) -> Peer | None:
    try:
        from benchmarks.checkout import Checkout
        from benchmarks.peers import CONTESTANTS
        from benchmarks.peers.pgmq import PgmqPeer
    except ImportError:
        return None
    rows = [*CONTESTANTS, PgmqPeer(batch=batch, file=lab.pgmq)]
    rows += [Checkout(name=old.name, batch=batch, folder=lab.old, one_verb="complete_and_claim" in old.beside) for old in OLD]
    return next((row for row in rows if row.name == name and row.batch == batch), None)


def single(lab: Lab) -> Iterator[Line]:
    """PostgreSQL, one job per claim."""
    rivals = [
        Rival("skip_locked", 0.95),
        Rival("pgmq", 1.35, peer=True),
        Rival("DBO-1", 1.5),
        Rival("procrastinate", 4.0, peer=True),
    ]
    yield from against(lab, 1, rivals)


def batches(lab: Lab, sizes: Sequence[int] = (10, 100)) -> Iterator[Line]:
    """PostgreSQL, drain in batches; the bounds are for batches of 100."""
    for batch in sizes:
        large = batch >= 100
        rivals = [
            Rival("skip_locked", 1.0 if large else None),
            Rival("pgmq", 1.3 if large else None, peer=True),
            Rival("pgqueuer", 4.5 if large else None, peer=True),
        ]
        if large:
            rivals.append(Rival("graphile-worker", 3.0, batch=500, peer=True))
        yield from against(lab, batch, rivals)


def batches_mysql(lab: Lab, sizes: Sequence[int] = (1, 10, 100)) -> Iterator[Line]:
    """MariaDB and MySQL, drain one by one and in batches, without deadlocks."""
    for batch in sizes:
        yield from against(lab, batch, [Rival("skip_locked", 1.2)], without=("deadlock",))
