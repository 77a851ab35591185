"""What each command does."""

import dataclasses
import json
import re
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine, delete, make_url, text, update

from queue_db import Finished, PermanentStorageError, State
from queue_db.db import QueueDB
from queue_db.model import StoredResult
from queue_db.store.schema.tables import HEAD
from queue_db.worker import Worker
from tests.patience import wait_for
from tests.servers import over_tls

SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")  # a file has no users
SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


# --- migrate ------------------------------------------------------------------------------------------------------------


def test_migrate_up_check_and_down(ask_at, fresh_url):
    missing = ask_at(fresh_url, "migrate", "--check", "--json", status=1)
    assert missing.record["up_to_date"] is False
    assert missing.record["found"] is None
    assert re.search(r"(make|create) it(:| with:) queue-db migrate( |$)", missing.record["message"])
    assert "migrate --url" not in missing.err
    assert ask_at(fresh_url, "migrate").out == f"table 'jobs' migrated from nothing to revision {HEAD}\n"
    assert ask_at(fresh_url, "migrate").out == f"table 'jobs' is at revision {HEAD}: nothing to do\n"
    assert ask_at(fresh_url, "migrate", "--check").out == f"table 'jobs' is at revision {HEAD}: up to date\n"
    step = ask_at(fresh_url, "migrate", "--revision", "0007", status=2).err
    assert re.search(r"will lose: (.*; )?the column works_since of jobs_schema_version\.", step)
    refused = ask_at(fresh_url, "migrate", "--revision", "base", status=2)
    assert "the tables jobs and jobs_dead, with the jobs in them" in refused.err
    assert "--yes" in refused.err
    down = ask_at(fresh_url, "migrate", "--revision", "base", "--yes", "--json")
    assert down.record == {"table": "jobs", "schema": None, "before": HEAD, "revision": None}


def test_migrate_sql_prints_and_changes_nothing(ask_at, fresh_url):
    assert re.search(r"CREATE TABLE (IF NOT EXISTS )?jobs \(", ask_at(fresh_url, "migrate", "--sql").out)
    assert " other (" in ask_at(fresh_url, "migrate", "--sql", "--table", "other", "--json").record["sql"]
    ask_at(fresh_url, "migrate", "--check", status=1)


def statements(sql):
    """What a DBA's tool would send one by one."""
    found = [part.strip() for part in re.sub(r"^--.*$", "", sql, flags=re.MULTILINE).split(";")]
    return [part for part in found if part and part not in ("BEGIN", "COMMIT")]


def test_migrate_sql_is_the_step_from_the_revision_that_is_there(ask_at, fresh_url):
    ask_at(fresh_url, "migrate", "--revision", "0003")
    up = ask_at(fresh_url, "migrate", "--sql").out
    assert "jobs_stripes" in up
    assert "jobs_shares" not in up
    assert ask_at(fresh_url, "migrate", "--sql", "--from", "0003").out == up
    assert "CREATE TABLE" not in ask_at(fresh_url, "migrate", "--sql", "--revision", "0002").out
    with QueueDB(fresh_url) as db:
        with db.database.engine.begin() as connection:
            for statement in statements(up):
                connection.execute(text(statement))
        db.check()
        db.queue("q").enqueue("k", group="g")
        (job,) = db.queue("q").claim()
        assert job.complete()
    after = ask_at(fresh_url, "migrate", "--sql")
    assert (after.out, after.err) == ("", f"nothing to do from revision {HEAD} to head\n")
    down = statements(ask_at(fresh_url, "migrate", "--sql", "--revision", "base").out)
    assert any(re.match("DROP TABLE (IF EXISTS )?jobs$", one) for one in down)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
def test_migrate_sql_from_a_revision_needs_no_server(ask_at, scheme):
    unreachable = f"{scheme}://user:word@127.0.0.1:1/name"
    step = ask_at(unreachable, "migrate", "--sql", "--from", "0003", "--revision", "0004").out
    assert "jobs_stripes" in step
    assert "jobs_shares" not in step
    whole = ask_at(unreachable, "migrate", "--sql", "--from", "base", "--table", "mail").out
    assert re.search(r"CREATE TABLE (IF NOT EXISTS )?mail \(", whole)
    ask_at(unreachable, "migrate", "--sql", status=3)


@SQLITE
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--revision", "nonsense"), "there is no revision 'nonsense': give head, base, or one of 0001, 0002,"),
        (("--sql", "--revision", "nonsense"), "there is no revision 'nonsense': give head, base, or one of 0001, 0002,"),
        (("--sql", "--from", "nonsense"), "there is no revision 'nonsense': give head, base, or one of 0001, 0002,"),
        (("--sql", "--check"), "one of them"),
        (("--from", "0003"), "--from is for --sql"),
        (("--table", "no;table"), "lower-case letters"),
    ],
)
def test_migrate_refuses(ask_at, fresh_url, arguments, part):
    assert part in ask_at(fresh_url, "migrate", *arguments, status=2).err


@SQLITE
def test_table_names_keep_two_queues_apart(ask_at, fresh_url):
    for table in ("one", "two"):
        ask_at(fresh_url, "migrate", "--table", table)
    ask_at(fresh_url, "enqueue", "mail", "n", "--table", "one")
    assert ask_at(fresh_url, "queues", "show", "mail", "--table", "one", "--json").record["available"] == 1
    assert ask_at(fresh_url, "queues", "show", "mail", "--table", "two", "--json").record["available"] == 0


