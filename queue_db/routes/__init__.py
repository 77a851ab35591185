"""Routes: where messages go by the topic that they are published to. ``db.topic(name)`` publishes, ``db.routes`` has the rules."""

from queue_db.routes.definition import Definition
from queue_db.routes.plan import Dry, Step
from queue_db.routes.registry import RouteInfo, Routes
from queue_db.routes.topic import Topic

__all__ = ["Definition", "Dry", "RouteInfo", "Routes", "Step", "Topic"]
