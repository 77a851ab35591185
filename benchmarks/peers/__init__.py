"""Other queues as rows of ``queue-db compare``; their packages are imported only when they run."""

from __future__ import annotations

from benchmarks.peers.chancy import Chancy
from benchmarks.peers.common import Peer
from benchmarks.peers.kombu import Kombu
from benchmarks.peers.node_queues import Graphile, PgBoss
from benchmarks.peers.pgqueuer import PgQueuer
from benchmarks.peers.procrastinate import Procrastinate
from benchmarks.peers.redis_queues import RQ, Dramatiq, RedisLists
from benchmarks.peers.sqlite_queues import Huey, LiteQueue, PersistQueue
from benchmarks.peers.worker import OwnWorker

CONTESTANTS: tuple[Peer, ...] = (
    OwnWorker(),
    OwnWorker(batch=500),
    OwnWorker(
        name="worker at most once",
        claim="adaptive, DELETE for all free slots at once",
        removal="with the claim",
        mode="at_most_once",
    ),
    Procrastinate(),
    PgQueuer(batch=10),
    PgQueuer(batch=100),
    Chancy(),
    Graphile(),
    Graphile(batch=500),
    PgBoss(),
    PgBoss(batch=100),
    PersistQueue(),
    LiteQueue(),
    Huey(),
    Kombu(),
    RedisLists(),
    RedisLists(name="redis pipelined", claim="100 LMOVE in a pipeline, head of the queue", removal="LREM in a pipeline", batch=100),
    RQ(),
    Dramatiq(),
)
"""All of them, each with the batches that its own documents measure."""

__all__ = ["CONTESTANTS", "Peer"]
