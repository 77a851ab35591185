"""Typed tasks: functions whose calls become jobs, with arguments that type checkers know and that are checked at run time."""

from queue_db.tasks.registry import Tasks
from queue_db.tasks.task import Call, Enqueuing, ListTask, Task, TaskJob

__all__ = ["Call", "Enqueuing", "ListTask", "Task", "TaskJob", "Tasks"]
