"""The controls of queues, and schedules, on the command line."""

from dataclasses import asdict, replace

import pytest

from queue_db import Controls

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@SQLITE
def test_the_controls_of_a_queue(ask, queue):
    assert ask("queues", "pause", queue.name).out == f"{queue.name}: paused, no concurrency limit, no rate limit\n"
    assert queue.controls().paused
    limited = ask("queues", "limit", queue.name, "--concurrency", 3, "--rate", 50, "--per", 60, "--json").record
    controls = {"paused": True, "concurrency": 3, "rate": 50, "per": 60.0, "per_group": 1, "fair": False}
    assert limited == {"queue": queue.name, **controls}
    assert ask("queues", "resume", queue.name).out == f"{queue.name}: not paused, at most 3 at a time, at most 50 per 60 s\n"
    assert "2 of each group at a time" in ask("queues", "limit", queue.name, "--per-group", 2).out
    ask("queues", "limit", queue.name, "--none")
    assert queue.controls() == Controls()
    assert "--concurrency" in ask("queues", "limit", queue.name, "--concurrency", 0, status=2).err


@SQLITE
def test_a_limit_changes_only_what_it_names(ask, queue):
    ask("queues", "limit", queue.name, "--concurrency", 3, "--per-group", 2)
    ask("queues", "limit", queue.name, "--rate", 10)
    before = Controls(concurrency=3, rate=10, per=1.0, per_group=2)
    assert queue.controls() == before
    assert "at most 3 at a time, at most 10 per 1 s, 2 of each group" in ask("queues", "show", queue.name).out
    assert ask("queues", "show", queue.name, "--json").record["controls"]["rate"] == 10
    assert "--concurrency, --rate, --per or --per-group" in ask("queues", "limit", queue.name, status=2).err
    assert "--per" in ask("queues", "limit", queue.name, "--rate", 5, "--per", -1, status=2).err
    assert queue.controls() == before, "shown and refused, not changed"
    ask("queues", "limit", queue.name, "--per", 5)
    assert queue.controls() == replace(before, per=5.0)
    ask("queues", "pause", queue.name)
    ask("queues", "limit", queue.name, "--none", "--concurrency", 7)
    assert queue.controls() == Controls(paused=True, concurrency=7)
    assert "rate" in ask("queues", "limit", queue.name, "--per", 5, status=2).err
    ask("queues", "limit", queue.name, "--none")
    assert queue.controls() == Controls(paused=True)


@SQLITE
def test_the_controls_of_queues_without_jobs_are_listed(ask, queue, name):
    assert queue.name not in ask("queues", "list").out
    ask("queues", "pause", queue.name)
    (line,) = [one for one in ask("queues", "list").out.splitlines() if one.startswith(queue.name)]
    assert "paused, no concurrency limit, no rate limit" in line
    (found,) = ask("queues", "list", queue.name, "--json").records
    assert found == {"queue": queue.name, "controls": {**asdict(Controls()), "paused": True}}
    ask("queues", "resume", queue.name)
    assert queue.name not in ask("queues", "list").out


def test_a_queue_without_jobs_is_a_warning(ask, queue):
    for verb in (("pause", queue.name), ("limit", queue.name, "--rate", 2), ("resume", queue.name)):
        assert f"queue '{queue.name}' has no jobs and no workers" in ask("queues", *verb).err
    queue.enqueue("n")
    assert ask("queues", "pause", queue.name).err == ""


def test_a_queue_with_nothing_but_a_schedule_is_known(ask, db, queue, name):
    db.schedules.set(name, queue.name, "n", every=3600)
    assert ask("queues", "pause", queue.name).err == ""
    db.schedules.remove(name)
    assert "has no jobs and no workers" in ask("queues", "pause", queue.name).err


@SQLITE
def test_to_pause_and_wait(ask, queue):
    queue.enqueue("n")
    (job,) = queue.claim()
    assert "still running after 0.1 s" in ask("queues", "pause", queue.name, "--wait", 0.1, status=1).err
    assert job.complete()
    ask("queues", "pause", queue.name, "--wait", 30)


@SQLITE
@pytest.mark.parametrize("wait", [0, 1])
def test_a_queue_at_rest_is_paused_however_short_the_wait(ask, queue, wait):
    assert "still running" not in ask("queues", "pause", queue.name, "--wait", wait).err


@SQLITE
def test_schedules(ask, db, name):
    assert name not in ask("schedules", "list").out
    rule = ("--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--catch-up", "none")
    assert ask("schedules", "set", name, name, "k", '{"a": 1}', *rule, "--priority", -1).out == f"{name}: created\n"
    assert ask("schedules", "set", name, name, "k", '{"a": 1}', *rule, "--json").record == {"schedule": name, "state": "changed"}
    assert "cron" in ask("schedules", "set", name, name, "k", status=2).err
    assert "--first-at" in ask("schedules", "set", name, name, "k", "--every", 60, "--first-at", "soon", status=2).err
    assert "zone" in ask("schedules", "set", name, name, "k", "--cron", "0 3 * * *", "--zone", "", status=2).err
    assert "PAYLOAD is not JSON" in ask("schedules", "set", name, name, "k", "{", "--every", 60, status=2).err
    (record,) = [one for one in ask("schedules", "list", "--json").records if one["name"] == name]
    assert (record["rule"], record["zone"], record["last_at"]) == ("0 3 * * *", "Europe/Berlin", None)
    assert (record["queue"], record["payload"], record["catch_up"], record["priority"]) == (name, {"a": 1}, "none", -1)
    ran = ask("schedules", "run", name, "--json").record
    assert ran == {"schedule": name, "id": db.queue(name).peek()[0].id}
    missing = ask("schedules", "run", f"{name}-2", "--json", status=1).record["error"]
    assert (missing["code"], missing["message"]) == ("no_such_schedule", f"{name}-2: not found")
    ask("schedules", "pause", name)
    assert "paused" in ask("schedules", "list").out
    assert ask("schedules", "resume", name).out == f"{name}: resumed\n"
    assert ask("schedules", "remove", name).out == f"{name}: removed\n"
    for verb in ("pause", "resume", "remove"):
        assert ask("schedules", verb, name, status=1).err == f"queue-db: {name}: not found\n"
