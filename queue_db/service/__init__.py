"""The service: REST for every language, and a dashboard for people, over one :class:`~queue_db.QueueDB`.

Only this package imports the web framework. Its endpoints are plain functions, which the framework runs in threads, over the same
verbs that a program calls; only what waits (a long poll, a live page) is asynchronous.
"""

from queue_db.service.app import service
from queue_db.service.incidents import Incident, IncidentType
from queue_db.service.settings import Settings

__all__ = ["Incident", "IncidentType", "Settings", "service"]
