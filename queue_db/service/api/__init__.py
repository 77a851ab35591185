"""The REST API, a module for each subject."""

from queue_db.service.api import cursors, events, feeds, health, message_claims, messages, queues, routes

#: The routers, in the order of the documentation.
API = (
    queues.router,
    feeds.router,
    messages.router,
    message_claims.router,
    cursors.router,
    routes.router,
    events.router,
)

#: Those that stand beside the API, without a prefix.
HEALTH = health.router

__all__ = ["API", "HEALTH"]
