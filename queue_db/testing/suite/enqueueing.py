"""Enqueue: every value is stored as given, or refused before anything is stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Any

import pytest
from sqlalchemy import insert

from queue_db.db import MAX_PAYLOAD, QueueDB
from queue_db.dialects.clock import clock_query
from queue_db.errors import ArgumentError, PayloadError
from queue_db.model import State, from_micros
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import OpenDB

__all__ = ["TestEnqueue", "TestEnqueueMany"]

PAYLOADS: list[Any] = [
    None,
    True,
    0,
    -(2**53),
    1.5,
    "",
    "text with 'quotes', \"more\", \\ and %s :name {braces}",
    "🦆 naïve 日本語 \u200d \x00 \x1f \u2028",
    [],
    {"nested": [{"🔑": [1, 2, {"deep": None}]}]},
]

REFUSED: list[dict[str, Any]] = [
    {"kind": ""},
    {"kind": "x" * 101},
    {"kind": " padded"},
    {"kind": "line\nbreak"},
    {"kind": 7},
    {"delay": -1},
    {"delay": math.nan},
    {"delay": math.inf},
    {"delay": "soon"},
    {"delay": True},
    {"delay": 10**12},
    {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the missing time zone is the mistake
    {"run_at": "tomorrow"},
    {"priority": 2**31},
    {"priority": -(2**31) - 1},
    {"priority": 1.5},
    {"max_attempts": 0},
    {"max_attempts": True},
    {"unique_key": ""},
    {"unique_key": "x" * 201},
    {"unique_key": "padded "},
    {"headers": ["a", "b"]},
    {"headers": {1: "number"}},
    {"on_duplicate": "ignore"},
]


class TestEnqueue:
    """One job."""

    def test_a_job_is_stored_as_it_was_given(self, queue: Queue, name: str, clock: SettableClock) -> None:
        job_id = queue.enqueue(
            "mail", {"to": "a@b"}, delay=5, priority=-3, unique_key="k", max_attempts=7, headers={"trace": "00-1"}
        )
        assert job_id is not None
        job = queue.get(job_id)
        assert (job.id, job.queue, job.kind, job.payload) == (job_id, name, "mail", {"to": "a@b"})
        assert (job.priority, job.unique_key, job.max_attempts, job.headers) == (-3, "k", 7, {"trace": "00-1"})
        assert (job.attempts, job.version, job.worker, job.last_error) == (0, 0, None, None)
        assert (job.created_at, job.available_at) == (clock.now(), clock.now() + timedelta(seconds=5))
        assert job.state is State.SCHEDULED
        assert job.fence == f"{job_id}:0"

    def test_options_have_defaults(self, queue: Queue, clock: SettableClock) -> None:
        job_id = queue.enqueue("mail")
        assert job_id is not None
        job = queue.get(job_id)
        assert (job.payload, job.priority, job.unique_key, job.max_attempts, job.headers) == (None, 0, None, 25, {})
        assert (job.available_at, job.state) == (clock.now(), State.AVAILABLE)

    def test_payloads_come_back_equal(self, queue: Queue) -> None:
        ids = [queue.enqueue("echo", payload) for payload in PAYLOADS]
        assert [queue.get(job_id).payload for job_id in ids if job_id is not None] == PAYLOADS
        many = queue.enqueue_many([("echo", payload) for payload in PAYLOADS])
        assert [queue.get(job_id).payload for job_id in many if job_id is not None] == PAYLOADS
        claimed = {job.id: job.payload for job in queue.claim(limit=100)}
        assert claimed == dict(zip([*ids, *many], [*PAYLOADS, *PAYLOADS], strict=True))

    def test_a_megabyte_comes_back_equal(self, queue: Queue) -> None:
        text = "🦆" * 262_144
        queue.enqueue("large", text)
        (job,) = queue.claim()
        assert job.payload == text

    def test_headers_come_back_equal(self, queue: Queue) -> None:
        queue.enqueue("with", headers={"trace": "🧵", "depth": 3})
        queue.enqueue("without")
        assert {job.kind: job.headers for job in queue.claim(limit=2)} == {"with": {"trace": "🧵", "depth": 3}, "without": {}}

    def test_the_later_of_delay_and_run_at_applies(self, queue: Queue, clock: SettableClock) -> None:
        soon, late = clock.now() + timedelta(seconds=10), clock.now() + timedelta(seconds=20)
        for delay, run_at, due in [(0, soon, soon), (20, soon, late), (10, late, late), (0, None, clock.now())]:
            job_id = queue.enqueue("mail", delay=delay, run_at=run_at)
            assert job_id is not None
            assert queue.get(job_id).available_at == due

    def test_a_run_at_in_the_past_is_due_now(self, queue: Queue, clock: SettableClock) -> None:
        job_id = queue.enqueue("mail", run_at=clock.now() - timedelta(days=1))
        assert job_id is not None
        assert queue.get(job_id).available_at == clock.now()

    def test_an_id_is_never_used_again(self, queue: Queue) -> None:
        used = [queue.enqueue("mail")]
        for _ in range(3):
            assert queue.claim()[0].complete()
            used.append(queue.enqueue("mail"))
        assert len(set(used)) == len(used)

    def test_values_out_of_range_are_refused(self, queue: Queue) -> None:
        for options in REFUSED:
            with pytest.raises(ArgumentError):
                queue.enqueue(**({"kind": "mail"} | options))
        assert queue.stats().by_kind == {}

    def test_payloads_that_are_not_json_are_refused(self, queue: Queue) -> None:
        for payload in (object(), math.nan, {"key": math.inf}, "\ud800", {1, 2}):
            with pytest.raises(PayloadError, match="mail"):
                queue.enqueue("mail", payload)
        assert queue.stats().by_kind == {}

    def test_a_payload_above_the_limit_is_refused(self, open_db: OpenDB, name: str) -> None:
        queue = open_db(max_payload=10).queue(name)
        assert queue.enqueue("fits", "12345678") is not None  # and the two quotes
        with pytest.raises(PayloadError, match="11 bytes"):
            queue.enqueue("large", "123456789")
        assert [job.kind for job in queue.peek()] == ["fits"]

    def test_queue_names_differ_by_every_character(self, db: QueueDB, name: str) -> None:
        names = [f"{name}-{ending}" for ending in ("mail", "Mail", "maïl", "mail.", "ma%l", "ma_l")]
        for position, each in enumerate(names):
            db.queue(each).enqueue("mail", position)
        assert [[job.payload for job in db.queue(each).claim(limit=10)] for each in names] == [[n] for n in range(len(names))]

    def test_without_a_clock_the_time_is_that_of_the_database(self, open_db: OpenDB, name: str) -> None:
        db = open_db()
        queue = db.queue(name)

        def asked() -> datetime:
            with db.database.engine.connect() as connection:
                return from_micros(connection.execute(clock_query()).scalar_one())

        before = asked()
        first, (other, second) = queue.enqueue("mail"), queue.enqueue_many([("mail", 1), ("mail", 2)])
        (third,) = queue.enqueue_many([("mail", None, {"delay": 3600})])
        after = asked()
        assert first is not None
        assert second is not None
        assert third is not None
        for job in (queue.get(first), queue.get(second)):
            assert before <= job.created_at <= after
            assert job.available_at == job.created_at
        assert queue.get(third).available_at == queue.get(third).created_at + timedelta(hours=1)
        assert [job.id for job in queue.claim(limit=10)] == [first, other, second]

    def test_a_row_that_sql_inserted_is_a_job(self, open_db: OpenDB, name: str) -> None:
        db = open_db()
        with db.database.engine.begin() as connection:
            connection.execute(insert(db.store.tables.jobs).values(queue=name, payload='{"by": "hand"}'))
        (job,) = db.queue(name).claim()
        assert (job.kind, job.payload, job.attempts, job.max_attempts) == ("default", {"by": "hand"}, 1, 25)
        assert job.complete()


class TestEnqueueMany:
    """Many jobs, one transaction."""

    def test_a_generator_is_read_in_chunks(self, queue: Queue) -> None:
        read: list[int] = []

        def jobs() -> Iterator[tuple[str, int]]:
            for number in range(2500):
                read.append(number)
                yield ("mail", number)

        ids = queue.enqueue_many(jobs())
        assert read == list(range(2500))
        assert len(set(ids)) == 2500
        for position in (0, 1, 999, 1000, 1001, 1999, 2000, 2499):
            job_id = ids[position]
            assert job_id is not None
            assert queue.get(job_id).payload == position
        assert queue.stats().available == 2500

    def test_each_job_has_its_own_options(self, queue: Queue, clock: SettableClock) -> None:
        later = clock.now() + timedelta(seconds=60)
        ids = queue.enqueue_many(
            [
                ("plain", 1),
                ("late", 2, {"delay": 30}),
                ("later", 3, {"run_at": later}),
                ["list", 4, {"priority": 5, "unique_key": "k", "max_attempts": 2, "headers": {"a": "b"}}],  # type: ignore[list-item]
            ]
        )
        plain, late, last, listed = (queue.get(job_id) for job_id in ids if job_id is not None)
        assert (plain.kind, plain.available_at) == ("plain", clock.now())
        assert (late.kind, late.available_at) == ("late", clock.now() + timedelta(seconds=30))
        assert (last.kind, last.available_at) == ("later", later)
        assert (listed.priority, listed.unique_key, listed.max_attempts, listed.headers) == (5, "k", 2, {"a": "b"})

    @pytest.mark.parametrize("number", [1, 2, 200])
    def test_members_of_enumerations_are_their_values(self, db: QueueDB, name: str, number: int) -> None:
        made: Any = Enum
        of_integers: Any = IntEnum
        text = made("text", {"QUEUE": f"{name}-text", "KIND": "mail"}, type=str)
        for numbers in (made("numbers", {"LOW": 20, "HIGH": 30}, type=int), of_integers("numbers", {"LOW": 20, "HIGH": 30})):
            options: list[dict[str, Any]] = [{"priority": one, "max_attempts": one} for one in numbers]
            queue = db.queue(text.QUEUE)
            queue.enqueue_many([(text.KIND, None, options[place % 2]) for place in range(number)])
            for one in options:
                queue.enqueue(text.KIND, **one)
            wanted = Counter([(20, 20), (30, 30)] + [((20, 20), (30, 30))[place % 2] for place in range(number)])
            jobs = db.queue(f"{name}-text").claim(number + 2)
            assert Counter((job.priority, job.max_attempts) for job in jobs) == wanted
            assert {job.kind for job in jobs} == {"mail"}
            queue.complete_many(jobs)

    def test_without_ids_it_returns_how_many_were_added(self, queue: Queue) -> None:
        jobs = [("mail", number) for number in range(1200)]
        assert queue.enqueue_many(jobs, ids=False) == 1200
        assert queue.enqueue_many([("mail", 1, {"unique_key": "k"})] * 2, on_duplicate="skip", ids=False) == 1
        with queue.transaction() as connection:
            assert queue.enqueue_many(iter(jobs), using=connection, ids=False) == 1200
        assert queue.enqueue_many([], ids=False) == 0
        assert sorted(job.payload for job in queue.pop(3000)) == sorted([*range(1200)] * 2 + [1])

    def test_a_list_is_refused_as_a_generator_is(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(3)])
        bad: list[Any] = [
            ("mail", object()),
            ("mail", "\ud800"),
            ("", 1),
            (1, 1),
            ("mail", 1, {"speed": 2}),
            "mail",
            ("mail", "x" * MAX_PAYLOAD),
        ]
        for job in bad:
            jobs: list[Any] = [*[("mail", number) for number in range(1100)], job]
            errors = []
            for given in (jobs, iter(jobs)):
                with pytest.raises((PayloadError, ArgumentError)) as error:
                    queue.enqueue_many(given)
                errors.append(str(error.value))
            assert errors[0] == errors[1]
        assert queue.stats().available == 3

    def test_a_generator_may_change_what_it_gave(self, queue: Queue) -> None:
        payload = {"number": 0}

        def jobs() -> Iterator[tuple[str, Any]]:
            for payload["number"] in range(5):
                yield "mail", payload

        queue.enqueue_many(jobs())
        assert [job.payload["number"] for job in queue.pop(5)] == list(range(5))

    def test_an_empty_list_enqueues_nothing(self, queue: Queue) -> None:
        assert queue.enqueue_many([]) == []
        assert queue.enqueue_many(iter(())) == []

    def test_a_bad_job_at_the_end_rolls_all_back(self, queue: Queue) -> None:
        def jobs() -> Iterator[tuple[str, Any]]:
            for number in range(2500):
                yield ("mail", number)
            yield ("mail", object())

        with pytest.raises(PayloadError):
            queue.enqueue_many(jobs())
        assert queue.stats().available == 0

    def test_an_error_of_the_generator_rolls_all_back(self, queue: Queue) -> None:
        def jobs() -> Iterator[tuple[str, Any]]:
            for number in range(1500):
                yield ("mail", number)
            raise LookupError("no more")

        with pytest.raises(LookupError, match="no more"):
            queue.enqueue_many(jobs())
        assert queue.stats().available == 0

    def test_a_malformed_job_is_refused(self, queue: Queue) -> None:
        malformed: list[tuple[Any, str]] = [
            ("mail", "job 1: must be"),
            ((), "job 1: must be"),
            (("mail", 1, {}, 4), "job 1: must be"),
            (("mail", 1, {"speed": 2}), "job 1: unknown options speed"),
            (("mail", 1, None), "job 1: options"),
            (("mail", 1, {"priority": "high"}), "priority"),
        ]
        for bad, message in malformed:
            with pytest.raises(ArgumentError, match=message):
                queue.enqueue_many([("fine", 0), bad])
        assert queue.stats().by_kind == {}

    def test_run_at_of_two_zones_is_one_moment(self, queue: Queue, clock: SettableClock) -> None:
        moment = clock.now() + timedelta(hours=3)
        elsewhere = datetime.fromtimestamp(moment.timestamp(), UTC).replace(microsecond=moment.microsecond).astimezone()
        ids = queue.enqueue_many([("a", None, {"run_at": moment}), ("b", None, {"run_at": elsewhere})])
        assert len({queue.get(job_id).available_at for job_id in ids if job_id is not None}) == 1