# --- doctor -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(fresh_url, ask_at):
    """A migrated database of one's own: in the shared one jobs of other tests may be stuck."""
    ask_at(fresh_url, "migrate")
    return partial(ask_at, fresh_url)


def test_doctor_of_a_healthy_database(alone, kind):
    found = alone("doctor", "--json").record
    assert found["healthy"] is True
    assert found["problems"] == found["warnings"] == []
    assert found["server"].lower().startswith(kind)
    assert found["revision"] == found["required_revision"]
    assert found["isolation"] == ("SERIALIZABLE" if kind == "sqlite" else "READ COMMITTED")
    assert abs(found["clock_skew"]) < 1
    assert found["strategies"]["adaptive"] == []
    assert found["strategies"]["skip_locked"] == (["SKIP LOCKED"] if kind == "sqlite" else [])
    assert found["removals"].keys() == {"delete", "delete_mark", "lock_then_delete"}
    expected = {"sqlite": ("journal_mode", "wal"), "postgresql": ("fillfactor of jobs", "50 %")}
    fact, value = expected.get(kind, ("innodb_flush_log_at_trx_commit", None))
    assert found["facts"][fact] in (value, "0", "1", "2")
    sizes = {"sqlite": ("page_size", " bytes"), "postgresql": ("shared_buffers", "B")}
    size, unit = sizes.get(kind, ("innodb_buffer_pool_size", " bytes"))
    assert re.match(r"\d+ ?[kMG]?B$|\d+ bytes$", found["facts"][size])
    assert found["facts"][size].endswith(unit)
    people = alone("doctor").out
    assert people.endswith("healthy\n")
    assert "required: " in people


def test_doctor_names_the_command_for_missing_tables(ask_at, kind, fresh_url):
    if kind == "sqlite":
        Path(str(make_url(fresh_url).database)).touch()  # a file that is not there is another mistake
    answer = ask_at(fresh_url, "doctor", "--json", status=1)
    assert answer.record["healthy"] is False
    assert "make it with: queue-db migrate  (or" in answer.record["problems"][0]
    assert "not healthy" in ask_at(fresh_url, "doctor", status=1).out


def execute(url, *commands):
    with QueueDB(url) as db, db.database.engine.begin() as connection:
        for command in commands:
            connection.exec_driver_sql(command)


@pytest.fixture
def visitor(kind, fresh_url, ask_at):
    """A migrated database, and a function from rights to the URL of a user who has only these."""
    ask_at(fresh_url, "migrate")
    name = f"visitor_{uuid.uuid4().hex[:8]}"
    database = make_url(fresh_url).database
    # No account for all hosts, so that a GRANT needs the host.
    user = name if kind == "postgresql" else f"'{name}'@'%%_'"
    word = "PASSWORD" if kind == "postgresql" else "IDENTIFIED BY"
    execute(fresh_url, f"CREATE USER {user} {word} 'Visitor-7x'")

    def rights(*granted):
        execute(fresh_url, *(f"GRANT {one} TO {user}" for one in granted))
        url = make_url(over_tls(fresh_url)).set(username=name, password="Visitor-7x")
        return url.render_as_string(hide_password=False)

    with QueueDB(fresh_url) as db:
        rights.tables = [*db.store.tables.metadata.tables, db.store.tables.version]
    rights.user = user.replace("%%", "%")
    rights.everything = "ALL TABLES IN SCHEMA public" if kind == "postgresql" else f"{database}.*"
    yield rights
    execute(fresh_url, *([f"DROP OWNED BY {user}"] if kind == "postgresql" else []), f"DROP USER {user}")


def granted(visitor, verbs, but=()):
    return [f"{verbs} ON {table}" for table in visitor.tables if table not in but]


@SERVERS
def test_doctor_names_the_rights_that_a_user_lacks(ask_at, visitor, kind, fresh_url):
    sequences = ["USAGE ON ALL SEQUENCES IN SCHEMA public"] if kind == "postgresql" else []
    url = visitor(*sequences, *granted(visitor, "SELECT, INSERT, UPDATE, DELETE", but=["jobs"]), "SELECT, INSERT, UPDATE ON jobs")
    answer = ask_at(url, "doctor", "--json", status=1).record
    (problem,) = answer["problems"]
    assert problem.startswith("no right to DELETE on jobs (")
    assert f"GRANT DELETE ON jobs TO {visitor.user}" in problem
    execute(fresh_url, problem[problem.index("GRANT") :].replace("%", "%%"))
    assert ask_at(url, "doctor", "--json").record["healthy"] is True


@SERVERS
def test_doctor_of_a_user_who_may_only_read(ask_at, visitor):
    url = visitor(f"SELECT ON {visitor.everything}")
    problems = ask_at(url, "doctor", "--json", status=1).record["problems"]
    assert any(re.match(r"no right to UPDATE, INSERT, DELETE on (\w+\.)?jobs_dead \(", problem) for problem in problems)
    assert any(re.match(r"no right to UPDATE on (\w+\.)?jobs_stripes \(", problem) for problem in problems)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_doctor_names_sequences_without_which_nothing_can_be_enqueued(ask_at, visitor, kind):
    url = visitor(*granted(visitor, "SELECT, INSERT, UPDATE, DELETE"))
    problems = ask_at(url, "doctor", "--json", status=1).record["problems"]
    assert (
        f"no right to use the sequence public.jobs_id_seq: GRANT USAGE ON SEQUENCE public.jobs_id_seq TO {make_url(url).username}"
        in (problems)
    )
    visitor("USAGE ON ALL SEQUENCES IN SCHEMA public")
    assert ask_at(url, "doctor", "--json").record["healthy"] is True


