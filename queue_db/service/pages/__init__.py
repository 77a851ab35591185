"""The dashboard: pages for people, rendered here, with a little script that keeps them up to date. No build step, no other host."""

from queue_db.service.pages import (
    assets,
    batches,
    dead,
    failures,
    feed,
    feeds,
    finished,
    groups,
    job,
    jobs,
    log,
    overview,
    queue,
    routes,
    schedules,
    strategy,
    streams,
    tokens,
    workers,
)

#: The routers of the pages.
PAGES = (
    assets.router,
    overview.router,
    queue.router,
    jobs.router,
    job.router,
    failures.router,
    dead.router,
    finished.router,
    batches.router,
    groups.router,
    workers.router,
    schedules.router,
    streams.router,
    feeds.router,
    feed.router,
    routes.router,
    strategy.router,
    log.router,
    tokens.router,
)

__all__ = ["PAGES"]
