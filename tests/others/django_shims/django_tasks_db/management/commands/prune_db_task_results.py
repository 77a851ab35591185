"""A name that the suite imports; its tests do not run: the queue forgets results by their result_ttl."""

import logging

logger = logging.getLogger("django_tasks_db.prune")
