"""The dashboard: pages for people, rendered here, with a little script that keeps them up to date. No build step, no other host."""

from queue_db.service.pages import assets, batches, feeds, groups, log, overview, queue, schedules, streams, tokens, workers

#: The routers of the pages.
PAGES = (
    assets.router,
    overview.router,
    queue.router,
    batches.router,
    groups.router,
    workers.router,
    schedules.router,
    streams.router,
    feeds.router,
    log.router,
    tokens.router,
)

__all__ = ["PAGES"]
