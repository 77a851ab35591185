"""``pytest -p tests.late``: as if seconds passed between any two statements, as on a machine that has too much to do.

What is kept for some seconds is too old at once, and what is due now and then is always due. A test that fails only here depends on
the speed of the machine, or is about what is kept: low-water marks, tokens, prepared plans.
"""

from __future__ import annotations

import importlib

from queue_db.store.low_water_marks import LowWaterMarks
from queue_db.verbs import claim_round

#: Seconds for which something is kept, or between two times that it is done.
AGES = (
    "queue_db.dialects.prepared.BUSY_PLAN_AGE",
    "queue_db.dialects.prepared.PLAN_AGE",
    "queue_db.feeds.feed._FRESH",
    "queue_db.feeds.publishing._RANK_EVERY",
    "queue_db.limits.limiter.REFRESH",
    "queue_db.worker.fetcher.READ_CONTROLS_EVERY",
    "queue_db.service.auth.identity.REMEMBERED_FOR",
    "queue_db.service.http.pressure._REMEMBER",
    "queue_db.service.live.claims._OBEY_WITHIN",
    "queue_db.worker.fetcher.READ_EVERY",
)


def pytest_configure() -> None:
    """In this process and, since workers load the plugins of the command line, in each of pytest-xdist."""
    for age in AGES:
        module, name = age.rsplit(".", 1)
        owner = importlib.import_module(module)
        assert isinstance(getattr(owner, name), float), age
        setattr(owner, name, 0.0)
    LowWaterMarks.rescan_due = lambda _: True
    claim_round.LOOKS = tuple(0.0 for _ in claim_round.LOOKS)
