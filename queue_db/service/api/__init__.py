"""The REST API, a module for each subject."""

from queue_db.service.api import (
    batches,
    claims,
    cursors,
    dead,
    feeds,
    finished,
    groups,
    health,
    jobs,
    message_claims,
    messages,
    monitoring,
    queues,
    root,
    routes,
    schedules,
    settlements,
    settling,
    streams,
    tokens,
    workers,
)
from queue_db.service.api import event_stream as events

#: The routers, in the order of the documentation.
API = (
    queues.router,
    jobs.router,
    claims.router,
    settlements.router,
    settling.router,
    dead.router,
    schedules.router,
    workers.router,
    batches.router,
    groups.router,
    finished.router,
    streams.router,
    feeds.router,
    messages.router,
    message_claims.router,
    cursors.router,
    routes.router,
    tokens.router,
    monitoring.router,
    events.router,
)

#: Those that stand beside the API, without a prefix.
BESIDE = (root.router, health.router)

__all__ = ["API", "BESIDE"]
