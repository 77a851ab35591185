"""A block that publishes in an open transaction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from queue_db import ArgumentError, ConfigurationError
from queue_db.publishing import current_transaction, publishing_in


class RolledBack(Exception):
    """Ends a transaction without a commit."""


@pytest.mark.parametrize("fail", [True, False])
def test_a_job_is_enqueued_with_the_transaction_or_not_at_all(db, name, fail):
    queue = db.queue(name)

    def place() -> None:
        queue.enqueue("k", using=current_transaction())

    with suppress(RolledBack), queue.transaction() as connection:
        with publishing_in(connection):
            place()
        if fail:
            raise RolledBack
    assert queue.stats().available == (0 if fail else 1)
    place()  # by itself
    assert queue.stats().available == (1 if fail else 2)


def test_of_two_blocks_the_inner_one_counts():
    outer, inner = Session(), AsyncSession()
    assert current_transaction() is None
    with publishing_in(outer):
        with publishing_in(inner):
            assert current_transaction() is inner
        assert current_transaction() is outer
    assert current_transaction() is None


def test_a_thread_that_outlives_the_block_is_refused():
    with publishing_in(Session()), suppress(RolledBack), publishing_in(Session()):
        context = copy_context()
        raise RolledBack
    with pytest.raises(ConfigurationError, match="the block of publishing_in"):
        context.run(current_transaction)


def test_a_task_that_outlives_the_block_is_refused():
    async def main() -> None:
        ended = asyncio.Event()

        async def later() -> None:
            await ended.wait()
            current_transaction()

        with publishing_in(AsyncSession()):
            begun = asyncio.create_task(later())
            await asyncio.sleep(0)
        ended.set()
        with pytest.raises(ConfigurationError, match="the block of publishing_in"):
            await begun

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [None, "shop.db", 7])
def test_what_is_no_connection_is_refused(wrong):
    with pytest.raises(ArgumentError, match=r"publishing_in\(\) takes a SQLAlchemy Connection"), publishing_in(wrong):
        pass


@pytest.mark.parametrize("engine", [create_engine("sqlite://"), create_async_engine("sqlite+aiosqlite://")])
def test_an_engine_has_no_transaction(engine):
    with pytest.raises(ArgumentError, match=r"takes a SQLAlchemy Connection .*Engine$"), publishing_in(engine):
        pass


def test_a_url_is_not_shown():
    with pytest.raises(ArgumentError, match="not an object of str$"), publishing_in("postgresql://shop:secret@db/shop"):
        pass


def test_the_connection_of_a_pool_is_taken():
    engine = create_engine("sqlite://")
    raw = engine.raw_connection()
    with publishing_in(raw):
        assert current_transaction() is raw.driver_connection
    raw.close()
    engine.dispose()
