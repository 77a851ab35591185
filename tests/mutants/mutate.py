"""Small changes of a source text, one at a time, each of which a good suite detects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}
#: Keywords of dataclasses that change no verb.
_DESCRIBE = {"repr", "compare", "hash", "slots", "frozen"}
#: Calls whose arguments are conditions, keys or columns: each is left out once.
_LISTS = {"where", "and_", "or_", "order_by", "filter"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text from ``start`` to ``end`` becomes ``new``."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """Where and what, for people and for the record of results."""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: {old[:60]} -> {new[:60] or '(nothing)'}"

    def applied(self, source: str) -> str:
        """The changed text of the file."""
        text = source.encode()
        return (text[: self.start] + self.new.encode() + text[self.end :]).decode()


def mutants(path: str, source: str) -> list[Mutant]:
    """All changes of this file, each once, in the order of their places."""
    text = source.encode()
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found: dict[tuple[int, int, str], Mutant] = {}
    tree = ast.parse(source)
    skipped = _annotations(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        for first, last, new in _changes(node, source):
            start = begins[first.lineno - 1] + first.col_offset
            end = begins[last.end_lineno - 1] + last.end_col_offset  # type: ignore[operator]
            old = text[start:end].decode()
            one = Mutant(path, first.lineno, start, end, old, new)
            if old != new and (":=" not in new or _is_program(one.applied(source))):
                found.setdefault((start, end, new), one)
    return [found[key] for key in sorted(found)]


def _is_program(source: str) -> bool:
    """An assignment in an expression loses the parentheses around it, which belong to no node."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """Where a change is no other behaviour of the queue: annotations, ``__all__``, reprs, and the texts of errors."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation):
                roots.append(annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                roots += [node.returns, *node.decorator_list]
            case ast.Raise():
                roots.append(node)
            case ast.If(test=test) if ast.unparse(test) == "TYPE_CHECKING":
                roots.append(node)
            case ast.Assign(targets=targets) if _is_alias(node) or ast.unparse(targets[0]) == "__all__":
                roots.append(node)
            case ast.keyword(arg=name) if name in _DESCRIBE:
                roots.append(node)
    return {one for root in roots if root is not None for one in ast.walk(root)}


def _is_alias(node: ast.Assign) -> bool:
    """``Pairs = Sequence[tuple[int, int]]``, and other names of types."""
    return isinstance(node.value, ast.Subscript) and isinstance(node.value.value, ast.Name) and node.value.value.id[0].isupper()


_Change = tuple[ast.expr | ast.stmt, ast.expr | ast.stmt, str]
_Text = Callable[[ast.AST], str]


def _changes(node: ast.AST, source: str) -> Iterator[_Change]:
    """First and last node of what is replaced, and its replacement."""

    def text(one: ast.AST) -> str:
        return ast.get_source_segment(source, one) or ""

    yield from _of_operators(node, text)
    yield from _of_values(node, text)
    yield from _of_elements(node, text)


def _of_operators(node: ast.AST, text: _Text) -> Iterator[_Change]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            yield node, node, f"{text(left)} {_COMPARISONS[type(op)]} {text(right)}"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield node, node, f"({word.join(f'({text(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, node, f"({text(operand)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not any(map(_is_text, (left, right))):
            yield node, node, f"({text(left)} {_ARITHMETIC[type(op)]} {text(right)})"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _of_values(node: ast.AST, text: _Text) -> Iterator[_Change]:
    match node:
        case ast.Constant(value=bool() as value):
            yield node, node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, node, str(value + 1)
        case ast.If(test=test):
            yield test, test, f"not ({text(test)})"
        case ast.IfExp(body=body, orelse=orelse):
            yield node, node, f"({text(orelse)})"
            yield node, node, f"({text(body)})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield node, node, "pass"


def _of_elements(node: ast.AST, text: _Text) -> Iterator[_Change]:
    """One entry, element or argument less."""
    match node:
        case ast.Dict(keys=keys, values=values) if len(keys) > 1:
            pairs = [f"{text(key)}: {text(one)}" if key else f"**{text(one)}" for key, one in zip(keys, values, strict=True)]
            for rest in _shorter(pairs):
                yield node, node, f"{{{rest}}}"
        case ast.List(elts=elements, ctx=ast.Load()) if len(elements) > 1:
            for rest in _shorter([text(one) for one in elements]):
                yield node, node, f"[{rest}]"
        case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=arguments) if called in _LISTS:
            for rest in _shorter([text(one) for one in arguments]) if len(arguments) > 1 else ():
                yield arguments[0], arguments[-1], rest


def _shorter(texts: list[str]) -> Iterator[str]:
    for number in range(len(texts)):
        yield ", ".join(texts[:number] + texts[number + 1 :])
