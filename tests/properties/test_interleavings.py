"""The machine on every database: any order of steps, and after each the model and the queue agree."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from queue_db import QueueDB
from tests.properties.machine import STRATEGIES, QueueMachine

#: Each run draws others.
EXAMPLES = {"sqlite": 24, "postgresql": 12, "mysql": 10, "mariadb": 10}


def test_the_queue_does_as_the_model(kind: str, open_db: Callable[..., QueueDB]) -> None:
    pool = open_db()
    only = [name for name in STRATEGIES if (kind, name) != ("sqlite", "skip_locked")]
    run_state_machine_as_test(
        lambda: QueueMachine(pool, only),
        settings=settings(max_examples=EXAMPLES[kind], stateful_step_count=40),
    )
