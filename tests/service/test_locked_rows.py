"""Settlements that share a statement, while another transaction holds the row of one of the jobs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest
from sqlalchemy import make_url, text

from queue_db import QueueDB
from queue_db.service import Settings, service
from tests.patience import PATIENCE
from tests.service.conftest import serving_app
from tests.service.grouping import Group, done, verdicts_of


def test_a_locked_row_is_waited_for_by_its_client_alone(
    shared_urls: Callable[[str], str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(shared_urls("postgresql")).update_query_dict({"options": "-c lock_timeout=1000"})
    with QueueDB(url.render_as_string(hide_password=False)) as db, ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(20))
        app = service(db, Settings(closed=False))
        client = stack.enter_context(httpx2.Client(base_url=stack.enter_context(serving_app(app)), timeout=PATIENCE))
        client.app = app  # type: ignore[attr-defined]
        group = Group(db.queue(name), client, threads, monkeypatch)
        leases = group.leases(6)
        busy = group.settle_first(leases[0])
        locked = group.settle(done(leases[1]))
        part = group.settle({"lease": leases[2], "verb": "release"}, done(leases[3]))
        others = [group.settle(done(lease)) for lease in leases[4:]]
        with db.database.begin("test") as connection:
            connection.execute(text(f"SELECT id FROM {db.store.tables.jobs.name} WHERE id = {leases[1]['id']} FOR UPDATE"))
            group.released.set()
            assert [verdicts_of(one) for one in (busy, *others)] == [["applied"]] * 3
            assert not locked.done()
        assert verdicts_of(locked) == ["applied"]
        assert verdicts_of(part) == ["applied", "applied"]
