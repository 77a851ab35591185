"""Hypothesis without its stopwatches: how long an example takes is the machine's business."""

from hypothesis import HealthCheck, settings

settings.register_profile("queue_db", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("queue_db")
