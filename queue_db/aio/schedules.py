# Generated from queue_db/schedules.py. Do not change it: `make aio` writes it anew.
"""Schedules for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.model import CatchUp
from queue_db.schedules import Schedule, Schedules
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS


class AsyncSchedules(Twin[Schedules]):
    """The schedules of one database. Workers enqueue due occurrences; :meth:`tick` does it by hand."""

    async def set(
        self,
        name: str,
        queue: str,
        kind: str,
        payload: Any = None,
        *,
        cron: str | None = None,
        every: float | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        first_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | None = None,
    ) -> bool:
        """Create or change the schedule with this name; return whether it is new.

        Every process may call it at its start: if the rule stays the same, so does the next occurrence.

        :param cron: minute, hour, day, month, weekday, in ``zone``; an occurrence in an hour that a clock change skips comes at its
            end.
        :param every: seconds between two occurrences.
        :param catch_up: for occurrences while no worker ran: enqueue ``one`` job for the last of them, ``all``, or ``none``
            that is more than a minute late.
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
        """Enqueue nothing by this schedule until :meth:`resume`.

        :raises ArgumentError: there is no such schedule.
        """
        await run(self._sync.pause, name)

    async def resume(self, name: str) -> None:
        """Enqueue again; occurrences that passed meanwhile are handled by ``catch_up``.

        :raises ArgumentError: there is no such schedule.
        """
        await run(self._sync.resume, name)

    async def run_now(self, name: str) -> int:
        """Enqueue the job of a schedule now, paused or not, and return its id; the next occurrence stays when it is.

        The job's header ``occurrence`` has the present time.

        :raises ArgumentError: there is no such schedule.
        """
        return await run(self._sync.run_now, name)

    async def remove(self, name: str) -> bool:
        """Delete the schedule; False if there is none."""
        return await run(self._sync.remove, name)

    async def tick(self) -> tuple[int, float | None]:
        """Enqueue the due occurrences; return how many jobs, and the seconds until the next of any schedule (None: there is none).

        Any number of processes may call it at once: the one that advances a schedule enqueues the occurrence.

        :raises ConfigurationError: a rule cannot be parsed here; the other schedules were handled.
        """
        return await run(self._sync.tick)
