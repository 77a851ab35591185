"""A prefix for topics, routes, feeds and queues, which are deleted after the test."""

from queue_db.testing.suite.routes import routed

__all__ = ["routed"]
