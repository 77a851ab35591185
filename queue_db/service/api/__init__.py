"""The REST API, a module for each subject."""

from queue_db.service.api import queues

#: The routers, in the order of the documentation.
API = (queues.router,)

__all__ = ["API"]
