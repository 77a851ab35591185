"""What a handler may return. Returning nothing completes the job; an exception fails it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snooze:
    """Come back later; this does not count as an attempt."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Count this attempt as failed and try again, after ``seconds`` or after the usual backoff."""

    reason: str = "the handler asked for a retry"
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """The work is no longer wanted: take the job out of the queue."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Dead:
    """Send the job to the dead table: a retry would not help."""

    reason: str = "the handler gave the job up"


Outcome = Snooze | Retry | Cancel | Dead | None
