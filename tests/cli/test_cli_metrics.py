"""The action log, metrics and failures on the command line."""

import re


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
