"""Style sheet and scripts: files of this package, sent with a version in their address, so that browsers keep them."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def _read() -> dict[str, bytes]:
    static = files("queue_db.service.pages").joinpath("static")
    return {one.name: one.read_bytes() for one in static.iterdir() if _ending(one.name) in _TYPES}


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2]


#: Content by file name.
FILES = _read()

#: Changes with any of the files.
VERSION = hashlib.sha256(b"".join(FILES[name] for name in sorted(FILES))).hexdigest()[:12]


@router.get("/static/{version}/{file}", name="static")
def static(version: str, file: str) -> Response:
    """One of the files; any other name is unknown, so nothing else of the machine can be read."""
    content = FILES.get(file)
    if content is None:
        raise HTTPException(404, "There is no such file")
    kept = "public, max-age=31536000, immutable" if version == VERSION else "no-cache"
    return Response(content, media_type=_TYPES[_ending(file)], headers={"Cache-Control": kept})
