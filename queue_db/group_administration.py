"""What people and programs do with the groups of a queue."""

from __future__ import annotations

from collections.abc import Mapping

from queue_db.core import Core
from queue_db.model import UNCHANGED, GroupLimit, Unchanged
from queue_db.slices import load


class GroupAdministration:
    """The part of a :class:`~queue_db.Queue` that controls its groups."""

    core: Core
    name: str

    def fair(self, enabled: bool = True, *, weights: Mapping[str, int] | None = None) -> None:
        """Let claims take turns among the groups that have due jobs: each group has one job in a turn, or as many as its weight.

        The jobs of a group in a fair queue do not wait for each other; a group is a tenant, a customer or a host. Priorities come
        first, and groups take turns within a priority. Claims of all kinds obey, other processes within a second. Jobs without a
        group are taken when no other is due, and by one claim in 64.

        :param enabled: False: the queue is as any other again, after two seconds, in which processes learn it. Its jobs that wait
            stay due; groups order those that are added.
        :param weights: the weights of some groups, 1 to 1,000; those of other groups stay. 1 is the weight of all others.
        :raises ArgumentError: an argument is out of range.
        """
        load("fairness.verbs", "set_fair")(self.core, self.name, enabled, weights)

    def limit_groups(
        self,
        *,
        group: str | None = None,
        prefix: str | None = None,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate: int | Unchanged | None = UNCHANGED,
        per: float | Unchanged | None = UNCHANGED,
    ) -> None:
        """Change limits of the groups of a fair queue, over all workers. A limit that is not given stays; None removes it.

        Without ``group`` and ``prefix`` it is the limit of each group that has none of its own. All claims obey, in other processes
        within a second. No job is above a limit while its lease lasts.

        :param group: limit this group.
        :param prefix: a limit that all groups share whose names begin so, beside those of the groups.
        :param concurrency: the most jobs that run at once.
        :param rate: the most jobs that start in ``per`` seconds. After an idle time ``rate`` jobs may start at once.
        :param per: the seconds of ``rate``; None: one second.
        :raises ArgumentError: the queue is not fair, no limit is given, or an argument is out of range.
        """
        limit = load("fairness.verbs", "limit_groups")
        limit(self.core, self.name, group=group, prefix=prefix, concurrency=concurrency, rate=rate, per=per)

    def group_limits(self) -> list[GroupLimit]:
        """The weights and limits of groups that :meth:`fair` and :meth:`limit_groups` have set."""
        found: list[GroupLimit] = load("fairness.verbs", "group_limits")(self.core, self.name)
        return found

    def repair_groups(self) -> int:
        """Unblock the groups of this queue whose next job waits for no other job; return the number of groups.

        A group gets into this state when one of its jobs is deleted by hand. Workers call this method once a minute.
        """
        return self.core.groups.repair(self.name)
