"""Which part of databases × strategies × removals each class of the conformance suite runs on.

A strategy changes the claim and a removal changes the completion. A test that depends on neither runs once for each database, and
a test runs in every cell only where claim and completion meet. ``make test`` has the strategies of ``IN_TEST`` with the default
removal, and the other removals with the default strategy; ``make test-rest`` has the other cells that a class depends on, and
``make test-nightly`` those that it does not depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import pytest

from tests.conformance.combinations import REMOVALS, STRATEGIES, Combination
from tests.parts import Part


class Axes(Enum):
    """What the outcome of a test can depend on, beside the database."""

    DATABASE = "nothing else"
    REMOVAL = "the removal"
    STRATEGY = "the strategy"
    EITHER = "the strategy or the removal, each by itself"
    BOTH = "the strategy together with the removal"


#: A class of the suite, or a module with tests of its own → what its tests depend on.
DEPENDS: dict[str, Axes] = {
    # Neither a strategy nor a removal takes part.
    "TestActions": Axes.DATABASE,
    "TestFailures": Axes.DATABASE,
    "TestMetrics": Axes.DATABASE,
    "TestCursors": Axes.DATABASE,
    "TestDebounce": Axes.DATABASE,
    "TestEnqueue": Axes.DATABASE,
    "TestEnqueueMany": Axes.DATABASE,
    "TestEnqueueUsing": Axes.DATABASE,
    "TestFailedMessages": Axes.DATABASE,
    "TestFairQueues": Axes.DATABASE,  # a strategy takes what the turns leave
    "TestFeeds": Axes.DATABASE,
    "TestGroupLimits": Axes.DATABASE,
    "TestForward": Axes.DATABASE,
    "TestClaimsThatEnd": Axes.DATABASE,
    "TestHandles": Axes.DATABASE,
    "TestHiddenMessages": Axes.DATABASE,
    "TestJobs": Axes.DATABASE,
    "TestGraphChanges": Axes.DATABASE,
    "TestGraphFailures": Axes.DATABASE,
    "TestGraphs": Axes.DATABASE,
    "TestMailboxes": Axes.DATABASE,
    "TestReschedule": Axes.DATABASE,
    "TestRetentionWithClaims": Axes.DATABASE,
    "TestTimesOfTheFeed": Axes.DATABASE,
    "TestMessageClaims": Axes.DATABASE,
    "TestSharedCursors": Axes.DATABASE,
    "TestSpans": Axes.DATABASE,
    "TestConditions": Axes.DATABASE,
    "TestKeyedCounts": Axes.DATABASE,
    "TestLoops": Axes.DATABASE,
    "TestPatterns": Axes.DATABASE,
    "TestPositions": Axes.DATABASE,
    "TestRetention": Axes.DATABASE,
    "TestRoutes": Axes.DATABASE,
    "TestSignals": Axes.DATABASE,
    "TestSleeps": Axes.DATABASE,
    "TestState": Axes.DATABASE,
    "TestStepLoops": Axes.DATABASE,
    "TestSteps": Axes.DATABASE,
    "TestSweep": Axes.DATABASE,  # opens the database with the one removal that has something to sweep
    "TestTables": Axes.DATABASE,
    "TestTokens": Axes.DATABASE,
    "TestTopics": Axes.DATABASE,
    "TestUniqueKeysOfMany": Axes.DATABASE,
    "TestRefusedLists": Axes.DATABASE,
    # Completion, and the other ways out of the table.
    "TestBatches": Axes.REMOVAL,
    "TestCancel": Axes.REMOVAL,
    "TestCompleteUsing": Axes.REMOVAL,
    "TestDead": Axes.REMOVAL,
    "TestExtend": Axes.REMOVAL,
    "TestFail": Axes.REMOVAL,
    "TestFence": Axes.REMOVAL,
    "TestGiveBack": Axes.REMOVAL,
    "TestGroups": Axes.REMOVAL,
    "TestGroupsAndKeys": Axes.REMOVAL,
    "TestOutcomes": Axes.REMOVAL,
    "TestPlacesOfGroups": Axes.REMOVAL,
    "TestPurge": Axes.REMOVAL,
    "TestRead": Axes.REMOVAL,
    "TestSettleMany": Axes.REMOVAL,
    "TestStepsOfLeftJobs": Axes.REMOVAL,
    "TestUniqueFor": Axes.REMOVAL,
    "TestUniqueKey": Axes.REMOVAL,
    # The claim.
    "TestClaim": Axes.STRATEGY,
    "TestLease": Axes.STRATEGY,
    "TestOrder": Axes.STRATEGY,
    "TestVanishedWorkers": Axes.STRATEGY,
    # The claim and the completion of the same job: what they cost, and the version that one hands to the other.
    "TestCompleteAndClaim": Axes.BOTH,
    "TestStatements": Axes.BOTH,
    "TestVersions": Axes.BOTH,
    # A pop claims and deletes; the removal must not change that.
    "test_pop": Axes.EITHER,
    # What these modules test beside the suite.
    "test_third_party_dialect": Axes.DATABASE,
    "test_third_party_strategy": Axes.DATABASE,
}

#: The strategy and the removal of the tests that do not depend on them.
STRATEGY, REMOVAL = next(iter(STRATEGIES)), REMOVALS[0]

#: A database with the statements of another one, but for settling: ``make test`` has claim and completion there, in one cell.
TWIN = ("mysql",)

#: One strategy of each kind: the other ways to pick within the window differ from it in one expression, which tests/sql shows.
IN_TEST = ("adaptive", "optimistic_slot", "skip_locked", "pessimistic")

Choice = Callable[[Axes, Combination], bool]


def on_its_axes(axes: Axes, cell: Combination) -> bool:
    """Each strategy and each removal for the tests that depend on them, the default ones for all others."""
    return {
        Axes.DATABASE: (cell.strategy, cell.removal) == (STRATEGY, REMOVAL),
        Axes.REMOVAL: cell.strategy == STRATEGY,
        Axes.STRATEGY: cell.removal == REMOVAL,
        Axes.EITHER: cell.strategy == STRATEGY or cell.removal == REMOVAL,
        Axes.BOTH: True,
    }[axes]


def claims(axes: Axes) -> bool:
    """Whether tests with these axes are about the claim."""
    return axes in {Axes.STRATEGY, Axes.EITHER, Axes.BOTH}


def subject_of(metafunc: pytest.Metafunc) -> str:
    """The class of a test, or the module of one that is in no class."""
    return metafunc.cls.__name__ if metafunc.cls else metafunc.module.__name__.rpartition(".")[2]


def axes_of(subject: str) -> Axes:
    """The table's entry; a class that has none fails the collection."""
    if subject not in DEPENDS:
        pytest.fail(f"{subject} has no entry in DEPENDS (tests/conformance/grid.py): what do its tests depend on?", pytrace=False)
    return DEPENDS[subject]


