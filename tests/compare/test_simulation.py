"""The simulation of the benchmarks beside the closed formulas of the strategies, and a server's two kinds of claims."""

from __future__ import annotations

import math

import pytest

from benchmarks.simulation import Call, Costs, Setting, Simulation
from queue_db import Adaptive, Optimistic, SkipLocked
from queue_db.strategies.adaptive import best_window
from queue_db.strategies.optimistic import HEAD_EVERY

TRIP, THINK, WORKERS = 0.01, 0.07, 31

#: Nothing but round trips takes time: two for a claim, with a read and an update, and one for a completion.
NOTHING = Call(0.0, 1e-9, 0.0, (1.0,))
FREE = Costs(NOTHING, NOTHING, NOTHING, NOTHING, round_trips=2)
SETTING = Setting(WORKERS, cores=100, trip=TRIP, think=THINK)

#: What the others claim between a read and its update, one round trip later.
RACING = (WORKERS - 1) * TRIP / (3 * TRIP + THINK)


@pytest.mark.parametrize("width", [20, 60])
def test_random_picks_miss_as_the_formula_says(width: int) -> None:
    found = Simulation(SETTING, FREE, lambda rng: Optimistic(width, "slice", rng)).run(2500, 100)
    head = 1 / HEAD_EVERY  # this part of the claims takes the head, and there they meet
    expected = (1 - head) * (1 - math.exp(-RACING / width)) + head * (1 - math.exp(-RACING * (head + 1 / width)))
    assert found.miss_ratio == pytest.approx(expected, rel=0.15)
    assert found.rate == pytest.approx(WORKERS / (3 * TRIP + THINK + 2 * TRIP * expected), rel=0.04)


def test_adaptive_windows_settle_where_the_formula_is_cheapest() -> None:
    found = Simulation(SETTING, FREE, lambda rng: Adaptive(1000, rng=rng)).run(2500, 2500)
    ratio = 1 - math.exp(-RACING / found.window)
    assert found.miss_ratio < 2 * ratio
    assert found.window == pytest.approx(best_window(found.window, found.miss_ratio, 1500), rel=0.5)


def test_locks_hold_on_one_node_only() -> None:
    one, three = (
        Simulation(Setting(12, nodes, trip=TRIP, between=TRIP), FREE, lambda rng: SkipLocked()).run(300) for nodes in (1, 3)
    )
    assert one.missed == 0
    assert three.miss_ratio > 0.2


def test_a_seed_gives_the_same_run_again() -> None:
    first, again, other = (Simulation(SETTING, FREE, lambda rng: Adaptive(rng=rng), seed).run(300) for seed in (1, 1, 2))
    assert first == again != other


def test_due_jobs_wait_for_the_next_look_of_an_idle_worker() -> None:
    found = Simulation(Setting(2, cores=100, rate=1.0, poll=0.5), FREE, lambda rng: Adaptive(rng=rng)).run(200)
    assert found.rate == pytest.approx(1.0, rel=0.2)
    assert 0.05 < found.wait(0.5) < 0.3
    assert found.wait(1.0) <= 0.5
