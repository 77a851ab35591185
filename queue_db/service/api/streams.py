"""Spark streams: the jobs that they hold."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from queue_db.operations import streams as operations
from queue_db.service.api.shapes import JobCount, View, clean
from queue_db.service.http.openapi import problems
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader
from queue_db.service.http.times import Time

router = APIRouter(tags=["streams"])


class StreamView(View):
    """A stream at the time of the call."""

    name: str
    queue: str
    holder: str | None = Field(description="Host and process of the last reader.")
    epoch: int
    completed: int = Field(description="Number of the last completed batch.")
    claimed: int = Field(description="Number of the last claimed batch.")
    held: int = Field(description="Jobs claimed and not completed.")
    maybe_written: int = Field(description="Of these, jobs that a query was given: it may have written them.")
    deliveries: int = Field(description="How often a held batch was given to a query, at most.")
    oldest_held_age: float | None = Field(description="Seconds since the oldest held job was enqueued.")
    seen_at: Time
    retention: float = Field(description="Seconds without a reader after which its jobs return to the queue.")


class StreamList(BaseModel):
    """The streams by name."""

    streams: list[StreamView]


class ReleasedStreams(BaseModel):
    """Streams whose jobs have returned to their queues."""

    streams: list[str]


@router.get("/streams")
def list_streams(
    db: Db,
    who: Reader,
    queue: Annotated[str | None, Query(max_length=100, description="Streams of this queue only.")] = None,
) -> StreamList:
    """List the Spark streams by name."""
    return StreamList(streams=[StreamView.of(one) for one in db.streams.list(queue) if who.allows("read", one.queue)])


@router.post("/streams/{name}/complete", responses=problems(404))
def complete_stream(name: Name, db: Db, who: Manager) -> JobCount:
    """Complete all jobs that a stream holds, for the sink has them. Check the sink first: a batch that was not written is lost."""
    return JobCount(count=operations.complete(db, who, name))


@router.post("/streams/{name}/release", responses=problems(404))
def release_stream(name: Name, db: Db, who: Manager) -> JobCount:
    """Return the jobs that a stream holds to the queue; jobs that its query has written (`maybe_written`) are done again."""
    return JobCount(count=operations.release(db, who, name))


@router.post("/streams/release-expired")
def release_expired_streams(db: Db, who: Manager) -> ReleasedStreams:
    """Release the streams without a reader for longer than their retention, as `release` does. Workers do so once a minute."""
    return ReleasedStreams(streams=[clean(one) for one in operations.release_expired(db, who)])
