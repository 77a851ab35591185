"""Which way the adaptive strategy chooses, from histories made by hand: durations with the scatter of a busy machine."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from queue_db import Adaptive
from queue_db.model import CallCost, Capability, ClaimRequest, ClaimResult
from queue_db.store import Transaction, lease
from queue_db.store.lease import Lock
from queue_db.strategies import ways
from queue_db.strategies.ways import OFTEN, SELDOM, Choice, Way
from tests.patience import PATIENCE

#: What a job costs by each way: by the number of the claim, in seconds.
Costs = Callable[[int], dict[Way, float]]

#: Claims within which a change of the costs is found out, and a little more.
ENOUGH_CLAIMS = 6000


def always(window: float, skip_locked: float) -> Costs:
    return lambda _: {Way.WINDOW: window, Way.SKIP_LOCKED: skip_locked}


def run(choice: Choice, costs: Costs, claims: int, *, scatter: float, seed: int) -> list[Way]:
    """Let it choose for ``claims`` claims; return the ways that they took. ``scatter``: of the logarithm of a duration."""
    rng, taken = random.Random(seed), []
    for number in range(claims):
        way = choice.next()
        choice.learn(way, costs(number)[way] * rng.lognormvariate(0.0, scatter))
        taken.append(way)
    return taken


def begun(way: Way, seed: int = 1) -> Choice:
    return Choice(way, random.Random(seed))


@pytest.mark.parametrize("first", Way)
@pytest.mark.parametrize("cheaper", Way)
def test_it_takes_the_way_that_costs_less_under_noise(first: Way, cheaper: Way) -> None:
    # One standard deviation either way is a factor of seven.
    choice = begun(first)
    taken = run(choice, lambda _: {cheaper: 0.0006, cheaper.other: 0.0012}, ENOUGH_CLAIMS, scatter=1.0, seed=3)
    assert choice.way is cheaper
    assert Counter(taken[-1000:])[cheaper] > 950
    assert choice.ratio is not None
    assert choice.ratio > 1.2


@pytest.mark.parametrize("first", Way)
def test_it_does_not_flap_where_both_cost_the_same(first: Way) -> None:
    changes = 0
    for seed in range(8):
        choice = begun(first, seed)
        used = []
        for number in range(40):
            run(choice, always(0.001, 0.001), 250, scatter=0.8, seed=seed * 100 + number)
            used.append(choice.way)
        changes += sum(before is not after for before, after in zip([first, *used], used, strict=False))
    # Eight runs of 10,000 claims; a change of the way is no loss here, but it must be rare.
    assert changes <= 3


def test_it_comes_back_after_the_load_has_changed() -> None:
    """Few workers, then many, whose locks are in each other's way, then few again; all claims take longer among many."""

    def costs(number: int) -> dict[Way, float]:
        few = {Way.WINDOW: 0.0012, Way.SKIP_LOCKED: 0.0010}
        many = {Way.WINDOW: 0.008, Way.SKIP_LOCKED: 0.016}
        return many if 10_000 <= number < 20_000 else few

    choice = begun(Way.SKIP_LOCKED)
    taken = run(choice, costs, 40_000, scatter=0.5, seed=5)
    share = [Counter(taken[first : first + 2000])[Way.WINDOW] / 2000 for first in (8000, 18_000, 38_000)]
    assert share[0] < 0.06
    assert share[1] > 0.9
    assert share[2] < 0.06


def test_load_that_comes_and_goes_for_both_ways_changes_nothing() -> None:
    def costs(number: int) -> dict[Way, float]:
        busy = 10.0 if number // 700 % 2 else 1.0
        return {Way.WINDOW: 1.2 * busy, Way.SKIP_LOCKED: busy}

    for seed in range(5):
        choice = begun(Way.SKIP_LOCKED, seed)
        taken = run(choice, costs, 20_000, scatter=0.5, seed=seed)
        assert Counter(taken)[Way.WINDOW] < 0.06 * len(taken), seed


