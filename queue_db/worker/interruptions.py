"""Attempts that the end of a worker interrupts do not count, up to a number for each job: a job that outlasts every stop must die.

The number of interruptions is in the header ``interruptions`` of the job. It is written with the release, so no statement is added.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from queue_db.codecs import JSONCodec
from queue_db.errors import HandlerProcessError
from queue_db.leased_job import LeasedJob, row_of
from queue_db.model import INTERRUPTIONS_HEADER, Verdict
from queue_db.outcomes import Retry
from queue_db.queue import Queue
from queue_db.verbs.fenced_change import FencedChange
from queue_db.verbs.settle import INTERRUPT
from queue_db.worker.logs import about

log = logging.getLogger("queue_db.worker")

#: After so many interruptions of a job, interrupted attempts count.
INTERRUPTIONS = 5

_CODEC = JSONCodec()

_STOPS = {signal.SIGTERM, signal.SIGINT, *(getattr(signal, name) for name in ("SIGHUP", "SIGKILL") if hasattr(signal, name))}


@dataclass(frozen=True, slots=True)
class Killed(Retry):
    """The outcome of a program that a signal has killed: while the worker stops, this is an interruption."""


class Interrupted(NamedTuple):
    """The outcome of an attempt that the end of its worker has interrupted."""

    outcome: object
    #: After so many interruptions of the job, its attempt counts.
    most: int


#: The types of outcomes that :func:`may_be` interruptions.
MAYBE_INTERRUPTED = (asyncio.CancelledError, Killed, HandlerProcessError)

#: Seconds after the death of a program in which the signal that stops the worker must come, if it was for both.
STOP_FOLLOWS = 2.0


def may_be(outcome: object) -> bool:
    """Whether the stop of the worker may be the cause of this outcome."""
    return isinstance(outcome, MAYBE_INTERRUPTED) and getattr(outcome, "killed", True)


def is_stopped(status: int | None) -> bool:
    """Whether this exit status, negative or as a shell shows it, is that of a program that a signal for its end has ended."""
    return status is not None and (-status in _STOPS or status - 128 in _STOPS)


def interrupt(queue: Queue, jobs: Sequence[LeasedJob], most: int) -> list[Verdict]:
    """Release jobs of this queue whose attempts are interrupted; log those whose attempts count.

    :param most: after so many interruptions of a job, its attempt counts.
    """
    headers: dict[int, str] = {}
    for job in sorted(jobs, key=lambda job: job.version):  # of two leases of one job the later one counts
        if (text := _with_one_more(job, most)) is not None:
            headers[job.id] = text
    verdicts = FencedChange(queue.core, queue, INTERRUPT, jobs).settle(headers, queue.name)
    for job, verdict in zip(jobs, verdicts, strict=True):
        if verdict and job.id not in headers:
            message = "%r: the end of the worker has interrupted the job more than %d times, so this attempt counts"
            log.warning(message, job, most, extra=about(job, "released"))
    return verdicts


def _with_one_more(job: LeasedJob, most: int) -> str | None:
    """The headers of the job with one interruption more; None: too many, or no headers that can be changed."""
    headers = job.headers
    if not headers and row_of(job).headers not in {None, "", "{}"}:
        return None  # not a JSON object
    number = headers.get(INTERRUPTIONS_HEADER, 0)
    if not isinstance(number, int) or number >= most:
        return None
    return _CODEC.encode({**headers, INTERRUPTIONS_HEADER: number + 1})
