"""What a function must be to become a task, and what its definition says if it is not."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pydantic.dataclasses
import pytest

from queue_db import ArgumentError, ConfigurationError, LeasedJob, QueueDB
from queue_db.tasks import TaskJob, Tasks
from queue_db.testing import inline_tasks
from queue_db.worker import JobSnapshot, Worker

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

    from queue_db import LeasedJob as HiddenJob

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


def stars(*users: int) -> None: ...
def two_stars(**users: int) -> None: ...
def positional(user: int, /) -> None: ...
def job_later(user: int, job: LeasedJob) -> None: ...
def unnamed_job_later(user, job): ...
def generator(user: int) -> Any:
    yield user


def fine() -> None: ...


class Class:
    def __init__(self, user: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (stars, {}, "task 'stars' takes *users: the payload has each argument by its name"),
        (two_stars, {}, "task 'two_stars' takes **users: the payload has each argument by its name"),
        (positional, {}, "task 'positional': user is positional-only"),
        (job_later, {}, "task 'job_later': the job must be the first parameter, and job is not"),
        (unnamed_job_later, {}, "task 'unnamed_job_later': the job must be the first parameter, and job is not"),
        (generator, {}, "task 'generator' is a generator function"),
        (Class, {}, "must be a function"),
        (3, {}, "must be a function"),
        (functools.partial(print), {}, "one without a name needs name="),
        (fine, {"name": ""}, "name is empty"),
        (fine, {"name": "x", "aliases": [" y"]}, "alias=' y' begins or ends with a blank"),
        (fine, {"name": "x", "aliases": "y"}, "aliases='y': must be a list of kinds"),
        (fine, {"name": "x", "aliases": ["x"]}, "has the kind 'x' already"),
        (fine, {"queue": ""}, "queue is empty"),
        (fine, {"timout": 3}, "timout: no option of a task; they are max_attempts, backoff, "),
        (fine, {"on_duplicate": "skpi"}, "on_duplicate='skpi'"),
        (fine, {"unique_for": 3}, "unique_for is the time for which a unique key stays taken: give unique="),
        (fine, {"delay": -1}, "delay=-1"),
        (fine, {"priority": 1.5}, "priority=1.5"),
        (fine, {"group": ""}, "group is empty"),
    ],
)
def test_a_definition_that_cannot_work_says_why(tasks: Tasks, function: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        tasks.task(**{"queue": "mail", **options})(function)
    assert not tasks.by_kind


def test_the_decorator_needs_its_brackets(tasks: Tasks) -> None:
    with pytest.raises(ArgumentError, match=re.escape('@tasks.task(queue="mail")')):
        tasks.task(lambda: None)  # type: ignore[call-overload]


@pytest.mark.parametrize("what", ["unique", "group"])
def test_a_function_for_keys_takes_arguments_of_its_task(tasks: Tasks, what: str) -> None:
    def welcome(user: int) -> None: ...

    async def later(user: int) -> str:
        return ""

    def starred(*users: int) -> str:
        return ""

    for function, message in (
        (lambda usr: "", "takes usr, which is no argument of the task: user"),
        (starred, "takes users"),
        (later, "must be a plain function"),
        (3, "=3 of task 'welcome': must be a function of the task's arguments"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tasks.task(queue="mail", **{what: function})(welcome)
    tasks.task(queue="mail", **{what: lambda **_: "a"})(welcome)


def test_a_kind_belongs_to_one_task(tasks: Tasks) -> None:
    @tasks.task(queue="mail", aliases=["old"])
    def one() -> None: ...

    for name, aliases in (("one", ()), ("old", ()), ("two", ("one",)), ("two", ("old",)), ("two", ("three", "three"))):
        with pytest.raises(ArgumentError, match="has the kind '.*' already: give another name= or aliases="):
            tasks.task(queue="mail", name=name, aliases=aliases)(lambda: None)
    assert list(tasks.by_kind) == ["one", "old"]


LATE = """
import dataclasses
from typing import TYPE_CHECKING
from queue_db import LeasedJob
from queue_db.aio import AsyncLeasedJob
from queue_db.tasks import TaskJob
if TYPE_CHECKING:
    from elsewhere import Hidden

def late(job: TaskJob | None, page: Page, pages: list[Page] = ()) -> Page: return page
async def on_loop(job: AsyncLeasedJob[Hidden], page: Page) -> Page: return page
def hidden(page: Hidden) -> None: ...
async def handler(job: AsyncLeasedJob[Hidden]) -> Hidden: ...
def of_thread(job: LeasedJob[Hidden]) -> Hidden: ...
def backoff(attempt: Hidden) -> Hidden: return 1.0
def hook(event: Hidden) -> None: ...

