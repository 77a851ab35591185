"""``queue-db pause``, ``resume``, ``limit`` and ``schedules``."""

import pytest

from queue_db import Controls

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@SQLITE
def test_what_is_said_about_a_queue(ask, queue):
    assert ask("pause", queue.name).out == f"{queue.name}: paused, any number at once, at any rate\n"
    assert queue.controls().paused
    limited = ask("limit", queue.name, "--concurrency", 3, "--rate", 50, "--per", 60, "--json").record
    assert limited == {"queue": queue.name, "paused": True, "concurrency": 3, "rate": 50, "per": 60.0, "per_group": 1}
    assert ask("resume", queue.name).out == f"{queue.name}: not paused, at most 3 at once, at most 50 in 60 s\n"
    assert "2 of each group at once" in ask("limit", queue.name, "--per-group", 2).out
    ask("limit", queue.name)
    assert queue.controls() == Controls()
    assert "--concurrency" in ask("limit", queue.name, "--concurrency", 0, status=2).err


@SQLITE
def test_to_pause_and_wait(ask, queue):
    queue.enqueue("n")
    (job,) = queue.claim()
    assert "still running after 0.1 s" in ask("pause", queue.name, "--wait", 0.1, status=1).err
    assert job.complete()
    ask("pause", queue.name, "--wait", 30)


@SQLITE
@pytest.mark.parametrize("wait", [0, 1])
def test_a_queue_at_rest_is_paused_however_short_the_wait(ask, queue, wait):
    assert ask("pause", queue.name, "--wait", wait).err == ""


@SQLITE
def test_schedules(ask, db, name):
    assert name not in ask("schedules", "list").out
    db.schedules.set(name, "q", "k", cron="0 3 * * *", zone="Europe/Berlin")
    (record,) = [one for one in ask("schedules", "list", "--json").records if one["name"] == name]
    assert (record["rule"], record["zone"], record["last_at"]) == ("0 3 * * *", "Europe/Berlin", None)
    ask("schedules", "pause", name)
    assert "paused" in ask("schedules", "list").out
    assert ask("schedules", "resume", name).out == f"{name}: resumed\n"
    assert ask("schedules", "remove", name).out == f"{name}: removed\n"
    assert ask("schedules", "remove", name, "--json").record == {"schedule": name, "state": "not there"}
    assert "no schedule" in ask("schedules", "pause", name, status=2).err
