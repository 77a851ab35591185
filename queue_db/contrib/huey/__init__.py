"""Huey on a SQL database: ``QueueHuey`` keeps tasks as jobs. ``docs/integrations/huey.md`` is the guide."""

from queue_db.contrib.huey.storage import QueueHuey, QueueStorage
from queue_db.publishing import publishing_in

__all__ = ["QueueHuey", "QueueStorage", "publishing_in"]