@SERVERS
def test_doctor_lists_all_rights_of_a_user_who_has_hardly_any(ask_at, visitor, kind):
    url = visitor("SELECT ON jobs_dead")
    answer = ask_at(url, "doctor", "--json", status=1).record
    assert len(answer["problems"]) >= len(visitor.tables)
    for table in visitor.tables:
        (problem,) = [one for one in answer["problems"] if re.match(rf"no right to [A-Z, ]+ on {table} \(", one)]
        verbs = (
            "SELECT" if table == "jobs_schema_version" else "UPDATE, INSERT, DELETE" if table == "jobs_dead" else "SELECT, UPDATE"
        )
        assert f": GRANT {verbs}" in problem
    for grant in {one.partition("GRANT ")[2].rpartition(" TO ")[0] for one in answer["problems"]}:
        visitor(grant)
    assert ask_at(url, "doctor", "--json").record["healthy"] is True


@SERVERS
def test_a_worker_that_may_not_register_says_so_once_and_works(visitor, kind, caplog):
    sequences = ["USAGE ON ALL SEQUENCES IN SCHEMA public"] if kind == "postgresql" else []
    rights = granted(visitor, "SELECT, INSERT, UPDATE, DELETE", but=["jobs_workers"])
    with QueueDB(visitor(*sequences, *rights, "SELECT ON jobs_workers")) as db:
        worker = Worker(db, "mail")
        worker.handles("n")(lambda job: None)
        db.queue("mail").enqueue("n")
        assert worker.run(until_empty=True).completed == 1
        assert db.counters.unregistered == 1
    (line,) = [one for one in caplog.messages if "jobs_workers" in one]
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON jobs_workers TO" in line


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_an_application_that_enqueues_needs_the_rights_in_the_documentation(ask_at, visitor, kind):
    page = (Path(__file__).parents[2] / "docs" / "production.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(-- an application that only enqueues.*?)```", page, re.DOTALL)
    url = visitor(*re.findall(r"GRANT (.*?)\s+TO shop;", block, re.DOTALL))
    with QueueDB(url) as db:
        queue = db.queue("mail")
        assert queue.enqueue("k") is not None
        assert len(queue.enqueue_many([("k", 1), ("k", 2)])) == 2
        assert queue.enqueue("k", unique_key="u", delay=60) is not None
        assert queue.enqueue("k", unique_key="u", on_duplicate="skip") is None
        assert queue.enqueue("k", group="g") is not None
        with pytest.raises(PermanentStorageError, match="permission denied"):
            queue.claim()


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("schema", [None, "queue"])
def test_doctor_names_the_schema_that_a_user_may_not_use(ask_at, visitor, kind, fresh_url, schema):
    name = schema or "public"
    place = ("--schema", schema) if schema else ()
    execute(fresh_url, f"CREATE SCHEMA {name}" if schema else "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    ask_at(fresh_url, "migrate", *place)
    url = visitor(f"SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name}", f"USAGE ON ALL SEQUENCES IN SCHEMA {name}")
    (problem,) = ask_at(url, "doctor", "--json", *place, status=1).record["problems"]
    assert problem == f"no right to use the schema {name}: GRANT USAGE ON SCHEMA {name} TO {visitor.user}"
    execute(fresh_url, problem[problem.index("GRANT") :])
    assert ask_at(url, "doctor", "--json", *place).record["healthy"] is True


@SERVERS
def test_doctor_lists_transactions_that_are_open_for_long(alone, fresh_url, kind, monkeypatch):
    monkeypatch.setattr("queue_db.cli.doctor.LONG_OPEN", 0.0)
    engine = create_engine(fresh_url)
    with engine.connect() as other:
        own = "pg_backend_pid" if kind == "postgresql" else "CONNECTION_ID"
        number = other.exec_driver_sql(f"SELECT {own}()").scalar_one()
        end = f"; end it: SELECT pg_terminate_backend({number})" if kind == "postgresql" else f"; end it: KILL {number}"
        other.exec_driver_sql("SELECT * FROM jobs_stripes FOR UPDATE")
        answer = alone("doctor", "--json").record
        (warning,) = [one for one in answer["warnings"] if one.endswith(end)]
        assert re.match(r"a transaction of tester has been open for .* s \((idle in transaction|Sleep)\): ", warning)
        assert answer["healthy"] is True
        alone("doctor", "--strict", status=1)
        other.rollback()
        # InnoDB shows a list that is up to 0.1 s old.
        assert wait_for(lambda: not any(one.endswith(end) for one in alone("doctor", "--json").record["warnings"]))
    engine.dispose()


@SERVERS
def test_doctor_says_that_a_user_does_not_see_all_transactions(ask_at, visitor, kind, fresh_url):
    sequences = ["USAGE ON ALL SEQUENCES IN SCHEMA public"] if kind == "postgresql" else []
    url = visitor(*sequences, *granted(visitor, "SELECT, INSERT, UPDATE, DELETE"))
    fact = ask_at(url, "doctor", "--strict", "--json").record["facts"]["open transactions"]
    execute(fresh_url, fact[fact.index("GRANT") :].replace("%", "%%"))
    assert "open transactions" not in ask_at(url, "doctor", "--json").record["facts"]


@SQLITE
def test_doctor_mentions_a_clock_that_is_wrong(alone, monkeypatch):
    real = time.time
    monkeypatch.setattr("queue_db.cli.doctor.time.time", lambda: real() - 90)
    began = time.monotonic()
    answer = alone("doctor", "--json").record
    took = time.monotonic() - began
    assert answer["healthy"] is True
    assert answer["clock_skew"] == pytest.approx(90, abs=0.5 + took)  # both clocks were read within this
    behind = re.search(r"(\d+\.\d) s behind the database's: leases and delays are not affected", answer["warnings"][0])
    assert behind
    assert float(behind[1]) == pytest.approx(answer["clock_skew"], abs=0.1)


# --- enqueue ------------------------------------------------------------------------------------------------------------


def test_enqueue_prints_the_id(ask, queue):
    printed = ask("enqueue", queue.name, "welcome", '{"to": "Grüße"}', "--priority", 3, "--header", "trace=a=b").out
    job = queue.get(int(printed))
    assert (job.kind, job.payload, job.priority, job.headers) == ("welcome", {"to": "Grüße"}, 3, {"trace": "a=b"})
    record = ask("enqueue", queue.name, "bare", "--max-attempts", 2, "--json").record
    job = queue.get(record["id"])
    assert (job.payload, job.max_attempts) == (None, 2)


def test_enqueue_for_later(ask, queue):
    job_id = int(ask("enqueue", queue.name, "n", "--run-at", "2099-01-31T08:00:00+01:00").out)
    assert queue.get(job_id).available_at.isoformat() == "2099-01-31T07:00:00+00:00"
    job_id = int(ask("enqueue", queue.name, "n", "--delay", "1000").out)
    assert queue.get(job_id).state is State.SCHEDULED


def test_enqueue_of_a_duplicate(ask, queue):
    first = int(ask("enqueue", queue.name, "n", "1", "--unique-key", "k").out)
    raised = ask("enqueue", queue.name, "n", "2", "--unique-key", "k", "--json", status=1)
    assert raised.record["error"]["type"] == "DuplicateJobError"
    skipped = ask("enqueue", queue.name, "n", "3", "--unique-key", "k", "--on-duplicate", "skip")
    assert (skipped.out, "skipped" in skipped.err) == ("", True)
    assert ask("enqueue", queue.name, "n", "3", "--unique-key", "k", "--on-duplicate", "skip", "--json").record == {"id": None}
    assert int(ask("enqueue", queue.name, "n", "4", "--unique-key", "k", "--on-duplicate", "replace").out) == first
    assert queue.get(first).payload == 4


@SQLITE
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "give KIND"),
        (("n", "hello"), "not JSON"),
        (("n", "[" * 100_000), "nested too deeply"),
        (("n", "1", "--run-at", "tomorrow"), "must be a time like"),
        (("n", "1", "--run-at", "2026-01-31T08:00:00"), "no time zone"),
        (("n", "1", "--delay", "-1"), "delay=-1.0"),
        (("n", "1", "--delay", "nan"), "finite"),
        (("n", "1", "--delay", "soon"), "--delay"),
        (("n", "1", "--header", "x"), "NAME=TEXT"),
        (("n", "1", "--on-duplicate", "never"), "never"),
        (("n", "1", "--max-attempts", "0"), "--max-attempts=0"),
        ((" n", "1"), "blank"),
        (("n", json.dumps("x" * 5_000_000)), "bytes encoded"),
        (("n", "--jsonl", "-"), "only --on-duplicate applies to all"),
        (("--jsonl", "-", "--delay", "1"), "only --on-duplicate applies to all"),
        (("--jsonl", "/no/such/file"), "No such file"),
        (("--jsonl", "/"), "Is a directory"),
    ],
)
def test_enqueue_refuses(ask, name, arguments, part):
    assert part in ask("enqueue", name, *arguments, status=2).err