@dataclasses.dataclass
class Page:
    number: int
    before: "Page | None" = None
"""
"""As of a module that Python 3.14 reads: it evaluates an annotation when somebody asks for it."""


@pytest.mark.parametrize("kind", ["sqlite"])
def test_annotations_may_name_what_is_defined_later_or_only_for_checkers(
    tasks: Tasks, db: QueueDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    (tmp_path / "annotated_late.py").write_text(future + LATE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("annotated_late")
    functions = (module.late, module.on_loop, module.hidden)
    late, on_loop, hidden = (tasks.task(queue="m", unique=lambda page: f"{page}")(one) for one in functions)
    assert [one.payloads.signature.job for one in (late, on_loop, hidden)] == ["LeasedJob", "AsyncLeasedJob", None]
    with inline_tasks(tasks) as inlined:
        late.enqueue(module.Page(1), [module.Page(2)])
        on_loop.enqueue(module.Page(3, module.Page(4)))
        with pytest.raises(ArgumentError, match="annotation 'Hidden' of argument page cannot be evaluated"):
            hidden.enqueue(3)
    assert [run.outcome for run in inlined.runs] == [module.Page(1), module.Page(3, module.Page(4))]
    worker = Worker(db, "m")
    worker.handles("loop", backoff=module.backoff)(module.handler)
    worker.handles("thread")(module.of_thread)
    worker.on(module.hook)
    assert [spec.awaits for spec in worker.handlers.all()] == [True, False]


def by_name(job, user: int) -> None: ...
def by_class(first: LeasedJob, user: int) -> None: ...
def by_alias(first: TaskJob, user: int) -> None: ...
def by_parameter(first: LeasedJob[dict[str, int]], user: int) -> None: ...
def by_snapshot(first: JobSnapshot, user: int) -> None: ...
def by_hidden_name(first: LeasedJob[Unknown], user: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def by_text(first: "queue_db.LeasedJob", user: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037
def by_part(first: Annotated[LeasedJob, "a job"], user: int) -> None: ...
def by_option(first: TaskJob | None = None, *, user: int) -> None: ...
def job_of_another_type(job: str, user: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "job"),
    [
        (by_name, "LeasedJob"),
        (by_class, "LeasedJob"),
        (by_alias, "LeasedJob"),
        (by_parameter, "LeasedJob"),
        (by_snapshot, "JobSnapshot"),
        (by_hidden_name, "LeasedJob"),
        (by_text, "LeasedJob"),
        (by_part, "LeasedJob"),
        (by_option, "LeasedJob"),
        (job_of_another_type, None),
    ],
)
def test_the_job_is_found_by_its_annotation_or_its_name(tasks: Tasks, function: Callable[..., Any], job: str | None) -> None:
    task = tasks.task(queue="mail")(function)
    assert task.payloads.signature.job == job
    assert list(task.payloads.signature.arguments.parameters) == (["user"] if job else ["job", "user"])


def test_a_handler_process_gives_a_snapshot(tasks: Tasks) -> None:
    with pytest.raises(ArgumentError, match="executor='process' gives a JobSnapshot, and no LeasedJob"):
        tasks.task(queue="mail", executor="process")(by_class)


def hidden_argument(price: OnlyForCheckers) -> None: ...
def hidden_result() -> OnlyForCheckers: ...
def unlike(price: complex) -> None: ...
def unlike_inside(prices: list[dict[str, complex]]) -> None: ...
def ambiguous(when: ByteUnion) -> None: ...


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    user: int


def of_pydantic(one: PydanticDataclass) -> None: ...


ByteUnion = bytes | str


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (hidden_argument, "task 'hidden_argument': the annotation 'OnlyForCheckers' of argument price cannot be evaluated"),
        (hidden_result, "task 'hidden_result': the annotation 'OnlyForCheckers' of the result cannot be evaluated"),
        (unlike, "task 'unlike': argument price: complex is no type of JSON"),
        (unlike_inside, "task 'unlike_inside': argument prices: complex is no type of JSON"),
        (ambiguous, "task 'ambiguous': argument when: Type unions may not contain more than one str-like type"),
        (of_pydantic, "task 'of_pydantic': argument one: PydanticDataclass is a dataclass of pydantic"),
    ],
)
def test_annotations_that_cannot_be_checked_are_refused_before_a_job_is(
    tasks: Tasks, function: Callable[..., Any], message: str
) -> None:
    task = tasks.task(queue="mail")(function)
    with pytest.raises(ArgumentError, match=re.escape(message)), QueueDB("sqlite://") as db:
        Worker(db, tasks)
    if function is not hidden_result:
        with pytest.raises(ArgumentError, match=re.escape(message)):
            task.call(*([3] if task.payloads.signature.arguments.parameters else []))


def later(user: DefinedLater) -> str:
    return user.name


def test_names_may_be_defined_after_the_task(tasks: Tasks) -> None:
    task = tasks.task(queue="mail")(later)
    assert task.call(DefinedLater("a")).job.payload == {"user": {"name": "a"}}


def hidden_job(job: HiddenJob, user: int) -> int:
    return user


def test_the_name_job_alone_does_not_make_it_one(tasks: Tasks) -> None:
    """An annotation that cannot be evaluated and names no class of jobs is that of an argument."""
    task = tasks.task(queue="mail")(hidden_job)
    with pytest.raises(ArgumentError, match="the annotation 'HiddenJob' of argument job cannot be evaluated"):
        task.call(3, 4)


class DefinedLater(pydantic.BaseModel):
    name: str

    def __init__(self, name: str) -> None:
        super().__init__(name=name)


def test_a_task_is_like_its_function(tasks: Tasks) -> None:
    task = tasks.task(queue="mail")(later)
    assert (task.__name__, task.__module__, task.__qualname__, task.function) == ("later", __name__, "later", later)  # type: ignore[attr-defined]
    assert task(DefinedLater("a")) == "a"
    assert repr(task) == "<Task 'later' of queue 'mail'>"


def test_a_worker_without_tasks_is_refused(tasks: Tasks) -> None:
    with QueueDB("sqlite://") as db:
        for make in (lambda: Worker(db, tasks), lambda: tasks.worker(db)):
            with pytest.raises(ConfigurationError, match="import the modules that define them before the worker is made"):
                make()


class Greeter:
    def __call__(self, user: DefinedLater, size: int) -> str:
        return user.name * size


def test_a_callable_object_or_a_partial_is_a_task_with_a_name(tasks: Tasks) -> None:
    one = tasks.task(queue="mail", name="one")(Greeter())
    two = tasks.task(queue="mail", name="two")(functools.partial(Greeter(), size=2))
    assert one.call(DefinedLater("a"), 3).job.payload == {"user": {"name": "a"}, "size": 3}
    assert two.call(DefinedLater("a")).job.payload == {"user": {"name": "a"}}
    with inline_tasks(tasks):
        assert two.result(two.enqueue(DefinedLater("a")), timeout=1) == "aa"


def test_a_kind_may_be_any_name(tasks: Tasks) -> None:
    def odd(name: str, self: int, _private: int, type: int) -> None: ...  # noqa: A002

    task = tasks.task(queue="mail", name="shop.mail: send it!")(odd)
    payload = {"name": "a", "self": 1, "_private": 2, "type": 3}
    assert task.payloads.schema.read(task.name, task.call(*payload.values()).job.payload) == payload


def test_a_function_without_a_signature_is_refused(tasks: Tasks) -> None:
    def odd() -> None: ...

    odd.__signature__ = "unknown"  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match="task 'odd': unexpected object"):
        tasks.task(queue="mail")(odd)


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def test_a_definition_imports_neither_workers_nor_libraries_for_payloads() -> None:
    loaded = run(
        "import sys\nfrom queue_db.tasks import TaskJob, Tasks\ntasks = Tasks()\n"
        "@tasks.task(queue='mail', unique=lambda user: str(user))\ndef welcome(job: TaskJob, user: int) -> int: return user\n"
        "print(*(name for name in sys.modules if name.startswith(('queue_db.worker', 'queue_db.aio', 'queue_db.processes', "
        "'msgspec', 'pydantic'))))"
    )
    assert loaded == ""


def test_without_msgspec_the_error_names_the_extra() -> None:
    said = run(
        "import sys; sys.modules['msgspec'] = None\nfrom queue_db import ConfigurationError\nfrom queue_db.tasks import Tasks\n"
        "tasks = Tasks()\n@tasks.task(queue='mail')\ndef welcome(user: int) -> None: ...\n"
        "try: welcome.enqueue(user=7)\nexcept ConfigurationError as error: print(error)"
    )
    assert said == 'typed tasks need msgspec: pip install "queue-db[tasks]"'
