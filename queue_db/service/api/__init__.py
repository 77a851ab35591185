"""The REST API, a module for each subject."""

from queue_db.service.api import (
    claims,
    cursors,
    dead,
    fairness,
    feeds,
    finished,
    graphs,
    groups,
    health,
    jobs,
    message_claims,
    messages,
    monitoring,
    queues,
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
    *(one.router for one in (queues, fairness, jobs, claims, settlements, settling, dead, schedules, workers)),
    groups.batches,
    *(one.router for one in (groups, graphs, finished, streams, feeds, messages, message_claims, cursors, routes)),
    *(one.router for one in (tokens, monitoring, events)),
)

#: Those that stand beside the API, without a prefix.
BESIDE = (health.router,)

__all__ = ["API", "BESIDE"]
