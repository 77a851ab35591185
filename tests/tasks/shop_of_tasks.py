"""Tasks of a shop, for handler processes and for commands, which import them."""

from __future__ import annotations

import os
from datetime import date

from queue_db.tasks import Tasks
from queue_db.worker import JobSnapshot

tasks = Tasks()
empty = Tasks()


@tasks.task(queue="shop", executor="process", result_ttl=600)
def render(job: JobSnapshot, day: date) -> list[str]:
    return [job.kind, day.isoformat(), str(os.getpid())]


@tasks.task(queue="shop", executor="process", result_ttl=600)
def double(number: int) -> int:
    return number * 2


@tasks.task(queue="shop", aliases=["old_greet"], result_ttl=600)
def greet(name: str, times: int = 1) -> str:
    return f"hello {name}" * times


@tasks.task(queue="shop")
def chain(name: str) -> None:
    greet.enqueue(name)