def test_enqueue_lines_from_a_file(ask, queue, tmp_path):
    lines = [
        {"kind": "a", "payload": {"n": 1}},
        {"kind": "b", "priority": -1, "headers": {"x": [1]}, "max_attempts": 3, "unique_key": "k", "delay": None},
        {"kind": "c", "run_at": "2099-01-01T00:00:00Z"},
    ]
    file = tmp_path / "jobs.jsonl"
    # A byte order mark, blank lines, Windows line ends and no end of the last line.
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(json.dumps(line) for line in lines).encode())
    answer = ask("enqueue", queue.name, "--jsonl", file)
    jobs = [queue.get(int(printed)) for printed in answer.out.split()]
    assert [job.kind for job in jobs] == ["a", "b", "c"]
    assert jobs[0].payload == {"n": 1}
    assert (jobs[1].payload, jobs[1].priority, jobs[1].headers, jobs[1].max_attempts) == (None, -1, {"x": [1]}, 3)
    assert jobs[2].state is State.SCHEDULED
    assert "enqueued 3 jobs" in answer.err


def test_enqueue_many_lines_from_standard_input_all_or_none(ask, queue):
    lines = [json.dumps({"kind": "n", "payload": number}) for number in range(2500)]
    broken = [*lines[:2400], '{"kind": "n", "payload": }', *lines[2400:]]
    answer = ask("enqueue", queue.name, "--jsonl", "-", "--json", input="\n".join(broken), status=2)
    assert answer.record["error"]["message"].startswith("line 2401: the line is not JSON")
    assert answer.record["error"]["message"].endswith("nothing was enqueued")
    assert queue.stats().available == 0
    answer = ask("enqueue", queue.name, "--jsonl", "-", "--json", input="\n".join(lines))
    assert len({record["id"] for record in answer.records}) == 2500
    assert queue.stats().available == 2500


