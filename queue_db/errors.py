"""Every exception of the package. The first line of a class's docstring is its default message. The data is in attributes.

``code`` of a class is for programs: ``job_not_found`` of JobNotFoundError, and so on; ``conflict`` of QueueDBError itself. It stays
the same when a class is renamed or a message is reworded. The REST API and ``queue-db --json`` show it.

    QueueDBError
    ├─ ConfigurationError ─┬─ ArgumentError (also a ValueError)
    │                      ├─ UnsupportedError
    │                      └─ SchemaOutOfDateError
    ├─ EnqueueError ─┬─ DuplicateJobError
    │                ├─ PayloadError (also a ValueError)
    │                └─ StagingError
    ├─ JobNotFoundError ─┬─ JobDeadError
    │                    └─ JobNotFinishedError
    ├─ JobStateError
    ├─ UnknownKindError
    ├─ LeaseLostError
    ├─ HandlerProcessError
    ├─ HandlerResultError
    ├─ FeedError ─┬─ NoSuchFeedError
    │             ├─ NoSuchCursorError
    │             ├─ PositionError ─── TrimmedError
    │             ├─ IdempotencyKeyError
    │             ├─ CursorHeldError
    │             └─ ClaimError ─┬─ UnknownClaimError
    │                            ├─ ClaimExpiredError
    │                            ├─ MessageNotClaimedError
    │                            └─ MessageClaimedError
    ├─ StreamError ─┬─ NoSuchStreamError
    │               ├─ StreamFencedError
    │               └─ CheckpointMismatchError
    ├─ RouteError
    └─ StorageError ─┬─ TransientStorageError
                     └─ PermanentStorageError

Not errors: a miss at claim, a lost lease at settle (:class:`~queue_db.Verdict`), an empty queue, a handler that snoozes its job.
"""

from __future__ import annotations

from collections.abc import Sequence


class QueueDBError(Exception):
    """Base class of all errors of queue_db.

    :param wire: the message for clients of the REST API, if ``message`` is about Python or the command line. None: ``message``.
    :param cli: the message for the command line, if ``message`` is about Python. None: ``message``.
    """

    #: Names the sort of error, for programs.
    code: str = "conflict"
    #: Where the error is in what was given, such as ``job 3: ``: it stands in front of the message.
    place = ""
    _wire: str | None = None
    _cli: str | None = None

    def __init__(self, message: str | None = None, *, wire: str | None = None, cli: str | None = None) -> None:
        super().__init__(message or _first_sentence(type(self)))
        self._wire = wire
        self._cli = cli

    def __reduce__(self) -> tuple[object, ...]:  # not by __init__, which would make another text
        return type(self).__new__, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        return self.place + self.text

    @property
    def text(self) -> str:
        """The message without the place."""
        return super().__str__()

    @property
    def wire(self) -> str:
        """The message for clients of the REST API."""
        return self.place + (self._wire or self.text)

    @property
    def cli(self) -> str:
        """The message for the command line."""
        return self.place + (self._cli or self.text)


class ConfigurationError(QueueDBError):
    """The configuration cannot work."""

    code = "configuration"


class ArgumentError(ConfigurationError, ValueError):
    """An argument is outside its allowed range.

    :param argument: the name of the argument, for an error about one. Each side spells it as its users know it: ``max_attempts``,
        ``--max-attempts``.
    :param problem: what is wrong with it; the message is the name, and then this.
    """

    code = "argument"

    def __init__(
        self,
        message: str | None = None,
        *,
        wire: str | None = None,
        cli: str | None = None,
        argument: str | None = None,
        problem: str | None = None,
    ) -> None:
        super().__init__(message if argument is None else f"{argument}{problem}", wire=wire, cli=cli)
        self.argument = argument
        self.problem = problem

    def named(self, spelled: str) -> str:
        """The message with another spelling of the argument."""
        return f"{self.place}{spelled}{self.problem}"

    def labelled(self, label: str) -> str:
        """The message for a person who has filled in a form: without the spelling of a call."""
        text, name = self._wire or self.text, self.argument or ""
        return f"{self.place}{label}{text[len(name) :]}" if text.startswith((f"{name} ", f"{name}:")) else self.wire


