"""The quick ways of claims and settlements give the same values and verdicts as the slow ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from pydantic import BaseModel, TypeAdapter, ValidationError

from queue_db import QueueDB
from queue_db.codecs import JSONCodec
from queue_db.leased_job import LeasedJob
from queue_db.model import ClaimedRow
from queue_db.queue import Queue
from queue_db.service.api import answers, claims, quick, settlements
from queue_db.service.api.claims import ClaimRequest
from queue_db.service.api.shapes import Lease
from queue_db.service.live.leases import handed

often = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])

ANY_TEXT = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=8)
NUMBERS = st.integers() | st.integers(-(10**40), 10**40) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(ANY_TEXT, inside, max_size=4),
    max_leaves=8,
)
STORED = st.builds(json.dumps, VALUES, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))

SPECIAL = [
    *("NaN", "-Infinity", '{"a": [NaN]}', "1e400", "-0", "-0.0", "1E5", "9" * 30, "9" * 5000, "5e-324", "1.7976931348623159e308"),
    *('"\\ud800"', '"\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', " 1 ", '"\\/"', "", "nul", "[1,]", "\ufeff1"),
    *("[" * depth + "1" + "]" * depth for depth in (99, 101, 500, 3000, 100_000)),
]


class Slow(JSONCodec):
    """A codec of an application's, whose payloads may be anything."""


@pytest.fixture(scope="module")
def queue() -> Iterator[Queue]:
    with QueueDB("sqlite://") as db:
        yield db.queue("mail")


def answer(queue: Queue, rows: Sequence[ClaimedRow], codec: JSONCodec) -> Any:
    jobs = [LeasedJob(row, queue, codec, "t" * 32) for row in rows]
    return answers.claimed([handed(job) for job in jobs], codec)


def row(payload: str, headers: str | None = None, **more: Any) -> ClaimedRow:
    columns: dict[str, Any] = {
        "id": 2**63 - 1,
        "kind": "send",
        "payload": payload,
        "headers": headers,
        "priority": -3,
        "available_at": 10**15,
        "due_at": None,
        "version": 4,
        "attempts": 1,
        "max_attempts": 25,
        "unique_key": None,
        "created_at": 10**15 + 1,
        "last_error": None,
        "group_key": None,
        "callback_id": None,
    }
    return ClaimedRow(**columns | more)


@often
@given(st.lists(st.tuples(STORED, st.none() | STORED), min_size=1, max_size=3), st.dictionaries(st.just("last_error"), ANY_TEXT))
def test_jobs_have_the_same_values_in_both_answers(
    queue: Queue, stored: list[tuple[str, str | None]], more: dict[str, str]
) -> None:
    rows = [row(*one, **more) for one in stored]
    assert repr(json.loads(answer(queue, rows, JSONCodec()))) == repr(json.loads(answer(queue, rows, Slow())))


@pytest.mark.parametrize("beside", ["1", '"é"'])
@pytest.mark.parametrize("text", SPECIAL, ids=lambda text: repr(text[:9]))
def test_so_have_those_that_are_hard_to_write(queue: Queue, text: str, beside: str) -> None:
    for rows in ([row(text), row(beside)], [row(beside, text), row(beside)]):
        assert repr(json.loads(answer(queue, rows, JSONCodec()))) == repr(json.loads(answer(queue, rows, Slow())))


@pytest.mark.parametrize("codec", [JSONCodec(), Slow()], ids=["quick", "slow"])
@pytest.mark.parametrize("text", SPECIAL, ids=lambda text: repr(text[:9]))
def test_what_is_shown_of_a_job_does_not_depend_on_those_beside_it(queue: Queue, text: str, codec: JSONCodec) -> None:
    rows = [row("[" * 120 + '"deep"' + "]" * 120), row(text), row('"é"', '{"n":' * 120 + "1" + "}" * 120)]
    alone = [job for one in rows for job in json.loads(answer(queue, [one], codec))["jobs"]]
    assert repr(json.loads(answer(queue, rows, codec))["jobs"]) == repr(alone)


