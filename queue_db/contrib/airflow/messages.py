"""Feeds behind Airflow's ``MessageQueueTrigger(scheme="queue-db", …)``."""

from __future__ import annotations

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from queue_db.contrib.airflow.triggers import FeedTrigger


class FeedProvider(BaseMessageQueueProvider):
    """``MessageQueueTrigger(scheme="queue-db", feed=…, cursor=…)`` is a :class:`FeedTrigger`, with the same arguments."""

    scheme = "queue-db"

    def trigger_class(self) -> type[FeedTrigger]:
        return FeedTrigger