class UnsupportedError(ConfigurationError):
    """The database lacks a required capability."""

    code = "unsupported"

    def __init__(self, message: str | None = None, *, capability: str = "", dialect: str = "") -> None:
        super().__init__(message)
        self.capability = capability
        self.dialect = dialect


class SchemaOutOfDateError(ConfigurationError):
    """The tables of the queue are missing or of another version."""

    code = "schema_out_of_date"

    def __init__(self, message: str | None = None, *, found: str | None, required: str) -> None:
        super().__init__(message)
        self.found = found
        self.required = required


class EnqueueError(QueueDBError):
    """A job was not enqueued."""

    code = "enqueue"


class DuplicateJobError(EnqueueError):
    """The unique key is taken: by a live job of the queue, or with ``unique_for`` by an earlier job whose time is not over.

    :param existing_id: the id of the job that has the key. None: another job of the same call has it, or that job has left since.
    :param position: the position of the refused job in the list, from 0; None: it was enqueued alone.
    :param other: the job of the same call that has the key: its position in the list, from 0, or a description of its place. None:
        no job of the call has the key, or the call was too long to find it.
    :param dead: the id of the refused job, if it is a dead one that was to be redriven.
    :param unique_for: whether the refused job has ``unique_for``: such a job replaces no other.
    :param node: the name of the refused job in its graph.
    :param queue: the queue of the refused job, if the error comes from the insert of jobs.
    """

    code = "duplicate_job"

    def __init__(
        self,
        *,
        unique_key: str,
        existing_id: int | None,
        position: int | None = None,
        other: int | str | None = None,
        dead: int | None = None,
        unique_for: bool = False,
        node: str | None = None,
        queue: str | None = None,
    ) -> None:
        if existing_id is not None:
            holder = f"a job in the queue, or one whose unique_for is not over (id {existing_id})"
        elif other is not None:
            holder = f"job {other} of the same call" if isinstance(other, int) else other
        else:
            holder = "a job that has left meanwhile" + ("" if position is None else ", or another one of the same call")
        which = "" if position is None else f"job {position}: "
        taken = f"{which}unique_key {unique_key!r} is taken by {holder}"
        if dead is not None:
            super().__init__(f"job {dead} stays dead: its {taken}")
        elif node is not None:
            super().__init__(f"node {node!r}: its {taken}; no job of the graph was enqueued")
        else:
            new = "the new one in its place"
            super().__init__(
                f'{taken}; pass on_duplicate="skip" to keep it'
                + ("" if unique_for else f', or on_duplicate="replace" to put {new}'),
                wire=f'{taken}; send "on_duplicate": "skip" to keep it' + ("" if unique_for else f', or "replace" to put {new}'),
                cli=f"{taken}; --on-duplicate skip keeps it" + ("" if unique_for else f", --on-duplicate replace puts {new}"),
            )
        self.unique_key = unique_key
        self.existing_id = existing_id
        self.position = position
        self.other = other
        self.unique_for = unique_for
        self.queue = queue


class PayloadError(EnqueueError, ValueError):
    """A payload, or headers, cannot be stored, or what is stored cannot be read.

    :param subject: what cannot be stored or read: the payload or the headers of a job or of a message.
    """

    code = "payload"

    def __init__(self, *, reason: str, kind: str = "", subject: str = "payload of job") -> None:
        super().__init__(f"{subject} kind {kind!r}: {reason}" if kind else f"{subject.partition(' ')[0]}: {reason}")
        self.kind = kind
        self.reason = reason


class StagingError(EnqueueError):
    """What was staged for a bulk load is not all there, so nothing was published."""

    code = "staging"


