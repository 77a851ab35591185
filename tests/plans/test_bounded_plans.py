"""Each verb touches the same few rows whether ten thousand jobs wait or many, whatever the planner knows of the table."""

from __future__ import annotations

import pytest

from queue_db import Capability, LeasedJob, Optimistic
from queue_db.strategies import known_strategies, strategy_for
from tests.plans.filling import fill
from tests.plans.harness import Crowd
from tests.plans.planner import STATES
from tests.plans.touched import Touched, watch
from tests.plans.verbs import VERBS

pytestmark = pytest.mark.parametrize("state", STATES, scope="module")

#: The most that a verb may touch: rows on servers, steps of the virtual machine on SQLite.
MOST = {"postgresql": 400, "mysql": 2_000, "mariadb": 2_000, "sqlite": 40_000}


def check(crowd: Crowd, touched: Touched, *, claim: bool) -> None:
    """Nothing but ranges of the table's own indexes; a claim goes through the claim index and no other to find its jobs."""
    assert not touched.bad, touched.plans
    keys = {"PRIMARY", "primary key", f"{crowd.table}_pkey"}
    assert touched.indexes <= keys | {f"{crowd.table}_claim" if claim else f"{crowd.table}_unique_key"}, touched.plans
    if claim:
        assert f"{crowd.table}_claim" in touched.indexes, touched.plans


def same(kind: str, one: Touched, other: Touched) -> bool:
    """The same number of rows. A machine's steps vary with the order in which a sort meets its rows."""
    return abs(one.rows - other.rows) <= (0.02 * one.rows if kind == "sqlite" else 0)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_touches_as_much_of_many_jobs_as_of_ten_thousand(crowd: Crowd, kind: str, verb: str) -> None:
    if kind == "sqlite" and "skip_locked" in verb:
        return  # refused when the database is opened, which tests/faults shows
    before = crowd.before[verb]
    now = VERBS[verb](crowd.open_then, "crowd")
    check(crowd, before, claim="claim" in verb)
    check(crowd, now, claim="claim" in verb)
    assert same(kind, now, before), now.plans
    assert now.rows <= MOST[kind]
    if kind == "postgresql":
        # Pages tell of what no plan counts: dead entries stepped over. Deeper trees and longer lists of free pages cost a few.
        assert 0 < now.pages <= 2 * before.pages + 200
    else:
        assert now.rows > 0


@pytest.mark.parametrize("strategy", known_strategies())
def test_many_delayed_jobs_ahead_of_ten_ready_ones_cost_nothing(crowd: Crowd, kind: str, state: str, strategy: str) -> None:
    if kind == "sqlite" and Capability.SKIP_LOCKED in strategy_for(strategy).needs:
        return
    alone = f"{state} {strategy}"
    with crowd.open(strategy=Optimistic(pick="head") if strategy == "optimistic" else strategy) as db:
        seen: list[Touched] = []
        # The first round prepares the statements, and SQLite from 3.41 on counts those steps too.
        for name in (f"{alone} first", alone, "crowd"):
            # Due by the database's own clock: ten for the claim itself, ten more for the second look at its statements.
            fill(db, name, 20, due_in=-60)
            queue = db.queue(name)
            claimed: list[LeasedJob] = []
            seen.append(watch(db, lambda queue=queue, claimed=claimed: claimed.extend(queue.claim(10))))
            assert len(claimed) == 10
            assert all(queue.complete_many(claimed + queue.claim(10)))
            check(crowd, seen[-1], claim=True)
            # And then there is none.
            seen.append(watch(db, lambda queue=queue: queue.claim(10)))
            check(crowd, seen[-1], claim=True)
        ready_alone, none_alone, ready_in_crowd, none_in_crowd = seen[2:]
        assert same(kind, ready_in_crowd, ready_alone)
        assert 0 < ready_in_crowd.rows <= MOST[kind]
        assert none_in_crowd.rows <= none_alone.rows + MOST[kind] // 100


def test_many_delayed_jobs_of_a_higher_rank_cost_nothing(crowd: Crowd, kind: str) -> None:
    with crowd.open() as db:
        fill(db, "crowd", 20, due_in=-60, priority="5")
        queue = db.queue("crowd")
        claimed: list[LeasedJob] = []
        # It knows only of priority 0, finds nothing due there but another priority beyond, and looks into that.
        touched = watch(db, lambda: claimed.extend(queue.claim(10)))
        check(crowd, touched, claim=True)
        assert len(claimed) == 10
        assert all(queue.complete_many(claimed + queue.claim(10)))
        assert 0 < touched.rows <= MOST[kind]


def test_jobs_of_many_ranks_are_read_no_further_than_needed(crowd: Crowd, kind: str, state: str) -> None:
    with crowd.open() as db:
        seen: list[Touched] = []
        for each in (100, 2_000):
            queue = db.queue(f"{state} {each}")
            fill(
                db,
                queue.name,
                5 * each,
                due_in=-60,
                priority=f"n / {each}" if kind in ("sqlite", "postgresql") else f"n DIV {each}",
            )
            assert len(queue.claim(5)) == 5  # it knows of one more priority after each round
            assert len(queue.claim(5)) == 5
            seen.append(watch(db, lambda queue=queue: queue.claim(10)))
            check(crowd, seen[-1], claim=True)
        assert same(kind, *seen)
        assert 0 < seen[-1].rows <= MOST[kind]
