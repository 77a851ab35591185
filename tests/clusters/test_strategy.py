"""A cluster with several writers is recognised, and the strategies know it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import Adaptive, Capability, Pessimistic, QueueDB, SkipLocked
from queue_db.strategies.adaptive import FIRST_WINDOW
from tests.clusters.conftest import catch_up


def test_each_node_is_known_to_be_one_of_several_writers(nodes: list[QueueDB]) -> None:
    assert all(Capability.SEVERAL_WRITERS in db.database.capabilities for db in nodes)


def test_adaptive_starts_with_a_window_and_returns_to_the_head_without_races(
    open_nodes: Callable[..., list[QueueDB]], urls: list[str], name: str
) -> None:
    db, *_ = open_nodes()
    queue, strategy = db.queue(name), db.strategy
    assert isinstance(strategy, Adaptive)
    ids = queue.enqueue_many([("mail", number) for number in range(60)])
    catch_up(urls[0])
    first = queue.claim(lease=600)
    assert first[0].id in ids[:FIRST_WINDOW]
    assert strategy.window(name) == FIRST_WINDOW
    for _ in range(50):
        queue.claim(lease=600)
    assert strategy.window(name) == 1


@pytest.mark.parametrize("strategy", [SkipLocked, Pessimistic])
def test_who_relies_on_row_locks_is_warned(
    open_nodes: Callable[..., list[QueueDB]], strategy: type, caplog: pytest.LogCaptureFixture
) -> None:
    open_nodes(Adaptive)
    assert not caplog.messages
    open_nodes(strategy)
    assert len(caplog.messages) == 3
    assert "use strategy='adaptive'" in caplog.messages[0]