class JobNotFoundError(QueueDBError):
    """There is no such job: it was completed, cancelled, purged, or never existed. Or it is not in the required state."""

    code = "job_not_found"

    def __init__(
        self, job_id: int, where: str, *, message: str | None = None, wire: str | None = None, cli: str | None = None
    ) -> None:
        missing = f"no job {job_id} in {where}: it was completed, cancelled, purged, or never existed"
        super().__init__(message or missing, wire=wire, cli=cli)
        self.job_id = job_id


class JobDeadError(JobNotFoundError):
    """The job is dead."""

    code = "job_dead"

    def __init__(self, job_id: int) -> None:
        dead = f"job {job_id} is dead: "
        super().__init__(
            job_id,
            "the live jobs",
            message=f"{dead}db.get({job_id}).last_error says why, db.dead redrives or purges it",
            wire=f"{dead}GET /api/v1/jobs/{job_id} says why (last_error), POST /api/v1/dead/redrive or …/purge changes it",
            cli=f"{dead}queue-db jobs show {job_id} says why, queue-db dead redrive or purge changes it",
        )


class JobNotFinishedError(JobNotFoundError):
    """The job is not completed yet.

    :param state: its :class:`~queue_db.State`.
    """

    code = "job_not_finished"

    def __init__(self, job_id: int, state: str) -> None:
        wire = f"job {job_id} is not completed: it is {state}"
        super().__init__(job_id, "the finished jobs", message=f"{wire}; db.wait waits for it", wire=wire, cli=wire)
        self.state = state


