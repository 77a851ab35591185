"""What type checkers accept of a program with a worker."""

import pytest

from queue_db import ArgumentError, QueueDB
from queue_db.worker import Worker
from tests.type_checking import complaints

PROGRAM = """
from queue_db import LeasedJob, QueueDB
from queue_db.worker import JobSnapshot, Worker

worker = Worker(QueueDB("sqlite://"), "mail", mode="at_most_once")
worker.configure(lease=3)
worker.changed(lese=3)  # type: ignore[call-arg]
Worker(worker.db, "mail", mode="sometimes")  # type: ignore[arg-type]
Worker(worker.db, "mail", unknown="lost")  # type: ignore[arg-type]


@worker.handles("a")
def a(job: LeasedJob, again: bool = False) -> str:
    return job.kind


@worker.handles("b", timeout=3)
async def b(job: LeasedJob) -> None: ...


@worker.handles("c", executor="process")
def c(job: JobSnapshot) -> None: ...


@worker.handles("d")  # type: ignore[type-var]
def d() -> None: ...


@worker.handles("e", executor="process")  # type: ignore[type-var]
def e(job: LeasedJob) -> None: ...


worker.handles("f", executor="fork")(print)  # type: ignore[call-overload]
worker.handles(None)(lambda job: job.payload)
kind: str = a(worker.db.queue("mail").claim()[0])
"""


@pytest.mark.rest("tests/test_typing.py has programs of users")
def test_mistakes_are_seen_by_a_type_checker(tmp_path):
    """The comments are counted too: one that is not needed is an error."""
    assert complaints(PROGRAM, tmp_path) == []


def test_and_an_option_that_is_none_is_refused_when_it_runs():
    with QueueDB("sqlite://") as db:
        worker = Worker(db, "mail")
        for change in (worker.configure, worker.changed):
            with pytest.raises(ArgumentError, match="^lese: no option of a worker; they are queues, concurrency, lease, mode, "):
                change(lese=3)
