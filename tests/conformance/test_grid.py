"""The grid: every class of the suite has its place in it, and the cut keeps each database, strategy and removal."""

from __future__ import annotations

import inspect
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from queue_db.testing import suite
from tests.conformance import grid, test_third_party_dialect, test_third_party_strategy
from tests.conformance.combinations import LACKING, REMOVALS, SERVED, STRATEGIES, Combination
from tests.conformance.grid import Axes
from tests.databases import KINDS
from tests.parts import Part

CLASSES = sorted(name for name, one in vars(suite).items() if inspect.isclass(one) and name.startswith("Test"))


def cells(axes: Axes, choice: grid.Choice = grid.on_its_axes, served: list[Combination] = SERVED) -> list[Combination]:
    return [cell for cell in served if choice(axes, cell)]


def test_every_class_of_the_suite_has_an_entry() -> None:
    assert sorted(name for name in grid.DEPENDS if name.startswith("Test")) == CLASSES


def test_every_class_in_the_modules_of_the_suite_is_exported() -> None:
    modules = [one for one in vars(suite).values() if inspect.ismodule(one) and one.__name__.startswith(suite.__name__)]
    assert len(modules) > 10
    found = {name for module in modules for name, one in vars(module).items() if inspect.isclass(one) and name.startswith("Test")}
    assert sorted(found) == CLASSES
    assert set(CLASSES) <= set(suite.__all__)


def generated(subject: str, option: Part | None = None) -> dict[Part, list[Combination]]:
    """The cells on which a test of that class runs, by part."""
    given: list[Any] = []
    metafunc: Any = SimpleNamespace(
        fixturenames=["combination"],
        cls=type(subject, (), {}),
        config=SimpleNamespace(getoption=lambda name: option),
        parametrize=lambda name, params, **_: given.extend(params),
    )
    grid.parametrize(metafunc, SERVED)
    found: dict[Part, list[Combination]] = {Part.TEST: [], Part.REST: [], Part.NIGHTLY: []}
    for one in given:
        found[Part(one.marks[0].name) if one.marks else Part.TEST].append(one.values[0])
    return found


def test_a_class_without_an_entry_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="TestNew has no entry in DEPENDS"):
        generated("TestNew")


def test_the_number_of_cells() -> None:
    databases, removals = len(KINDS), len(KINDS) * len(REMOVALS)
    strategies = len(KINDS) * len(STRATEGIES) - len(LACKING)
    assert {axes: len(cells(axes)) for axes in Axes} == {
        Axes.DATABASE: databases,
        Axes.REMOVAL: removals,
        Axes.STRATEGY: strategies,
        Axes.EITHER: strategies + removals - databases,
        Axes.BOTH: strategies * len(REMOVALS),
    }


def test_make_test_has_each_kind_of_strategy_and_each_removal_that_a_class_depends_on() -> None:
    for name in CLASSES:
        axes, on = grid.DEPENDS[name], generated(name)[Part.TEST]
        assert {cell.kind for cell in on} == set(KINDS) - set(grid.TWIN if axes is Axes.DATABASE else ())
        assert ({cell.strategy for cell in on} == set(grid.IN_TEST)) is grid.claims(axes), name
        assert ({cell.removal for cell in on} == set(REMOVALS)) is (axes not in {Axes.DATABASE, Axes.STRATEGY}), name


def test_the_kinds_of_strategy_that_make_test_has_are_all_classes_of_strategies() -> None:
    made = {name: type(Combination("postgresql", name, grid.REMOVAL).new_strategy()) for name in STRATEGIES}
    assert {made[name] for name in grid.IN_TEST} == set(made.values())


def test_each_cell_belongs_to_one_part_and_the_nightly_ones_to_none_that_a_class_depends_on() -> None:
    for name in CLASSES:
        all_of_it, without = generated(name, Part.ALL), generated(name)
        assert sorted((cell for found in all_of_it.values() for cell in found), key=SERVED.index) == SERVED
        assert without == all_of_it | {Part.NIGHTLY: []}
        assert sorted(without[Part.TEST] + without[Part.REST], key=SERVED.index) == cells(grid.DEPENDS[name])


def test_where_claim_and_completion_meet_no_cell_is_left_to_the_night() -> None:
    assert Counter(grid.DEPENDS.values())[Axes.BOTH] == 3
    for name in ("TestVersions", "TestStatements", "TestCompleteAndClaim"):
        assert generated(name, Part.ALL)[Part.NIGHTLY] == []


def test_third_parties_run_every_class_on_one_database_at_least() -> None:
    for axes in Axes:
        assert cells(axes, test_third_party_strategy.on_its_axes, test_third_party_strategy.CELLS)
        assert cells(axes, test_third_party_dialect.on_its_axes, test_third_party_dialect.CELLS)
    assert len(cells(Axes.STRATEGY, test_third_party_strategy.on_its_axes, test_third_party_strategy.CELLS)) == len(KINDS)
    assert len(cells(Axes.REMOVAL, test_third_party_dialect.on_its_axes, test_third_party_dialect.CELLS)) == len(REMOVALS)
