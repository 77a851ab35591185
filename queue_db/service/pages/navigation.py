"""The places of the dashboard, in the order of its menu."""

from __future__ import annotations

from dataclasses import dataclass

from queue_db.operations.actor import Actor


@dataclass(frozen=True, slots=True)
class Place:
    """A page in the menu; it is shown once its route exists."""

    title: str
    route: str
    #: ``g`` and then this key leads there.
    key: str
    #: It needs this scope for all queues.
    scope: str | None = None


#: Groups of the menu.
MENU: tuple[tuple[str, tuple[Place, ...]], ...] = (
    (
        "Jobs",
        (
            Place("Overview", "overview", "o"),
            Place("Jobs", "jobs", "j"),
            Place("Failures", "failures", "f"),
            Place("Dead", "dead", "d"),
            Place("Finished", "finished", "i"),
            Place("Batches", "batches", "b"),
            Place("Groups", "groups", "r"),
        ),
    ),
    (
        "Running",
        (
            Place("Workers", "workers", "w"),
            Place("Schedules", "schedules", "s"),
            Place("Streams", "streams", "p"),
            Place("Feeds", "feeds", "e"),
            Place("Routes", "routes", "u"),
        ),
    ),
    (
        "Service",
        (
            Place("Strategy", "strategy", "y"),
            Place("Actions", "actions", "a", "read"),
            Place("Tokens", "tokens", "t", "manage"),
        ),
    ),
)


def closed_to(who: Actor) -> set[str]:
    """The routes of the menu that are refused to somebody."""
    places = [place for _, some in MENU for place in some]
    return {place.route for place in places if place.scope is not None and not who.allows_all(place.scope)}
