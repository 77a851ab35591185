"""Every database × strategy × removal: the statements that each needs at most, and the order that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queue_db import Adaptive, Optimistic, Pessimistic, QueueDB, SkipLocked, Strategy
from queue_db.testing.suite import Statements
from tests.databases import KINDS

STRATEGIES: dict[str, Any] = {
    "adaptive": Adaptive,
    "optimistic_head": lambda: Optimistic(pick="head"),
    "optimistic_slot": Optimistic,
    "optimistic_slice": lambda: Optimistic(pick="slice"),
    "skip_locked": SkipLocked,
    "pessimistic": Pessimistic,
}

#: How many jobs a claim of one job may pass over without a race. A strategy that is not here takes the head.
DISPLACEMENT = dict.fromkeys(("optimistic_slot", "optimistic_slice"), 9)  # a window of ten

REMOVALS = ("delete", "lock_then_delete", "delete_mark")

#: Strategies that a database refuses: (database, strategy) → the capability that it lacks.
LACKING = {("sqlite", "skip_locked"): "SKIP LOCKED"}

#: Statements of a claim, of the completion of one job, and of several, at most.
COSTS: dict[str, dict[str, Statements]] = {
    "sqlite": {
        "delete": Statements(1, 1, 1),
        "lock_then_delete": Statements(1, 2, 2),
        "delete_mark": Statements(1, 1, 1),
    },
    "postgresql": {
        "delete": Statements(1, 1, 1),
        "lock_then_delete": Statements(1, 2, 2),
        "delete_mark": Statements(1, 1, 1),
    },
    "mysql": {
        "delete": Statements(3, 1, 2),
        "lock_then_delete": Statements(3, 2, 3),
        "delete_mark": Statements(3, 1, 2),
    },
    "mariadb": {
        "delete": Statements(3, 1, 1),
        "lock_then_delete": Statements(3, 2, 2),
        "delete_mark": Statements(3, 1, 2),
    },
}


# Before this version MariaDB's DELETE takes no index hint, so several jobs are completed as on MySQL.
_HINTS_IN_DELETE = (11, 8)


@dataclass(frozen=True)
class Combination:
    """One cell of the grid."""

    kind: str
    strategy: str
    removal: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.strategy}-{self.removal}"

    @property
    def lacks(self) -> str | None:
        """The missing capability for which it is refused."""
        return LACKING.get((self.kind, self.strategy))

    def costs(self, db: QueueDB) -> Statements:
        """The most statements that its verbs need on this server."""
        version = db.database.engine.dialect.server_version_info or ()
        kind = "mysql" if self.kind == "mariadb" and version < _HINTS_IN_DELETE else self.kind
        return COSTS[kind][self.removal]

    @property
    def displacement(self) -> int:
        return DISPLACEMENT.get(self.strategy, 0)

    def new_strategy(self) -> Strategy:
        made: Strategy = STRATEGIES[self.strategy]()
        return made


GRID = [Combination(kind, strategy, removal) for kind in KINDS for strategy in STRATEGIES for removal in REMOVALS]
SERVED = [combination for combination in GRID if combination.lacks is None]
REFUSED = [combination for combination in GRID if combination.lacks is not None]
