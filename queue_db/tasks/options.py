"""The options of tasks and of their enqueues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from queue_db import arguments
from queue_db.backoff import Backoff
from queue_db.dialects.borrowed import AsyncUsing, Using
from queue_db.errors import ArgumentError
from queue_db.model import OnDuplicate
from queue_db.store.schema import KEY_LENGTH, QUEUE_LENGTH

if TYPE_CHECKING:
    from queue_db.worker.handlers import RetryPolicy

    Joined = Using | AsyncUsing


class HandlerOptions(TypedDict, total=False):
    """The options of a task that :meth:`queue_db.worker.Worker.handles` takes. They are passed to it as they are."""

    max_attempts: int | None
    backoff: Backoff | None
    retry: RetryPolicy | None
    timeout: float | None
    result_ttl: float | None
    executor: Literal["thread", "process"]


class EnqueueOptions(TypedDict, total=False):
    """The options of one enqueue, named as those of :meth:`queue_db.Queue.enqueue`."""

    queue: str
    delay: float
    run_at: datetime | None
    priority: int
    unique_key: str | None
    unique_for: float | None
    group: str | None
    headers: Mapping[str, Any] | None
    connection: Joined | None


#: The options of :class:`EnqueueOptions` that belong to a whole call of ``many``, and not to one of its jobs.
OF_ALL = frozenset({"queue", "connection", "on_duplicate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a task's enqueues use, unless ``using`` says something else."""

    queue: str
    on_duplicate: OnDuplicate
    unique: Callable[..., str] | None
    unique_for: float | None
    group: Callable[..., str | None] | str | None
    priority: int
    delay: float

    def __post_init__(self) -> None:
        arguments.name("queue", self.queue, QUEUE_LENGTH)
        arguments.whole("priority", self.priority, -(2**31))
        arguments.seconds("delay", self.delay)
        if isinstance(self.group, str):
            arguments.name("group", self.group, KEY_LENGTH)
        if self.unique_for is not None:
            arguments.seconds("unique_for", self.unique_for, zero=False)
            if self.unique is None:
                raise ArgumentError(argument="unique_for", problem=" is the time for which a unique key stays taken: give unique=")


def known(what: str, options: Mapping[str, object], *kinds: type) -> None:
    """Check the names of options.

    :param kinds: the TypedDicts that have them.
    :raises ArgumentError: there is no such option; the message names all.
    """
    names = [name for kind in kinds for name in kind.__annotations__]
    if unknown := options.keys() - set(names):
        raise ArgumentError(f"{', '.join(sorted(unknown))}: no option of {what}; they are {', '.join(names)}")
