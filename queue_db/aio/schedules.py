"""``db.schedules``: jobs that are enqueued again and again, by cron lines or at intervals; each slot once, however many ask."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queue_db.aio.running import run
from queue_db.schedules import Schedule, Schedules
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS


class AsyncSchedules:
    """The schedules of one database. Workers enqueue what is due; :meth:`tick` does it by hand."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

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
        catch_up: str = "one",
        first_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | None = None,
    ) -> bool:
        """Make the schedule of that name, or change it; return whether it is new.

        Every process may say this when it starts: a schedule whose rule stays the same keeps its next slot.

        :param cron: minute, hour, day, month, weekday, in ``zone``; what falls into the hour that a change of the clock leaves out
            happens at its end.
        :param every: seconds between two slots.
        :param catch_up: what to do about slots that passed while nobody looked: enqueue ``one`` job for the last of them, ``all``,
            or ``none`` of those that are more than a minute late.
        :param first_at: the first slot; default: the next by ``cron``, or now and ``every``.
        :raises ArgumentError, PayloadError: nothing was changed.
        """
        return await run(
            self._schedules.set,
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
        return await run(self._schedules.list)

    async def pause(self, name: str) -> None:
        """Enqueue nothing of it until :meth:`resume`.

        :raises ArgumentError: there is no such schedule.
        """
        await run(self._schedules.pause, name)

    async def resume(self, name: str) -> None:
        """Go on; what passed meanwhile is caught up with as the schedule says.

        :raises ArgumentError: there is no such schedule.
        """
        await run(self._schedules.resume, name)

    async def remove(self, name: str) -> bool:
        """Delete it; False if it was not there."""
        return await run(self._schedules.remove, name)

    async def tick(self) -> tuple[int, float | None]:
        """Enqueue what is due; return how many jobs, and seconds until the next slot of any schedule (None: there is none).

        Any number of processes may do this at once: the one that moves a schedule on enqueues the slot.

        :raises ConfigurationError: a rule cannot be read here; the others have been carried out.
        """
        return await run(self._schedules.tick)
