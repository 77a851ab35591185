"""Publications and discards of the same rows at the same time: of two, one comes first, and the other finds it done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from queue_db import QueueDB
from queue_db.errors import StagingError
from queue_db.spark.staging.store import Published
from queue_db.store.base import Transaction
from tests.races.interleaving import Loser, at_once, between, open_transaction
from tests.spark.staging.conftest import (
    discard,
    discarding,
    ledger,
    load,
    nothing_was_published,
    payloads,
    publish,
    publishing,
    stage,
    staged,
)

ROUNDS = 5


def test_the_second_of_two_publishers_at_once_finds_it_done(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    for version in range(ROUNDS):
        queue = f"{name}-{version}"
        entry = load(queue, name, version)
        attempts = [stage(ours, ["1", "2"], ["3"]), stage(theirs, ["4"], ["5", "6"])]
        outcomes = at_once(partial(publish, ours, entry, attempts[0]), partial(publish, theirs, entry, attempts[1]))
        assert outcomes in ([Published(3, 0), None], [None, Published(3, 0)])
        winner = outcomes.index(None) ^ 1
        assert payloads(ours, queue) == [["1", "2", "3"], ["4", "5", "6"]][winner]
        assert [staged(ours, attempt) for attempt in attempts] == [0 if place == winner else 2 for place in range(2)]
        assert discard(ours, attempts[winner ^ 1]) == 2


def test_one_of_two_publishers_of_the_same_attempt_finds_it_done(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    for version in range(ROUNDS):
        queue = f"{name}-{version}"
        entry, attempt = load(queue, name, version), stage(ours, ["1"], ["2"])
        outcomes = at_once(partial(publish, ours, entry, attempt), partial(publish, theirs, entry, attempt))
        assert sorted(outcomes, key=str) == [None, Published(2, 0)]
        assert payloads(ours, queue) == ["1", "2"]


def test_the_same_attempt_under_another_name_finds_nothing(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    for version in range(ROUNDS):
        queue = f"{name}-{version}"
        attempt = stage(ours, ["1"], ["2"])
        entries = [load(queue, f"{name} {number}", version) for number in range(2)]
        outcomes = at_once(partial(publish, ours, entries[0], attempt), partial(publish, theirs, entries[1], attempt))
        assert [type(one) for one in outcomes] in ([Published, StagingError], [StagingError, Published])
        assert payloads(ours, queue) == ["1", "2"]
        assert [ledger(ours, entry) is None for entry in entries] == [isinstance(one, StagingError) for one in outcomes]


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_publisher_waits_for_the_one_before_it(kind: str, ours: QueueDB, theirs: QueueDB, name: str, commits: bool) -> None:
    entry, mine, other = load(name, name), stage(ours, ["1"]), stage(theirs, ["2"])
    with open_transaction(ours) as connection:
        assert publishing(entry, mine)(Transaction(connection, ours.store)) == Published(1, 0)
        late = Loser(kind, theirs, partial(publish, theirs, entry, other))
        assert late.until_it_waits(), "nothing was in its way"
        (connection.commit if commits else connection.rollback)()
        assert late.result() == (None if commits else Published(1, 0))
    assert payloads(ours, name) == (["1"] if commits else ["2"])
    assert (staged(ours, mine), staged(ours, other)) == ((0, 1) if commits else (1, 0))


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_discard_loses_to_a_publication(kind: str, ours: QueueDB, theirs: QueueDB, name: str, commits: bool) -> None:
    entry, attempts = load(name, name), [stage(ours, ["1"], ["2"]), stage(ours, ["3"])]
    with open_transaction(ours) as connection:
        assert publishing(entry, *attempts)(Transaction(connection, ours.store)) == Published(3, 0)
        late = Loser(kind, theirs, partial(discard, theirs, *attempts))
        assert late.until_it_waits(), "nothing was in its way"
        (connection.commit if commits else connection.rollback)()
        assert late.result() == (0 if commits else 3)
    if commits:
        assert (payloads(ours, name), ledger(ours, entry)) == (["1", "2", "3"], Published(3, 0))
    else:
        nothing_was_published(ours, entry)
    assert staged(ours, *attempts) == 0


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@pytest.mark.parametrize("part", ["all", "one"])
def test_a_publication_loses_to_a_discard(kind: str, ours: QueueDB, theirs: QueueDB, name: str, part: str, commits: bool) -> None:
    entry, attempts = load(name, name), [stage(ours, ["1"], ["2"]), stage(ours, ["3"])]
    dropped = attempts if part == "all" else attempts[:1]
    with open_transaction(ours) as connection:
        assert discarding(*dropped)(Transaction(connection, ours.store)) == (3 if part == "all" else 2)
        late = Loser(kind, theirs, partial(publish, theirs, entry, *attempts))
        assert late.until_it_waits(), "nothing was in its way"
        (connection.commit if commits else connection.rollback)()
        if not commits:
            assert late.result() == Published(3, 0)
            assert payloads(ours, name) == ["1", "2", "3"]
            return
        with pytest.raises(StagingError):
            late.result()
    nothing_was_published(ours, entry)
    assert staged(ours, *attempts) == (0 if part == "all" else 1)


@pytest.mark.parametrize("part", ["all", "one"])
@pytest.mark.parametrize("keyed", [False, True], ids=["by the database", "one by one"])
def test_a_publication_loses_to_a_discard_between_its_copy_and_its_deletion(
    differs: Callable[[str], None], ours: QueueDB, theirs: QueueDB, name: str, part: str, keyed: bool
) -> None:
    differs("one writer")
    fields = ("unique_key",) if keyed else ()

    def rows(*numbers: str) -> dict[str, list[str]]:
        return {"payload": list(numbers)} | ({"unique_key": list(numbers)} if keyed else {})

    entry, attempts = load(name, name, fields=fields), [stage(ours, rows("1"), rows("2")), stage(ours, rows("3"))]
    dropped = attempts if part == "all" else attempts[:1]
    with between(ours.database.engine, "DELETE", partial(discard, theirs, *dropped)) as done:
        with pytest.raises(StagingError):
            publish(ours, entry, *attempts)
        assert done == [3 if part == "all" else 2]
    nothing_was_published(ours, entry)
    assert staged(ours, *attempts) == (0 if part == "all" else 1)


def test_a_publication_loses_to_a_discard_between_its_ledger_row_and_its_copy(
    differs: Callable[[str], None], ours: QueueDB, theirs: QueueDB, name: str
) -> None:
    differs("one writer")
    entry, attempts = load(name, name), [stage(ours, ["1"], ["2"]), stage(ours, ["3"])]
    with between(ours.database.engine, "INSERT INTO JOBS (", partial(discard, theirs, attempts[0])) as done:
        with pytest.raises(StagingError):
            publish(ours, entry, *attempts)
        assert done == [2]
    nothing_was_published(ours, entry)


def test_one_of_a_publication_and_a_discard_at_once_finds_it_done(ours: QueueDB, theirs: QueueDB, name: str) -> None:
    for version in range(ROUNDS):
        queue = f"{name}-{version}"
        entry, attempts = load(queue, name, version), [stage(ours, ["1"], ["2"]), stage(ours, ["3"])]
        published, gone = at_once(partial(publish, ours, entry, *attempts), partial(discard, theirs, *attempts))
        if published == Published(3, 0):
            assert (gone, payloads(ours, queue), ledger(ours, entry)) == (0, ["1", "2", "3"], published)
        else:
            assert isinstance(published, StagingError)
            assert gone == 3
            nothing_was_published(ours, entry)
        assert staged(ours, *attempts) == 0


def test_two_discards_at_once_share_what_there_is(ours: QueueDB, theirs: QueueDB) -> None:
    for _ in range(ROUNDS):
        attempts = [stage(ours, ["1"], ["2"]), stage(ours, ["3"])]
        outcomes = at_once(partial(discard, ours, *attempts), partial(discard, theirs, *reversed(attempts)))
        assert sum(outcomes) == 3
        assert staged(ours, *attempts) == 0