@pytest.mark.parametrize("times", [1.1, 1.5, 2.0, 4.0, 20.0])
def test_trials_of_a_worse_way_cost_little(times: float) -> None:
    choice = begun(Way.WINDOW)
    run(choice, always(1.0, times), 2000, scatter=0.3, seed=9)
    taken = run(choice, always(1.0, times), 10_000, scatter=0.3, seed=10)
    trials = Counter(taken)[Way.SKIP_LOCKED]
    assert trials >= 10_000 / (2 * SELDOM)
    # One percent; what is beyond the cap is seen as the cap.
    assert trials * (min(times, ways.CAP) - 1) < 0.013 * 10_000


def test_the_first_trials_do_not_count() -> None:
    choice = begun(Way.SKIP_LOCKED)
    slow = iter([90.0] * ways.UNTAUGHT)
    for _ in range(OFTEN * (ways.UNTAUGHT + 4) * 2):
        way = choice.next()
        choice.learn(way, next(slow, 1.0) if way is Way.WINDOW else 1.0)
    assert choice.ratio == pytest.approx(1.0)


# --- the strategy -------------------------------------------------------------------------------------------------------


class Served:
    """A database on which claims take as long as a table says, in place of the statement of a claim."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lacking: Capability) -> None:
        self.capabilities = frozenset(Capability) - set(lacking)
        self.locked: Counter[bool] = Counter()
        monkeypatch.setattr(lease, "claim", self._claim)

    def _claim(self, tx: Transaction, request: ClaimRequest, window: lease.CandidateWindow) -> ClaimResult:
        rows: Any = (None,) * request.limit
        return ClaimResult(request.queue, request.limit, rows, locked=window.lock is Lock.SKIP)

    def call(
        self, strategy: Adaptive, costs: dict[Way, float], queue: str = "q", limit: int = 1, won: int | None = None, **more: Any
    ) -> bool:
        """A call of claim with one round; whether it locked. ``won``: jobs that it wins from a window, of ``limit``."""
        asked = {"fast_path": True, **more}
        request = ClaimRequest(queue=queue, limit=limit, lease=1, worker="w", token="t", ranges=(), **asked)
        tx: Any = SimpleNamespace(store=self)
        result = strategy.claim(tx, request)
        seconds = costs[Way.SKIP_LOCKED if result.locked else Way.WINDOW] * limit
        result.cost = CallCost(limit, limit if won is None or result.locked else won, seconds)
        strategy.observe(result)
        self.locked[result.locked] += 1
        return result.locked


EQUAL = {Way.WINDOW: 1.0, Way.SKIP_LOCKED: 1.0}
LOCKS_COST_MORE = {Way.WINDOW: 1.0, Way.SKIP_LOCKED: 2.0}
LOCKS_COST_LESS = {Way.WINDOW: 2.0, Way.SKIP_LOCKED: 1.0}


def test_it_begins_with_locks_where_one_statement_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Served(monkeypatch).call(Adaptive(), EQUAL)
    assert not Served(monkeypatch, Capability.UPDATE_RETURNING).call(Adaptive(), EQUAL)


@pytest.mark.parametrize("lacking", [Capability.SKIP_LOCKED, Capability.CONCURRENT_WRITERS])
def test_without_skip_locked_or_races_there_is_one_way(monkeypatch: pytest.MonkeyPatch, lacking: Capability) -> None:
    served, strategy = Served(monkeypatch, lacking), Adaptive()
    for _ in range(2000):
        served.call(strategy, LOCKS_COST_LESS)
    assert served.locked == {False: 2000}
    assert strategy.usage("q") is None


def test_each_queue_and_each_size_of_claims_has_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    served, strategy = Served(monkeypatch), Adaptive(rng=random.Random(1))
    for _ in range(2000):
        served.call(strategy, LOCKS_COST_MORE, limit=100)
        served.call(strategy, LOCKS_COST_LESS, limit=1)
        served.call(strategy, LOCKS_COST_MORE, "other", limit=1)
    latest = [
        [served.call(strategy, EQUAL, queue, limit, fast_path=False) for queue, limit in (("q", 100), ("q", 1), ("other", 1))]
        for _ in range(3)
    ]
    assert latest == [[False, True, False]] * 3


def test_the_rounds_of_a_call_go_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    served, strategy = Served(monkeypatch), Adaptive()
    for before in (False, True):
        for _ in range(3 * OFTEN):
            assert served.call(strategy, EQUAL, locked_before=before) is before


def test_only_calls_on_the_fast_path_try_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    served, strategy = Served(monkeypatch), Adaptive()
    for _ in range(20 * OFTEN):
        served.call(strategy, EQUAL, fast_path=False)
    assert served.locked == {True: 20 * OFTEN}


def test_misses_in_windows_are_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that lost some candidates and won the rest in another round costs both rounds; one that won nothing, the cap."""
    choice = begun(Way.WINDOW)
    for number in range(ENOUGH_CLAIMS):
        way = choice.next()
        choice.learn(way, 1.0 if way is Way.SKIP_LOCKED or number % 3 else float("inf"))
    assert choice.way is Way.SKIP_LOCKED


