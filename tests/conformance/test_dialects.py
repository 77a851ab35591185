"""Each dialect of the package is tested and documented as the others are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

from queue_db.dialects import registered
from tests.conformance.combinations import COSTS
from tests.databases import KINDS
from tests.docs.tables import TITLES
from tests.sql.recording import DATABASES

#: Those of users, such as the one of ``third_party``, need none of this.
OURS = {name: kind for name, kind in registered().items() if kind.__module__.startswith("queue_db.")}

PLACES: dict[str, Collection[str]] = {
    "KINDS in tests/databases.py": KINDS,
    "COSTS in tests/conformance/combinations.py": COSTS,
    "DATABASES in tests/sql/recording.py": DATABASES,
    "TITLES in tests/docs/tables.py": TITLES,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_dialect_is_in_each_list(place: str) -> None:
    assert set(PLACES[place]) == set(OURS), f"{place} and the dialects of the package differ"


@pytest.mark.parametrize("name", OURS)
def test_the_extras_that_an_error_recommends_are_there(name: str) -> None:
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    given = [OURS[name].drivers.named(asynchronous=asynchronous) for asynchronous in (False, True)]
    named = {extra for driver, extra in given if driver is not None}
    assert named <= extras.keys(), "write it into pyproject.toml, then run: make lock"
    (everything,) = extras["all"]
    assert named <= set(re.findall(r"[\w-]+", everything)), "the extra `all` in pyproject.toml lacks one"