class JobStateError(QueueDBError):
    """The job's state does not allow this; nothing was changed.

    :param state: its :class:`~queue_db.State`.
    """

    code = "job_state"

    def __init__(self, job_id: int, state: str, message: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.state = state


class GraphNotFoundError(QueueDBError):
    """There is no such graph: it has expired, or never existed."""

    code = "graph_not_found"

    def __init__(self, graph: int) -> None:
        super().__init__(f"there is no graph {graph}: it was pruned some time after its end (keep=), or never existed")
        self.graph = graph


class UnknownKindError(QueueDBError):
    """No handler is registered for this kind of job.

    A handler of all kinds (``worker.handles(None)``) raises it for a kind of which it has no code. Then the job waits for another
    worker, or is dead, as the worker's options ``unknown`` and ``unknown_grace`` say.
    """

    code = "unknown_kind"

    def __init__(self, kind: str, known: Sequence[str] = (), *, message: str | None = None) -> None:
        super().__init__(message or f"no handler for job kind {kind!r}; known kinds: {', '.join(sorted(known)) or 'none'}")
        self.kind = kind
        self.known = tuple(known)


class LeaseLostError(QueueDBError):
    """The lease was lost: another worker has the job, or it is gone. Nothing was changed."""

    code = "lease_lost"

    def __init__(self, job_id: int | None = None, version: int | None = None, *, message: str | None = None) -> None:
        which, taken = f" (job {job_id}, version {version})", "another worker has the job, or it is gone"
        if job_id is None:
            which, taken = "", "another process has taken over, or what was leased is gone"
        super().__init__(message or f"the lease was lost{which}: {taken}; nothing was changed")
        self.job_id = job_id
        self.version = version


class HandlerProcessError(QueueDBError):
    """The process of a handler ended before the handler did, or it cannot be sent what it needs."""

    code = "handler_process"
    #: Whether a signal ended the process.
    killed = False


class HandlerResultError(QueueDBError):
    """A handler returned what cannot be the outcome of a job: its work has not run or not ended, or the result cannot be kept."""

    code = "handler_result"


class StreamError(QueueDBError):
    """A stream of jobs cannot go on."""

    code = "stream"


class NoSuchStreamError(StreamError):
    """There is no such stream."""

    code = "no_such_stream"


class StreamFencedError(StreamError):
    """Another reader has taken the stream over."""

    code = "stream_fenced"


class CheckpointMismatchError(StreamError):
    """A checkpoint and the database do not know the same history of a stream."""

    code = "checkpoint_mismatch"


class FeedError(QueueDBError):
    """A feed cannot do this."""

    code = "feed"


class NoSuchFeedError(FeedError):
    """There is no such feed."""

    code = "no_such_feed"


class NoSuchCursorError(FeedError):
    """The feed has no such cursor."""

    code = "no_such_cursor"


class IdempotencyKeyError(FeedError):
    """An idempotency key was used for other messages."""

    code = "idempotency_key"


class PositionError(FeedError):
    """A position is not one of this feed, or the messages after it are not known any more."""

    code = "position"


class TrimmedError(PositionError):
    """Messages after this position were trimmed before they were read."""

    code = "trimmed"

    def __init__(self, message: str, *, skipped: int, first: str, wire: str | None = None, cli: str | None = None) -> None:
        super().__init__(message, wire=wire, cli=cli)
        #: The number of messages that were trimmed.
        self.skipped = skipped
        #: The position from which on no message was trimmed.
        self.first = first


class CursorHeldError(FeedError):
    """Another process holds the cursor."""

    code = "cursor_held"


class RouteError(QueueDBError):
    """There is no such route or definition."""

    code = "route"


class ClaimError(FeedError):
    """A claim on messages does not allow this. Nothing was changed."""

    code = "claim"


class UnknownClaimError(ClaimError):
    """There is no such claim: it was released, its messages are deleted or claimed by others, or it never existed."""

    code = "unknown_claim"


class ClaimExpiredError(ClaimError):
    """The time of the claim is over, so others may have its messages."""

    code = "claim_expired"


class MessageNotClaimedError(ClaimError):
    """The message is not under this claim: it is free, claimed by another, or deleted."""

    code = "message_not_claimed"


class MessageClaimedError(ClaimError):
    """The message is claimed, and can be deleted with the id of its claim only."""

    code = "message_claimed"


class StorageError(QueueDBError):
    """The database refused a statement; ``__cause__`` is SQLAlchemy's exception."""

    code = "storage"

    def __init__(
        self,
        message: str | None = None,
        *,
        sqlstate: str | None = None,
        statement_name: str = "",
        outcome_unknown: bool = False,
        server_away: bool = False,
        cli: str | None = None,
    ) -> None:
        super().__init__(message, cli=cli)
        #: The SQLSTATE, the server's error number or SQLite's result code, as text; None if the driver gave none.
        self.sqlstate = sqlstate
        #: The name of the transaction that failed: a verb such as ``enqueue``, or a function of a store with its module, such as
        #: ``controls.change``. It is ``transaction`` if a statement of your own failed in ``queue.transaction()``.
        self.statement_name = statement_name
        #: True if it is unknown whether the change took effect, for example because the connection broke during COMMIT.
        self.outcome_unknown = outcome_unknown
        #: True if the connection broke, no connection could be made, or the server accepts no work. Other statements would fail
        #: now as well.
        self.server_away = server_away


class TransientStorageError(StorageError):
    """The database asks to try again: deadlock, serialization failure, lock timeout, lost connection."""

    code = "transient_storage"


class PermanentStorageError(StorageError):
    """The database refused a statement for a reason that a retry does not cure."""

    code = "permanent_storage"


def asking(text: str, flag: str) -> dict[str, str]:
    """The texts of an error that end with the flag that it asks for: ``take_over=True``, ``take_over: true``, ``--take-over``."""
    return {"message": f"{text}{flag}=True", "wire": f"{text}{flag}: true", "cli": f"{text}--{flag.replace('_', '-')}"}


def text_of(error: object) -> str:
    """The text of an error, even if ``__str__`` of its class raises."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - the class is the application's own
        return f"(no text: {type(another).__name__})"


def _first_sentence(cls: type) -> str:
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")