@SQLITE
@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"5", "must be a JSON object"),
        (b'{"payload": 5}', "kind is missing"),
        (b'{"kind": 5}', "must be a string"),
        (b'{"kind": "n", "when": 5}', "unknown keys when"),
        (b'{"kind": "n", "delay": -5}', "delay=-5"),
        (b'{"kind": "n", "run_at": 5}', "must be a time"),
        (b'{"kind": "n", "headers": "x"}', "headers"),
        (b'{"kind": "n\xff"}', "not UTF-8"),
        (b'{"kind": "n", "payload": "\\ud800"}', "cannot be encoded"),
    ],
)
def test_a_bad_line_is_named_by_its_number(ask, queue, line, part):
    answer = ask("enqueue", queue.name, "--jsonl", "-", input=b'{"kind": "n"}\n\n' + line + b"\n", status=2)
    assert "line 3: " in answer.err
    assert part in answer.err
    assert queue.stats().available == 0


@SQLITE
def test_duplicates_among_lines(ask, queue):
    lines = '{"kind": "n", "unique_key": "k"}\n{"kind": "n", "unique_key": "k"}\n'
    ask("enqueue", queue.name, "--jsonl", "-", input=lines, status=1)
    assert queue.stats().available == 0
    answer = ask("enqueue", queue.name, "--jsonl", "-", "--on-duplicate", "skip", input=lines)
    assert len(answer.out.split()) == 1
    assert "enqueued 1 jobs, skipped 1" in answer.err


# --- look ---------------------------------------------------------------------------------------------------------------


def test_a_group_waits_for_its_first(ask, queue):
    first, second = (ask("enqueue", queue.name, "n", "--group", "g", "--json").record["id"] for _ in range(2))
    assert ask("jobs", "show", second, "--json").record["state"] == "blocked"
    assert [job.id for job in queue.claim(5)] == [first]
    ask("queues", "limit", queue.name, "--per-group", 2)
    assert [job.id for job in queue.claim(5)] == [second]


def test_keys_for_a_time_and_debounce(ask, queue):
    once = ("--unique-key", "k", "--unique-for", 60)
    ask("enqueue", queue.name, "n", *once)
    assert queue.purge() == 1
    assert "unique_key 'k'" in ask("enqueue", queue.name, "n", *once, status=1).err
    ids = {ask("enqueue", queue.name, "n", str(n), "--unique-key", "d", "--on-duplicate", "debounce").out for n in range(3)}
    assert len(ids) == 1
    assert [job.payload for job in queue.claim(5)] == [2]


def test_the_jobs_of_a_queue_are_counted(ask, queue):
    queue.enqueue_many([("a", None), ("a", None), ("b", None, {"delay": 1000})])
    queue.enqueue("gone", priority=-5)
    (job,) = queue.claim()
    job.bury("no")
    queue.claim()
    found = ask("queues", "show", queue.name, "--json").record
    assert {key: found[key] for key in ("queue", "available", "scheduled", "running", "dead")} == {
        "queue": queue.name,
        "available": 1,
        "scheduled": 1,
        "running": 1,
        "dead": 1,
    }
    assert found["by_kind"]["a"] == {"available": 1, "scheduled": 0, "running": 1, "dead": 0, "blocked": 0}
    assert found["oldest_available_age"] >= 0
    exact = ask("queues", "show", queue.name, "--exact", "--json").record
    assert exact | {"oldest_available_age": found["oldest_available_age"]} == found
    rows = [line.split() for line in ask("queues", "show", queue.name).out.splitlines()]
    assert rows[0] == ["queue", "kind", "available", "scheduled", "blocked", "running", "held", "dead", "waiting", "progress"]
    assert rows[1][:7] == [queue.name, "1", "1", "0", "1", "0", "1"]
    assert rows[2] == ["a", "1", "0", "0", "1", "0"]


def test_due_jobs_in_claim_order(ask, queue):
    queue.enqueue("second", {"n": 2})
    queue.enqueue("first", {"n": 1}, priority=-1)
    queue.enqueue("later", delay=1000)
    assert [record["kind"] for record in ask("jobs", "list", "--queue", queue.name, "--json").records] == ["first", "second"]
    assert [record["kind"] for record in ask("jobs", "list", "--queue", queue.name, "-n", 1, "--json").records] == ["first"]
    people = ask("jobs", "list", "--queue", queue.name).out.splitlines()
    assert len(people) == 3
    assert '{"n": 1}' in people[1]
    assert ask("jobs", "list", "--queue", f"{queue.name}-empty", "--json").out == ""


