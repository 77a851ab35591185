"""The cost of a condition is bounded, as it runs in each publisher. One that can hold for no message is refused."""

import json

import pytest

from queue_db.errors import ArgumentError
from queue_db.feeds.store.messages import NewMessage
from queue_db.routes.conditions import CONDITION_DEPTH, EXAMPLE, ConditionError, check, content, content_of, holds


@pytest.mark.parametrize(
    "where",
    [
        "to_array(payload)" + "|[@,@][]" * 200,  # twice as many elements each time
        "(payload" + "|[@,@]" * 100 + ") == (payload" + "|[@,@]" * 100 + ")",  # few objects, and 2^100 ways through them
        "payload | {a: @, b: @}",
        "join(payload.text, payload.list)",  # as long as one times the other
        "!" * 1500 + "payload",
        "(" * 900 + "payload" + ")" * 900,
        "!" * CONDITION_DEPTH + "payload",
    ],
)
def test_a_condition_whose_values_could_grow_is_refused(where: str) -> None:
    with pytest.raises(ArgumentError, match="is no JMESPath expression"):
        check(where)


@pytest.mark.parametrize(
    ("where", "payload"),
    [
        ("`[0,0,0,0,0,0,0,0,0,0]`[?" * 60 + "@" + "]" * 60, None),
        ("payload" + "[?@" * 6 + "]" * 6, [[[[[[0] * 10] * 10] * 10] * 10] * 10] * 10),
        ("payload" + "[]" * 900, list(range(1000))),
        ("map(&`[" + ",".join("0" * 900) + "]`, payload)[]", list(range(90_000))),
        ("to_string(to_array(" * 45 + "payload" + "))" * 45, "a" * 1000),  # each doubles the backslashes
        ("ceil(to_number('inf')) > `1`", None),
    ],
)
def test_an_evaluation_that_takes_too_long_or_fails_is_an_error_of_the_condition(where: str, payload: object) -> None:
    with pytest.raises(ConditionError):
        holds(where, content("t", "k", payload, None, None, None))


@pytest.mark.parametrize(
    "where",
    [
        "contains(['paid', 'sent'], kind)",
        "!" * (CONDITION_DEPTH - 1) + "payload",
        "payload[?price > `3`] | length(@) > `1000`",
        "contains(to_string(payload), '4999')",
        " || ".join(f"kind == 'k{number}'" for number in range(80)) + " || payload",
    ],
)
def test_usual_conditions_are_evaluated(where: str) -> None:
    assert holds(check(where), content("t", "paid", [{"price": number} for number in range(5000)], None, None, None)) is not (
        where.startswith("!")
    )


def test_a_payload_that_is_nested_too_deep_for_this_thread_is_null() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(RecursionError):
        json.loads(deep)
    assert content_of("t", NewMessage("k", deep, None, None, None))["payload"] is None


NEVER = {
    'headers.site == "north"': "a message has no 'north'",  # double quotes are a name in JMESPath
    "payloads.celsius > `70`": "a message has no 'payloads'",
    "payload.urgent == true": "a message has no 'true'",
    "celsius > `70`": "a message has no 'celsius'",
    "payload.a && contains(tags, 'x')": "a message has no 'tags'",
    "payload.xs[?b == 'x'] && xs[0]": "a message has no 'xs'",
    "!payload.urgent": "!(payload.urgent)",
    "kind == 'paid' && !payload.tags[0]": "!(payload.urgent)",
    "payload.a && !payload[?b]": "!(payload.urgent)",
    "regex(payload.a, 'b')": "there is no function 'regex'",
    "payload.xs[?regex(a, 'b')]": "there is no function 'regex'",
    "contains(payload.tags)": "contains takes 2 arguments, not 1",
    "merge()": "merge takes 1 or more arguments, not 0",
}


@pytest.mark.parametrize(("where", "reason"), NEVER.items())
def test_what_can_hold_for_no_message_is_refused_with_the_reason(where: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        check(where)
    assert reason in str(refused.value)
    assert EXAMPLE in str(refused.value)


@pytest.mark.parametrize(
    "where",
    [
        "payload.celsius > `70` && headers.site == 'north'",
        "topic || kind || key || client",
        "@",
        "!payload",
        "!payload[0]",
        "!(payload.urgent)",
        "!headers || payload.items[?price > `3`].name | [0]",
        "payload.xs[].b || payload.*.x || payload[1:2]",
        "sort_by(payload.xs, &a)[0].b || map(&foo, payload.xs)[0]",
        "length(@) && merge(headers, payload, `{}`) && not_null(key, client).x",
        "@ | payload.a",
        "headers.\"x-site\" == 'north'",
    ],
)
def test_what_can_hold_is_accepted(where: str) -> None:
    assert check(where) == where
