"""API tokens from the command line."""

from datetime import UTC, datetime, timedelta

import pytest

from queue_db.cli.recording import user


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_token_is_made_listed_and_revoked(ask, db, name):
    made = ask("tokens", "create", name, "--scope", "read", "--scope", "work", "--queue", "mail*", "--expires-in", 3600, "--json")
    secret = made.record["secret"]
    assert made.record["token"] == name
    assert "not shown again" in made.err
    assert db.tokens.find(secret).queues == ("mail*",)
    listed = ask("tokens", "list", "--json")
    (shown,) = [one for one in listed.records if one["name"] == name]
    assert (shown["scopes"], shown["queues"], shown["active"]) == (["read", "work"], ["mail*"], True)
    assert timedelta(0) < datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC) < timedelta(hours=2)
    table = ask("tokens", "list")
    assert any(name in line and "read work" in line and "active" in line for line in table.out.splitlines())
    assert secret not in listed.out + listed.err + table.out + table.err
    assert "revoked" in ask("tokens", "revoke", name).out
    assert db.tokens.find(secret) is None
    assert "not found" in ask("tokens", "revoke", name, status=1).err
    done = [(one.action, one.who) for one in db.actions.list() if one.target == f"token {name}"]
    assert done == [("revoke", user().name), ("create", user().name)]
    assert any(name in line and "revoked" in line for line in ask("tokens", "list").out.splitlines())


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_secret_is_the_only_line(ask, db, name):
    secret = ask("tokens", "create", name, "--scope", "enqueue").out.strip()
    assert db.tokens.find(secret).queues == ("*",)
    assert "there is a token" in ask("tokens", "create", name, "--scope", "enqueue", status=2).err
    assert "no scope 'root'" in ask("tokens", "create", f"{name}-2", "--scope", "root", status=2).err


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--scope", "read", "--expires-in", "30d"], "'30d': must be a number of seconds, such as 2592000 for 30 days"),
        (["--scope", "read", "--expires-in", "0"], "must be more than 0 seconds"),
        (["--scope", "admin"], "there is no scope 'admin': give one or more of read, enqueue, work, manage"),
    ],
)
def test_an_error_names_the_form_that_is_taken(ask, db, name, given, said):
    refused = ask("tokens", "create", name, *given, status=2)
    assert said in " ".join(refused.err.split())
    assert name not in {one.name for one in db.tokens.list()}
