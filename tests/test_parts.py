"""Each test belongs to one part of the suite, and make test says what it leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import parts
from tests.databases import KINDS
from tests.parts import Part

ROOT = Path(__file__).parents[1]


def item(path: str, *marks: pytest.MarkDecorator, name: str = "test_it", **params: object) -> Any:
    """What the parts look at."""
    named = {one.name: one.mark for one in marks}
    spec = SimpleNamespace(params=params) if params else None
    return SimpleNamespace(nodeid=f"{path}::{name}[{params}]", get_closest_marker=lambda part: named.get(str(part)), callspec=spec)


REST, NIGHTLY = pytest.mark.rest("another one"), pytest.mark.nightly("another one")

EACH = [
    (item("tests/worker/test_a.py"), Part.TEST),
    (item("tests/worker/test_a.py", kind="sqlite"), Part.REST),
    (item("tests/worker/test_a.py", kind="postgresql"), Part.TEST),
    (item("tests/worker/test_a.py", kind="mysql"), Part.REST),
    (item("tests/worker/test_a.py", combination=SimpleNamespace(kind="mariadb")), Part.NIGHTLY),
    (item("tests/worker/test_a.py", name="test_without_mysql", kind="postgresql"), Part.TEST),
    (item("tests/worker/test_a.py", name="test_without_mysql", kind="mariadb"), Part.REST),
    (item("tests/worker/test_a.py", name="test_of_a_scheme", scheme="mysql"), Part.TEST),
    (item("tests/aio/test_a.py", kind="mysql"), Part.REST),
    (item("tests/aio/test_a.py", kind="mariadb"), Part.REST),
    (item("tests/aio/test_a.py", kind="sqlite"), Part.TEST),
    (item("tests/worker/test_a.py", name="test_of_the_family", kind="mysql"), Part.REST),
    (item("tests/worker/test_a.py", name="test_of_the_family", kind="mariadb"), Part.TEST),
    (item("tests/worker/test_a.py", name="test_of_mysql", kind="mysql"), Part.TEST),
    (item("tests/cli/test_a.py", name="test_of_servers", kind="postgresql"), Part.TEST),
    (item("tests/cli/test_a.py", name="test_of_servers", kind="mysql"), Part.REST),
    (item("tests/cli/test_a.py", kind="sqlite"), Part.TEST),
    (item("tests/cli/test_a.py", kind="postgresql"), Part.REST),
    (item("tests/races/test_a.py", kind="mariadb"), Part.TEST),
    (item("tests/races/test_a.py", kind="mysql"), Part.REST),
    (item("tests/sql/test_a.py", kind="mysql"), Part.TEST),
    (item("tests/worker/test_a.py", REST, kind="sqlite"), Part.REST),
    (item("tests/worker/test_a.py", REST, kind="mariadb"), Part.NIGHTLY),
    (item("tests/worker/test_a.py", NIGHTLY, REST), Part.NIGHTLY),
    (item("tests/clusters/test_a.py"), Part.CLUSTERS),
]


def chosen(part: Part | None) -> list[Any]:
    return divided([one for one, _ in EACH], part)[0]


def divided(items: list[Any], part: Part | None) -> tuple[list[Any], dict[str, int]]:
    return parts.divided(items, parts.databases_of(items), part)


def test_a_test_belongs_to_the_part_that_its_marks_and_its_database_say() -> None:
    for part in (Part.TEST, Part.REST, *parts.APART):
        assert chosen(part) == [one for one, of in EACH if of is part]


def test_what_make_check_runs_and_what_pytest_alone_runs() -> None:
    assert chosen(Part.ALL) == [one for one, _ in EACH]
    assert chosen(None) == [one for one, of in EACH if of not in parts.APART]
    checked = [one for one, of in EACH if of is not Part.CLUSTERS and not any(one.get_closest_marker(part) for part in parts.MARKS)]
    assert chosen(Part.CHECK) == [one for one in checked if parts.database_of(one) in {None, "sqlite"}]
    assert len(chosen(Part.CHECK)) == 5


def test_what_is_left_is_counted_by_folder_and_database() -> None:
    left = divided([one for one, _ in EACH], Part.TEST)[1]
    assert (left["rest tests/worker mysql"], left["rest tests/worker sqlite"], left["nightly tests/worker others"]) == (2, 2, 1)
    assert [line.split() for line in parts.table_of(left, Part.NIGHTLY)] == [[*KINDS, "others"], ["tests/worker", "2", "1"]]


def test_a_function_that_was_skipped_on_each_database_that_was_run_is_named() -> None:
    skipped = [item("a.py", kind="sqlite"), item("b.py", kind="sqlite"), item("b.py", kind="mysql")]
    assert parts.only_skipped({"skipped": skipped, "passed": [item("a.py", kind="mysql")]}) == ["b.py::test_it"]


def test_a_mark_without_a_reason_fails() -> None:
    for mark in (pytest.mark.rest, pytest.mark.rest(""), pytest.mark.rest(why="no")):
        with pytest.raises(pytest.UsageError, match=r"test_a.py.*: write @pytest.mark.rest\(\"what"):
            divided([item("tests/worker/test_a.py", mark)], None)
    assert divided([item("tests/worker/test_a.py", pytest.mark.rest(reason="another one"))], Part.REST)[0]


def test_what_k_leaves_out_is_no_reason_to_run_a_test_elsewhere() -> None:
    both = [item("tests/worker/test_a.py", kind=kind) for kind in ("postgresql", "mysql")]
    assert parts.divided(both[1:], parts.databases_of(both), Part.TEST) == ([], {"rest tests/worker mysql": 1})


@pytest.mark.parametrize("place", [*parts.DATABASES, *parts.TWINS, *parts.NOT_IN_CHECK])
def test_the_tables_name_places_that_are_there(place: str) -> None:
    assert any(ROOT.glob(f"{place}*"))
