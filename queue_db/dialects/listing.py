"""What a dialect does for lists of jobs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Table


class Listing:
    """Reads of lists, where the planner needs help."""

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        """The rows of the group ``key`` with ids above ``above``, by id, as the planner reads them from the index of groups."""
        return rows.where(jobs.c.group_key == key, jobs.c.id > above).order_by(jobs.c.id)
