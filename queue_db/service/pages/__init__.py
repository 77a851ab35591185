"""The dashboard: pages for people, rendered here, with a little script that keeps them up to date. No build step, no other host."""

from queue_db.service.pages import (
    access,
    assets,
    dead,
    feeds,
    graphs,
    groups,
    jobs,
    queues,
    routes,
    schedules,
    strategy,
    workers,
)

_SUBJECTS = (
    *(assets, queues, jobs, dead, graphs, groups),
    *(workers, schedules, feeds, routes, strategy, access),
)

#: The routers of the pages.
PAGES = tuple(one.router for one in _SUBJECTS)

__all__ = ["PAGES"]
