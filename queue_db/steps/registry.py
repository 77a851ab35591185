"""``db.steps``: the steps of jobs, and the signals that jobs wait for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queue_db import arguments
from queue_db.codecs import decoded_or_text
from queue_db.core import Core, read_within
from queue_db.dialects.borrowed import Using
from queue_db.errors import JobNotFoundError
from queue_db.model import from_micros
from queue_db.slices import type_hint
from queue_db.steps import store
from queue_db.steps.records import job_of, sha256_of
from queue_db.steps.resumption import encoded
from queue_db.steps.store import Key, Phase, Record, What
from queue_db.steps.tables import NAME_LENGTH
from queue_db.store import Transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import Session
else:
    Session = type_hint("sqlalchemy.orm", "Session")

# The highest id of a job.
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Step:
    """What a job has stored, as it was when it was read."""

    what: str  #: ``step``, ``sleep``, ``signal`` or ``state``
    name: str  #: empty for the state, and for a sleep without a name
    done: bool  #: False: a loop with a cursor, a sleep that lasts, a signal that the job waits for
    value: Any  #: the result, the cursor, the payload of the signal, or the state
    changed_at: datetime
    ends_at: datetime | None  #: the end of the sleep or of the wait; None: it has none


class Steps:
    """The steps of the jobs of one database."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def list(self, job_id: int, *, using: Using | None = None) -> list[Step]:
        """The steps of a job, live or dead, in the order of their last changes; empty if it has none, or has left.

        :param using: a transaction of yours, in which they are read.
        """
        arguments.whole("job_id", job_id, 0, _HIGHEST)
        now, found = read_within(self._core, using, "list_steps", _read, job_id)
        return [self._step(key, *one, now) for key, one in found.items() if key.what is not What.CALLBACK]

    def send(self, job_id: int, signal: str, payload: Any = None, *, using: Using | None = None) -> bool:
        """Send a signal to a job: it runs again if it waits for it, and finds it if it waits later. The first one counts.

        :param payload: JSON of at most 64 KB, which ``job.wait_for(signal)`` returns.
        :param using: a transaction of yours: the signal is sent if it is committed.
        :return: False: the signal was sent before, or the job has waited for it in vain.
        :raises ArgumentError: the payload is no JSON, or too long.
        :raises JobNotFoundError: the job was completed, cancelled or purged, or never existed.
        """
        arguments.whole("job_id", job_id, 0, _HIGHEST)
        arguments.name("signal", signal, NAME_LENGTH)
        text = encoded(self._core.codec, "the payload", payload)
        if using is None:
            sent = self._core.write("steps.send", store.send, job_id, signal, text)
        else:
            with self._core.joined(using, "steps.send") as tx:
                sent = store.send(tx, job_id, signal, text)
        if sent is None:
            raise JobNotFoundError(job_id, "any queue")
        return sent

    def call_back(self, token: str, payload: Any = None) -> int | None:
        """Send the signal of ``job.callback(signal)``, once; return the id of the job.

        :return: None: the token was used, its job has left or has the signal already, or it is no token.
        :raises ArgumentError: the payload is no JSON, or too long.
        """
        job_id = job_of(token)
        text = encoded(self._core.codec, "the payload", payload)
        return None if job_id is None else self._core.write("call_back", _call_back, job_id, sha256_of(token), text)

    def _step(self, key: Key, record: Record, changed_at: int, now: int) -> Step:
        slept = key.what is What.SLEEP and record.ends_at is not None and record.ends_at <= now
        return Step(
            key.what.value,
            key.name,
            slept or record.phase is not Phase.BEGUN,
            None if record.value is None else decoded_or_text(self._core.codec, record.value),
            from_micros(changed_at),
            None if record.ends_at is None else from_micros(record.ends_at),
        )


def _read(tx: Transaction, job_id: int) -> tuple[int, dict[Key, tuple[Record, int]]]:
    return tx.read_clock(), store.of_job(tx, job_id)


def _call_back(tx: Transaction, job_id: int, sha256: str, payload: str) -> int | None:
    signal = store.signal_of(tx, job_id, sha256)
    return job_id if signal is not None and store.send(tx, job_id, signal, payload, sha256) else None