def part_of(axes: Axes, cell: Combination, chosen: Choice = on_its_axes) -> Part:
    """The part of the suite in which a class with these axes runs in a cell."""
    if not chosen(axes, cell):
        return Part.NIGHTLY
    if cell.kind in TWIN and (axes is Axes.DATABASE or (cell.strategy, cell.removal) != (STRATEGY, REMOVAL)):
        return Part.REST
    if cell.strategy != STRATEGY and (cell.removal != REMOVAL or cell.strategy not in IN_TEST):
        return Part.REST
    return Part.TEST


_MARKS = {
    Part.TEST: (),
    Part.REST: pytest.mark.rest("make test has each kind of strategy, and each removal, of which this is one more pair"),
    Part.NIGHTLY: pytest.mark.nightly("the class does not depend on what differs in this cell"),
}


def parametrize(metafunc: pytest.Metafunc, cells: Sequence[Combination], chosen: Choice = on_its_axes) -> None:
    """Run a test that uses ``combination`` on those of ``cells`` that its class depends on; nightly on the others, too."""
    if "combination" not in metafunc.fixturenames:
        return
    axes = axes_of(subject_of(metafunc))
    wanted = metafunc.config.getoption("--part")
    parts = [(cell, part_of(axes, cell, chosen)) for cell in cells]
    params = [
        pytest.param(cell, marks=_MARKS[part], id=str(cell))
        for cell, part in parts
        if part is not Part.NIGHTLY or wanted in {Part.NIGHTLY, Part.ALL}
    ]
    metafunc.parametrize("combination", params, scope="session")