@pytest.mark.parametrize("lost", [0.4, 0.55, 0.7, 1.0])
def test_it_leaves_windows_where_most_calls_win_nothing(lost: float) -> None:
    rng = random.Random(4)
    choice = begun(Way.WINDOW)
    for _ in range(ENOUGH_CLAIMS):
        way = choice.next()
        choice.learn(way, float("inf") if way is Way.WINDOW and rng.random() < lost else 0.001)
    assert choice.way is Way.SKIP_LOCKED
    assert choice.ratio is None or choice.ratio > 1.0


def test_it_stays_where_only_trials_win_nothing() -> None:
    choice = begun(Way.SKIP_LOCKED)
    for _ in range(ENOUGH_CLAIMS):
        way = choice.next()
        choice.learn(way, float("inf") if way is Way.WINDOW else 0.001)
    assert choice.way is Way.SKIP_LOCKED
    assert choice.ratio == pytest.approx(ways.CAP)


def test_what_counts_is_the_cost_of_a_job_and_not_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in windows are as fast, but win half as many jobs, or sometimes none at all."""
    for won in (50, 0):
        strategy = Adaptive(rng=random.Random(3))
        served = Served(monkeypatch, Capability.UPDATE_RETURNING)
        for number in range(3000):
            served.call(strategy, EQUAL, limit=100, won=100 if won == 0 and number % 3 else won)
        assert served.call(strategy, EQUAL, limit=100, fast_path=False)


def test_usage_says_which_way_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    served, strategy = Served(monkeypatch), Adaptive(rng=random.Random(2))
    assert strategy.usage("q") is None
    for _ in range(500):
        served.call(strategy, {Way.WINDOW: 1.5, Way.SKIP_LOCKED: 1.0})
    usage = strategy.usage("q")
    assert usage is not None
    assert usage.way is Way.SKIP_LOCKED
    assert (usage.skip_locked, usage.window) == (served.locked[True], served.locked[False])
    assert usage.cost == pytest.approx(1.5)
    for _ in range(2000):
        served.call(strategy, {Way.WINDOW: 1.0, Way.SKIP_LOCKED: 2.0})
    usage = strategy.usage("q")
    assert usage is not None
    assert usage.way is Way.WINDOW
    assert usage.cost == pytest.approx(0.5)
    assert (usage.candidates, usage.missed) == (served.locked[False], 0)
    for _ in range(2):
        strategy.observe(ClaimResult("q", 5, (), missed=3))
    usage = strategy.usage("q")
    assert usage is not None
    assert (usage.candidates, usage.missed) == (served.locked[False] + 6, 6)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    served, strategy = Served(monkeypatch), Adaptive()
    with strategy._lock:
        child = os.fork()
        if not child:
            signal.alarm(int(PATIENCE))
            os._exit(0 if served.call(strategy, EQUAL) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