def test_jobs_by_state_kind_and_group(ask, queue):
    names = ("a", "b", "c")
    first, second, third = (queue.enqueue(kind, group="g") for kind in names)
    later = queue.enqueue("a", delay=1000)
    (running,) = queue.claim()
    of_queue = ("--queue", queue.name, "--json")

    def listed(*options):
        return [one["id"] for one in ask("jobs", "list", *options, *of_queue).records]

    assert running.id == first
    assert listed() == listed("--state", "due") == []
    assert listed("--state", "running") == [first]
    assert listed("--state", "blocked") == [second, third]
    assert listed("--state", "blocked", "--kind", "c") == listed("--state", "blocked", "--group", "g", "-n", 2)[1:] == [third]
    assert listed("--state", "scheduled") == [later]
    assert running.bury("no")
    assert listed("--state", "dead") == [first]
    assert later in [one["id"] for one in ask("jobs", "list", "--state", "scheduled", "-n", 100_000, "--json").records]
    assert "have no group" in ask("jobs", "list", "--state", "finished", "--group", "g", status=2).err
    assert "due" in ask("jobs", "list", "--state", "gone", status=2).err


def test_a_list_of_jobs_is_longer_than_a_page(ask, queue):
    ids = queue.enqueue_many([("n", None)] * 250)
    assert [one["id"] for one in ask("jobs", "list", "--queue", queue.name, "-n", 240, "--json").records] == ids[:240]


def test_to_wait_for_a_job(ask, queue):
    job_id, dead = queue.enqueue("n"), queue.enqueue("n")
    late = ask("jobs", "wait", job_id, "--timeout", 0, "--json", status=1)
    assert "is still available after 0 s" in late.err
    assert late.record["error"]["code"] == "timeout"
    job, other = queue.claim(2)
    queue.complete_many([job], results=[StoredResult('{"a": 1}', 3600 * 1_000_000)])
    assert ask("jobs", "wait", job_id).out == '{"a": 1}\n'
    record = ask("jobs", "wait", job_id, "--timeout", 5, "--json").record
    assert (record["id"], record["result"]) == (job_id, {"a": 1})
    other.bury("no")
    assert ask("jobs", "wait", dead, "--json", status=1).record["error"]["type"] == "JobDeadError"


def test_reschedule(ask, queue):
    job_id = queue.enqueue("n", delay=1000)
    assert ask("jobs", "reschedule", job_id, "--delay", 2000, "--priority", 3, "--json").record["rescheduled"]
    assert queue.get(job_id).priority == 3
    assert ask("jobs", "reschedule", job_id, "--at", "2126-01-31T08:00:00Z").out.startswith(f"rescheduled job {job_id} of")
    assert queue.get(job_id).available_at.year == 2126
    ask("jobs", "reschedule", job_id, "--now")
    assert queue.get(job_id).state is State.AVAILABLE
    assert "--at" in ask("jobs", "reschedule", job_id, "--at", "soon", status=2).err
    assert "no time zone: append Z" in ask("jobs", "reschedule", job_id, "--at", "2126-01-31T08:00:00", status=2).err
    assert "give one of them" in ask("jobs", "reschedule", job_id, "--now", "--delay", 2, status=2).err
    assert "nothing to change" in ask("jobs", "reschedule", job_id, status=2).err
    assert queue.claim()
    assert ask("jobs", "reschedule", job_id, "--now", "--json", status=1).record["error"]["type"] == "JobStateError"


def test_batches_and_groups(ask, queue):
    batch, (_, other) = queue.enqueue_batch([("n", None), ("n", None)], ("end",))
    (job,) = queue.claim()
    assert job.complete()
    found = ask("jobs", "batch", batch, "--json").record
    assert (found["id"], found["queue"], found["jobs"], found["pending"]) == (batch, queue.name, 2, 1)
    assert "pending" in ask("jobs", "batch", batch).out
    newer, _ = queue.enqueue_batch([("n", None)], ("end",))
    assert [one["id"] for one in ask("jobs", "batch", "--json").records] == [newer, batch]
    assert [one["id"] for one in ask("jobs", "batch", "--limit", 1, "--json").records] == [newer]
    assert "pending" in ask("jobs", "batch").out
    assert ask("jobs", "show", other, "--json").record["batch"] == batch
    assert f"no batch {2**62}" in ask("jobs", "batch", 2**62, status=1).err
    first, *_ = (queue.enqueue("g", group="customer") for _ in range(3))
    group = ask("queues", "show", queue.name, "--groups", "--json").record
    assert (group["group"], group["blocked"], group["job"]["id"]) == ("customer", 2, first)
    assert f"g {first}" in ask("queues", "show", queue.name, "--groups").out


JOB_KEYS = [
    "id",
    "queue",
    "kind",
    "state",
    "payload",
    "headers",
    "priority",
    "available_at",
    "created_at",
    "attempts",
    "max_attempts",
    "unique_key",
    "group",
    "batch",
    "worker",
    "version",
    "fence",
    "last_error",
    "progress",
    "progress_note",
]


def test_show_finds_a_job_by_its_id_alone(ask, queue):
    job_id = queue.enqueue("n", {"a": 1}, unique_key="k")
    found = ask("jobs", "show", job_id, "--json").record
    assert list(found) == [*JOB_KEYS, "steps"]
    assert (found["id"], found["queue"], found["state"], found["unique_key"]) == (job_id, queue.name, "available", "k")
    assert found["created_at"].endswith("+00:00")
    assert ask("jobs", "show", job_id, "--queue", queue.name, "--json").record == found
    people = ask("jobs", "show", job_id).out
    assert '{"a": 1}' in people
    (job,) = queue.claim()
    job.bury("first line\nsecond line")
    assert ask("jobs", "show", job_id, "--json").record["state"] == "dead"
    assert "second line" in ask("jobs", "show", job_id).out


