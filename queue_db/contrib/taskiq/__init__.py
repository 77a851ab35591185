"""Taskiq on a SQL database: a broker whose messages are jobs. ``docs/integrations/taskiq.md`` is the guide."""

from queue_db.contrib.taskiq.broker import QueueBroker
from queue_db.publishing import publishing_in

__all__ = ["QueueBroker", "publishing_in"]
