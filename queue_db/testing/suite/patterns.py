"""Patterns of routes: which topics and headers match, as the database and the library together decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.routes.patterns import PatternForm
from queue_db.testing.suite.routes import payloads

__all__ = ["TestPatterns"]


class TestPatterns:
    """The forms of patterns."""

    @pytest.mark.parametrize(
        ("form", "pattern", "matching", "others"),
        [
            ("exact", "a.*", ["a.*"], ["a.b", "a."]),
            ("exact", "Mail", ["Mail"], ["mail"]),
            ("glob", "*", ["a", "a.b"], []),
            ("glob", "h?llo", ["hello", "h.llo", "höllo"], ["hllo", "heello"]),
            ("glob", "h*llo", ["hllo", "heeeello", "h.a.llo"], ["hell"]),
            ("glob", "h[ae]llo", ["hallo", "hello"], ["hillo", "h[ae]llo"]),
            ("glob", "h[^e]llo", ["hallo"], ["hello", "hllo"]),
            ("glob", "h[a-c]llo", ["hbllo"], ["hdllo"]),
            ("glob", "h[\\^\\]]llo", ["h^llo", "h]llo"], ["hallo"]),
            ("glob", "a\\*c", ["a*c"], ["abc"]),
            ("glob", "a\\[c", ["a[c"], ["ac"]),
            ("glob", "50%_!*", ["50%_!", "50%_!x"], ["50xx!", "50%a!"]),
            ("glob", "Sensor.*", ["Sensor.7"], ["sensor.7"]),
            ("glob", "a*b*c*d", ["abcd", "axxbxxcxxd"], ["abdc", "abcdx"]),
            ("amqp", "stock.*.nyse", ["stock.ibm.nyse"], ["stock.nyse", "stock.a.b.nyse", "stockx.nyse"]),
            ("amqp", "stock.#", ["stock", "stock.a", "stock.a.b"], ["stocks", "a.stock"]),
            ("amqp", "#.nyse", ["nyse", "a.nyse", "a.b.nyse"], ["nyse.a", "xnyse"]),
            ("amqp", "a.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["ab", "a.xb", "a"]),
            ("amqp", "#", ["a", "a.b"], []),
            ("amqp", "*.*", ["a.b"], ["a", "a.b.c"]),
            ("amqp", "a*.b", ["a*.b"], ["ax.b"]),
            ("amqp", "50%.#", ["50%", "50%.a"], ["50x.a", "50"]),
            ("amqp", "Stock.*", ["Stock.a"], ["stock.a"]),
        ],
    )
    def test_what_a_pattern_matches(
        self, db: QueueDB, routed: str, form: PatternForm, pattern: str, matching: list[str], others: list[str]
    ) -> None:
        db.routes.set(routed, count=routed)
        db.routes.subscribe(pattern, routed, form=form)
        for topic in (*matching, *others):
            found = [step.route for step in db.routes.test(topic).steps if step.route == routed]
            assert found == ([routed] if topic in matching else []), topic

    @pytest.mark.parametrize(
        ("pattern", "matching", "others"),
        [
            ({"format": "pdf", "pages": 2}, [{"format": "pdf", "pages": 2, "x": 1}], [{"format": "pdf"}, {"pages": 2}, {}]),
            ({"x-match": "all", "format": "pdf"}, [{"format": "pdf"}], [{"format": "PDF"}, {"Format": "pdf"}]),
            (
                {"x-match": "any", "format": "pdf", "pages": 2},
                [{"format": "pdf"}, {"format": "txt", "pages": 2}],
                [{"pages": 3}, {}],
            ),
            ({"urgent": None}, [{"urgent": None}, {"urgent": False}, {"urgent": {"a": 1}}], [{"format": "urgent"}]),
            ({"urgent": True}, [{"urgent": True}], [{"urgent": 1}, {"urgent": "True"}, {"urgent": [True]}]),
            ({"pages": 1}, [{"pages": 1}, {"pages": 1.0}], [{"pages": True}, {"pages": "1"}]),
        ],
    )
    def test_headers_decide(
        self, db: QueueDB, routed: str, pattern: dict[str, Any], matching: list[dict[str, Any]], others: list[dict[str, Any]]
    ) -> None:
        db.routes.set(routed, feed=routed)
        assert db.routes.subscribe(json.dumps({**pattern, "topic": routed}), routed, form="headers")
        same = json.dumps({"topic": routed, **pattern})
        assert not db.routes.subscribe(same, routed, form="headers"), "the order of the conditions means nothing"
        for at, headers in enumerate((*matching, *others)):
            assert [step.route for step in db.routes.test(routed, headers=headers).steps] == [routed] * (at < len(matching)), (
                headers
            )
            assert db.routes.test(f"{routed}.other", headers=headers).steps == []
        # All in one transaction, where messages of one topic otherwise go one way.
        db.topic(routed).publish_many([("n", at, {"headers": headers}) for at, headers in enumerate((*matching, *others))])
        assert payloads(db.feed(routed).read()) == list(range(len(matching)))
        assert db.routes.unsubscribe(same, routed, form="headers")

    def test_headers_decide_in_all_topics_and_after_forwards(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.subscribe(json.dumps({routed: "yes"}), routed, form="headers")
        db.routes.set(f"{routed}-on", forward=f"{routed}.next")
        db.routes.subscribe(json.dumps({"topic": f"{routed}.first", routed: "on"}), f"{routed}-on", form="headers")
        db.routes.set(f"{routed}-next", feed=f"{routed}-next")
        db.routes.subscribe(json.dumps({"topic": f"{routed}.next", routed: None}), f"{routed}-next", form="headers")
        for topic in ("first", "next"):
            for value in ("yes", "on"):
                db.topic(f"{routed}.{topic}").publish("n", f"{topic} {value}", headers={routed: value})
        assert payloads(db.feed(routed).read()) == ["first yes", "next yes"]
        assert payloads(db.feed(f"{routed}-next").read()) == ["first on", "next yes", "next on"]

    def test_headers_decide_where_a_router_brings_a_message(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.subscribe(json.dumps({"format": "pdf", "topic": f"{routed}-source.n"}), routed, form="headers")
        for number, name in enumerate(("pdf", "txt", "pdf")):
            db.feed(f"{routed}-source").publish("n", number, headers={"format": name})
        assert db.routes.relay(f"{routed}-source", "router") == 3
        assert payloads(db.feed(routed).read()) == [0, 2]

    @pytest.mark.parametrize(
        ("form", "pattern"),
        [
            *(("regex", "a"), ("glob", ""), ("glob", "a" * 201), ("exact", " a"), ("amqp", 7), ([], "a")),
            *(("headers", text) for text in ("a", "[1]", "{}", '{"topic": "a"}', '{"a": [1]}', '{"a": 1, "x-match": "some"}')),
            *(("headers", text) for text in ('{"a": 1, "topic": 7}', '{"a": 1, "topic": ""}')),
        ],
    )
    def test_impossible_patterns_are_refused(self, db: QueueDB, routed: str, form: Any, pattern: Any) -> None:
        db.routes.set(routed, count=routed)
        with pytest.raises(ArgumentError):
            db.routes.subscribe(pattern, routed, form=form)

    def test_topics_are_told_apart_by_case_on_the_way(self, db: QueueDB, routed: str) -> None:
        for source, target in (("a", "B"), ("a", "b")):
            db.routes.set(f"{routed}-{target}", forward=f"{routed}.{target}")
            db.routes.subscribe(f"{routed}.{source}", f"{routed}-{target}")
            db.routes.set(f"{routed}-at-{target}", feed=f"{routed}-{target}")
            db.routes.subscribe(f"{routed}.{target}", f"{routed}-at-{target}")
        assert db.topic(f"{routed}.a").publish("n") == 2
        assert [len(db.feed(f"{routed}-{target}").read().messages) for target in ("B", "b")] == [1, 1]
