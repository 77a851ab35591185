"""Lay a statement out for reading, and compare two statements without regard to layout and parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WIDTH = 118
_INDENT = "    "

# Quoted text, placeholders, numbers with exponents, names with dots, casts and operators, brackets, commas.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | `[^`]*` | /\*.*?\*/
    | ::?\w[\w.]* | \d[\d.]*e[+-]?\d+ | \w+(?:\.\w+)*(?:\.\*)? | <> | [<>!]= | \|\| | ->> | -> | [(),] | [^\s\w]""",
    re.VERBOSE | re.DOTALL,
)

# Words that begin a line of their own, longest first.
_CLAUSES = [
    clause.split()
    for clause in (
        "ON CONFLICT",
        "FOR UPDATE",
        "UNION ALL",
        "ORDER BY",
        "GROUP BY",
        "INSERT INTO",
        "DELETE FROM",
        "LEFT OUTER JOIN",
        "INNER JOIN",
        "STRAIGHT_JOIN",
        "SELECT",
        "UPDATE",
        "DELETE",
        "VALUES",
        "FROM",
        "JOIN",
        "WHERE",
        "HAVING",
        "LIMIT",
        "OFFSET",
        "RETURNING",
        "SET",
        "WITH",
    )
]
_NO_SPACE_BEFORE = frozenset({",", ")", "::", "]"})
_STARTS = frozenset({"SELECT", "UPDATE", "DELETE", "INSERT", "WITH"})
# Words that go on where another one stands before them.
_NO_CLAUSES = frozenset({("CHARACTER", "SET"), ("FOR", "UPDATE"), ("DO", "UPDATE")})


def laid_out(sql: str) -> str:
    """The same statement, one clause on each line, subqueries indented. Only whitespace changes."""
    layout = _Layout(_TOKEN.findall(sql))
    while layout.place < len(layout.tokens):
        layout.step()
    layout.end_line()
    text = "\n".join(layout.lines)
    if _squeezed(text) != _squeezed(sql):
        raise AssertionError(f"the layout has changed the statement:\n{sql}\n{text}")
    return text


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


class _Layout:
    """A statement on its way from tokens to lines."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.lines: list[str] = []
        self._line = ""
        # For each open bracket: whether it holds a subquery, whose clauses stand on lines of their own.
        self._brackets: list[bool] = []
        self._between = False

    def step(self) -> None:
        """Take the next token, or the words of a clause."""
        token = self.tokens[self.place]
        upper = token.upper()
        clauses = not self._brackets or self._brackets[-1]
        clause = self._clause() if clauses else None
        if clause:
            self._new_line(" ".join(self.tokens[self.place : self.place + clause]))
            self.place += clause
            return
        if upper == "AND" and clauses and not self._between:
            self._new_line("  AND")
        elif token == "(":
            self._open()
        elif token == ")":
            if self._brackets and self._brackets.pop():
                self._new_line("")
            self._line += ")"
        else:
            self._line += _joint(self._line, self.tokens, self.place) + token
        if upper in ("BETWEEN", "AND"):
            self._between = upper == "BETWEEN"
        self.place += 1

    def end_line(self) -> None:
        """Nothing more comes on this line."""
        if self._line.strip():
            self.lines += _wrapped(self._line)
        self._line = ""

    def _new_line(self, text: str) -> None:
        self.end_line()
        self._line = _INDENT * sum(self._brackets) + text

    def _open(self) -> None:
        inside = self.place + 1 < len(self.tokens) and self.tokens[self.place + 1].upper() in _STARTS
        self._line += _joint(self._line, self.tokens, self.place) + "("
        self._brackets.append(inside)
        if inside:
            self._new_line("")

    def _clause(self) -> int:
        """How many words of a clause begin here; 0: it is no clause."""
        upper = [token.upper() for token in self.tokens[self.place : self.place + 3]]
        before = self.tokens[self.place - 1].upper() if self.place else ""
        if (before, upper[0]) in _NO_CLAUSES or upper[:2] == ["WITH", "ORDINALITY"]:
            return 0
        return next((len(words) for words in _CLAUSES if upper[: len(words)] == words), 0)


def _joint(line: str, tokens: list[str], place: int) -> str:
    """The space before a token."""
    token = tokens[place]
    if not line.strip() or line.endswith(("(", "[")) or token in _NO_SPACE_BEFORE:
        return ""
    before = tokens[place - 1]
    if token == "[" or token.startswith("::"):
        return ""
    if token == "(" and re.fullmatch(r"\w[\w.]*", before) and before.upper() not in _SPACED:
        return ""
    return " "


# After these a bracket stands apart.
_SPACED = frozenset(
    (
        *(
            "ALL",
            "AND",
            "AS",
            "BY",
            "CONFLICT",
            "ELSE",
            "FROM",
            "IN",
            "INDEX",
            "INTERVAL",
            "IS",
            "JOIN",
            "MATERIALIZED",
            "NOT",
            "ON",
        ),
        *("OR", "OVER", "SELECT", "SET", "THEN", "USING", "VALUES", "WHEN", "WHERE"),
    )
)


def _wrapped(line: str) -> Iterator[str]:
    """A long line broken at its outermost commas."""
    indent = len(line) - len(line.lstrip())
    while len(line) > _WIDTH:
        cut = _cut(line, indent)
        if cut is None:
            break
        yield line[:cut].rstrip()
        line = " " * (indent + len(_INDENT)) + line[cut:].lstrip()
    yield line.rstrip()


def _cut(line: str, indent: int) -> int | None:
    """The last comma at which the line can be broken so that it fits; else the last arm of a CASE; None: nowhere."""
    for separators in ((",",), (" WHEN ", " THEN ", " ELSE "), (", ",)):
        outermost = separators != (", ",)
        best: int | None = None
        level = 0
        for place, character in enumerate(line):
            level += (character in "([") - (character in ")]")
            if place >= _WIDTH and best is not None:
                break
            if line.startswith(separators, place) and (level <= 0 or not outermost):
                end = place + (character == ",")
                if end > indent + len(_INDENT):
                    best = end
        if best is not None and best < len(line.rstrip()):
            return best
    return None


_PLACEHOLDERS = re.compile(r"%\(\w+\)s|%s|\$\d+(?:\[\d+\])?|(?<![:\w]):(?!:)\w+|\?")
_COMMENT = re.compile(r"^--.*$", re.MULTILINE)


def fingerprint(sql: str) -> str:
    """A statement without layout, comments, parameters and the numbers of things in lists: equal for the same statement."""
    text = _COMMENT.sub("", sql)
    text = _PLACEHOLDERS.sub("?", text).replace("%%", "%")
    text = re.sub(r"\s+", "", text)
    before = None
    while before != text:
        before = text
        text = re.sub(r"\(\?(?:,\?)+\)", "(?)", text)
        text = re.sub(r"\(\?\)(?:,\(\?\))+", "(?)", text)
        text = text.replace("((?))", "(?)")
        text = re.sub(r"(WHEN\(?\?\)?THEN\?)(?:WHEN\(?\?\)?THEN\?)+", r"\1", text)
    return text.rstrip(";")
