"""pgqueuer: SELECT … FOR UPDATE SKIP LOCKED in batches, asyncpg, acknowledged in batches."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import PostgreSQLPeer, analyze, fresh_schema, plain_address, take_over_work, until_over
from queue_db.compare.contestant import Target, WorkerContext

_FILL = 5000


@dataclass(frozen=True)
class PgQueuer(PostgreSQLPeer):
    """pgqueuer configured like its own ``tools/benchmark.py``: one consumer with its own connection per worker process."""

    name: str = "pgqueuer"
    claim: str = "FOR UPDATE SKIP LOCKED, head of the queue"
    removal: str = "DELETE and a line in its log, in batches"
    index: str = "(priority, id), where queued"
    batch: int = 10

    packages = ("pgqueuer", "asyncpg")

    def configuration(self) -> dict[str, str]:
        """Return its settings."""
        return {
            "driver": "asyncpg" + (", uvloop" if _uvloop() else ""),
            "batch_size": str(self.batch),
            "consumers": "1 per process, no limit of concurrent jobs",
            "log_aggregation_interval": "0 (on demand)",
            "durability": "durable (its default: all tables logged)",
        }

    def set_up(self, target: Target, jobs: int) -> None:
        """Create its schema and enqueue lists."""
        fresh_schema(target)
        _run(self._fill(target, jobs))
        analyze(target)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run ``PgQueuer.run`` until the run is over."""
        _run(self._work(target, context))

    async def _fill(self, target: Target, jobs: int) -> None:
        from pgqueuer.queries import Queries

        connection = await _connect(target)
        try:
            queries = Queries.from_asyncpg_connection(connection)
            await queries.install()
            for start in range(0, jobs, _FILL):
                numbers = range(start, min(start + _FILL, jobs))
                await queries.enqueue(["job"] * len(numbers), [str(number).encode() for number in numbers], [0] * len(numbers))
        finally:
            await connection.close(timeout=10.0)

    async def _work(self, target: Target, context: WorkerContext) -> None:
        from datetime import timedelta

        from pgqueuer import PgQueuer as Consumer
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        logging.getLogger("pgqueuer").setLevel(logging.ERROR)
        asked, seconds = 0.0, take_over_work(context)

        class Watched(Queries):
            """Records when jobs are requested and acknowledged."""

            gone_off = False

            async def dequeue(self, *arguments: Any, **named: Any) -> Any:
                nonlocal asked
                if not self.gone_off:
                    context.wait_for_start()
                    self.gone_off = True
                asked = time.monotonic()
                return await super().dequeue(*arguments, **named)

            async def log_jobs(self, job_status: Any) -> None:
                await super().log_jobs(job_status)
                context.record_removal(len(job_status))

        connection = await _connect(target)
        try:
            driver = AsyncpgDriver(connection)
            consumer = Consumer(driver, queries=Watched(driver))

            @consumer.entrypoint("job")
            async def job(job: Any) -> None:
                context.record_claim(asked, [int(job.payload)])
                if seconds:
                    await asyncio.sleep(seconds)

            running = asyncio.create_task(
                consumer.qm.run(
                    batch_size=self.batch,
                    dequeue_timeout=timedelta(seconds=0.1),
                    log_aggregation_interval=timedelta(0),
                )
            )
            await until_over(context, running, consumer.shutdown.set)
        finally:
            await connection.close(timeout=10.0)


async def _connect(target: Target) -> Any:
    import asyncpg

    settings = {} if target.schema is None else {"search_path": target.schema}
    return await asyncpg.connect(plain_address(target), timeout=10.0, command_timeout=60.0, server_settings=settings)


def _uvloop() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop


def _run(coroutine: Any) -> None:
    uvloop = _uvloop()
    if uvloop is None:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)
