"""Writes the classes for asyncio from the signatures and docstrings of the synchronous classes.

``python -m tools.asynchronous write`` writes the files; ``check`` compares them with what it would write. What signatures do not
say is in ``queue_db/aio/bases.py``, ``queue_db/feeds/aio/bases.py`` and ``queue_db/aio/opening.py``, by hand.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# --- which classes ------------------------------------------------------------------------------------------------------

# The most characters of a line.
_WIDTH = 132


class Twin(NamedTuple):
    """A synchronous class that has a twin for asyncio."""

    name: str
    module: str
    #: The hand-written base of the twin.
    base: str = "aio.bases.Twin"
    #: Whether the twin has the docstring of that base; the parameters that it does not tell are told as in the synchronous class.
    words: bool = False
    #: Where the twin has the synchronous object.
    behind: str = "_sync"
    #: Attributes of the synchronous object that are properties of the twin.
    attributes: Sequence[str] = ()
    #: What the twin lacks: it is for the package's own use, or for the worker, which is synchronous.
    without: Sequence[str] = ()
    #: What runs a synchronous verb.
    runs: str = "run"

    @property
    def twin(self) -> str:
        """The name of the class for asyncio."""
        return f"Async{self.name}"


_PARTS = [
    *(
        "dead",
        "schedules",
        "actions",
        "metrics",
        "feeds",
        "routes",
        "steps",
        "tokens",
        "streams",
        "graphs",
        "notifications",
        "schemas",
    )
]
_OF_QUEUES = ["claim_if_idle", "records_of", "transaction_on_loop", "progress_of", "extend_unlocked", "adjust_attempts"]
_OF_JOBS = ["report_progress_to", "limit_attempts", "limited", "understood", "lost", "waited", "snapshot_row"]
_OF_RESUMABLE = ["state", "step", "step_transaction", "loop"]
_OF_FEEDS = ["row", "forget", "message", "rank_once", "existing", "present", "known", "after_publish"]

#: What the queue does not import.
SLICES = "dead|feeds|graphs|groups|monitoring|routes|schedules|service|spark|steps|tokens"

#: The files in ``queue_db`` as modules, and the classes of each. Those of a slice stand in its package.
FILES = {
    "aio.db": [
        Twin(
            *("QueueDB", "queue_db.db", "aio.opening.Opening"),
            words=True,
            behind="_db",
            attributes=_PARTS,
            without=["ready", "store", "watch", "arrivals"],
        )
    ],
    "aio.queue": [Twin("Queue", "queue_db.queue", "aio.bases.QueueTwin", words=True, without=_OF_QUEUES)],
    "aio.leased": [
        Twin(
            *("LeasedJob", "queue_db.leased_job", "aio.bases.LeasedJobTwin[Payload_co]"),
            behind="leased",
            attributes=["version"],
            without=[*_OF_JOBS, *_OF_RESUMABLE],
            runs="self._run",
        )
    ],
    "dead.aio": [Twin("DeadJobs", "queue_db.dead.dead_jobs")],
    "schedules.aio": [Twin("Schedules", "queue_db.schedules.registry")],
    "graphs.aio": [
        Twin("Graphs", "queue_db.graphs.registry", attributes=["cancelled"]),
        Twin("JobGraph", "queue_db.graphs.job_graph", attributes=["id"]),
    ],
    "monitoring.aio": [Twin("Actions", "queue_db.monitoring.actions"), Twin("Metrics", "queue_db.monitoring.metrics")],
    "spark.streams.aio": [Twin("Streams", "queue_db.spark.streams.registry")],
    "steps.aio": [Twin("Steps", "queue_db.steps.registry")],
    "tokens.aio": [Twin("Tokens", "queue_db.tokens.tokens")],
    "feeds.aio.feeds": [
        Twin("Feed", "queue_db.feeds.feed", without=_OF_FEEDS),
        Twin("Feeds", "queue_db.feeds.registry", without=["named", "each"]),
    ],
    "feeds.aio.cursors": [
        Twin(
            "Cursor", "queue_db.feeds.cursor", "feeds.aio.bases.CursorTwin", attributes=["skipped"], without=["pages", "transfer"]
        ),
        Twin("SharedCursor", "queue_db.feeds.shared", attributes=["skipped"], without=["job", "feed_id"]),
        Twin("Span", "queue_db.feeds.shared", "feeds.aio.bases.SpanTwin", without=["extend_unlocked", "settle"]),
    ],
    "feeds.aio.message_claims": [
        Twin("MessageClaim", "queue_db.feeds.claims", "feeds.aio.bases.MessageClaimTwin", attributes=["expires_at"])
    ],
    "routes.aio": [Twin("Topic", "queue_db.routes.topic"), Twin("Routes", "queue_db.routes.registry", without=["topic"])],
}

#: Verbs that wait for nothing.
NOT_AWAITED = {
    "QueueDB.queue",
    "QueueDB.feed",
    "QueueDB.topic",
    "QueueDB.graph",
    "QueueDB.migration_sql",
    "JobGraph.adding",
    "LeasedJob.rolled_back",
}

#: Verbs that do not call the synchronous one.
BODIES = {
    "QueueDB.close": "await self._close()",
    "QueueDB.queue": "return self._queues[name]",
    "QueueDB.feed": "return self._feeds[name]",
}

# --- types and words ----------------------------------------------------------------------------------------------------

TWINS = {twin.twin: twin for twins in FILES.values() for twin in twins}

#: Type → the type for asyncio.
TYPES = {
    **{twin.name: twin.twin for twin in TWINS.values()},
    **{name: f"Async{name}" for name in ("Connection", "Session", "Engine", "Iterator", "Using")},
}

WORDS = {"a Connection or Session": "an AsyncConnection or AsyncSession"}

#: Type of an argument → the function that makes the synchronous argument of it.
ARGUMENTS = {
    "AsyncUsing | None": "joined",
    "AsyncConnection | None": "opened",
    "Sequence[AsyncLeasedJob]": "settled",
}

#: Twins that are made of more than the synchronous object.
MADE = {"AsyncLeasedJob": "AsyncLeasedJob({}, self)"}

#: Name in the generated code → its module.
MODULES = {
    **{twin.twin: f"queue_db.{file}" for file, twins in FILES.items() for twin in twins},
    **dict.fromkeys(("AsyncConnection", "AsyncEngine", "AsyncSession"), "sqlalchemy.ext.asyncio"),
    **dict.fromkeys(("joined", "opened", "run", "within"), "queue_db.concurrency.greenlets"),
    **dict.fromkeys(("AsyncIterator", "Generator"), "collections.abc"),
    "asynccontextmanager": "contextlib",
    "AsyncUsing": "queue_db.dialects.borrowed",
    "settled": "queue_db.aio.bases",
}


class ForTasks(ast.NodeTransformer):
    """Makes the annotations of a coroutine from those of a function."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The type for asyncio."""
        return ast.Name(TYPES.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """What is awaited, without ``Awaitable``."""
        return self.visit(node.slice) if ast.unparse(node.value) == "Awaitable" else self.generic_visit(node)


def for_tasks(annotation: ast.expr | None) -> str:
    """The annotation for asyncio. A type that is twice in a union now is left out once."""
    if annotation is None:
        raise TypeError("an annotation is missing")
    text = ast.unparse(ForTasks().visit(ast.parse(ast.unparse(annotation), mode="eval").body))
    return text if "[" in text else " | ".join(dict.fromkeys(text.split(" | ")))


def twinned(annotation: str, found: str) -> str:
    """The expression that makes twins of ``found``, what a synchronous verb has returned."""
    if TWINS.keys().isdisjoint(re.findall(r"\w+", annotation)):
        return found
    match ast.parse(annotation, mode="eval").body:
        case ast.Name(name):
            return MADE.get(name, f"{name}({{}})").format(found)
        case ast.BinOp(left=inner, right=ast.Constant(value=None)):
            return f"None if {found} is None else {twinned(ast.unparse(inner), found)}"
        case ast.Subscript(value=ast.Name("list"), slice=inner):
            return f"[{twinned(ast.unparse(inner), 'each')} for each in {found}]"
        case ast.Subscript(value=ast.Name("tuple"), slice=ast.Tuple(parts)):
            return ", ".join(twinned(ast.unparse(part), f"{found}[{at}]") for at, part in enumerate(parts))
    raise TypeError(f"tools/asynchronous.py cannot make {annotation} of what the synchronous verb returns")


# --- the synchronous classes --------------------------------------------------------------------------------------------


class Source:
    """A class and the module that it is in."""

    def __init__(self, root: Path, module: str, name: str) -> None:
        self.module, self.name = module, name
        self.path = root / f"{module.replace('.', '/')}.py"
        self.text = self.path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.owner = next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def parts(self, root: Path) -> list[Source]:
        """The class, and its bases of other modules of the package."""
        found = [self]
        for base in self.owner.bases:
            line = re.fullmatch(r"from (queue_db\.\S+) import (\w+)", self.import_of(ast.unparse(base)))
            if line and line[1] != self.module:
                found.append(Source(root, line[1], line[2]))
        return found

    def of(self, node: ast.AST) -> str:
        """The text of a part."""
        return ast.get_source_segment(self.text, node) or ""

    def docstring(self, node: ast.ClassDef | ast.FunctionDef) -> str:
        """The docstring with its quotes, in the words of asyncio; empty if there is none."""
        text = self.of(node.body[0]) if ast.get_docstring(node) else ""
        for word, other in WORDS.items():
            text = text.replace(word, other)
        return text

    def import_of(self, name: str, *, or_own: bool = True) -> str:
        """The statement that imports what the module calls ``name``; empty if there is none and no ``or_own``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
                return f"from {node.module} import {name}" if isinstance(node, ast.ImportFrom) else f"import {name}"
        return f"from {self.module} import {name}" if or_own else ""

    def functions(self) -> list[ast.FunctionDef]:
        """The public functions and properties, with their overloads."""
        public = [node for node in self.owner.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
        # What would be overlooked: a verb that is a coroutine already, or that has a second name.
        for node in self.owner.body:
            name = (
                node.name
                if isinstance(node, ast.AsyncFunctionDef)
                else isinstance(node, ast.Assign) and ast.unparse(node.targets[0])
            )
            if name and not name.startswith("_"):
                raise TypeError(f"{self.name}.{name}: a verb is a plain function with one name")
        # Overloads of these tell threads and tasks apart.
        both = {node.name for node in public if "Awaitable" in ast.unparse(node.returns or node)}
        return [node for node in public if not (node.name in both and "overload" in decorators(node))]

    def attribute(self, name: str) -> tuple[str, str]:
        """The type of an attribute, and its docstring: the comment above the line that sets it, or its ``:ivar``."""
        given = re.compile(rf"(.*)\n +self\.{name}(?:: (.+?))? = (\w+)").search(self.of(self.owner))
        declared = re.search(rf"^    {name}: (.+)", self.of(self.owner), re.MULTILINE)
        told = re.search(rf":ivar {name}: (.+)", self.of(self.owner)) or (given and re.search("#: (.+)", given[1]))
        if given is None or told is None:
            raise TypeError(f"{self.name}.{name} needs a comment that begins with #: above the line that sets it")
        annotation = given[2] or (declared and declared[1]) or ("int" if given[3].isdigit() else given[3])
        if annotation == "self":
            raise TypeError(f"{self.name}.{name} needs an annotation where it is set")
        return TYPES.get(annotation, annotation), f'"""{told[1][0].upper()}{told[1][1:]}"""'


def decorators(node: ast.FunctionDef) -> list[str]:
    """The decorators of a function."""
    return [ast.unparse(each) for each in node.decorator_list]


def names(root: Path = ROOT) -> Iterator[tuple[Twin, str]]:
    """Each synchronous class with a twin, and the names of the functions and properties that both have."""
    for twin in TWINS.values():
        found = functions_of(twin, Source(root, twin.module, twin.name).parts(root))
        yield from ((twin, name) for name in dict.fromkeys(node.name for _, node in found))


def functions_of(twin: Twin, parts: Sequence[Source]) -> list[tuple[Source, ast.FunctionDef]]:
    """The functions and properties that the twin has too, each with where it stands."""
    found = [(part, node) for part in parts for node in part.functions()]
    if gone := set(twin.without) - {node.name for _, node in found}:
        raise TypeError(f"{twin.name} has no {', '.join(sorted(gone))}: take it out of tools/asynchronous.py")
    return [(part, node) for part, node in found if node.name not in twin.without]


# --- the classes for asyncio --------------------------------------------------------------------------------------------


def class_for_tasks(twin: Twin, source: Source, root: Path) -> str:
    """The text of a class for asyncio."""
    base, plain = twin.base.rpartition(".")[2], Twin._field_defaults["base"]
    lines = [
        f"class {twin.twin}({f'Twin[{twin.name}]' if twin.base == plain else base}):",
        f"    {class_words(twin, source, root)}",
    ]
    if "__slots__" in source.of(source.owner):
        lines += ["", "    __slots__ = ()"]
    if twin.name == "QueueDB":
        init = next(node for node in source.owner.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        given, called = parameters(init, source)
        lines += ["", f"    def __init__({given}) -> None:", f"        super().__init__({called})"]
    for name in twin.attributes:
        annotation, words = source.attribute(name)
        value = twinned(annotation, f"self.{twin.behind}.{name}")
        lines += ["", "    @property", f"    def {name}(self) -> {annotation}:", f"        {words}", f"        return {value}"]
    for part, node in functions_of(twin, source.parts(root)):
        lines += ["", *(f"    {line}" for line in function_for_tasks(twin, node, part))]
    return "\n".join(lines)


def class_words(twin: Twin, source: Source, root: Path) -> str:
    """The docstring of a class for asyncio."""
    words, field = source.docstring(source.owner), re.compile(r"^    :param (\w+):.*\n(?:     +.*\n)*", re.MULTILINE)
    if not twin.words:
        # Parameters of a constructor that is not this one's.
        without = field.sub("", words).removesuffix('"""').rstrip()
        return f'{without}\n    """' if "\n" in without else f'{without}"""'
    module, _, name = twin.base.rpartition(".")
    base = Source(root, f"queue_db.{module}", name)
    own = base.docstring(base.owner)
    told = {found[1] for found in field.finditer(own)}
    more = "".join(found[0] for found in field.finditer(words) if found[1] not in told)
    before, raises, after = own.partition("    :raises ")
    return f"{before}{more}{raises}{after}"


def parameters(node: ast.FunctionDef, source: Source) -> tuple[str, str]:
    """The parameters of a function for asyncio, and the arguments with which it calls the synchronous one."""
    args = node.args
    if args.posonlyargs or args.vararg:
        raise TypeError(f"{source.name}.{node.name}: tools/asynchronous.py does not know these parameters: {ast.unparse(args)}")
    defaults = [None] * (len(args.args) - len(args.defaults)) + args.defaults
    given, called = ["self"], []
    for arg, default in [*zip(args.args, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)][1:]:
        annotation, named = for_tasks(arg.annotation), arg in args.kwonlyargs
        given += ["*"] if arg in args.kwonlyargs[:1] else []
        given.append(f"{arg.arg}: {annotation}" + ("" if default is None else f" = {source.of(default)}"))
        value = f"{ARGUMENTS[annotation]}({arg.arg})" if annotation in ARGUMENTS else arg.arg
        called.append(f"{arg.arg}={value}" if named else value)
    if args.kwarg:
        given.append(f"**{args.kwarg.arg}: {for_tasks(args.kwarg.annotation)}")
        called.append(f"**{args.kwarg.arg}")
    return ", ".join(given), ", ".join(called)


def function_for_tasks(twin: Twin, node: ast.FunctionDef, source: Source) -> Iterator[str]:
    """The lines of a function or property for asyncio."""
    full, there = f"{twin.name}.{node.name}", f"self.{twin.behind}.{node.name}"
    (given, called), returned, kinds = parameters(node, source), for_tasks(node.returns), decorators(node)
    kept = [each for each in kinds if each in ("property", "overload", f"{node.name}.setter")]
    if block := "contextmanager" in kinds or returned == "JobTransaction":
        kept, returned = ["asynccontextmanager"], "AsyncIterator[AsyncConnection]"
    awaited = full not in NOT_AWAITED and kept in ([], ["overload"], ["asynccontextmanager"])
    yield from (f"@{each}" for each in kept)
    yield f"{'async ' if awaited else ''}def {node.name}({given}) -> {returned}:{' ...' if kept == ['overload'] else ''}"
    if kept == ["overload"]:
        return
    if words := source.docstring(node):
        yield f"    {words}"
    if full in BODIES:
        yield f"    {BODIES[full]}"
    elif kept == ["property"]:
        yield f"    return {twinned(returned, there)}"
    elif kept:
        yield from (BLOCK.format(f"{there}({called})") if block else f"    {there} = {called}").splitlines()
    elif returned.startswith("AsyncIterator"):
        yield from ITERATION.format(f"{there}({called})").splitlines()
    else:
        call = f"await {twin.runs}({', '.join(filter(None, [there, called]))})" if awaited else f"{there}({called})"
        if twinned(returned, "found") == "found":
            yield f"    {'' if returned == 'None' else 'return '}{call}"
        else:
            yield from (f"    found = {call}", f"    return {twinned(returned, 'found')}")


BLOCK = """\
    async with within({}) as connection:
        yield connection"""

# Closing a generator may wait too.
ITERATION = """\
    found = {}
    try:
        while (each := await run(next, found, None)) is not None:
            yield each
    finally:
        if isinstance(found, Generator):
            await run(found.close)"""

# --- the files ----------------------------------------------------------------------------------------------------------


def file_for_tasks(file: str, root: Path = ROOT) -> str:
    """What stands in a file."""
    twins = [(twin, Source(root, twin.module, twin.name)) for twin in FILES[file]]
    classes = [class_for_tasks(twin, source, root) for twin, source in twins]
    imports = {
        line for (twin, source), text in zip(twins, classes, strict=True) for line in imports_of(twin, text, source.parts(root))
    }
    origins = ", ".join(dict.fromkeys(part.path.relative_to(root).as_posix() for _, each in twins for part in each.parts(root)))
    told, rule = f"# Generated from {origins}.", "Do not change it: `make aio` writes it anew."
    head = [
        f"{told} {rule}" if len(told) + len(rule) < _WIDTH else f"{told}\n# {rule}",
        f'"""{", ".join(twin.name for twin, _ in twins)} for asyncio."""\n',
        "from __future__ import annotations\n",
        *(line for line in sorted(imports) if not line.startswith(f"from queue_db.{file} ")),
    ]
    text = "\n\n\n".join(["\n".join(head), *classes])
    if file.startswith("aio."):
        text = without_slices(text)
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", f"queue_db/{file.replace('.', '/')}.py", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def without_slices(text: str) -> str:
    """The text of a file of the queue, which finds the classes of slices when they are used, by their names."""
    imports = re.findall(rf"^from queue_db\.((?:{SLICES})\.\S+) import (\w+)\n", text, re.MULTILINE)
    if not imports:
        return text
    for module, name in imports:
        text = text.replace(f"from queue_db.{module} import {name}\n", "", 1)
        text = re.sub(
            rf"^( +)return {name}\((.*)\)$",
            rf'\1twin: {name} = load("{module}", "{name}")(\2)\n\1return twin',
            text,
            flags=re.MULTILINE,
        )
        text = re.sub(
            rf"^( +)return None if (.*) is None else {name}\((.*)\)$",
            rf'\1twin: {name} | None = None if \2 is None else load("{module}", "{name}")(\3)\n\1return twin',
            text,
            flags=re.MULTILINE,
        )
    types = "".join(f"    from queue_db.{module} import {name}\n" for module, name in imports)
    before, line, after = text.partition("from __future__ import annotations\n")
    first = after.index("\n\n\nclass ")
    hints = "".join(f'    {name} = type_hint("queue_db.{module}", "{name}")\n' for module, name in imports)
    load = "from queue_db.slices import load, type_hint\n" if " load(" in after else "from queue_db.slices import type_hint\n"
    found = f"from typing import TYPE_CHECKING\n{load}{after[:first]}\n\nif TYPE_CHECKING:\n{types}else:\n{hints}"
    return before + line + "\n" + found + after[first:]


def imports_of(twin: Twin, text: str, parts: Sequence[Source]) -> Iterator[str]:
    """The statements that import what a class names."""
    tree = ast.parse(text)
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    local = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    local |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)} | {"self"}
    module, _, base = twin.base.partition("[")[0].rpartition(".")
    modules = {**MODULES, base: f"queue_db.{module}"}
    for name in used - local - set(vars(builtins)):
        named = f"from {modules[name]} import {name}" if name in modules else None
        yield named or next((line for part in parts if (line := part.import_of(name, or_own=False))), parts[0].import_of(name))


def different(root: Path = ROOT) -> dict[Path, str]:
    """The files that are not as they would be written: what would stand in each."""
    fresh = {root / "queue_db" / f"{file.replace('.', '/')}.py": file_for_tasks(file, root) for file in FILES}
    return {path: text for path, text in fresh.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def main(command: list[str], root: Path = ROOT) -> int:
    """Run a command; return the exit status."""
    if command not in (["write"], ["check"]):
        print("usage: python -m tools.asynchronous write | check")
        return 2
    changed = different(root)
    for path, text in changed.items():
        if command == ["write"]:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(root)}")
        else:
            print(f"{path.relative_to(root)} is not what its synchronous class says; it is written anew by: make aio")
    return 1 if changed and command == ["check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
