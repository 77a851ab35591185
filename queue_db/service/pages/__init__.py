"""The dashboard: pages for people, rendered here, with a little script that keeps them up to date. No build step, no other host."""

from queue_db.service.pages import (
    access,
    assets,
    dead,
    feed,
    feeds,
    finished,
    groups,
    job,
    jobs,
    overview,
    queue,
    routes,
    schedules,
    strategy,
    streams,
    workers,
)

_SUBJECTS = (
    *(assets, overview, queue, jobs, job, dead, finished, groups),
    *(workers, schedules, streams, feeds, feed, routes, strategy, access),
)

#: The routers of the pages.
PAGES = tuple(one.router for one in _SUBJECTS)

__all__ = ["PAGES"]