def test_usual_payloads_go_the_quick_way(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[object] = []
    monkeypatch.setattr(answers, "slowly", slow.append)
    rows = [row("null"), row('{"to":"é","n":[1,2.5,true]}', '{"trace":"x"}', group_key="g", callback_id=7, due_at=10**15)]
    first, second = json.loads(answer(queue, rows, JSONCodec()))["jobs"]
    assert slow == []
    assert (first["payload"], second["payload"], second["headers"]) == (None, {"to": "é", "n": [1, 2.5, True]}, {"trace": "x"})
    assert answer(queue, [row("NaN")], JSONCodec()) is None
    assert answer(queue, rows, Slow()) is None
    assert len(slow) == 2


def test_the_answer_to_a_claim_is_as_declared(queue: Queue) -> None:
    for codec in (JSONCodec(), Slow()):
        content = answer(queue, [row("1", due_at=10**15, callback_id=7)], codec)
        assert json.loads(claims.Claimed.model_validate_json(content).model_dump_json()) == json.loads(content)


# --- settlements --------------------------------------------------------------------------------------------------------

SETTLEMENTS = TypeAdapter(settlements.Settlements)
LEASE = {"id": "17", "version": "3", "token": "t" * 32}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        "",
        "x",
        "1\n",
        "٣",
        "1" * 20,
        0,
        1,
        -1,
        0.5,
        1e10,
        2_592_000,
        2_592_001,
        3_155_760_000,
        3_155_760_001,
        10**400,
        True,
        float("nan"),
        [],
        {},
    ]
)
WRONG_LEASE = st.fixed_dictionaries({}, optional={one: ODD | st.just(right) for one, right in LEASE.items()} | {"more": ODD})
ERROR = st.fixed_dictionaries({"message": ANY_TEXT | ODD}, optional={"error_class": ANY_TEXT | ODD, "trace": ANY_TEXT | ODD})
ONE = st.fixed_dictionaries(
    {
        "lease": st.just(LEASE) | WRONG_LEASE,
        "verb": st.sampled_from(["complete", "fail", "snooze", "release", "extend", "cancel", "bury"]) | ODD,
    },
    optional={"result": VALUES, "result_ttl": ODD, "error": ERROR | ODD, "retry_in": ODD, "seconds": ODD, "more": ODD},
)


def slowly_read(body: bytes) -> dict[str, Any] | None:
    """A body as pydantic reads it; None: it refuses it."""
    try:
        return SETTLEMENTS.validate_python(json.loads(body), from_attributes=True).model_dump()
    except (ValidationError, ValueError, RecursionError):
        return None


def check(body: bytes) -> bool:
    """Whether the quick way reads this body; then it has the values that it has in the slow way."""
    found = quick.settlements(body)
    if found is None:
        return False
    assert repr(msgspec.to_builtins(found)) == repr(slowly_read(body))
    return True


