"""Workers and groups: one job of a group at a time over all workers, whatever they claim ahead, and in order."""

import threading

import pytest

from queue_db import Dead, Retry, Snooze
from queue_db.worker.maintenance import maintenance
from queue_db.worker.options import Options
from queue_db.worker.registration import Registration
from tests.patience import PATIENCE
from tests.worker.serving import serving

GROUPS, EACH = 7, 12


class Watch:
    """A handler that notices when too many jobs of a group run at once, and in which order they came."""

    def __init__(self, most=1):
        self.most = most
        self.lock = threading.Lock()
        self.running, self.seen, self.crowds = {}, {}, []

    def __call__(self, job):
        with self.lock:
            self.running[job.group] = self.running.get(job.group, 0) + 1
            if self.running[job.group] > self.most:
                self.crowds.append(job.group)
            self.seen.setdefault(job.group, []).append(job.payload)
        with self.lock:
            self.running[job.group] -= 1


def fill(queue):
    queue.enqueue_many([("n", number, {"group": f"g{group}"}) for number in range(EACH) for group in range(GROUPS)])


@pytest.mark.parametrize("options", [{"concurrency": 4}, {"concurrency": 4, "prefetch": 20}])
def test_two_workers_run_each_group_in_order(queue, open_db, options):
    watch = Watch()
    fill(queue)
    workers = [serving(open_db(worker=f"w{number}").queue(queue.name), watch, poll=0.01, **options) for number in range(2)]
    threads = [threading.Thread(target=worker.run, kwargs={"until_empty": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    # One that found nothing due may have left while the other had the last job of each group in hand.
    assert sum(worker.summary.completed for worker in workers) == GROUPS * EACH
    assert watch.crowds == []
    assert watch.seen == {f"g{group}": list(range(EACH)) for group in range(GROUPS)}


def test_as_many_at_once_as_the_queue_says(queue):
    watch = Watch(3)
    queue.limit(per_group=3)
    fill(queue)
    assert serving(queue, watch, concurrency=10).run(until_empty=True).completed == GROUPS * EACH
    assert watch.crowds == []


def test_a_running_worker_goes_on_with_the_next_of_a_group_at_once(queue, running):
    """It is woken: with a poll of an hour it would not find them itself."""
    done = threading.Semaphore(0)
    worker = serving(queue, lambda _: done.release(), concurrency=2, poll=3600)
    with running(worker):
        queue.enqueue_many([("n", number, {"group": "g"}) for number in range(10)])
        assert all(done.acquire(timeout=PATIENCE) for _ in range(10))
    assert worker.summary.completed == 10


def test_whatever_a_handler_returns_the_group_goes_on(queue):
    seen = []

    def handle(job):
        seen.append((job.payload, job.attempts))
        match job.payload:
            case 0:
                return Dead("no use")
            case 1:
                return None if job.attempts > 1 else Retry("again", 0)
            case 2 if (2, 1) not in seen[:-1]:
                return Snooze(0)
            case 3:
                raise ValueError("over")
        return None

    queue.enqueue_many([("n", number, {"group": "g", "max_attempts": 1 if number == 3 else 5}) for number in range(5)])
    summary = serving(queue, handle, concurrency=3).run(until_empty=True)
    assert seen == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 1), (3, 1), (4, 1)]
    assert (summary.completed, summary.dead, summary.snoozed, summary.failed) == (3, 2, 1, 1)


def test_at_most_once_begins_a_group_in_order_and_does_not_wait_for_its_jobs(queue):
    watch = Watch(EACH)
    fill(queue)
    assert serving(queue, watch, concurrency=1, mode="at_most_once").run(until_empty=True).completed == GROUPS * EACH
    assert watch.seen == {f"g{group}": list(range(EACH)) for group in range(GROUPS)}


def test_a_worker_mends_the_groups_of_its_queues(queue):
    first, _ = queue.enqueue_many([("n", number, {"group": "g"}) for number in range(2)])
    jobs = queue.db.store.tables.jobs
    with queue.db.database.engine.begin() as connection:
        connection.execute(jobs.delete().where(jobs.c.id == first))
    assert queue.claim() == []
    own = Registration(queue.db, {}, lambda: ("working", 0, {}))
    (repair,) = [task for task in maintenance(queue.db, Options(queues=queue.name), own) if task.name == "repairing groups"]
    repair.run()
    assert [job.payload for job in queue.claim()] == [1]


def test_the_job_after_a_batch_runs_in_the_same_worker_at_once(queue, running):
    done = threading.Event()
    kinds = []

    def handle(job):
        kinds.append(job.kind)
        if job.kind == "report":
            assert job.headers["batch"]["jobs"] == 20
            done.set()

    with running(serving(queue, handle, concurrency=4, poll=3600)):
        queue.enqueue_batch([("n", number) for number in range(20)], ("report", None))
        assert done.wait(PATIENCE)
    assert kinds.count("n") == 20
    assert kinds[-1] == "report"
