"""Redis queues: the at-least-once scheme with two lists, one by one and in pipelines; rq; dramatiq."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import PATIENCE, POLL_INTERVAL, ThreadContexts
from benchmarks.peers.private_redis import RedisPeer, Server
from queue_db.compare.contestant import Target, WorkerContext

_FILL = 1000

#: Threads per worker process of dramatiq: its default, 1.5 times as fast as one.
_THREADS = 8

#: The context of the worker in this thread: rq imports its jobs by module and name.
_here = threading.local()


@dataclass(frozen=True)
class RedisLists(RedisPeer):
    """``BLMOVE`` to a list per worker, ``LREM`` after the job: the list of a crashed worker has its unfinished jobs."""

    name: str = "redis BLMOVE + LREM"
    claim: str = "BLMOVE to the worker's list, head of the queue"
    removal: str = "LREM"
    index: str = "list"

    packages = ("redis",)

    def configuration(self) -> dict[str, str]:
        """Return its settings: pipelines with batches."""
        return {**super().configuration(), "client": "redis-py", "pipeline": f"{self.batch} commands" if self.batch > 1 else "no"}

    def fill(self, server: Server, jobs: int) -> None:
        """Enqueue with ``RPUSH``."""
        with server.client() as client:
            for start in range(0, jobs, _FILL):
                client.rpush("race", *range(start, min(start + _FILL, jobs)))

    def work(self, target: Target, context: WorkerContext) -> None:
        """Move and remove jobs."""
        with self.reached.client() as client:
            client.ping()
            context.wait_for_start()
            if self.batch == 1:
                self._single(client, context, f"race:{context.number}")
            else:
                self._pipelined(client, context, f"race:{context.number}")

    def _single(self, client: Any, context: WorkerContext, mine: str) -> None:
        while not context.over:
            asked = time.monotonic()
            # A short timeout: a waiting worker does not see the end of the run.
            value = client.blmove("race", mine, 0.05, src="LEFT", dest="RIGHT")
            if value is None:
                context.record_empty_claim()
                continue
            context.record_claim(asked, [int(value)])
            client.lrem(mine, 1, value)
            context.record_removal(1)

    def _pipelined(self, client: Any, context: WorkerContext, mine: str) -> None:
        while not context.over:
            asked = time.monotonic()
            with client.pipeline(transaction=False) as pipe:
                for _ in range(self.batch):
                    pipe.lmove("race", mine, "LEFT", "RIGHT")
                values = [value for value in pipe.execute() if value is not None]
            if not values:
                context.record_empty_claim()
                continue
            context.record_claim(asked, [int(value) for value in values])
            with client.pipeline(transaction=False) as pipe:
                for value in values:
                    pipe.lrem(mine, 1, value)
                context.record_removal(sum(pipe.execute()))


def job(number: int) -> None:
    """Do nothing."""
    _here.context.record_claim(_here.asked, [number])


@dataclass(frozen=True)
class RQ(RedisPeer):
    """rq's ``SimpleWorker``, which does not fork per job."""

    name: str = "rq"
    claim: str = "LMOVE to an intermediate list, head of the queue"
    removal: str = "key deleted in a transaction"
    index: str = "list"

    packages = ("rq", "redis")

    def configuration(self) -> dict[str, str]:
        """Return its settings: no results."""
        return {**super().configuration(), "worker": "SimpleWorker, in bursts", "result_ttl": "0"}

    def fill(self, server: Server, jobs: int) -> None:
        """Enqueue with ``enqueue_many``."""
        from rq import Queue

        with server.client() as client:
            queue = Queue("race", connection=client)
            for start in range(0, jobs, _FILL):
                numbers = range(start, min(start + _FILL, jobs))
                queue.enqueue_many([Queue.prepare_data(f"{__name__}.job", (number,), result_ttl=0) for number in numbers])

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run bursts until the run is over."""
        from rq import Queue, SimpleWorker
        from rq.timeouts import BaseDeathPenalty

        class NoDeathPenalty(BaseDeathPenalty):
            """Install no signal handlers: the worker may run in a thread, and empty jobs need no timeout."""

            def setup_death_penalty(self) -> None:
                pass

            def cancel_death_penalty(self) -> None:
                pass

        class Watched(SimpleWorker):
            """Records acknowledgements, and stops when the run is over."""

            death_penalty_class = NoDeathPenalty

            def _install_signal_handlers(self) -> None:
                pass

            def dequeue_job_and_maintain_ttl(self, *arguments: Any, **named: Any) -> Any:
                if context.over:
                    return None
                _here.asked = time.monotonic()
                return super().dequeue_job_and_maintain_ttl(*arguments, **named)

            def perform_job(self, *arguments: Any, **named: Any) -> bool:
                done: bool = super().perform_job(*arguments, **named)
                if done:
                    context.record_removal(1)
                return done

        logging.getLogger("rq.worker").setLevel(logging.ERROR)
        _here.context, _here.asked = context, 0.0
        with self.reached.client() as client:
            worker = Watched([Queue("race", connection=client)], connection=client)
            worker.log_job_description = False
            context.wait_for_start()
            while not context.over:
                worker.work(burst=True, logging_level="ERROR")
                time.sleep(POLL_INTERVAL)


@dataclass(frozen=True)
class Dramatiq(RedisPeer):
    """dramatiq's Redis broker, which fetches and acknowledges with Lua scripts in a separate thread."""

    name: str = "dramatiq"
    claim: str = "Lua script, a few ahead, head of the queue"
    removal: str = "Lua script, after the job"
    index: str = "list"

    packages = ("dramatiq", "redis")

    def configuration(self) -> dict[str, str]:
        """Return its settings: defaults."""
        return {
            **super().configuration(),
            "threads": f"{_THREADS} per process, by default, and one that fetches",
            "prefetch": f"{2 * _THREADS} per process, by default",
            "middleware": "its default",
        }

    def fill(self, server: Server, jobs: int) -> None:
        """Enqueue one message at a time, its only way."""
        broker, actor = self._open(server, None)
        try:
            for number in range(jobs):
                actor.send(number)
        finally:
            broker.close()

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run its worker until the run is over."""
        from dramatiq import Worker

        logging.getLogger("dramatiq").setLevel(logging.ERROR)
        crowd = ThreadContexts(context)
        broker, _ = self._open(self.reached, crowd)
        broker.client.ping()
        worker = Worker(broker, worker_threads=_THREADS, worker_timeout=100)
        context.wait_for_start()
        worker.start()
        try:
            while not context.over:
                time.sleep(POLL_INTERVAL)
        finally:
            worker.stop(timeout=int(PATIENCE * 1000))
            broker.close()
            crowd.close()

    def _open(self, server: Server, crowd: ThreadContexts | None) -> tuple[Any, Any]:
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        class Acknowledged(dramatiq.Middleware):
            """Records acknowledgements. The duration of a claim is unknown: messages are prefetched."""

            def after_ack(self, broker: Any, message: Any) -> None:
                if crowd is not None:
                    crowd.context.record_removal(1)

        broker = RedisBroker(url=server.url)
        broker.add_middleware(Acknowledged())
        ended = threading.local()

        @dramatiq.actor(actor_name="job", queue_name="race", broker=broker)
        def job(number: int) -> None:
            if crowd is not None:
                now = time.monotonic()
                crowd.context.record_claim(getattr(ended, "when", now), [number])
                ended.when = time.monotonic()

        return broker, job
