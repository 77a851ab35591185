"""Spark programs that are killed: the short version of ``python -m tests.spark.kills``, with one kill of each kind."""

import pytest

from tests.spark.kills import faults
from tests.spark.kills.faults import Fault, Round
from tests.spark.kills.programs import Count
from tests.spark.kills.rounds import play
from tests.spark.kills.world import World

pytestmark = pytest.mark.rest(
    "on the local Spark tasks die in test_spark_source.py and test_spark_drain.py, and batches are repeated as after the death of"
    " a driver in test_spark_streams.py and test_spark_feeds.py; connections and databases fail in the tests of streams and staging"
)

# Most of the time goes into drivers, so they live on from test to test until one is killed; the tests that kill one come last.
# Those that come after it have no executors and run the tasks by themselves, in the same Python without the package: they start
# sooner.
CLUSTER, LOCAL = "cluster", "local"


@pytest.fixture(scope="module")
def world(java_home, tmp_path_factory):
    """A cluster of two workers, databases, and a driver."""
    with World(tmp_path_factory.mktemp("kills")) as world:
        yield world


@pytest.fixture
def kill(world, request):
    """Play a round, and see that what was to happen has happened."""

    def play_it(program, database, *happening, modes=(CLUSTER,), **more):
        number = request.session.items.index(request.node)
        outcome = play(world, Round(number, program, database, happening, modes=modes, **more))
        assert outcome.happened == [str(fault) for fault in happening], str(outcome)
        return outcome

    return play_it


def assert_once(outcome, drivers=1):
    """Every job is there once, no more drivers were needed, and nothing else is wrong."""
    assert outcome.good, str(outcome)
    assert outcome.count == Count(outcome.count.jobs, lost=0, repeated=0)
    assert outcome.drivers == drivers, str(outcome)


def test_an_executor_dies_with_its_rows_staged(kill):
    assert_once(kill("write", "postgresql", Fault(faults.EXECUTOR, "stage", "after", 2)))


def test_a_load_at_least_once_repeats_what_a_dead_task_had_written(kill):
    """That these tests can fail: the same count, of a program that promises less."""
    died = Fault(faults.FAILURE, "load", "after", 1, "exit")
    outcome = kill("write", "postgresql", died, guarantee="at_least_once")
    assert (outcome.count.lost, outcome.count.repeated) == (0, outcome.count.jobs // 4)
    assert not outcome.good


def test_the_connection_breaks_before_a_commit_is_answered(kill):
    assert_once(kill("write", "postgresql", Fault(faults.CUT, "staging.publish", "inside", how="answer")))


def test_the_database_dies_in_the_middle_of_a_claim(kill):
    assert_once(kill("stream-read", "postgresql", Fault(faults.DATABASE, "streams.allocate", "inside", 2)))


def test_the_driver_dies_when_it_has_published_and_spark_does_not_know(kill):
    assert_once(kill("write", "mariadb", Fault(faults.DRIVER, "staging.publish", "after"), modes=(LOCAL,)), drivers=2)


def test_the_driver_dies_with_a_batch_claimed_that_spark_does_not_know(kill):
    claimed = Fault(faults.DRIVER, "streams.allocate", "after", 2)
    assert_once(kill("stream-read", "postgresql", claimed, modes=(LOCAL,)), drivers=2)


def test_the_driver_dies_with_messages_of_a_feed_published_and_its_batch_not_committed(kill):
    """The batch is read again from its positions, has the same messages, and is published to the other feed once."""
    died = Fault(faults.DRIVER, "feeds.publish", "after", 2)
    assert_once(kill("stream-feed", "postgresql", died, modes=(LOCAL,)), drivers=2)


def test_lost_and_repeated_jobs_are_counted():
    assert Count.of(4, [0, 1, 1, 3, 3, 3]) == Count(4, lost=1, repeated=3)
    assert Count.of(2, [0, 1, 7]) == Count(2, lost=0, repeated=1)
    assert Count.of(3, [2, 0, 1]) == Count(3, lost=0, repeated=0)
