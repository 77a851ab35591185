"""The benchmark of feeds runs, and its soak notices the control."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import feeds
from queue_db.feeds.store.orderings import ORDERINGS


@pytest.fixture(autouse=True)
def _controls_are_forgotten() -> Iterator[None]:
    """The benchmark adds its controls to the orderings of its process, which is that of other tests here."""
    before = dict(ORDERINGS)
    yield
    ORDERINGS.clear()
    ORDERINGS.update(before)


@pytest.mark.rest("the verdict is tested below; tests/feeds and tests/chaos prove what the soak looks for")
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
def test_a_short_soak_keeps_the_promises(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seconds", "0.2", "--publishers", "3", "--observers", "2", "--pause", "0.005", "--hold", "0"]
    assert feeds.main(["soak", "--url", url, "--orderings", "counter", "ranked", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["counter", "ranked"]


def test_a_soak_counts_what_is_missed() -> None:
    soak = feeds.Soak("", "", 0, 0, 0, committed={"1-1-0", "1-2-0", "2-1-0"})
    soak.observed = [["1-1-0", "1-2-0", "2-1-0"], ["1-2-0", "1-1-0", "1-1-0", "3-1-0"]]
    assert soak.verdict() == {
        "committed": 3,
        "missed": 1,
        "twice": 1,
        "rolled back, but read": 1,
        "other orders": 1,
        "out of turn": 2,
    }


@pytest.mark.rest("tests/compare/test_feed_race.py measures every ordering")
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_rates_have_a_row_for_each_ordering(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seconds", "0.2", "--publishers", "2", "--feeds", "1", "--batches", "2", "--repeat", "1"]
    assert feeds.main(["rates", "--url", url, *arguments]) == 0
    rows = [line.split(" | ")[:2] for line in capsys.readouterr().out.splitlines()[2:-1]]
    assert rows == [["| 2", name] for name in ("counter", "ranked", "compare_and_set", "bare_insert")]
