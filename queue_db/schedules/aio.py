# Generated from queue_db/schedules/registry.py. Do not change it: `make aio` writes it anew.
"""Schedules for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.model import Unchanged
from queue_db.schedules.registry import CatchUp, Schedule, Schedules
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS


class AsyncSchedules(Twin[Schedules]):
    """The schedules of one database. Workers enqueue due occurrences; a program without workers calls :meth:`tick`."""

    async def set(
        self,
        name: str,
        queue: str,
        kind: str,
        payload: Any = None,
        *,
        cron: str | None = None,
        every: float | None = None,
        zone: str | Unchanged = "UTC",
        catch_up: CatchUp | Unchanged = "one",
        first_at: datetime | None = None,
        priority: int | Unchanged = 0,
        max_attempts: int | Unchanged = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | Unchanged | None = None,
    ) -> bool:
        """Create or change the schedule with this name; return whether it is new.

        What is UNCHANGED, as the payload may be too, stays as it is; a new schedule gets the default. Every process may call it at
        its start: the next occurrence changes only if the rule changes or ``first_at`` is given.

        :param cron: minute, hour, day, month, weekday, in ``zone``. An occurrence in an hour that a clock change skips comes at the
            end of this hour.
        :param every: seconds between two occurrences.
        :param catch_up: for occurrences that passed while no worker ran: ``one`` enqueues a job for the last one, ``all`` a job for
            each, and ``none`` a job for the last one only if it is at most a minute late.
        :param first_at: the first occurrence; default: the next by ``cron``, or ``every`` seconds from now.
        :raises ArgumentError: an argument is out of range; nothing was changed.
        :raises PayloadError: the payload cannot be stored; nothing was changed.
        """
        return await run(
            self._sync.set,
            name,
            queue,
            kind,
            payload,
            cron=cron,
            every=every,
            zone=zone,
            catch_up=catch_up,
            first_at=first_at,
            priority=priority,
            max_attempts=max_attempts,
            headers=headers,
        )

    async def list(self) -> list[Schedule]:
        """All schedules by name."""
        return await run(self._sync.list)

    async def pause(self, name: str) -> None:
        """Stop the schedule from enqueuing jobs until :meth:`resume`.

        :raises ArgumentError: there is no such schedule.
        """
        await run(self._sync.pause, name)

    async def resume(self, name: str) -> None:
        """Let the schedule enqueue jobs again; ``catch_up`` decides about occurrences that passed during the pause.

        :raises ArgumentError: there is no such schedule.
        """
        await run(self._sync.resume, name)

    async def run_now(self, name: str) -> int:
        """Enqueue the job of a schedule now, paused or not, and return its id; the time of the next occurrence does not change.

        The job's header ``occurrence`` has the present time.

        :raises ArgumentError: there is no such schedule.
        """
        return await run(self._sync.run_now, name)

    async def remove(self, name: str) -> bool:
        """Delete the schedule; False if there is none."""
        return await run(self._sync.remove, name)

    async def tick(self) -> tuple[int, float | None]:
        """Enqueue the due occurrences. Return the number of jobs, and the seconds until the next occurrence; None: there is none.

        Any number of processes may call it at once: the process that advances a schedule enqueues its occurrence.

        :raises ConfigurationError: this process cannot parse a rule; the occurrences of all other schedules were enqueued.
        """
        return await run(self._sync.tick)
