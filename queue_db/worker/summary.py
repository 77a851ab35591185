"""The counts of one run of a worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Summary:
    """The outcomes of the jobs that a worker has claimed. Each job is counted once."""

    completed: int = 0
    failed: int = 0  #: the attempt failed, and there will be another one
    snoozed: int = 0  #: by the handler; or its kind has no handler yet
    cancelled: int = 0
    #: Jobs that this worker's attempts sent to the dead table. With ``at_most_once`` no row is written: these jobs were not
    #: completed and do not come back.
    dead: int = 0
    released: int = 0  #: returned unfinished, by the handler or when the worker stopped
    lost: int = 0  #: the lease was lost, or the result could not be reported: another worker gets the job
    signal: int | None = None  #: number of the signal that stopped the worker
    stuck: int = 0  #: slots of handlers that had not returned when ``exit_when_stuck`` stopped the worker
