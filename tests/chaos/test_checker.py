"""Each check notices what it is for: a small history that keeps every promise, and one change of it for each check."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import nodes
from tests.chaos.checker import Final
from tests.chaos.log import Operation
from tests.chaos.rounds import check

LEASE = 1.0


class History:
    """Operations one after the other, a second apart, and the database at their end."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.final = Final()

    def add(self, name: str, result: Any = None, status: str = "ok", error: str = "", **arguments: Any) -> Operation:
        number = len(self.operations)
        returned = math.inf if status == "unknown" else number + 0.5
        operation = Operation("p", number, name, arguments, float(number), status, returned, result, error, [f"line {number}"])
        self.operations.append(operation)
        return operation

    def enqueue(self, *marks: str, status: str = "ok", ids: list[int | None] | None = None, **more: Any) -> Operation:
        options = {key: more.pop(key) for key in ("kind", "group", "key") if key in more}
        jobs = [{"mark": mark, "kind": "plain", **options} for mark in marks]
        return self.add("enqueue", ids or [None] * len(marks), status, jobs=jobs, **more)

    def claim(self, job_id: int, version: int, mark: str, group: str | None = None, begins: float | None = None) -> Operation:
        moment = len(self.operations) if begins is None else begins
        lease = [job_id, version, mark, 1, group, round((moment + LEASE) * 1_000_000)]
        return self.add("claim", [None, lease], lease=LEASE)

    def complete(self, job_id: int, version: int, mark: str, status: str = "ok") -> Operation:
        return self.add("settle", [[True], [False]], status, verb="complete", settled=[[job_id, version, mark]])

    def found(self) -> set[str]:
        return {violation.check for violation in check(self.operations, self.final)}


def kept() -> History:
    """Two jobs of a group, one with an effect; one with a key; two messages with two readers, one of the topic."""
    history = History()
    history.enqueue("a", "b", ids=[1, 2], group="g")
    history.claim(1, 1, "a", "g")
    history.complete(1, 1, "a")
    history.claim(2, 1, "b", "g")
    history.complete(2, 1, "b")
    history.enqueue("c", ids=[3], kind="inside", key="k", within="the library's")
    history.claim(3, 1, "c")
    history.complete(3, 1, "c")
    history.final.ledger += [("enqueued", "c"), ("inside", "c")]
    history.add("publish", [None, None], target="counter", marks=["m", "n"])
    history.add("publish", [None], target="counter", marks=["o"])
    history.add("publish", 2, target="events", marks=["t"])
    history.add("read", [[1, "m"], [2, "n"]], feed="counter", after=0)
    history.add("read", [[3, "o"]], feed="counter", after=2)
    history.final.feeds = {"counter": [(1, "m"), (2, "n"), (3, "o")], "routed": [(1, "t")]}
    history.final.ledger += [("cursor counter", mark) for mark in ("m", "n", "o")] + [
        ("span counter", mark) for mark in ("m", "n", "o")
    ]
    history.final.ledger += [("inside", "t"), ("cursor routed", "t"), ("span routed", "t")]
    return history


def test_nothing_is_found_where_all_is_kept() -> None:
    assert kept().found() == set()


def lost(history: History) -> None:
    history.enqueue("lost", ids=[9])


def refused_and_there(history: History) -> None:
    history.enqueue("refused", status="fail")
    history.claim(9, 1, "refused")
    history.complete(9, 1, "refused")


def never_enqueued(history: History) -> None:
    history.claim(9, 1, "unknown")


def another_id(history: History) -> None:
    history.enqueue("other", ids=[9])
    history.claim(10, 1, "other")
    history.complete(10, 1, "other")


def ended_twice(history: History) -> None:
    history.complete(1, 1, "a")


def claimed_after_its_end(history: History) -> None:
    history.claim(1, 2, "a", begins=50.0)


def settled_after_the_next_claim(history: History) -> None:
    history.enqueue("late", ids=[9])
    history.claim(9, 1, "late")
    history.claim(9, 2, "late")
    history.complete(9, 1, "late")


def won_before_the_end(history: History) -> None:
    history.enqueue("early", ids=[9])
    history.claim(9, 1, "early", begins=20.0)
    history.claim(9, 2, "early", begins=20.5)
    history.complete(9, 2, "early")


def out_of_order(history: History) -> None:
    history.enqueue("first", ids=[8], group="h")
    history.enqueue("second", ids=[9], group="h")
    history.claim(9, 1, "second", "h", begins=20.0)
    history.complete(9, 1, "second")
    history.claim(8, 1, "first", "h", begins=30.0)
    history.complete(8, 1, "first")


