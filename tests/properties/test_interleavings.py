"""The machine on every database: any order of steps, and after each the model and the queue agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from queue_db import QueueDB
from tests.properties.machine import STRATEGIES, QueueMachine

#: Each run draws others.
EXAMPLES = {"sqlite": 60, "postgresql": 12, "mysql": 10, "mariadb": 10}

#: Of those, how many ``make test`` draws.
PARTS = [2 / 5, pytest.param(1, marks=pytest.mark.rest("make test draws two fifths as many"))]


@pytest.mark.parametrize("part", PARTS)
def test_the_queue_does_as_the_model(kind: str, open_db: Callable[..., QueueDB], part: float) -> None:
    pool = open_db()
    only = [name for name in STRATEGIES if (kind, name) != ("sqlite", "skip_locked")]
    run_state_machine_as_test(
        lambda: QueueMachine(pool, only),
        settings=settings(max_examples=round(EXAMPLES[kind] * part), stateful_step_count=40),
    )
