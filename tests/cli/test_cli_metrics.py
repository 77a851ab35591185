"""The action log, metrics and failures on the command line."""

import re

from queue_db import QueueDB


def test_actions_are_listed_newest_first(ask, db, queue):
    db.actions.add("ann", "purge", queue.name, 3, {"kind": "mail"})
    db.actions.add("robot", "pause", queue.name)
    mine = [one for one in ask("actions", "--limit", 1000, "--json").records if one["target"] == queue.name]
    assert [(one["who"], one["action"], one["number"], one["detail"]) for one in mine] == [
        ("robot", "pause", None, None),
        ("ann", "purge", 3, {"kind": "mail"}),
    ]
    assert ask("actions", "--limit", 1, "--after", mine[0]["id"], "--json").record["id"] == mine[1]["id"]
    assert re.search(rf'ann +purge +{queue.name} +3 +{{"kind": "mail"}}', ask("actions").out)


def test_the_latest_numbers_and_the_history_of_a_queue(ask_at, fresh_url):
    ask_at(fresh_url, "migrate")
    assert ask_at(fresh_url, "queues", "list", "--json").records == []
    with QueueDB(fresh_url) as db:
        queue = db.queue("mail")
        queue.enqueue_many([("welcome", number) for number in range(3)])
        (job,) = queue.claim()
        assert job.complete()
        assert db.metrics.take()
    (found,) = ask_at(fresh_url, "queues", "list", "--json").records
    assert (found["queue"], found["available"], found["died"]) == ("mail", 2, 0)
    assert re.search(r"mail +\d{4}-.* +2 +0 +0 +0 +0 +0 ", ask_at(fresh_url, "queues", "list").out)
    assert ask_at(fresh_url, "queues", "list", "other", "--json").records == []
    history = ask_at(fresh_url, "queues", "list", "mail", "--last", 86_400, "--width", 3600, "--json").records
    assert sum(one["completed"] for one in history) == 1
    assert {one["duration"] for one in history} == {3600.0}
    assert "multiple of 10" in ask_at(fresh_url, "queues", "list", "--last", 60, "--width", 15, status=2).err


def test_failures_are_grouped_and_their_dead_jobs_redriven(ask, queue):
    queue.enqueue_many([("mail", number, {"max_attempts": 1}) for number in range(3)])
    for job, error in zip(queue.claim(limit=3), (ValueError("a"), ValueError("b"), KeyError("c")), strict=True):
        assert job.fail(error)
    of_queue = ("--queue", queue.name)
    found = ask("dead", "list", "--failures", *of_queue, "--json").records
    assert [(one["kind"], one["error_class"], one["count"], one["dead"]) for one in found] == [
        ("mail", "ValueError", 2, 2),
        ("mail", "KeyError", 1, 1),
    ]
    assert re.search(rf"{queue.name} +mail +ValueError +2 +2 ", ask("dead", "list", "--failures", *of_queue).out)
    like = (*of_queue, "--error-class", "ValueError")
    assert ask("dead", "list", "--count", *like, "--json").record == {"dead": 2, "more": False}
    assert len(ask("dead", "list", *like, "--json").records) == 2
    assert len(ask("dead", "redrive", *like, "--json").records) == 2
    assert ask("dead", "list", "--count", *like).out == "0\n"
    assert "error class 'KeyError'" in ask("dead", "purge", *of_queue, "--error-class", "KeyError", status=2).err
    assert ask("dead", "purge", *of_queue, "--error-class", "KeyError", "--yes", "--json").record == {"deleted": 1}
