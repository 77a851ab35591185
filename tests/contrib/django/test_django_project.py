"""The app in a project: its migrations, its checks, its page in the admin, its schedules, and Django's test runner."""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.store.schema.tables import HEAD
from tests.contrib.django.conftest import process_environment
from tests.patience import wait_for

Move = Callable[[str], None]
ADD = "tests.contrib.django.project.shop.tasks.add"
BACKEND = "queue_db.contrib.django.QueueBackend"


def command(*arguments: Any, **options: Any) -> str:
    from django.core.management import call_command

    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out, no_color=True, **options)
    return out.getvalue()


def tables_of(url: str) -> set[str]:
    from sqlalchemy import create_engine, inspect

    engine = create_engine(url)
    try:
        return {name for name in inspect(engine).get_table_names() if name.startswith("jobs")}
    finally:
        engine.dispose()


# --- migrations ---------------------------------------------------------------------------------------------------------


def test_migrate_makes_the_tables_and_takes_them_away(fresh_url: str, move: Move) -> None:
    move(fresh_url)
    assert "warning" not in command("migrate", "queue_db", verbosity=1).lower()
    with QueueDB(fresh_url) as db:
        db.check()
    command("migrate", "queue_db", verbosity=0)
    command("migrate", "queue_db", "zero", verbosity=0)
    assert tables_of(fresh_url) <= {"jobs_schema_version"}
    command("migrate", "queue_db", verbosity=0)
    assert "jobs" in tables_of(fresh_url)


def test_migrate_leaves_tables_that_are_there(own_url: str, move: Move, name: str) -> None:
    move(own_url)
    with QueueDB(own_url) as db:
        db.queue(name).enqueue("work")
        command("migrate", "queue_db", verbosity=0)
        assert db.queue(name).stats().available == 1


@pytest.mark.usefixtures("set_up")
def test_the_last_migration_ends_where_the_package_does() -> None:
    from django.db.migrations.loader import MigrationLoader

    from queue_db.contrib.django.operations import MigrateQueue

    loader = MigrationLoader(None)
    ours = sorted(key for key in loader.disk_migrations if key[0] == "queue_db")
    steps = [each for key in ours for each in loader.disk_migrations[key].operations if isinstance(each, MigrateQueue)]
    assert steps[0].start == "base"
    assert all(one.to == following.start for one, following in pairwise(steps))
    assert steps[-1].to == HEAD, f"add a migration of Django with MigrateQueue({steps[-1].to!r}, {HEAD!r})"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_there_is_nothing_to_migrate(own_url: str, move: Move) -> None:
    move(own_url)
    assert "No changes" in command("makemigrations", "queue_db", check=True, dry_run=True)


def test_sqlmigrate_shows_the_statements(fresh_url: str, move: Move) -> None:
    move(fresh_url)
    shown = command("sqlmigrate", "queue_db", "0001")
    assert "CREATE TABLE jobs" in shown
    assert f"'{HEAD}'" in shown
    assert tables_of(fresh_url) == set()
    assert "DROP TABLE" in command("sqlmigrate", "queue_db", "0001", backwards=True)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_dumpdata_asks_for_no_table_of_ours(fresh_url: str, move: Move) -> None:
    move(fresh_url)
    command("migrate", verbosity=0)
    assert "queue_db.taskqueue" in command("dumpdata", "auth.permission") or command("dumpdata", "queue_db").strip() == "[]"
    assert command("dumpdata", "queue_db", use_base_manager=True).strip() == "[]"


# --- checks -------------------------------------------------------------------------------------------------------------


