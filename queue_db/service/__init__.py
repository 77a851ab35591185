"""The service: REST for every language, and a dashboard for people, over one :class:`~queue_db.QueueDB`.

Only this package imports the web framework. Its endpoints are plain functions, which the framework runs in threads, over the same
verbs that a program calls; only what waits (a long poll, a live page) is asynchronous.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue_db.service.app import service
    from queue_db.service.live.incidents import Incident, IncidentType
    from queue_db.service.settings import Settings

# Imported when they are first used: the command ``queue-db serve`` stands in this package, and its help needs no web framework.
_MODULES = {"Incident": "live.incidents", "IncidentType": "live.incidents", "Settings": "settings", "service": "app"}

__all__ = ["Incident", "IncidentType", "Settings", "service"]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
