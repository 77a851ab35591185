"""Handlers whose results go to the nodes that wait for them, in threads and coroutines; graphs for asyncio."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from queue_db import LeasedJob, NewGraph, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.worker import Worker


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
def test_results_of_handlers_reach_the_nodes_that_wait(db: QueueDB, name: str) -> None:
    worker = Worker(db, name, concurrency=2)
    seen: dict[str, Any] = {}

    @worker.handles("read")
    def read(job: LeasedJob[int]) -> dict[str, int]:
        return {"n": job.payload}

    @worker.handles("aside", result_ttl=60)
    async def aside(job: LeasedJob) -> str:
        return "kept"

    @worker.handles("nothing")
    def nothing(job: LeasedJob) -> None:
        return None

    @worker.handles("join")
    async def join(job: LeasedJob) -> None:
        seen.update(await asyncio.to_thread(job.results))

    graph: NewGraph
    with db.graph() as graph:
        read_it = [graph.add(name, "read", number, name=f"read {number}") for number in range(3)]
        graph.add(
            name, "join", after=[*read_it, graph.add(name, "aside", name="aside"), graph.add(name, "nothing", name="nothing")]
        )
    worker.run(until_empty=True)
    assert seen == {"read 0": {"n": 0}, "read 1": {"n": 1}, "read 2": {"n": 2}, "aside": "kept", "nothing": None}
    assert graph.id is not None
    assert db.graphs.get(graph.id).state == "completed"


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_result_that_cannot_be_kept_makes_the_node_dead(db: QueueDB, name: str, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(db, name)
    worker.handles("odd")(lambda job: object())
    graph: NewGraph
    with caplog.at_level(logging.CRITICAL), db.graph() as graph:
        graph.add(name, "odd", name="odd")
    worker.run(until_empty=True)
    assert graph.id is not None
    assert [node.state.value for node in db.graphs.nodes(graph.id)] == ["dead"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
def test_a_graph_for_asyncio(url: str, name: str) -> None:
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql+psycopg2": "postgresql+asyncpg", "postgresql": "postgresql+asyncpg"}
    scheme, _, rest = url.partition("://")

    async def run() -> None:
        async with AsyncQueueDB(f"{drivers[scheme]}://{rest}") as db:
            queue = db.queue(name)
            graph: NewGraph
            async with db.graph("async") as graph:
                graph.add(name, "step", "b", name="b", after=graph.add(name, "step", "a", name="a"))
            (job,) = await queue.claim()
            assert job.graph is not None
            await job.graph.add(name, "step", "more", name="more")
            assert await job.complete()
            (more,) = await queue.claim()
            assert await more.complete()
            (last,) = await queue.claim()
            assert (await last.results()).keys() == {"a", "more"}
            assert (await last.parents())["a"].state == "completed"
            assert graph.id is not None
            assert (await db.graphs.get(graph.id)).name == "async"
            assert await db.graphs.cancel(graph.id) == 1

    asyncio.run(run())
