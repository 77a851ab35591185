"""The adaptive window against the exact optimum of workers in lock-step, and the offsets that are drawn from a window."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_db import Adaptive, ArgumentError, Optimistic
from queue_db.dialects import Dialect
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import lease
from queue_db.store.lease import CandidateWindow, Order
from queue_db.strategies.adaptive import best_window
from queue_db.strategies.optimistic import Slots, candidate_window

COST_RATIO = 100.0  # K/b


def attempts_per_claim(workers: int, window: float) -> float:
    """Workers in lock-step on one window of which each picks one place at random: A = N / (W (1 - (1 - 1/W)^N))."""
    return workers / (window * (1.0 - (1.0 - 1.0 / window) ** workers))


def cost(workers: int, window: float) -> float:
    """Of a claim: attempts, each of the fixed round trips and the rows read."""
    return attempts_per_claim(workers, window) * (COST_RATIO + window)


def optimum(workers: int) -> float:
    """The cheapest window, by ternary search: the cost falls and then rises."""
    low, high = 1.0, 10_000.0
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if cost(workers, left) < cost(workers, right):
            high = right
        else:
            low = left
    return (low + high) / 2


def settled(workers: int) -> float:
    """Where the rule comes to rest when it sees the misses of its own window."""
    window = 1.0
    for _ in range(500):
        missed = 1.0 - 1.0 / attempts_per_claim(workers, max(window, 1.0))
        window += 0.1 * (best_window(window, missed, COST_RATIO) - window)
        window = max(window, 1.0)
    return window


@pytest.mark.parametrize("workers", range(2, 101))
def test_the_rule_comes_to_rest_within_1_1_percent_of_the_exact_optimum(workers: int) -> None:
    assert cost(workers, settled(workers)) <= 1.011 * cost(workers, optimum(workers))


def test_a_fixed_window_would_not_do() -> None:
    # What the rule is measured against can tell good from bad.
    assert cost(100, 1.0) > 1.5 * cost(100, optimum(100))
    assert cost(2, optimum(100)) > 1.2 * cost(2, optimum(2))


@given(st.floats(1, 10_000), st.floats(0, 1), st.floats(1e-3, 1e6))
def test_the_rule_gives_a_positive_number_whatever_was_measured(window: float, ratio: float, cost_ratio: float) -> None:
    assert 0 < best_window(window, ratio, cost_ratio) < float("inf")


@given(st.floats(1, 1000), st.floats(0, 0.9), st.floats(0, 0.9))
def test_more_misses_never_make_the_window_smaller(window: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert best_window(window, low, COST_RATIO) <= best_window(window, high, COST_RATIO)


@given(st.floats(1, 1000), st.floats(0.01, 0.9), st.floats(1, 1e4))
def test_the_rule_is_the_minimum_of_the_cost(window: float, ratio: float, cost_ratio: float) -> None:
    """With m racing claims an attempt of cost K + W is won with probability e^(-m/W): least where W² = m (W + K)."""
    racing = -window * math.log(1.0 - ratio)
    best = best_window(window, ratio, cost_ratio)
    assert best * best == pytest.approx(racing * (best + cost_ratio))


def claim_of(won: int, missed: int, limit: int = 1) -> ClaimResult:
    rows: Any = (None,) * won
    return ClaimResult(queue="q", limit=limit, rows=rows, missed=missed)


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=300), st.integers(1, 100))
def test_the_controller_stays_within_its_bounds(most: int, seen: list[tuple[int, int]], limit: int) -> None:
    strategy = Adaptive(max_window=most)
    for won, missed in seen:
        strategy.observe(claim_of(won, missed, limit))
        assert 1 <= strategy.window("q") <= most
    assert strategy.window("another queue") == 1


def test_the_controller_falls_back_to_one_when_nothing_is_missed() -> None:
    strategy = Adaptive()
    for _ in range(500):
        strategy.observe(claim_of(0, 1))
    assert strategy.window("q") == 64
    for _ in range(3000):
        strategy.observe(claim_of(1, 0))
    assert strategy.window("q") == 1


def test_an_empty_queue_teaches_nothing() -> None:
    strategy = Adaptive()
    for _ in range(500):
        strategy.observe(claim_of(0, 1))
    for _ in range(5000):
        strategy.observe(claim_of(0, 0))
    assert strategy.window("q") == 64


@pytest.mark.parametrize("workers", [2, 5, 10, 30, 60])
def test_the_controller_finds_the_optimum_from_what_it_sees(workers: int) -> None:
    rng = random.Random(workers)
    strategy = Adaptive(cost_ratio=COST_RATIO, max_window=200)
    windows = []
    for step in range(12_000):
        window = strategy.window("q")
        missed = rng.random() < 1.0 - 1.0 / attempts_per_claim(workers, window)
        strategy.observe(claim_of(0 if missed else 1, 1 if missed else 0))
        if step >= 4000:
            windows.append(window)
    mean = sum(cost(workers, window) for window in windows) / len(windows)
    # The estimate of the ratio swings about the true one; the whole windows about it cost little more.
    assert mean <= 1.05 * cost(workers, optimum(workers))


def at_rest_with_half_missed(limit: int) -> float:
    """The window, in batches, when half of all candidates are missed whatever it is."""
    strategy = Adaptive(cost_ratio=1500.0, max_window=10_000)
    for _ in range(2000):
        strategy.observe(claim_of(5, 5, limit))
    return strategy.window("q")


def test_the_window_of_batches_follows_what_a_batch_costs() -> None:
    """A claim of ten costs its round trips and nine more rows, 300 each, and one more batch in the window is ten candidates."""
    single, ten = 1500.0, (1500.0 + 9 * 300.0) / 10
    assert at_rest_with_half_missed(1) / at_rest_with_half_missed(10) == pytest.approx(single / ten, rel=0.01)


def drawn_from(pick: Any, window: int, limit: int, rng: random.Random) -> CandidateWindow:
    request = ClaimRequest(queue="q", limit=limit, lease=1, worker="w", token="t", ranges=())
    return candidate_window(pick, window, request, rng, Slots(rng))


@given(
    st.sampled_from(["head", "slice", "slot"]),
    st.integers(1, 500),
    st.integers(1, 1000),
    st.integers(0, 2**32),
)
@example("slice", 1, 5, 0)
@example("slice", 2, 5, 0)
def test_a_draw_stays_within_its_window(pick: Any, window: int, limit: int, seed: int) -> None:
    drawn = drawn_from(pick, window, limit, random.Random(seed))
    assert drawn.width == window
    read = limit if drawn.read is None else drawn.read
    assert limit <= read <= window * limit
    assert 0 <= drawn.start <= (window - 1) * limit
    if pick == "head" or drawn.start == 0:
        assert (drawn.order, read, drawn.start) == (Order.HEAD, limit, 0)
    else:
        assert (drawn.order, read) == (Order.SLICE, drawn.start + limit)
    if pick == "slot":
        assert drawn.start % limit == 0


STRATEGIES = [Optimistic(10, rng=random.Random(1)), Adaptive(rng=random.Random(1))]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_every_sixteenth_claim_takes_the_head(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(500):
        strategy.observe(claim_of(0, 1))  # the adaptive window is wide then
    windows: list[CandidateWindow] = []
    monkeypatch.setattr(lease, "claim", lambda tx, request, window: windows.append(window))
    tx: Any = SimpleNamespace(store=SimpleNamespace(capabilities={Capability.CONCURRENT_WRITERS}), dialect=Dialect())
    request = ClaimRequest(queue="q", limit=1, lease=1, worker="w", token="t", ranges=())
    for _ in range(50):
        strategy.claim(tx, request)
    assert [number for number, window in enumerate(windows, 1) if window.order is Order.HEAD] == [16, 32, 48]


def test_a_slot_is_kept_until_much_is_lost_there() -> None:
    slots = Slots(random.Random(1))
    first = slots.slot("q", 1000)
    slots.observe(claim_of(won=70, missed=30, limit=100))
    assert slots.slot("q", 1000) == first
    slots.observe(claim_of(won=69, missed=31, limit=100))
    assert slots.slot("q", 1000) != first
    assert slots.slot("q", 1) == 0  # a window that has become too small for it


def test_each_thread_and_queue_has_a_slot_of_its_own() -> None:
    slots = Slots(random.Random(1))
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(slots.slot, "q", 10**9).result()
    assert len({slots.slot("q", 10**9), slots.slot("other", 10**9), elsewhere}) == 3


def test_every_offset_of_a_slice_is_drawn() -> None:
    rng = random.Random(1)
    starts = [drawn_from("slice", 4, 3, rng).start for _ in range(2000)]
    assert set(starts) == set(range(10))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Optimistic(window=0),
        lambda: Optimistic(window=10_001),
        lambda: Optimistic(pick="tail"),  # type: ignore[arg-type]
        lambda: Adaptive(max_window=0),
        lambda: Adaptive(cost_ratio=0),
        lambda: Adaptive(cost_ratio=float("nan")),
    ],
)
def test_windows_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(ArgumentError):
        make()