def test_show_of_no_job(ask, queue):
    job_id = queue.enqueue("n")
    answer = ask("jobs", "show", job_id, "--queue", f"{queue.name}-other", "--json", status=1)
    assert answer.record["error"]["type"] == "JobNotFoundError"
    assert answer.err.startswith(f"queue-db: no job {job_id} in queue")
    ask("jobs", "show", 2**62, status=1)
    ask("jobs", "show", 2**63, status=2)
    ask("jobs", "show", "-1", status=2)


@SQLITE
def test_what_jobs_hold_cannot_command_the_terminal(ask, queue):
    job_id = queue.enqueue("n", {"a": "[bold]\x1b[2J\u202e\x9b"})
    (job,) = queue.claim()
    job.fail("\x1b]0;title\x07", retry_in=0)
    for people in (ask("jobs", "show", job_id).out, ask("jobs", "list", "--queue", queue.name).out):
        assert "\x1b" not in people
        assert "\u202e" not in people
        assert "\x9b" not in people
        assert "[bold]" in people
        assert r"\x1b]0;title\x07" in people


@SQLITE
def test_json_of_what_utf8_has_no_form_for(ask, queue):
    job_id = queue.enqueue("n", "x")
    with queue.db.database.engine.begin() as connection:
        jobs = queue.db.store.tables.jobs
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(payload='"\\ud800 \\u00fc"'))
    answer = ask("jobs", "show", job_id, "--json")
    assert answer.record["payload"] == "\ud800 ü"
    assert r"\ud800" in ask("jobs", "show", job_id).out


# --- remove -------------------------------------------------------------------------------------------------------------


def test_cancel(ask, queue):
    waiting, running = queue.enqueue("n"), queue.enqueue("n", priority=-1)
    (job,) = queue.claim()
    assert ask("jobs", "cancel", waiting).out == f"cancelled job {waiting} of queue {queue.name!r}\n"
    assert ask("jobs", "cancel", running, "--json").record == {"id": running, "queue": queue.name, "cancelled": True}
    assert not job.complete()
    ask("jobs", "cancel", running, status=1)


def test_cancel_of_a_dead_job(ask, queue):
    job_id = queue.enqueue("n")
    (job,) = queue.claim()
    job.bury("no")
    assert "is dead" in ask("jobs", "cancel", job_id, status=1).err


def test_purge(ask, queue):
    queue.enqueue_many([("n", None), ("n", None), ("n", None, {"delay": 1000})])
    (job,) = queue.claim()
    assert "--yes" in ask("queues", "purge", queue.name, status=2).err
    assert ask("queues", "purge", queue.name, "--yes").out == f"deleted 2 jobs of queue {queue.name!r}\n"
    assert ask("queues", "purge", queue.name, "--yes", "--json").record == {"queue": queue.name, "deleted": 0}
    assert job.complete()


@SQLITE
@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1)])
def test_purge_asks_at_a_terminal(ask, queue, monkeypatch, answer, status, left):
    queue.enqueue("n")
    monkeypatch.setattr("queue_db.cli.output.is_interactive", lambda: True)
    asked = ask("queues", "purge", queue.name, input=answer, status=status)
    assert "will be deleted" in asked.err
    assert queue.stats().available == left


# --- dead ---------------------------------------------------------------------------------------------------------------

ALL_ALONE = "; --all alone stands for those of all queues"


def bury(queue, *kinds):
    ids = queue.enqueue_many([(kind, kind) for kind in kinds])
    for job in queue.claim(limit=len(kinds)):
        job.bury(f"{job.kind} is bad")
    return ids


def test_dead_list(ask, queue):
    ids = bury(queue, "a", "b", "a")
    found = ask("dead", "list", "--queue", queue.name, "--json").records
    assert sorted(record["id"] for record in found) == ids
    assert all(list(record) == JOB_KEYS and record["state"] == "dead" for record in found)
    assert len(ask("dead", "list", "--queue", queue.name, "--kind", "a", "--json").records) == 2
    assert len(ask("dead", "list", "--queue", queue.name, "--limit", "1", "--json").records) == 1
    assert "b is bad" in ask("dead", "list", "--queue", queue.name).out
    newest = ask("dead", "list", "--queue", queue.name, "--newest", "--json").records
    assert newest == found[::-1]


def test_dead_redrive(ask, queue):
    first, second, third, fourth = bury(queue, "a", "a", "b", "b")
    answer = ask("dead", "redrive", first)
    assert (answer.out, answer.err) == (f"{first}\n", "redrove 1 jobs\n")
    assert ask("dead", "redrive", "--queue", queue.name, "--kind", "b", "--limit", 1, "--json").records == [{"id": third}]
    assert ALL_ALONE in ask("dead", "redrive", status=2).err
    assert ALL_ALONE in ask("dead", "redrive", "--all", "--queue", queue.name, status=2).err
    assert ask("dead", "redrive", first, "--json", status=1).record["error"]["type"] == "JobNotFoundError"
    assert ask("dead", "redrive", "--queue", queue.name, "--json").records == [{"id": second}, {"id": fourth}]
    assert queue.stats().available == 4


