"""A job that ``pop`` returns is a :class:`Job` like any other, although its fields are made when they are used."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import pytest

from queue_db.codecs import JSONCodec
from queue_db.model import ClaimedRow, Job, State, from_micros
from queue_db.verbs.job_rows import popped

ROW = ClaimedRow(
    id=7,
    kind="mail",
    payload='{"n":1}',
    headers='{"trace":"a"}',
    priority=-1,
    available_at=1_800_000_000_000_001,
    due_at=1_700_000_000_000_001,
    version=3,
    attempts=2,
    max_attempts=25,
    unique_key="key",
    created_at=1_600_000_000_000_001,
    last_error="ValueError",
    group_key="customer",
    callback_id=9,
)

#: The same job with all its fields from the beginning.
WHOLE = Job(
    id=7,
    queue="out",
    kind="mail",
    payload={"n": 1},
    headers={"trace": "a"},
    priority=-1,
    state=State.RUNNING,
    available_at=from_micros(1_800_000_000_000_001),
    version=3,
    attempts=2,
    max_attempts=25,
    unique_key="key",
    worker="me",
    created_at=from_micros(1_600_000_000_000_001),
    last_error="ValueError",
    group="customer",
    batch=9,
)


class Counting(JSONCodec):
    decoded = 0

    def decode(self, text: str) -> Any:
        self.decoded += 1
        return super().decode(text)


@pytest.fixture
def codec() -> Counting:
    return Counting()


@pytest.fixture
def late(codec: Counting) -> Job:
    """A popped job none of whose fields has been used."""
    (job,) = popped([ROW], codec, queue="out", worker="me")
    return job


@pytest.mark.parametrize("name", [field.name for field in fields(Job)])
def test_each_field_is_made_when_it_is_used(late: Job, name: str) -> None:
    assert getattr(late, name) == getattr(WHOLE, name)
    assert getattr(late, name) is getattr(late, name)


def test_a_payload_is_decoded_once_and_only_if_it_is_used(late: Job, codec: Counting) -> None:
    assert (late.id, late.kind, late.fence, codec.decoded) == (7, "mail", "7:3", 0)
    assert late.payload is late.payload
    assert codec.decoded == 1


def pickled(job: Job) -> Any:
    return pickle.loads(pickle.dumps(job))  # noqa: S301 - what was pickled one step before


@pytest.mark.parametrize(
    "same",
    [
        lambda job: job,
        copy.copy,
        copy.deepcopy,
        replace,
        pickled,
        lambda job: Job(**asdict(job)),
    ],
    ids=["itself", "copy", "deepcopy", "replace", "pickle", "asdict"],
)
def test_it_is_a_job_like_any_other(late: Job, same: Callable[[Job], Job]) -> None:
    assert type(late) is Job
    assert same(late) == WHOLE
    assert repr(same(late)) == repr(WHOLE)


def test_it_cannot_be_changed_and_has_no_other_attributes(late: Job) -> None:
    with pytest.raises(FrozenInstanceError):
        late.kind = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="'Job' object has no attribute 'nothing'"):
        late.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(WHOLE, "_stored")


def test_a_payload_that_cannot_be_decoded_is_its_text(codec: Counting) -> None:
    (job,) = popped([ROW._replace(payload="{", headers=None)], codec, queue="out", worker="me")
    assert (job.payload, job.headers) == ("{", {})
