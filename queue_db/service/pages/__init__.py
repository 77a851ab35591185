"""The dashboard: pages for people, rendered here, with a little script that keeps them up to date. No build step, no other host."""

from queue_db.service.pages import assets, overview, queue

#: The routers of the pages.
PAGES = (assets.router, overview.router, queue.router)

__all__ = ["PAGES"]
