"""Inside Spark's Python processes: count the arrivals at a step of the protocol, and at the wanted one raise, end, or wait.

Imported by a ``.pth`` file at the start of every Python of the environment that it lies in; without the variable it does nothing.
A step is a transaction of the package by its name ("staging.publish", "streams.allocate" …), or "results" (a drain's file), and a
moment:

    before   it begins
    within   after one of its statements
    inside   after its last statement, before COMMIT
    after    COMMIT is answered, and no other process knows of it

The order lies in ``plan.json``: ``{"id", "name", "when", "at", "act", "all"}``; each arrival is a file ``<id>.<number>``.
"""

import functools
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

VARIABLE = "QUEUE_DB_KILLS"
# No steps of a protocol: every visit begins so.
BESIDE = ("migrate.found", "streams.expired")
FOLDER = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
PATIENCE = 300.0

_now = threading.local()


class Injected(Exception):
    """What a round makes go wrong."""


def arrive(name, when):
    """A process is at this step."""
    if when == "after" and getattr(_now, "waited", None):
        _place(_now.waited, "through").touch()
    try:
        plan = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if plan["name"] not in (name, "*") or plan["when"] not in (when, "*") or name in BESIDE:
        return
    if _place(plan["id"], plan["at"]).exists() and not plan["all"]:
        return
    if _count(plan["id"], name, when) == plan["at"]:
        _act(plan["act"], plan["id"], name, when)


def _place(trap, what):
    return FOLDER / f"{trap}.{what}"


def _count(trap, name, when):
    """Note an arrival and return its number: of several that come at once each gets its own."""
    number = 1
    note = _place(trap, f"note-{os.getpid()}-{threading.get_ident()}")
    note.write_text(json.dumps({"pid": os.getpid(), "name": name, "when": when, **_task()}), encoding="utf-8")
    while True:
        try:
            _place(trap, number).hardlink_to(note)
        except FileExistsError:
            number += 1
        else:
            note.unlink()
            return number


def _task():
    from pyspark import TaskContext

    context = TaskContext.get()
    return {} if context is None else {"partition": context.partitionId(), "attempt": context.attemptNumber()}


def _act(act, trap, name, when):
    if act == "raise":
        raise Injected(f"injected: {when} {name}")
    if act == "exit":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "wait":
        last = time.monotonic() + PATIENCE
        while not _place(trap, "go").exists():
            if time.monotonic() > last:
                raise Injected(f"no answer: {when} {name}")
            time.sleep(0.01)
        if when == "after":
            _place(trap, "through").touch()
        else:
            _now.waited = trap


def _statement(*_):
    name = getattr(_now, "name", None)
    if name is not None:
        arrive(name, "within")


def _wrap_database(module):
    from sqlalchemy import Engine, event

    own = module.OwnTransaction
    enter, leave = own.__enter__, own.__exit__

    def begin(self):
        if not self._runs:
            arrive(self.run.name, "before")
        _now.name = self.run.name
        try:
            return enter(self)
        except BaseException:
            _now.name = None
            raise

    def end(self, kind, error, trace):
        if error is None:
            try:
                arrive(_known(self.run.name), "inside")
            except BaseException as injected:
                kind, error, trace = type(injected), injected, injected.__traceback__
                if not end(self, kind, error, trace):
                    raise
                return True
        try:
            again = leave(self, kind, error, trace)
        finally:
            _now.name = None
        if self.committed:
            arrive(_known(self.run.name), "after")
        return again

    own.__enter__, own.__exit__ = begin, end
    event.listen(Engine, "after_cursor_execute", _statement)


def _known(name):
    """A claim that found nothing has a name of its own."""
    return "claimed nothing" if name == "streams.allocate" and not _now.claimed else name


def _wrap_streams(module):
    original = module.allocate

    @functools.wraps(original)
    def allocate(tx, session, start, **more):
        end = original(tx, session, start, **more)
        _now.claimed = end != start
        return end

    module.allocate = allocate


def _wrap_results(module):
    original = module.publish

    def publish(folder, table):
        arrive("results", "before")
        original(folder, table)
        arrive("results", "after")

    module.publish = publish


class Finder(importlib.abc.MetaPathFinder):
    """Wraps modules when they are imported, wherever they come from."""

    WRAPPERS = {  # noqa: RUF012 - it is never changed
        "queue_db.database.transaction": _wrap_database,
        "queue_db.spark.results": _wrap_results,
        "queue_db.spark.streams.store": _wrap_streams,
    }

    def find_spec(self, fullname, path, target=None):
        if fullname not in self.WRAPPERS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader, self.WRAPPERS[fullname])
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, inner, wrap):
        self.inner, self.wrap = inner, wrap

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)
        self.wrap(module)


if FOLDER:
    sys.meta_path.insert(0, Finder())
