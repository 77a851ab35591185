"""Steps: what a handler has done is stored, so that a job that runs again goes on where it was."""

from queue_db.steps.registry import Step, Steps

__all__ = ["Step", "Steps"]
