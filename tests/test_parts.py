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


def item(path: str, *marks: pytest.MarkDecorator, **params: object) -> Any:
    """What the parts look at."""
    named = {one.name: one.mark for one in marks}
    spec = SimpleNamespace(params=params) if params else None
    return SimpleNamespace(nodeid=f"{path}::test_it", get_closest_marker=lambda part: named.get(str(part)), callspec=spec)


REST, NIGHTLY = pytest.mark.rest("another one"), pytest.mark.nightly("another one")

EACH = [
    (item("tests/worker/test_a.py"), Part.TEST),
    (item("tests/worker/test_a.py", kind="postgresql"), Part.TEST),
    (item("tests/worker/test_a.py", kind="mysql"), Part.REST),
    (item("tests/worker/test_a.py", combination=SimpleNamespace(kind="mariadb")), Part.REST),
    (item("tests/races/test_a.py", kind="mariadb"), Part.TEST),
    (item("tests/sql/test_a.py", kind="mysql"), Part.TEST),
    (item("tests/worker/test_a.py", REST, kind="sqlite"), Part.REST),
    (item("tests/worker/test_a.py", NIGHTLY, REST), Part.NIGHTLY),
]


@pytest.mark.parametrize(("one", "part"), EACH)
def test_a_test_belongs_to_the_part_that_its_marks_and_its_database_say(one: Any, part: Part) -> None:
    assert parts.part_of(one) is part


def test_make_test_and_make_test_rest_and_make_test_nightly_share_the_tests_among_them() -> None:
    items = [one for one, _ in EACH]
    shares = [parts.divided(items, part)[0] for part in (Part.TEST, Part.REST, Part.NIGHTLY)]
    assert sorted(id(one) for share in shares for one in share) == sorted(map(id, items))
    assert parts.divided(items, None)[0] == [one for one in items if one not in shares[2]]
    assert parts.divided(items, Part.ALL) == (items, [])
    assert set(map(id, parts.divided(items, Part.CHECK)[0])) < set(map(id, shares[0]))


def test_what_is_left_is_counted_by_folder_and_database() -> None:
    left = parts.left_out(parts.divided([one for one, _ in EACH], Part.TEST)[1])
    assert left == {
        "rest tests/worker mysql": 1,
        "rest tests/worker mariadb": 1,
        "rest tests/worker sqlite": 1,
        "nightly tests/worker none": 1,
    }
    assert [line.split() for line in parts.table_of(left, Part.REST)] == [[*KINDS, "none"], ["tests/worker", "1", "1", "1"]]


def test_a_mark_without_a_reason_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="the mark rest needs a reason"):
        parts.part_of(item("tests/worker/test_a.py", pytest.mark.rest))


@pytest.mark.parametrize("place", [*parts.DATABASES, *parts.NOT_IN_CHECK])
def test_the_tables_name_places_that_are_there(place: str) -> None:
    assert (ROOT / place).exists()
