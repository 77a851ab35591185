"""ETags of jobs: ``"id:version"``, the fence in HTTP's words."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header

from queue_db.model import Job
from queue_db.service.http.refusals import stale, unconditional

_TAG = re.compile(r'"([0-9]{1,19}):([0-9]{1,19})"', re.ASCII)

_DESCRIPTION = 'The ETag of the job as you know it, `"id:version"`; `*`: whatever its version is.'


def etag(job: Job) -> str:
    """The ETag of a job."""
    return f'"{job.fence}"'


class Precondition:
    """The versions that a request accepts."""

    def __init__(self, given: str) -> None:
        self._any = given.strip() == "*"
        found = [] if self._any else [_TAG.fullmatch(tag.strip()) for tag in given.split(",")]
        self._tags = {tag[1]: tag[2] for tag in found if tag is not None}

    def version(self, job_id: int) -> int | None:
        """The version that the job must have; None: any. 412: the ETag is not one of this job."""
        if self._any:
            return None
        found = self._tags.get(str(job_id))
        if found is None:
            raise stale(f'If-Match has no ETag of job {job_id}: "{job_id}:<version>" is expected')
        return int(found)

    def lease(self, job_id: int) -> int:
        """The version of the lease. 412: the ETag is not one of this job; 428: it is ``*``."""
        version = self.version(job_id)
        if version is None:
            raise unconditional('send If-Match: "id:version" of the claim')
        return version


def _precondition(if_match: Annotated[str | None, Header(max_length=500, description=_DESCRIPTION)] = None) -> Precondition:
    if if_match is None:
        raise unconditional('send If-Match: "id:version" (the ETag of GET), or If-Match: *')
    return Precondition(if_match)


#: The header ``If-Match``, as a parameter of an endpoint that needs it.
IfMatch = Annotated[Precondition, Depends(_precondition)]
