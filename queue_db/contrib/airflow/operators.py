"""Operators: one enqueues a job, one waits until a job is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralTimeout

from queue_db.contrib.airflow.connections import DEFAULT
from queue_db.contrib.airflow.hook import QueueHook
from queue_db.contrib.airflow.outages import passes
from queue_db.contrib.airflow.triggers import JobTrigger, check_poll, look
from queue_db.errors import ArgumentError, DuplicateJobError, StorageError

#: Seconds for which a unique key of a task stays taken.
WEEK = 7 * 86_400.0


class EnqueueOperator(BaseOperator):
    """Enqueues a job, and returns its id. A retry of the task does not enqueue a second one, and returns the id of the first.

    Without ``unique_key`` the key is made of the dag, the run, the task, its map index and how often the task was cleared: a task
    that somebody clears enqueues again. The key stays taken for ``unique_for`` seconds, also when the job is done earlier. The
    header ``airflow`` says which task it was.

    :param queue_name: the name of the queue; ``queue`` is Airflow's, for its executor.
    :param kind: selects the handler.
    :param payload: what JSON can store; with templates.
    :param unique_key: another key; an empty text: none.
    :param unique_for: seconds; a week.
    :param options: further arguments of :meth:`queue_db.Queue.enqueue`: ``delay``, ``priority``, ``group``, ``max_attempts`` …
    :param conn_id: the id of the Airflow connection.
    :raises ArgumentError: ``options`` has ``unique_key`` or ``unique_for``.
    """

    template_fields: ClassVar[Sequence[str]] = ("queue_name", "kind", "payload", "unique_key", "options", "conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"payload": "json", "options": "json"}

    def __init__(
        self,
        *,
        queue_name: str,
        kind: str,
        payload: Any = None,
        unique_key: str | None = None,
        unique_for: float = WEEK,
        options: Mapping[str, Any] | None = None,
        conn_id: str = DEFAULT,
        **of_task: Any,
    ) -> None:
        super().__init__(**of_task)
        if twice := sorted({"unique_key", "unique_for"} & set(options or {})):
            raise ArgumentError(argument="options", problem=f" must not have {' and '.join(twice)}: give it to the operator itself")
        self.queue_name = queue_name
        self.kind = kind
        self.payload = payload
        self.unique_key = unique_key
        self.unique_for = unique_for
        self.options = {} if options is None else dict(options)
        self.conn_id = conn_id

    def execute(self, context: Any) -> int | None:
        """Enqueue the job; the errors are those of :meth:`queue_db.Queue.enqueue`."""
        names = _names(context["ti"])
        key = task_key(context["ti"]) if self.unique_key is None else self.unique_key
        options = {**self.options, "headers": {"airflow": names, **(self.options.get("headers") or {})}}
        if key:
            options |= {"unique_key": key, "unique_for": self.unique_for}
        try:
            return QueueHook(self.conn_id).enqueue(self.queue_name, self.kind, self.payload, **options)
        except DuplicateJobError as error:
            if error.existing_id is None:
                raise
            self.log.info("No job was enqueued: job %d has the unique key %r.", error.existing_id, key)
            return error.existing_id


class WaitForJob(BaseOperator):
    """Waits, in the triggerer, until a job is done; returns the result. It fails, without a retry, if the job is dead.

    A retry looks again, and returns the result of a job that is done at once. Give the task ``retries``: Airflow fails a
    task that is resumed before a slow scheduler has seen that it waits.

    The handler must keep its results: ``@worker.handles(…, result_ttl=seconds)``. Otherwise nothing says afterwards whether the
    job was completed or cancelled; ``if_gone`` decides what this means.

    :param job_id: the id, such as ``enqueue.output``.
    :param timeout: seconds after which the task fails, or waits again if it has ``retries``; None: never. The ``execution_timeout``
        of Airflow, which does not run in the triggerer, bounds each wait, too.
    :param if_gone: ``fail`` or ``succeed`` if nothing is left of the job.
    :param poll: seconds before the triggerer's first look at the job, and between two.
    :param conn_id: the id of the Airflow connection.
    :raises ArgumentError: ``if_gone`` is something else, or ``timeout`` or ``poll`` is not above 0.
    """

    template_fields: ClassVar[Sequence[str]] = ("job_id", "conn_id")

    def __init__(
        self,
        *,
        job_id: Any,
        timeout: float | None = None,
        if_gone: Literal["fail", "succeed"] = "fail",
        poll: float = 5.0,
        conn_id: str = DEFAULT,
        **of_task: Any,
    ) -> None:
        super().__init__(**of_task)
        if if_gone not in {"fail", "succeed"}:
            raise ArgumentError(argument="if_gone", problem=f" must be 'fail' or 'succeed', and is {if_gone!r}")
        if timeout is not None and not timeout > 0:
            raise ArgumentError(argument="timeout", problem=f" must be above 0 seconds or None, and is {timeout!r}")
        check_poll(poll)
        self.job_id = job_id
        self.timeout = timeout
        self.if_gone = if_gone
        self.poll = poll
        self.conn_id = conn_id

    def execute(self, context: Any) -> Any:
        """Return the result of a job that is done, or hand over to the triggerer.

        :raises ArgumentError: the id is not a number.
        :raises AirflowFailException: as :meth:`resume`.
        :raises StorageError: the database refuses the login or the tables.
        """
        try:
            job_id = int(self.job_id)
        except (TypeError, ValueError):
            raise ArgumentError(
                argument="job_id", problem=f" must be the id of a job, and is {self.job_id!r}: has the task that enqueues it run?"
            ) from None
        found = self._done(job_id)
        if found is not None:
            return self.resume(context, {"job_id": job_id, **found})
        trigger = JobTrigger(job_id=job_id, poll=self.poll, conn_id=self.conn_id)
        return self.defer(trigger=trigger, method_name="resume", timeout=self._longest())  # raises TaskDeferred

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Return the result of the job.

        :raises TaskDeferralTimeout: it is not done in time.
        :raises AirflowFailException: as :meth:`resume`.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout as error:
            # Airflow's own text does not say which job, nor how long it was waited for.
            raise TaskDeferralTimeout(
                f"job {self.job_id} was not done within {self._longest()}, as far as the triggerer saw, and is not cancelled: "
                f"queue-db jobs show {self.job_id}. Is there a worker of its queue, with a handler of its kind?"
            ) from error

    def resume(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Return the result of the job.

        :raises AirflowFailException: it is dead, or gone.
        """
        job, status = f"job {event['job_id']}", event["status"]
        if status == "dead":
            raise AirflowFailException(
                f"{job} is dead after {event['attempts']} attempts: {event['error']}. "
                f"queue-db dead redrive {event['job_id']} runs it again"
            )
        if status == "gone" and self.if_gone == "fail":
            raise AirflowFailException(
                f"nothing is left of {job}: it was completed by a handler that keeps no result, cancelled, or never there. "
                'Give the handler result_ttl=, or this task if_gone="succeed"'
            )
        return event.get("result")

    def _done(self, job_id: int) -> Mapping[str, Any] | None:
        try:
            with QueueHook(self.conn_id).get_conn() as db:
                return look(db, job_id)
        except StorageError as error:
            if not passes(error):
                raise
            return None  # the trigger asks again

    def _longest(self) -> timedelta | None:
        limits = [None if self.timeout is None else timedelta(seconds=self.timeout), self.execution_timeout]
        return min((limit for limit in limits if limit is not None), default=None)


def task_key(ti: Any) -> str:
    """The unique key of a task instance: that of all its tries, until somebody clears it."""
    # A retry leaves max_tries as it is, and a clear raises it.
    of = json.dumps([*_names(ti).values(), ti.max_tries])
    return f"airflow:{hashlib.sha256(of.encode()).hexdigest()}"


def _names(ti: Any) -> dict[str, Any]:
    return {"dag": ti.dag_id, "run": ti.run_id, "task": ti.task_id, "map_index": ti.map_index}
