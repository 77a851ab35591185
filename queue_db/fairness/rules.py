"""What people have set for the groups of one queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What a rule is for: each group, one group, or all groups together whose names begin alike.
EACH, GROUP, PREFIX = "each", "group", "prefix"

#: The scope of the row whose name is the group at which the first claim of a process has ended.
TURN = "turn"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of each group, of one group, or of all groups with a prefix together."""

    concurrency: int | None = None  #: most jobs that run at once
    rate: int | None = None  #: most jobs that begin …
    per: int | None = None  #: … in this time, microseconds

    @property
    def forbids(self) -> bool:
        """Whether it limits anything."""
        return self.concurrency is not None or self.rate is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """The weights and limits of the groups of one queue."""

    #: Jobs in a turn of a group; one for a group that is missing.
    weights: Mapping[str, int] = field(default_factory=dict)
    #: The limit of each group that has none of its own.
    each: Limit = Limit()
    #: The limits of single groups.
    groups: Mapping[str, Limit] = field(default_factory=dict)
    #: The limits that all groups share whose names begin with the prefix.
    prefixes: Mapping[str, Limit] = field(default_factory=dict)

    @property
    def limited(self) -> bool:
        """Whether a group has a limit."""
        return self.each.forbids or any(one.forbids for one in self.groups.values()) or bool(self.prefixes)

    def of(self, group: str) -> list[tuple[tuple[str, str], Limit]]:
        """The limits of a group, each by its scope and name."""
        found = [((PREFIX, prefix), limit) for prefix, limit in self.prefixes.items() if group.startswith(prefix)]
        own = self.of_group(group)
        return [*found, ((GROUP, group), own)] if own.forbids else found

    def of_group(self, group: str) -> Limit:
        """The limit of a group, without those of its prefixes."""
        own, each = self.groups.get(group), self.each
        if own is None:
            return each
        # What is not set for the group is as for each.
        rated = own if own.rate is not None else each
        return Limit(each.concurrency if own.concurrency is None else own.concurrency, rated.rate, rated.per)
