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
    assert ask_at(fresh_url, "metrics", "--json").records == []
    with QueueDB(fresh_url) as db:
        queue = db.queue("mail")
        queue.enqueue_many([("welcome", number) for number in range(3)])
        (job,) = queue.claim()
        assert job.complete()
        assert db.metrics.take()
    (found,) = ask_at(fresh_url, "metrics", "--json").records
    assert (found["queue"], found["available"], found["completed"], found["died"]) == ("mail", 2, 1, 0)
    assert re.search(r"mail +\d{4}-.* +2 +0 +0 +0 +0 +0 ", ask_at(fresh_url, "metrics").out)
    assert ask_at(fresh_url, "metrics", "other", "--json").records == []
    history = ask_at(fresh_url, "metrics", "mail", "--last", 86_400, "--width", 3600, "--json").records
    assert sum(one["completed"] for one in history) == 1
    assert {one["duration"] for one in history} == {3600.0}
    assert "multiple of 10" in ask_at(fresh_url, "metrics", "--last", 60, "--width", 15, status=2).err
