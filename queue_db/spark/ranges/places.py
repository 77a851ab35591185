"""Where the jobs of a state are, and which columns they have there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, String, Table, Text, and_, case, cast, literal, null, or_

from queue_db.model import State
from queue_db.store.base import Store
from queue_db.store.schema import BLOCKED, NEVER


class Place(StrEnum):
    """A table with jobs."""

    LIVE = "live"
    DEAD = "dead"
    COMPLETED = "completed"


#: The states of live jobs.
LIVE = (State.AVAILABLE, State.SCHEDULED, State.RUNNING, State.BLOCKED)

#: The states that can be read.
READABLE = (*LIVE, State.DEAD, State.COMPLETED)

_TYPES: Mapping[str, Any] = {name: Text() for name in ("headers", "last_error", "result", "unique_key", "group_key")}


def places_of(states: Collection[State]) -> list[Place]:
    """Where the jobs of these states are."""
    found = [Place.LIVE] if set(LIVE) & set(states) else []
    return found + [Place(state) for state in (State.DEAD, State.COMPLETED) if state in states]


@dataclass(frozen=True, slots=True)
class View:
    """Jobs of one place.

    :param states: only these; empty: all jobs of the place, also those that a stream holds.
    :param now: the time at which states are judged, microseconds since 1970.
    """

    place: Place = Place.LIVE
    states: tuple[State, ...] = ()
    now: int = 0

    def table(self, store: Store) -> Table:
        """The table of the place."""
        tables = store.tables
        return {Place.LIVE: tables.jobs, Place.DEAD: tables.dead, Place.COMPLETED: tables.finished}[self.place]

    def column(self, table: Table, name: str) -> ColumnElement[Any]:
        """A column of the table, or what jobs here have in its place."""
        if name == "state":
            return self._state(table)
        if name == "ended_at" and self.place is not Place.LIVE:
            return table.c["died_at" if self.place is Place.DEAD else "finished_at"]
        return table.c[name] if name in table.c else cast(null(), _TYPES.get(name, BigInteger()))

    def conditions(self, table: Table) -> list[ColumnElement[bool]]:
        """What the rows of this view have in common."""
        if self.place is not Place.LIVE:
            return []
        live = [table.c.delete_mark == 0]
        if self.states:
            # A job that a stream holds is in none of the states.
            live.append(table.c.available_at != NEVER)
            asked = [condition for state, condition in self._conditions(table).items() if state in self.states]
            if len(asked) < len(LIVE):
                live.append(or_(*asked))
        return live

    def _state(self, table: Table) -> ColumnElement[str]:
        if self.place is not Place.LIVE:
            return literal(str(self.place), String)
        known = [(condition, literal(str(state), String)) for state, condition in self._conditions(table).items()]
        return case(*known, else_=literal(str(State.RUNNING), String))

    def _conditions(self, table: Table) -> dict[State, ColumnElement[bool]]:
        at, later = table.c.available_at, table.c.available_at > self.now
        return {
            State.AVAILABLE: at <= self.now,
            State.BLOCKED: at == BLOCKED,
            State.SCHEDULED: and_(later, at < NEVER, table.c.claim_token.is_(None)),
            State.RUNNING: and_(later, at < NEVER, table.c.claim_token.is_not(None)),
        }
