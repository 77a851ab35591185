"""What a stranger with the token of a callback does."""

from __future__ import annotations

from typing import Any

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry
from queue_db.steps.records import job_of


def call_back(db: QueueDB, actor: Actor, token: str, payload: Any) -> int | None:
    """Send the signal of a callback, once.

    :return: the id of its job; None: the token was used, its job has left, or it is no token.
    """
    job_id = job_of(token)
    with entry(db, actor, "call_back", f"job {job_id}", of="steps.call_back", number=lambda found: 0 if found is None else None):
        return db.steps.call_back(token, payload)
