"""``queue-db pause``, ``resume``, ``limit`` and ``schedules``."""

import pytest

from queue_db import Controls

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@SQLITE
def test_the_controls_of_a_queue(ask, queue):
    assert ask("pause", queue.name).out == f"{queue.name}: paused, no concurrency limit, no rate limit\n"
    assert queue.controls().paused
    limited = ask("limit", queue.name, "--concurrency", 3, "--rate", 50, "--per", 60, "--json").record
    assert limited == {"queue": queue.name, "paused": True, "concurrency": 3, "rate": 50, "per": 60.0, "per_group": 1}
    assert ask("resume", queue.name).out == f"{queue.name}: not paused, at most 3 at a time, at most 50 per 60 s\n"
    assert "2 of each group at a time" in ask("limit", queue.name, "--per-group", 2).out
    ask("limit", queue.name, "--none")
    assert queue.controls() == Controls()
    assert "--concurrency" in ask("limit", queue.name, "--concurrency", 0, status=2).err


@SQLITE
def test_a_limit_changes_only_what_it_names(ask, queue):
    ask("limit", queue.name, "--concurrency", 3, "--per-group", 2)
    ask("limit", queue.name, "--rate", 10)
    before = Controls(concurrency=3, rate=10, per=1.0, per_group=2)
    assert queue.controls() == before
    assert "at most 3 at a time, at most 10 per 1 s, 2 of each group" in ask("limit", queue.name).out
    assert "--rate" in ask("limit", queue.name, "--per", 5, status=2).err
    assert "alone" in ask("limit", queue.name, "--none", "--rate", 5, status=2).err
    assert "--per" in ask("limit", queue.name, "--rate", 5, "--per", -1, status=2).err
    assert queue.controls() == before, "shown and refused, not changed"
    ask("pause", queue.name)
    ask("limit", queue.name, "--none")
    assert queue.controls() == Controls(paused=True)


@SQLITE
def test_the_controls_of_queues_without_jobs_are_listed(ask, queue, name):
    assert "needs the name of its queue" in ask("limit", "--rate", 3, status=2).err
    assert queue.name not in ask("limit").out
    ask("pause", queue.name)
    assert f"{queue.name}: paused, no concurrency limit, no rate limit" in ask("limit").out.splitlines()
    assert queue.name in [one["queue"] for one in ask("limit", "--json").records]


def test_a_queue_without_jobs_is_a_warning(ask, queue):
    for verb in (("pause", queue.name), ("limit", queue.name, "--rate", 2), ("resume", queue.name)):
        assert f"queue '{queue.name}' has no jobs and no workers" in ask(*verb).err
    queue.enqueue("n")
    assert ask("pause", queue.name).err == ""


def test_a_queue_with_nothing_but_a_schedule_is_known(ask, db, queue, name):
    db.schedules.set(name, queue.name, "n", every=3600)
    assert ask("pause", queue.name).err == ""
    db.schedules.remove(name)
    assert "has no jobs and no workers" in ask("pause", queue.name).err


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
    assert "still running" not in ask("pause", queue.name, "--wait", wait).err


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
    assert ask("schedules", "remove", name, "--json", status=1).record == {"schedule": name, "state": "not found"}
    for verb in ("pause", "resume"):
        assert ask("schedules", verb, name, status=1).out == f"{name}: not found\n"