@often
@given(st.lists(ONE, max_size=2), st.booleans())
@example([{"lease": {**LEASE, "id": "1\n"}, "verb": "complete"}], True)
@example([{"lease": {**LEASE, "id": "٣"}, "verb": "complete"}], False)
@example([{"lease": LEASE, "verb": "extend", "seconds": 0}], True)
def test_what_is_read_the_quick_way_has_the_same_values(ones: list[dict[str, Any]], escaped: bool) -> None:
    text = json.dumps({"settlements": ones}, ensure_ascii=escaped)
    check(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("text", SPECIAL, ids=lambda text: repr(text[:9]))
def test_so_have_results_that_are_hard_to_read(text: str) -> None:
    body = json.dumps({"settlements": [{"lease": LEASE, "verb": "complete", "result_ttl": 5, "result": "here"}]})
    check(body.replace('"here"', text or '""').encode("utf-8", "surrogatepass"))


USUAL: list[dict[str, Any]] = [
    *({"verb": verb} for verb in ("complete", "fail", "release", "cancel", "bury")),
    *({"verb": verb, "seconds": seconds} for verb in ("snooze", "extend") for seconds in (1, 0.5, 2_592_000)),
    {"verb": "snooze", "seconds": 3_155_760_000},
    {"verb": "complete", "result_ttl": 60, "result": {"n": [1, 2.5, None, "é"]}},
    {"verb": "fail", "error": {"message": "no", "error_class": "E", "trace": "here"}, "retry_in": 0},
    {"verb": "bury", "error": {"message": "x" * 100_000}, "result_ttl": None, "retry_in": None, "seconds": None},
]


def test_usual_settlements_go_the_quick_way() -> None:
    for one in USUAL:
        for ascii_only in (True, False):
            body = json.dumps({"settlements": [{"lease": LEASE, **one}]}, ensure_ascii=ascii_only).encode()
            assert check(body), one


def test_limits_are_the_same() -> None:
    for one in (
        *(
            {"verb": "bury", "error": {"message": "x" * 100_001}},
            {"verb": "bury", "error": {"message": "", "error_class": "x" * 201}},
            {"verb": "bury", "error": {"message": "", "trace": "x" * 100_001}},
        ),
        *({"verb": "complete", field: 3_155_760_001} for field in ("result_ttl", "retry_in", "seconds")),
        *(
            {"verb": "snooze"},
            {"verb": "extend", "seconds": 0},
            {"verb": "complete", "result_ttl": 0},
            {"verb": "fail", "retry_in": -1},
        ),
    ):
        body = json.dumps({"settlements": [{"lease": LEASE, **one}]}).encode()
        assert slowly_read(body) is None
        assert not check(body)
    for field, least, most in (("id", 1, 19), ("version", 1, 19), ("token", 1, 100)):
        for length, fits in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
            lease = {**LEASE, field: "1" * length}
            body = json.dumps({"settlements": [{"lease": lease, "verb": "complete"}]}).encode()
            assert check(body) is (slowly_read(body) is not None) is fits, (field, length)
    for number, fits in ((0, False), (1, True), (settlements.MAX_CLAIM, True), (settlements.MAX_CLAIM + 1, False)):
        body = json.dumps({"settlements": [{"lease": LEASE, "verb": "complete"}] * number}).encode()
        assert check(body) is (slowly_read(body) is not None) is fits


CLAIMS: list[object] = [
    *(
        {field: value}
        for field in ("limit", "lease", "wait")
        for value in (0, 1, 0.5, 50, 50.5, 10_000, 10_001, 2_592_000, -1, "1")
    ),
    *({"worker": value} for value in (None, "w", "", "w" * 100, "w" * 101, 1)),
    *[{}, {"limit": 2, "lease": 1, "wait": 3, "worker": "w"}, {"limits": 1}, [], None, {"limit": True}, {"limit": 2.0}],
]


@pytest.mark.parametrize("given", CLAIMS)
def test_a_claim_that_is_read_the_quick_way_has_the_same_values(given: object) -> None:
    found = quick.claim(json.dumps(given).encode())
    if found is not None:
        assert structs.asdict(found) == ClaimRequest.model_validate(given, strict=False).model_dump()


def test_usual_claims_go_the_quick_way() -> None:
    for one in ({}, {"limit": 10_000}, {"limit": 1, "lease": 60, "wait": 50, "worker": "node-1"}):
        assert quick.claim(json.dumps(one).encode())
    assert quick.claim(b'{"limit": 1, "limit": 2}') is None


@pytest.mark.parametrize(
    ("struct", "model"),
    [
        (quick.QuickSettlements, settlements.Settlements),
        (quick.QuickSettlement, settlements.Settlement),
        (quick.QuickLease, Lease),
        (quick.QuickClaim, ClaimRequest),
        (quick.QuickFailure, settlements.Failure),
        (answers.WrittenLease, Lease),
        (settlements.WrittenVerdict, settlements.SettledJob),
        (settlements.WrittenVerdicts, settlements.Verdicts),
    ],
)
def test_both_have_the_same_fields(struct: type[Struct], model: type[BaseModel]) -> None:
    assert struct.__struct_fields__ == tuple(model.model_fields)


@pytest.mark.parametrize("lease", [None, answers.WrittenLease("1", "2", "t")])
def test_verdicts_are_written_as_declared(lease: answers.WrittenLease | None) -> None:
    made = settlements.WrittenVerdict("1", "applied", lease, None if lease is None else "2026-11-23T08:00:00.000000Z")
    content = answers.encode(settlements.WrittenVerdicts([made]))
    assert content == settlements.Verdicts.model_validate_json(content).model_dump_json().encode()