def found(**options: Any) -> list[str]:
    """The ids of what the checks find, and their texts."""
    from django.core import checks
    from django.test import override_settings

    queues = options.pop("QUEUES", [])
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": queues, "OPTIONS": options}}):
        return [f"{each.id} {each.msg} {each.hint}" for each in checks.run_checks(databases=["default"])]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"colour": 1}, "queue_db.E002 TASKS['default']: OPTIONS has 'colour': the options are database, url"),
        ({"max_attempts": 0}, "queue_db.E002 TASKS['default']: max_attempts=0: must be a whole number, at least 1"),
        ({"backoff": "nowhere.at_all"}, "queue_db.E002 TASKS['default']: backoff='nowhere.at_all': No module"),
        ({"database": "other"}, "queue_db.E003 OPTIONS['database'] is 'other', which DATABASES does not have use one of 'default'"),
        ({"url": "postgresql+nothing://h/d"}, "queue_db.E006 the driver of DATABASES['default'] is not installed"),
        ({"schedules": {"a": {"task": "no.such", "every": 1}}}, "queue_db.E005 TASKS['default']: the task of the schedule 'a'"),
        (
            {"schedules": {"a": {"task": "x", "cron": "99 3 * * *"}}},
            "queue_db.E005 TASKS['default']: the schedule 'a': cron='99 3 * * *': bad minute",
        ),
        (
            {"schedules": {"a": {"task": "x", "cron": "0 3 * * *", "zone": "Europe/Nowhere"}}},
            "queue_db.E005 TASKS['default']: the schedule 'a': zone='Europe/Nowhere': no such time zone",
        ),
        ({"schedules": {"a": {"task": "x", "every": 0}}}, "queue_db.E005 TASKS['default']: the schedule 'a': every=0"),
        ({"worker": {"leese": 30}}, "queue_db.E002 TASKS['default']: OPTIONS['worker'] has 'leese': the options of a worker are"),
        ({"worker": {"mode": "at_most_once"}}, "queue_db.E002 TASKS['default']: OPTIONS['worker'] has 'mode': the options of a"),
        (
            {"schedules": {"a": {"task": "x"}}},
            "queue_db.E002 TASKS['default']: OPTIONS['schedules']['a']: must have either cron or",
        ),
    ],
)
def test_wrong_settings_are_found(options: dict[str, Any], says: str, own_url: str, move: Move) -> None:
    move(own_url)
    (message,) = found(**options)
    assert message.startswith(says)


NOT_THERE = "the table 'jobs' of the queue is not there yet; run: python manage.py migrate queue_db"


def test_an_enqueue_without_tables_names_the_command_of_django(fresh_url: str, move: Move, name: str) -> None:
    from django.core.management import CommandError

    from queue_db import SchemaOutOfDateError
    from tests.contrib.django.project.shop.tasks import add

    move(fresh_url)
    for ask in (lambda: add.enqueue(1, 2), lambda: add.get_result("1")):
        with pytest.raises(SchemaOutOfDateError) as refused:
            ask()
        assert str(refused.value) == NOT_THERE
    with pytest.raises(CommandError) as stopped:
        command("queue_worker", queue=[name], until_empty=True, skip_checks=True)
    assert str(stopped.value) == NOT_THERE


def test_tables_that_are_missing_are_found(fresh_url: str, move: Move) -> None:
    move(fresh_url)
    (message,) = found()
    assert message == f"queue_db.W002 {NOT_THERE.replace(';', '')}"
    command("migrate", "queue_db", verbosity=0)
    assert found() == []


