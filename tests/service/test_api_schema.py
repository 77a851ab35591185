"""The OpenAPI document, and requests made from it: nothing that it allows or forbids ends in an error of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.api.claims import Claimed
from tests.patience import PATIENCE
from tests.service.conftest import serving_app


def document() -> dict[str, Any]:
    with QueueDB("sqlite://") as db:
        made: dict[str, Any] = service(db, Settings(closed=False)).openapi()
    return made


DOCUMENT = document()
OPERATIONS = {
    f"{method.upper()} {path}": operation for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
}
schema = schemathesis.openapi.from_dict(DOCUMENT)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service over a database of its own, with some jobs. It is about to end, so that nothing waits."""
    with QueueDB(f"sqlite:///{tmp_path_factory.mktemp('schema') / 'queue.db'}") as db:
        db.migrate()
        queue = db.queue("mail")
        queue.enqueue_many([("mail", {"n": n}) for n in range(20)])
        for job in queue.claim(5):
            job.bury(ValueError("broken"))
        queue.claim(5)
        app = service(db, Settings(closed=False))
        app.state.service.ending.set()
        with serving_app(app) as found:
            yield found


# A stream of events does not end. `schema.parametrize()` gives all tests one name, and of those a test process runs one.
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.endswith("/events")])
def test_no_request_ends_in_an_error_of_the_server(operation: str, url: str) -> None:
    method, path = operation.split()

    @given(case=schema[path][method].as_strategy())
    @settings(
        max_examples=3,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=PATIENCE)

    ask()


def test_each_operation_is_described() -> None:
    ids = Counter(operation["operationId"] for operation in OPERATIONS.values())
    assert [one for one, number in ids.items() if number > 1] == []
    for name, operation in OPERATIONS.items():
        assert operation["description"].strip(), name
        assert operation["tags"], name
        assert {"400", "422", "503", "default"} <= set(operation["responses"]), name
    assert DOCUMENT["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert DOCUMENT["security"] == [{"token": []}]


def test_problems_have_their_own_type() -> None:
    for name, operation in OPERATIONS.items():
        for status, response in operation["responses"].items():
            if status == "default" or status >= "400":
                assert list(response["content"]) == ["application/problem+json"], (name, status)
    assert Claimed.__name__ in DOCUMENT["components"]["schemas"]
