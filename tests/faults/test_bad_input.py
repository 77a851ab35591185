"""What callers should not pass: refused at the door, named with its value and its bounds, and nothing is lost or half done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queue_db import ArgumentError, JobNotFoundError, LeasedJob, PayloadError, Queue, QueueDB, QueueDBError, State
from queue_db.schema import KEY_LENGTH, KIND_LENGTH, QUEUE_LENGTH

NAN, INFINITE = float("nan"), float("inf")

Act = Callable[[Queue], object]

REFUSED: dict[str, tuple[Act, str]] = {
    "queue name empty": (lambda queue: queue.db.queue(""), "queue is empty: give it 1 to 100 characters"),
    "queue name too long": (lambda queue: queue.db.queue("q" * (QUEUE_LENGTH + 1)), "queue has 101 characters; 100 is the limit"),
    "queue name with a blank at its end": (lambda queue: queue.db.queue("mail "), "begins or ends with a blank"),
    "queue name with a line break": (lambda queue: queue.db.queue("a\nb"), "control character"),
    "queue name no string": (lambda queue: queue.db.queue(7), "queue=7: must be a string"),  # type: ignore[arg-type]
    "kind empty": (lambda queue: queue.enqueue(""), "kind is empty"),
    "kind too long": (lambda queue: queue.enqueue("k" * (KIND_LENGTH + 1)), "kind has 101 characters"),
    "key too long": (lambda queue: queue.enqueue("k", unique_key="x" * (KEY_LENGTH + 1)), "unique_key has 201 characters"),
    "key empty": (lambda queue: queue.enqueue("k", unique_key=""), "unique_key is empty"),
    "delay negative": (lambda queue: queue.enqueue("k", delay=-1), "delay=-1: must be 0 or more seconds"),
    "delay NaN": (lambda queue: queue.enqueue("k", delay=NAN), "delay=nan: must be a finite number"),
    "delay infinite": (lambda queue: queue.enqueue("k", delay=INFINITE), "delay=inf: must be a finite number"),
    "delay in milliseconds": (lambda queue: queue.enqueue("k", delay=1e13), "the unit is seconds"),
    "delay no number": (lambda queue: queue.enqueue("k", delay="5"), "delay='5': must be a number"),  # type: ignore[arg-type]
    "time without a zone": (lambda queue: queue.enqueue("k", run_at=datetime(2030, 1, 1)), "has no time zone"),  # noqa: DTZ001
    "priority NaN": (lambda queue: queue.enqueue("k", priority=NAN), "priority=nan: must be a whole"),  # type: ignore[arg-type]
    "priority too large": (lambda queue: queue.enqueue("k", priority=2**31), "priority=2147483648: must be"),
    "no attempts": (lambda queue: queue.enqueue("k", max_attempts=0), "max_attempts=0: must be 1 to"),
    "policy": (
        lambda queue: queue.enqueue("k", on_duplicate="ignore"),
        "on_duplicate='ignore': must be raise, skip, replace or debounce",
    ),
    "headers no mapping": (lambda queue: queue.enqueue("k", headers=["a"]), "headers=.*must be a mapping"),  # type: ignore[arg-type]
    "claim of 0": (lambda queue: queue.claim(0), "limit=0: must be 1 to 10,000"),
    "claim of -1": (lambda queue: queue.claim(-1), "limit=-1: must be"),
    "claim of too many": (lambda queue: queue.claim(10_001), "limit=10001: must be"),
    "claim of half a job": (lambda queue: queue.claim(0.5), "limit=0.5: must be a whole number"),  # type: ignore[arg-type]
    "lease of 0": (lambda queue: queue.claim(1, lease=0), "lease=0: must be more than 0 seconds"),
    "lease negative": (lambda queue: queue.claim(1, lease=-5), "lease=-5: must be more than 0"),
    "lease NaN": (lambda queue: queue.claim(1, lease=NAN), "lease=nan: must be a finite"),
    "id no number": (lambda queue: queue.get("x"), "job_id='x': must be a whole number"),  # type: ignore[arg-type]
    "peek of 0": (lambda queue: queue.peek(0), "limit=0: must be"),
    "snooze negative": (lambda queue: queue.snooze_many([], -1), "seconds=-1: must be 0 or more"),
    "extend by 0": (lambda queue: queue.extend_many([], 0), "seconds=0: must be more than 0"),
    "retry NaN": (lambda queue: queue.fail_many([], "x", retry_in=NAN), "retry_in=nan: must be a finite"),
}

LOOP: list[Any] = []
LOOP.append(LOOP)

UNWRITABLE: dict[str, tuple[Any, str]] = {
    "set": ({1, 2}, "not JSON serializable"),
    "datetime": (datetime(2030, 1, 1, tzinfo=UTC), "not JSON serializable"),
    "bytes": (b"x", "not JSON serializable"),
    "NaN": ([NAN], "not JSON compliant"),
    "lone surrogate": ("\ud800", "surrogates not allowed"),
    "itself": (LOOP, "Circular reference"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_argument_out_of_bounds_is_refused_and_nothing_is_touched(queue: Queue, what: str) -> None:
    act, says = REFUSED[what]
    kept = queue.enqueue("kept", "as it was")
    with pytest.raises(ArgumentError, match=says) as refused:
        act(queue)
    assert isinstance(refused.value, ValueError)
    (job,) = queue.claim(10)
    assert (job.id, job.payload, job.attempts) == (kept, "as it was", 1)


@pytest.mark.parametrize("what", UNWRITABLE)
def test_a_payload_that_is_not_json_is_refused_before_the_database_sees_it(queue: Queue, what: str) -> None:
    payload, says = UNWRITABLE[what]
    with pytest.raises(PayloadError, match=f"payload of job kind 'report': cannot be encoded: .*{says}") as refused:
        queue.enqueue("report", payload)
    assert refused.value.kind == "report"
    with pytest.raises(PayloadError):
        queue.enqueue_many([("fine", 1), ("report", payload)])
    assert queue.claim(10) == []


def test_a_payload_over_the_limit(open_db: Callable[..., QueueDB], name: str) -> None:
    queue = open_db(max_payload=1000).queue(name)
    with pytest.raises(PayloadError, match=r"1,001 bytes encoded, 1,000 is the limit \(QueueDB\(max_payload=…\)\)"):
        queue.enqueue("k", "x" * 999)
    # Bytes count, not characters.
    with pytest.raises(PayloadError, match="1,002 bytes"):
        queue.enqueue("k", "\N{GRINNING FACE}" * 250)
    assert queue.enqueue("k", "x" * 998) is not None
    assert len(queue.claim(10)) == 1


def test_one_bad_job_of_many_leaves_none_behind_also_in_a_later_chunk(queue: Queue) -> None:
    def jobs() -> Any:
        yield from (("k", number) for number in range(1500))
        yield ("k", {1})

    with pytest.raises(PayloadError):
        queue.enqueue_many(jobs())
    with pytest.raises(ArgumentError, match="job 1: unknown options dealy; known: delay"):
        queue.enqueue_many([("k", 1), ("k", 2, {"dealy": 3})])
    with pytest.raises(ArgumentError, match=r"job 0: must be \(kind, payload\)"):
        queue.enqueue_many(["k"])  # type: ignore[list-item]
    assert queue.stats().available == 0


def test_an_id_that_is_gone(db: QueueDB, queue: Queue) -> None:
    job_id = queue.enqueue("k")
    assert job_id is not None
    queue.claim()[0].complete().require()
    for verb in (queue.get, queue.cancel, db.dead.redrive):
        with pytest.raises(JobNotFoundError, match=f"no job {job_id} in .*: it was completed, cancelled, purged, or never"):
            verb(job_id)


def test_a_foreign_object_settles_nothing(db: QueueDB, queue: Queue, name: str) -> None:
    queue.enqueue("k")
    (job,) = queue.claim()
    seen = queue.get(job.id)
    for stranger in (seen, job.id, None, "job"):
        with pytest.raises(ArgumentError, match="is not a LeasedJob: settle the objects that claim"):
            queue.complete_many([job, stranger])  # type: ignore[list-item]
    other = db.queue(f"{name}-other")
    with pytest.raises(ArgumentError, match="was claimed from .*, not from"):
        other.complete_many([job])
    assert queue.get(job.id).state is State.RUNNING
    assert job.complete()


def test_the_same_job_twice_in_one_list_is_one_job(queue: Queue) -> None:
    queue.enqueue("k")
    (job,) = queue.claim()
    assert all(queue.complete_many([job, job]))
    assert not job.complete()


def test_refusals_are_all_of_one_family() -> None:
    assert issubclass(ArgumentError, QueueDBError)
    assert issubclass(PayloadError, QueueDBError)


def test_a_wait_may_be_a_timedelta(queue: Queue) -> None:
    queue.enqueue("k", delay=timedelta(0))  # type: ignore[arg-type]
    assert isinstance(queue.claim(1, lease=timedelta(minutes=1))[0], LeasedJob)  # type: ignore[arg-type]
