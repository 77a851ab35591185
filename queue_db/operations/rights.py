"""Rights that a queue does not settle alone: of a job by its id, of a schedule by its name, and of all queues together."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.errors import GraphNotFoundError, JobNotFoundError, NoSuchFeedError, NoSuchStreamError
from queue_db.graphs import Graph
from queue_db.model import Job
from queue_db.operations.actor import Actor
from queue_db.schedules import Schedule


def check(actor: Actor, scope: str, queue: str | None) -> None:
    """Raise unless the actor has this scope for the queue, or for every queue if None.

    :raises ForbiddenError: they have not.
    """
    if queue is not None:
        actor.check(scope, queue)
    else:
        actor.check_all(scope)


def job(db: QueueDB, actor: Actor, scope: str, job_id: int, queue: str | None = None) -> Job:
    """The live or dead job with this id.

    :param queue: only of this queue; None: of any.
    :raises ForbiddenError: the actor has the scope for no queue.
    :raises JobNotFoundError: there is none, or the actor lacks the scope for its queue, whose name they do not get.
    """
    actor.check(scope)
    found = db.get(job_id) if queue is None else db.queue(queue).get(job_id)
    if not actor.allows(scope, found.queue):
        raise JobNotFoundError(job_id, "any queue")
    return found


def graph(db: QueueDB, actor: Actor, scope: str, graph_id: int) -> Graph:
    """The graph with this id.

    :raises ForbiddenError: the actor has the scope for no queue.
    :raises GraphNotFoundError: there is none, or the actor lacks the scope for the queue of a node.
    """
    actor.check(scope)
    found = db.graphs.get(graph_id)
    if not allows_graph(actor, scope, found):
        raise GraphNotFoundError(graph_id)
    return found


def allows_graph(actor: Actor, scope: str, graph: Graph) -> bool:
    """Whether the actor has the scope for the queues of all nodes."""
    return all(actor.allows(scope, queue) for queue in graph.queues)


def schedule(db: QueueDB, actor: Actor, scope: str, name: str) -> Schedule | None:
    """The schedule with this name; None: there is none, or the actor lacks the scope for its queue.

    :raises ForbiddenError: the actor has the scope for no queue.
    """
    actor.check(scope)
    return next((one for one in db.schedules.list() if one.name == name and actor.allows(scope, one.queue)), None)


def feed(db: QueueDB, name: str) -> None:
    """Raise unless there is a feed with this name now: most verbs create one. The names of others are for the command line alone.

    :raises NoSuchFeedError: there is none.
    """
    try:
        db.feed(name).present()
    except NoSuchFeedError as error:
        known = ", ".join(one.name for one in db.feeds.list()) or "none"
        raise NoSuchFeedError(str(error), cli=f"{error}; known: {known}") from None


def stream(db: QueueDB, actor: Actor, name: str) -> None:
    """Raise unless there is such a stream of a queue that the actor may manage: nobody else learns its name.

    :raises ForbiddenError: the actor may manage no queue.
    :raises NoSuchStreamError: there is none.
    """
    actor.check("manage")
    mine = [one.name for one in db.streams.list() if actor.allows("manage", one.queue)]
    if name not in mine:
        raise NoSuchStreamError(f"there is no stream {name!r}; known: {', '.join(mine) or 'none'}")
