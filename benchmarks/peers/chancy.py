"""chancy: SELECT … FOR UPDATE SKIP LOCKED up to its concurrency, psycopg 3, asyncio; completions are written periodically."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import PATIENCE, PostgreSQLPeer, analyze, fresh_schema, libpq_address, take_over_work, until_over
from queue_db.compare.contestant import Target, WorkerContext

#: Interval between two writes of finished jobs, seconds; the default of 1 is longer than a short run.
_WRITE_EVERY = 0.05

#: The context of the worker in this thread: chancy imports its jobs by module and name.
_here = threading.local()


async def job(number: int) -> None:
    """Do nothing."""
    _here.context.record_claim(_here.asked, [number])
    if _here.seconds:
        await asyncio.sleep(_here.seconds)


@dataclass(frozen=True)
class Chancy(PostgreSQLPeer):
    """chancy with its asynchronous executor and eager polling."""

    name: str = "chancy"
    claim: str = "FOR UPDATE SKIP LOCKED, head of the queue"
    removal: str = "UPDATE, one for each job, in transactions of up to 1000"
    index: str = "(queue, priority DESC, scheduled_at, id), where pending or to retry"
    batch: int = 100

    packages = ("chancy", "psycopg", "psycopg_pool")

    def configuration(self) -> dict[str, str]:
        """Return its settings: without plugins (leadership, pruning, recovery, metrics, workflows)."""
        return {
            "driver": "psycopg 3, asyncio",
            "executor": "AsyncExecutor",
            "concurrency": f"{self.batch} per process",
            "eager_polling": "yes",
            "send_outgoing_interval": f"{_WRITE_EVERY:g} s",
            "plugins": "none",
        }

    def set_up(self, target: Target, jobs: int) -> None:
        """Run its migrations, create a queue, and enqueue with ``push_many``."""
        fresh_schema(target)
        asyncio.run(self._fill(target, jobs))
        analyze(target)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run its worker until the run is over."""
        asyncio.run(self._work(target, context))

    async def _fill(self, target: Target, jobs: int) -> None:
        import chancy

        async with _app(target, []) as app:
            await app.migrate()
            await app.declare(
                # Without a queue of this name its workers create one with a pool of processes.
                chancy.Queue(
                    "default",
                    concurrency=self.batch,
                    executor=chancy.Chancy.Executor.Async,
                    polling_interval=1,
                    eager_polling=True,
                )
            )
            wanted = [chancy.Job(func=f"{__name__}.job", kwargs={"number": number}, max_attempts=3) for number in range(jobs)]
            async for _ in app.push_many(wanted):
                pass

    async def _work(self, target: Target, context: WorkerContext) -> None:
        from chancy import Worker
        from chancy.plugin import Plugin

        _here.context, _here.asked, _here.seconds = context, 0.0, take_over_work(context)

        class Watched(Worker):
            """Records when jobs are requested."""

            gone_off = False

            async def fetch_jobs(self, queue: Any, *arguments: Any, **named: Any) -> Any:
                if not self.gone_off:
                    context.wait_for_start()
                    self.gone_off = True
                _here.asked = time.monotonic()
                return await super().fetch_jobs(queue, *arguments, **named)

        class Acknowledged(Plugin):
            """Records when a job's completion has been committed."""

            @staticmethod
            def get_identifier() -> str:
                return "queue_db.acknowledged"

            async def on_job_updated(self, *, worker: Any, job: Any) -> None:
                context.record_removal(1)

        async with _app(target, [Acknowledged()]) as app:
            worker = Watched(app, register_signal_handlers=False, shutdown_timeout=10)
            worker.send_outgoing_interval = _WRITE_EVERY
            await worker.start()
            running = asyncio.create_task(worker.wait_for_shutdown())
            stopping: list[asyncio.Task[Any]] = []
            try:
                # Stopping writes the remaining completions; a second call does nothing.
                await until_over(context, running, lambda: stopping.append(asyncio.create_task(worker.stop())))
            finally:
                await asyncio.wait_for(worker.stop(), PATIENCE)


def _app(target: Target, plugins: list[Any]) -> Any:
    import chancy

    log = logging.getLogger("chancy")
    log.setLevel(logging.ERROR)
    return chancy.Chancy(
        libpq_address(target),
        plugins=plugins,
        no_default_plugins=True,
        min_connection_pool_size=1,
        max_connection_pool_size=3,
        notifications=False,
        log=log,
    )
