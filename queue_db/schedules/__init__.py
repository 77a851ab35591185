"""Schedules: jobs that are enqueued by cron lines or at intervals."""

from queue_db.schedules.registry import CatchUp, Schedule, Schedules, check_rule

__all__ = ["CatchUp", "Schedule", "Schedules", "check_rule"]