def at_the_same_time(history: History) -> None:
    history.enqueue("one", status="unknown", group="h")
    history.enqueue("other", status="unknown", group="h")
    history.claim(8, 1, "one", "h", begins=20.0)
    history.claim(9, 1, "other", "h", begins=20.5)
    history.complete(8, 1, "one")
    history.complete(9, 1, "other")


def half_of_many(history: History) -> None:
    history.enqueue("half", "other half", status="unknown")
    history.claim(9, 1, "half")
    history.complete(9, 1, "half")


def half_of_a_transaction(history: History) -> None:
    history.enqueue("whole", status="unknown", within="the library's")
    history.final.ledger.append(("enqueued", "whole"))


def two_with_a_key(history: History) -> None:
    for mark, job_id in (("one", 8), ("other", 9)):
        history.enqueue(mark, ids=[job_id], key="x")
    for mark, job_id in (("one", 8), ("other", 9)):
        history.claim(job_id, 1, mark)
        history.complete(job_id, 1, mark)


def skipped_for_nothing(history: History) -> None:
    history.enqueue("skipped", key="x", policy="skip")


def effect_twice(history: History) -> None:
    history.final.ledger.append(("inside", "c"))


def step_twice(history: History) -> None:
    history.enqueue("s", ids=[4], kind="steps")
    history.claim(4, 1, "s")
    history.complete(4, 1, "s")
    history.final.ledger += [("steps", "s")] * 2


def effect_never(history: History) -> None:
    history.final.ledger.remove(("inside", "c"))


def job_left(history: History) -> None:
    history.final.live.append(("work", "a"))


def hung(history: History) -> None:
    history.final.stuck.append("client hangs")


def message_lost(history: History) -> None:
    history.add("publish", [None], target="counter", marks=["p"])


def message_twice(history: History) -> None:
    history.final.feeds["counter"].append((4, "o"))


def message_of_nobody(history: History) -> None:
    history.final.feeds["counter"].append((4, "x"))


def number_left_out(history: History) -> None:
    history.final.feeds["counter"][2] = (4, "o")


def later_one_first(history: History) -> None:
    history.final.feeds["counter"] = [(1, "o"), (2, "m"), (3, "n")]


def reader_missed_one(history: History) -> None:
    history.add("read", [[1, "m"], [3, "o"]], feed="counter", after=0)


def cursor_out_of_order(history: History) -> None:
    rows = history.final.ledger
    rows.remove(("cursor counter", "m"))
    rows.append(("cursor counter", "m"))


def span_never(history: History) -> None:
    history.final.ledger.remove(("span counter", "m"))


def one_route(history: History) -> None:
    history.final.ledger.remove(("inside", "t"))


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        (lost, "lost"),
        (refused_and_there, "unexpected"),
        (never_enqueued, "unexpected"),
        (another_id, "wrong id"),
        (ended_twice, "doubled"),
        (claimed_after_its_end, "doubled"),
        (settled_after_the_next_claim, "fence"),
        (won_before_the_end, "lease"),
        (out_of_order, "group order"),
        (at_the_same_time, "group overlap"),
        (half_of_many, "half"),
        (half_of_a_transaction, "half"),
        (two_with_a_key, "unique key"),
        (skipped_for_nothing, "unique key"),
        (effect_twice, "effect doubled"),
        (step_twice, "effect doubled"),
        (effect_never, "effect lost"),
        (job_left, "left"),
        (hung, "stuck"),
        (message_lost, "feed lost"),
        (message_twice, "feed doubled"),
        (message_of_nobody, "feed unexpected"),
        (number_left_out, "feed numbers"),
        (later_one_first, "feed order"),
        (reader_missed_one, "reader"),
        (cursor_out_of_order, "cursor"),
        (span_never, "span"),
        (one_route, "route"),
    ],
)
def test_a_broken_promise_is_noticed(change: Callable[[History], None], noticed: str) -> None:
    history = kept()
    change(history)
    assert noticed in history.found()


def test_how_long_nobody_could_claim() -> None:
    claims = [Operation("p", 0, "claim", {}, moment, "ok", moment, [None, []]) for moment in (1.0, 4.0, 5.0, 11.0, 30.0)]
    claims.append(Operation("p", 0, "claim", {}, 7.0, "ok", 7.0, [None]))  # nothing was there
    assert nodes.without_a_claim(claims, began=4.5, ended=12.0) == 19.0
    assert nodes.without_a_claim(claims, began=4.5, ended=10.0) == 6.0
    assert nodes.without_a_claim(claims, began=4.5, ended=4.6) == 0.5
    assert nodes.without_a_claim(claims, began=0.0, ended=0.5) == 1.0
    assert nodes.without_a_claim(claims, began=40.0, ended=41.0) == math.inf
