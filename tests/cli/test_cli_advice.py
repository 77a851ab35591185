"""Errors of the command line name its own options, and never an argument or a verb of Python."""

import re

import pytest

from queue_db.db import QueueDB

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])

#: What a user types after a job with the unique key k and a feed without claims, and what the error says.
MISTAKES = {
    "enqueue mail a --unique-key k": (
        1,
        "(id 2); --on-duplicate skip keeps it, --on-duplicate replace puts",
    ),
    "enqueue mail a --unique-for 60": (2, "--unique-for is the time for which a unique key stays taken: give a unique key"),
    "enqueue mail a --unique-key b --unique-for -1": (2, "--unique-for=-1.0: must be more than 0 seconds"),
    "enqueue mail a --run-at tomorrow": (2, "--run-at='tomorrow': must be a time like 2026-01-31T08:00:00+01:00"),
    "enqueue mail a --max-attempts 0": (2, "--max-attempts=0: must be 1 to "),
    "enqueue  a": (2, "QUEUE is empty: give it 1 to 100 characters"),
    "work mail --exec true --strategy fast": (
        2,
        "known: adaptive, optimistic, pessimistic, skip_locked\n",
    ),
    "work mail --exec true --mode twice": (2, "--mode='twice': must be at_least_once or at_most_once"),
    "work mail --exec true --exit-when-stuck 99": (2, "--exit-when-stuck=99: this worker has 10 slots"),
    "jobs cancel 1": (1, "job 1 is dead: queue-db jobs show 1 says why, queue-db dead redrive or purge changes it"),
    "dead redrive 1": (
        1,
        "job 1 stays dead: its unique_key 'k' is taken by a job in the queue, or one whose",
    ),
    "feeds set new --max-attempts 3": (1, "there is no feed 'new': --max-attempts need --claims"),
    "feeds set new --claims --delay 9 --expires-in 5": (2, "over: --delay must be less than --expires-in"),
    "feeds publish orders a null --delay 5": (2, "make a feed of another name with --claims"),
    "feeds read orders --after 5": (
        2,
        "position '5': must be a position that the feed returned (as queue-db feeds read",
    ),
    "routes set r": (2, "give one action of --feed, --enqueue, "),
    "routes set r --webhook ftp://host": (2, "--webhook='ftp://host': must be an address that begins with https://"),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_an_error_advises_what_can_be_typed(ask_at, own_url, words):
    with QueueDB(own_url) as db:
        queue = db.queue("mail")
        assert queue.enqueue("a", unique_key="k") == 1
        queue.claim()[0].bury("no")
        assert queue.enqueue("a", unique_key="k") == 2
        db.feed("orders").publish("a")
    status, expected = MISTAKES[words]
    answer = ask_at(own_url, *words.split(" "), status=status)
    assert expected in answer.err
    assert re.findall(r"\bdb\.|\bfeed\.|[\w]=\"|=True|Strategy", answer.err) == []
