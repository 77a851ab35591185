"""The JSON codec writes the same texts, reads the same payloads and refuses the same with msgspec and without it.

Stored text must not depend on what is installed: unique keys, hashes and comparisons in SQL may use it.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict, UserString, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_db import codecs
from queue_db.codecs import JSONCodec

CODEC = JSONCodec()


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class Number(int):
    pass


class Real(float):
    def __repr__(self) -> str:
        return "1"


class Row(list[int]):
    pass


class Table(dict[str, int]):
    pass


class OtherItems(dict[str, int]):
    def items(self) -> Any:
        return [("other", 1)]


class OtherList(list[int]):
    def __iter__(self) -> Any:
        return iter([9])


class OtherTuple(tuple[int]):
    __slots__ = ()

    def __iter__(self) -> Any:
        return iter([9])


class Suit(Enum):
    HEARTS = "hearts"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Struct(msgspec.Struct):
    n: int = 1


@dataclass
class Data:
    n: int = 1


class Pair(NamedTuple):
    a: int
    b: int


def itself() -> list[Any]:
    found: list[Any] = [1]
    found.append({"again": found})
    return found


def nested(levels: int, *, of: type = list) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if of is dict else [value]
    return value


#: Payloads that only one of the two takes, or that they would write differently.
ODD: list[Any] = [
    *(float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e16, 1e15, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1.0),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400, -(10**400)),
    *("\ud800", "a\udfff", "\ud83d\ude00", "\x00", "\x7f\x80\u2028\u2029\ufeff", "</script>", "/", '"\\', "é", "日本", "😀"),
    *({1: 2}, {1.5: 2}, {True: 1}, {None: 1}, {"1": 1, 1: 2}, {(1, 2): 3}, {"b": 1, "a": 2}, {"": {}}, {"\ud800": 1}, {b"a": 1}),
    *(
        Text("own"),
        {Text("own"): 1},
        Number(3),
        Real(2.5),
        Row([1]),
        OtherItems(a=1),
        OtherList([1]),
        OtherTuple([1]),
        Table(a=1),
        Pair(1, 2),
        (1, (2,)),
        UserString("x"),
    ),
    *(Suit.HEARTS, Level.LOW, Word.YES, {Word.YES: 1}, {Suit.HEARTS: 1}, Struct(), Data(), {1, 2}, frozenset({1}), b"bytes"),
    *(bytearray(b"a"), memoryview(b"a"), datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.5"), UUID(int=1), object(), print, int),
    *(OrderedDict(b=1, a=2), defaultdict(int, a=1), MappingProxyType({"a": 1}), iter([1]), range(3), [], {}, None, True, 1j),
    *(msgspec.UNSET, msgspec.Raw(b"1"), {"a": msgspec.UNSET}, [msgspec.Raw(b"broken")], itself(), NotImplemented, ...),
    *(nested(levels, of=of) for levels in (15, 16, 17, 18, 100) for of in (list, dict)),
]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.sampled_from(ODD)
KEYS = st.text(st.characters(codec=None)) | st.integers() | st.booleans() | st.none() | st.floats()
PAYLOADS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner), max_leaves=20
)

#: Texts that are JSON, nearly.
FRAGMENTS = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            " ",
            "\t",
            "\n",
            "\r",
            "\x0b",
            "\ufeff",
            "\x00",
            "\x1f",
            "\\",
            "/",
            "'",
            "null",
            "true",
        ),
        *(
            "true",
            "false",
            "nul",
            "NaN",
            "Infinity",
            "-Infinity",
            "-",
            "+",
            "0",
            "00",
            "-0",
            "1",
            "12",
            "1.5",
            "1.",
            ".5",
            "1e5",
            "1E+400",
        ),
        *("1e-400", "e", "-1", "18446744073709551616", "0x1", "1_0", '"a"', '"a":', '{"a":1,"a":2}', "[1]", "{}", "\\u00e9"),
        *(
            '"\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\u0041"',
            '"\\x"',
            '"\\u12"',
            '"\\/\\b\\f"',
            "\u00a0",
            "\u0661",
            "é",
            "😀",
            "//",
            "1" * 400,
        ),
        *("1" * 400, "1" * 4301, "0.1" + "1" * 400, '"\\uD83D\\u0041"', '"\x01"', '"\x7f"'),
    ]
)
TEXTS = (
    st.lists(FRAGMENTS, max_size=8).map("".join)
    | st.text(st.characters(codec=None))
    | st.from_regex(r"\A-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z")
    | st.floats().map(repr)
)


def attempt(what: Any, value: Any) -> tuple[str, Any]:
    """What a function returns, or the exception that it raises."""
    try:
        return "returned", what(value)
    except (ValueError, TypeError, RecursionError) as error:
        return "raised", (type(error), str(error))


def plain_encode(payload: Any) -> str:
    """As the codec does without msgspec."""
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode("utf-8")
    return text


def shape(value: Any) -> Any:
    """Equal only for payloads of the same types, in the same order, to the last bit."""
    if isinstance(value, dict):
        return dict, [(shape(key), shape(one)) for key, one in value.items()]
    if isinstance(value, list):
        return list, [shape(one) for one in value]
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else value.hex()
    return type(value), value


def without_addresses(outcome: tuple[str, Any]) -> tuple[str, Any]:
    kind, (error, message) = outcome
    return kind, (error, message.partition(" at 0x")[0])


def check_encode(payload: Any) -> None:
    ours, plain = attempt(CODEC.encode, payload), attempt(plain_encode, payload)
    assert (ours if ours[0] == "returned" else without_addresses(ours)) == (
        plain if plain[0] == "returned" else without_addresses(plain)
    )


@pytest.fixture(autouse=True)
def msgspec_is_used() -> None:
    found = codecs._fast()
    assert found is not None
    assert found.encode is msgspec.json.encode


@given(PAYLOADS)
def test_payloads_have_the_same_text_or_the_same_error(payload: Any) -> None:
    check_encode(payload)


@given(st.lists(PAYLOADS, max_size=5))
def test_many_payloads_have_the_same_texts_or_the_same_error(payloads: list[Any]) -> None:
    def one_by_one(payloads: list[Any]) -> list[str]:
        return [plain_encode(payload) for payload in payloads]

    ours, plain = attempt(CODEC.encode_all, payloads), attempt(one_by_one, payloads)
    assert (ours if ours[0] == "returned" else without_addresses(ours)) == (
        plain if plain[0] == "returned" else without_addresses(plain)
    )


# The last one has more digits than Python writes: hypothesis could not show it.
@pytest.mark.parametrize("payload", [*ODD, 10**5000], ids=lambda one: type(one).__name__)
def test_odd_payloads_have_the_same_text_or_the_same_error(payload: Any) -> None:
    for around in (payload, [payload], {"a": payload}, (payload, 1), {"a": [{"b": payload}]}):
        check_encode(around)


def test_every_character_has_the_same_text() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert CODEC.encode([every]) == plain_encode([every])
    assert CODEC.encode({every: 1}) == plain_encode({every: 1})
    assert CODEC.decode(CODEC.encode(every)) == every


@given(TEXTS)
@example("-0")
@example("-0.0")
@example("9007199254740993.0")
def test_texts_are_read_the_same_or_refused_with_the_same_error(text: str) -> None:
    (ours, found), (plain, wanted) = attempt(CODEC.decode, text), attempt(json.loads, text)
    assert ours == plain
    assert (shape(found) if ours == "returned" else found) == (shape(wanted) if plain == "returned" else wanted)


@given(PAYLOADS)
def test_what_was_written_is_read_the_same(payload: Any) -> None:
    kind, text = attempt(plain_encode, payload)
    if kind == "returned":
        assert shape(CODEC.decode(text)) == shape(json.loads(text))


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_too_deep_a_text_is_refused_in_the_same_words(opens: str, closes: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        CODEC.decode(opens * 100_000 + "1" + closes * 100_000)


def test_without_msgspec_the_standard_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_fast", lambda: None)
    payload = {"a": [1, "é", None, True, 1.5]}
    assert CODEC.encode(payload) == '{"a":[1,"é",null,true,1.5]}'
    assert CODEC.decode('{"a":[1,"é",null,true,1.5]}') == payload


def test_plain_payloads_are_written_by_msgspec_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the comparisons above would compare the standard library with itself."""
    written: list[Any] = []

    def encode(payload: Any) -> bytes:
        written.append(payload)
        return msgspec.json.encode(payload)

    fast = codecs._fast()
    assert fast is not None
    monkeypatch.setattr(codecs, "_fast", lambda: fast._replace(encode=encode))
    plain = {"a": [1, "x", None, True, {"b": (2, [])}]}
    for payload in (plain, {"a": 1.5}, {1: 2}, [Level.LOW]):
        CODEC.encode(payload)
    assert written == [plain]