class Nowhere:
    """A router that keeps our app away."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "queue_db" else None


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_router_that_keeps_the_tables_away_is_found(own_url: str, move: Move) -> None:
    from django.test import override_settings

    move(own_url)
    with override_settings(DATABASE_ROUTERS=[Nowhere()]):
        (message,) = found()
    assert message.startswith("queue_db.W001 DATABASE_ROUTERS keep the app 'queue_db' from the database 'default'")


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schedules": {"night": {"task": ADD, "cron": "x"}}}, "the schedule 'night': cron='x'"),
        ({"schedules": {"night": {"task": ADD, "every": 9, "args": [{1}]}}}, "the schedule 'night': "),
        ({"worker": {"leese": 30}}, "OPTIONS['worker'] has 'leese'"),
        ({"worker": {"queues": ["a"]}}, "OPTIONS['worker'] has 'queues'"),
    ],
)
def test_a_worker_with_wrong_settings_says_which(options: dict[str, Any], says: str, tasks: Any, name: str) -> None:
    from django.core.management import CommandError
    from django.test import override_settings

    wrong = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}
    with override_settings(TASKS=wrong), pytest.raises(CommandError) as stopped:
        command("queue_worker", queue=[name], until_empty=True, skip_checks=True)
    assert says in str(stopped.value)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_queue_that_the_settings_do_not_have_is_refused(tasks: Any) -> None:
    from django.test import override_settings

    from queue_db.contrib.django.framework import InvalidTask

    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}}):
        with pytest.raises(InvalidTask, match="nowhere"):
            tasks.add.using(queue_name="nowhere")
        assert found(QUEUES=["default"]) == []


# --- the address --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        (
            {"ENGINE": "postgresql", "HOST": "h", "PORT": "5433", "OPTIONS": {"sslmode": "require"}},
            "postgresql+psycopg://u:p%40@h:5433/d?sslmode=require",
        ),
        ({"ENGINE": "postgresql", "HOST": "/run/pg", "PORT": ""}, "postgresql+psycopg://u:p%40@/d?host=%2Frun%2Fpg"),
        (
            {"ENGINE": "mysql", "HOST": "/run/my.sock", "PORT": "", "OPTIONS": {"ssl": {"ca": "/ca.pem"}, "charset": "utf8mb4"}},
            "mysql+pymysql://u:p%40@localhost/d?ssl_ca=%2Fca.pem&unix_socket=%2Frun%2Fmy.sock",
        ),
        ({"ENGINE": "mysql", "HOST": "h", "PORT": 3307}, "mysql+pymysql://u:p%40@h:3307/d"),
    ],
)
@pytest.mark.usefixtures("set_up")
def test_the_address_is_that_of_the_settings(entry: dict[str, Any], url: str) -> None:
    from django.db import connections
    from django.db.utils import load_backend

    from queue_db.contrib.django.databases import url_of

    given = {"NAME": "d", "USER": "u", "PASSWORD": "p@", "OPTIONS": {}} | entry
    whole = connections.configure_settings({"default": given | {"ENGINE": f"django.db.backends.{entry['ENGINE']}"}})["default"]
    before = connections["default"]
    connections["default"] = load_backend(whole["ENGINE"]).DatabaseWrapper(whole, "default")
    try:
        made = url_of("default")
    finally:
        connections["default"] = before
    assert made.render_as_string(hide_password=False) == url
    assert "p@" not in repr(made)


# --- schedules ----------------------------------------------------------------------------------------------------------


def test_schedules_are_those_of_the_settings(tasks: Any, name: str, work: Callable[..., Any], db: QueueDB) -> None:
    from django.test import override_settings

    rule = {"task": tasks.add.module_path, "args": [1, 2], "cron": "0 3 * * *", "zone": "Europe/Berlin"}

    def working(schedules: dict[str, Any]) -> list[Any]:
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"schedules": schedules}}}):
            work()
            return [each for each in db.schedules.list() if each.name.startswith("django:default:")]

    (schedule,) = working({name: rule})
    assert (schedule.name, schedule.rule, schedule.zone) == (f"django:default:{name}", "0 3 * * *", "Europe/Berlin")
    job_id = db.schedules.run_now(schedule.name)
    assert tasks.add.get_result(str(job_id)).args == [1, 2]
    assert db.cancel(job_id)
    assert working({}) == []


def test_an_occurrence_is_a_task(tasks: Any, name: str, work: Callable[..., Any], db: QueueDB) -> None:
    from django.test import override_settings

    from queue_db.contrib.django.worker import backend_of, set_schedules

    rule = {"task": tasks.add.module_path, "args": [1, 2], "every": 3600}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"schedules": {name: rule}}}}):
        set_schedules("default", backend_of("default").settings, db)
        job_id = db.schedules.run_now(f"django:default:{name}")
        from queue_db.contrib.django import worker

        made = worker("default", ["default"])
        try:
            made.run(until_empty=True)
        finally:
            made.db.close()
        result = tasks.add.get_result(str(job_id))
        assert result.return_value == 3
        assert result.enqueued_at <= result.started_at
    set_schedules("default", backend_of("default").settings, db)


# --- the admin, and a view ------------------------------------------------------------------------------------------------


@pytest.fixture
def people(fresh_url: str, move: Move) -> Any:
    """Make a user with these permissions, logged in."""
    move(fresh_url)
    command("migrate", verbosity=0)
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    def person(*permissions: str) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return person


PAGE = "/admin/queue_db/taskqueue/"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_admin_shows_the_queues_to_whom_may_see_them(people: Any, name: str, fresh_url: str) -> None:
    from django.test import override_settings

    from tests.contrib.django.project.shop.tasks import add

    add.using(queue_name=name).enqueue(1, 2)
    options = {"dashboard": "https://queues.example.com/"}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        assert people().get(PAGE).status_code == 403
        page = people("view_taskqueue").get(PAGE)
    assert page.status_code == 200
    text = page.content.decode()
    assert f'<th scope="row">{name}</th>' in text
    assert '<a class="section" href="https://queues.example.com/"' in text
    assert page.content.decode().partition('class="breadcrumbs"')[2].partition("</div>")[0].count("Task queues") == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_failed_tasks_are_retried_by_whom_may(people: Any, name: str, fresh_url: str) -> None:
    from tests.contrib.django.project.shop.tasks import explode

    results = [explode.using(queue_name=name).enqueue() for _ in range(3)]
    ids = [result.id for result in results]

    def statuses() -> list[str]:
        return [str(explode.get_result(each).status) for each in ids]

    with QueueDB(fresh_url) as db:
        for job in db.queue(name).claim(limit=3):
            job.bury(f"first\n<last of {job.id}>\n")
    all_of_them, one = {"backend": "default", "queue": name}, {"backend": "default", "queue": name, "id": ids[1]}
    only_sees, may = people("view_taskqueue"), people("view_taskqueue", "change_taskqueue")
    for form in (all_of_them, one, all_of_them | {"post": "yes"}):
        assert only_sees.post(PAGE, form).status_code == 403
    shown = only_sees.get(PAGE).content.decode()
    assert [f"&lt;last of {each}&gt;" in shown for each in ids] == [True] * 3
    assert "Retry" not in shown
    assert f"Retry all failed tasks of {name}…" in may.get(PAGE).content.decode()
    assert f"Task {ids[1]} of {name} is ready again." in may.post(PAGE, one, follow=True).content.decode()
    assert statuses() == ["FAILED", "READY", "FAILED"]
    assert "is not dead" in may.post(PAGE, one, follow=True).content.decode()
    for wrong in ("", "12x", "9" * 5000):
        may.post(PAGE, all_of_them | {"id": wrong, "post": "yes"})
    assert "Yes, retry them" in may.post(PAGE, all_of_them).content.decode()
    assert statuses() == ["FAILED", "READY", "FAILED"]
    page = may.post(PAGE, all_of_them | {"post": "yes"}, follow=True).content.decode()
    assert f"2 failed tasks of {name}: ready again." in page
    assert statuses() == ["READY"] * 3
    with QueueDB(fresh_url) as db:
        targets = {each.target for each in db.actions.list() if each.action == "redrive"}
        assert targets == {name, f"dead job {ids[1]}"}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_admin_shows_the_latest_failed_tasks(people: Any, name: str, fresh_url: str) -> None:
    from django.db import connection

    sees = people("view_taskqueue")

    def shown() -> list[int]:
        return [int(found) for found in re.findall(r"</th><td>(\d+)</td>", sees.get(PAGE).content.decode())]

    assert shown() == []
    with QueueDB(fresh_url) as db:
        queue = db.queue(name)
        for _ in range(3):
            queue.enqueue_many(("work", None) for _ in range(1000))
            queue.bury_many(queue.claim(limit=1000), "no")
    with connection.cursor() as cursor:  # all within a minute, those with the lowest ids last
        cursor.execute("UPDATE jobs_dead SET died_at = %s - id", [time.time_ns() // 1000])
    assert shown() == list(range(1, 21))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_paused_queue_and_a_missing_worker_are_shown(
    people: Any, name: str, fresh_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    from queue_db.contrib.django import worker
    from tests.contrib.django.project.shop.tasks import add

    add.using(queue_name=name).enqueue(1, 2)
    sees = people("view_taskqueue")

    def shown() -> str:
        text = sees.get(PAGE).content.decode()
        return " ".join(re.sub("<[^>]+>", " ", text[text.index('<th scope="row">') :]).split())

    assert shown().startswith(f"{name} none 1 0 0 0")
    with QueueDB(fresh_url) as db:
        db.queue(name).pause()
    made = worker("default", [name])
    try:
        with made:
            wait_for(lambda: shown().startswith(f"{name} paused 1 1 0 0 0"))
        made.run(until_empty=True)
    finally:
        made.db.close()
    assert f"the queue '{name}' is paused" in caplog.text


def test_an_asynchronous_view_enqueues(tasks: Any, name: str, db: QueueDB) -> None:
    from django.test import AsyncClient

    answer = asyncio.run(AsyncClient().get(f"/order/{name}/"))
    assert answer.status_code == 200
    assert answer.json()["status"] == "READY"
    assert db.queue(name).stats().available == 1


# --- Django's own tests -----------------------------------------------------------------------------------------------------


def run_tests(url: str, *labels: str, name: str = "") -> str:
    """What ``manage.py test`` says; ``name``: of the test database."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.contrib.django.project.manage", "test", *labels],
        env=process_environment(url) | {"QUEUE_DB_TEST_DJANGO_NAME": name},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@pytest.mark.rest("a process of Django's test runner")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_test_runner_of_django_runs(kind: str, fresh_url: str, tmp_path: Path) -> None:
    name = str(tmp_path / "test.db") if kind == "sqlite" else ""
    assert "Ran 4 tests" in run_tests(fresh_url, "tests.contrib.django.project.shop.tests", name=name)


@pytest.mark.rest("above it the same runner has a file")
@pytest.mark.parametrize("kind", ["sqlite"])
def test_the_test_runner_of_django_runs_in_memory(kind: str, fresh_url: str) -> None:
    assert "Ran 3 tests" in run_tests(fresh_url, "tests.contrib.django.project.shop.tests.InTransaction")