def test_dead_redrive_brings_back_all_ids_or_none(ask, queue):
    (dead,) = bury(queue, "a")
    later = queue.enqueue("a", delay=3600)
    unknown = later + 1_000_000
    refused = ask("dead", "redrive", dead, unknown, "--json", status=1)
    assert f"no job {unknown} in the dead table" in refused.err
    assert f"job {later} is not dead: it is scheduled" in ask("dead", "redrive", dead, later, status=1).err
    assert "it does not match the filter" in ask("dead", "redrive", dead, "--kind", "b", status=1).err
    assert queue.get(dead).state is State.DEAD


def test_dead_redrive_of_a_duplicate(ask, queue):
    job_id = queue.enqueue("n", unique_key="k")
    (job,) = queue.claim()
    job.bury("no")
    queue.enqueue("n", unique_key="k")
    assert ask("dead", "redrive", job_id, "--json", status=1).record["error"]["type"] == "DuplicateJobError"


@SQLITE
def test_dead_redrive_of_all(ask_at, fresh_url):
    with QueueDB(fresh_url) as db:
        db.migrate()
        ids = bury(db.queue("one"), "a") + bury(db.queue("two"), "a")
    assert [record["id"] for record in ask_at(fresh_url, "dead", "redrive", "--all", "--json").records] == ids


def test_dead_purge(ask, queue):
    bury(queue, "a", "b")
    assert "--yes" in ask("dead", "purge", "--queue", queue.name, status=2).err
    assert ask("dead", "purge", "--queue", queue.name, "--older-than", "3600", "--yes", "--json").record == {"deleted": 0}
    assert ask("dead", "purge", "--queue", queue.name, "--kind", "a", "--yes", "--json").record == {"deleted": 1}
    assert ask("dead", "purge", "--queue", queue.name, "--yes").out == "deleted 1 dead jobs\n"


@SQLITE
def test_a_purge_of_the_dead_jobs_of_all_queues_needs_all(ask_at, own_url):
    def purge(*options, status=0):
        return ask_at(own_url, "dead", "purge", "--json", *options, status=status)

    with QueueDB(own_url) as db:
        bury(db.queue("one"), "a")
        bury(db.queue("two"), "a")
        assert f"--older-than, --keep{ALL_ALONE}" in purge("--yes", status=2).err
        for options in (["--dry-run"], ["--all", "--queue", "one", "--yes"]):
            assert ALL_ALONE in purge(*options, status=2).err
        assert db.dead.count() == 2
        assert purge("--all", "--yes").record == {"deleted": 2}


def test_dead_purge_keeps_the_last(ask, queue):
    ids = bury(queue, "a", "b", "c")
    assert "except the last 1 " in ask("dead", "purge", "--queue", queue.name, "--keep", 1, status=2).err
    assert ask("dead", "purge", "--queue", queue.name, "--keep", 1, "--yes", "--json").record == {"deleted": 2}
    assert [job.id for job in queue.db.dead.list(queue.name)] == ids[2:]


@SQLITE
def test_finished_jobs(ask, queue, db):
    ids = [queue.enqueue(kind, {"ä": 1}) for kind in ("a", "b")]
    for job in queue.claim(2):
        queue.complete_many([job], results=[StoredResult(f'"{job.kind} done"', 3600 * 1_000_000)])
    records = ask("jobs", "list", "--state", "finished", "--queue", queue.name, "--json").records
    assert [(one["id"], one["kind"], one["payload"], one["result"]) for one in records] == [
        (ids[0], "a", {"ä": 1}, "a done"),
        (ids[1], "b", {"ä": 1}, "b done"),
    ]
    assert list(records[0]) == [field.name for field in dataclasses.fields(Finished)]
    assert [
        one["id"] for one in ask("jobs", "list", "--state", "finished", "--queue", queue.name, "--kind", "b", "--json").records
    ] == ids[1:]
    assert "a done" in ask("jobs", "list", "--state", "finished", "--queue", queue.name, "--limit", 1).out
    table = db.store.tables.finished
    with queue.transaction() as connection:
        connection.execute(update(table).where(table.c.id == ids[0]).values(expires_at=1))
    assert ask("prune", "--json").record["deleted"] >= 1
    assert [one["id"] for one in ask("jobs", "list", "--state", "finished", "--queue", queue.name, "--json").records] == ids[1:]
    assert "expired rows" in ask("prune").out


def test_repair_groups_unblocks_what_sql_has_blocked(ask, queue, db):
    first, second = (queue.enqueue("n", group="g") for _ in range(2))
    jobs = db.store.tables.jobs
    with queue.transaction() as connection:
        connection.execute(delete(jobs).where(jobs.c.id == first))
    assert queue.get(second).state is State.BLOCKED
    assert ask("queues", "repair", queue.name).out == f"repaired 1 groups of queue {queue.name!r}\n"
    assert [job.id for job in queue.claim(5)] == [second]


@pytest.mark.parametrize(
    "command",
    [
        "dead list --count --failures",
        "dead list --newest --failures",
        "queues show mail --exact --groups",
        "routes list --definitions --counter seen",
    ],
)
def test_options_that_ask_for_two_lists_at_once(ask_at, command):
    assert ask_at("sqlite://", *command.split(), "--json", status=2).record["error"]["code"] == "argument"
