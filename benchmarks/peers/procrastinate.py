"""procrastinate: SELECT … FOR UPDATE SKIP LOCKED inside a PL/pgSQL function, psycopg 3, asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import PostgreSQLPeer, analyze, fresh_schema, libpq_address, take_over_work, until_over
from queue_db.compare.contestant import Target, WorkerContext

#: Concurrent jobs per worker process: its guide recommends several; four were 1.5 times as fast as one.
_CONCURRENCY = 4

_FILL = 1000


@dataclass(frozen=True)
class Procrastinate(PostgreSQLPeer):
    """procrastinate's asynchronous worker, which deletes successful jobs."""

    name: str = "procrastinate"
    claim: str = "FOR UPDATE SKIP LOCKED in a function, head of the queue"
    removal: str = "DELETE in a function"
    index: str = "(priority DESC, id), of waiting jobs"

    packages = ("procrastinate", "psycopg", "psycopg_pool")

    def configuration(self) -> dict[str, str]:
        """Return its settings, as its production guide recommends. NOTIFY is off: it only wakes idle workers."""
        return {
            "driver": "psycopg 3, asyncio",
            "concurrency": f"{_CONCURRENCY} per process",
            "delete_jobs": "successful",
            "listen_notify": "no",
            "fetch_job_polling_interval": "0.01 s",
        }

    def set_up(self, target: Target, jobs: int) -> None:
        """Create its schema and enqueue with ``batch_defer``."""
        fresh_schema(target)
        asyncio.run(self._fill(target, jobs))
        analyze(target)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run ``run_worker_async`` until the run is over."""
        asyncio.run(self._work(target, context))

    async def _fill(self, target: Target, jobs: int) -> None:
        app, task = _app(target, None)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            for start in range(0, jobs, _FILL):
                await task.batch_defer_async(*({"number": number} for number in range(start, min(start + _FILL, jobs))))

    async def _work(self, target: Target, context: WorkerContext) -> None:
        # It logs two lines per job.
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        app, _ = _app(target, context)
        async with app.open_async():
            running = asyncio.create_task(
                app.run_worker_async(
                    concurrency=_CONCURRENCY,
                    delete_jobs="successful",
                    listen_notify=False,
                    fetch_job_polling_interval=0.01,
                    install_signal_handlers=False,
                )
            )
            # Its documented way to stop: running jobs finish first.
            await until_over(context, running, running.cancel)


def _app(target: Target, context: WorkerContext | None) -> tuple[Any, Any]:
    import procrastinate
    from procrastinate.manager import JobManager

    asked = 0.0
    seconds = take_over_work(context) if context is not None else 0.0

    class Watched(JobManager):
        """Records when a job is requested and acknowledged."""

        gone_off = False

        async def fetch_job(self, *arguments: Any, **named: Any) -> Any:
            nonlocal asked
            assert context is not None  # noqa: S101 - only a worker fetches
            if not self.gone_off:
                context.wait_for_start()
                self.gone_off = True
            asked = time.monotonic()
            return await super().fetch_job(*arguments, **named)

        async def finish_job(self, *arguments: Any, **named: Any) -> None:
            assert context is not None  # noqa: S101 - only a worker finishes
            await super().finish_job(*arguments, **named)
            context.record_removal(1)

    connector = procrastinate.PsycopgConnector(conninfo=libpq_address(target), min_size=1, max_size=_CONCURRENCY + 2, timeout=10.0)
    app = procrastinate.App(connector=connector)
    app.job_manager = Watched(app.connector)

    @app.task(name="job")
    async def job(number: int) -> None:
        assert context is not None  # noqa: S101 - only a worker runs it
        context.record_claim(asked, [number])
        if seconds:
            await asyncio.sleep(seconds)

    return app, job
