"""One way through feeds over HTTP on each database, in a closed service: who may do what, and what the database does with it."""

from __future__ import annotations

from collections.abc import Callable

import httpx2

from queue_db import QueueDB
from queue_db.service import Settings


def test_from_a_publish_to_a_completed_claim(db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client]) -> None:
    client = serve(Settings())
    scopes = {"read": ["read"], "enqueue": ["enqueue"], "work": ["work", "read"], "manage": ["manage", "read"]}
    tokens = {one: db.tokens.create(f"{name}-{one}", those, queues=[f"{name}*"]) for one, those in scopes.items()}

    def ask(who: str, method: str, path: str, status: int, **options: object) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {tokens[who]}"} if who else {}
        answer = client.request(method, f"/api/v1/feeds/{path}", headers=headers, **options)
        assert answer.status_code == status, answer.text
        return answer

    ask("", "GET", name, 401)
    ask("enqueue", "PUT", name, 403, json={"claims": True})
    ask("manage", "PUT", "another", 403, json={"claims": True})
    ask("manage", "PUT", name, 201, json={"claims": True})
    messages = {"messages": [{"kind": "paid", "payload": {"order": number}, "key": f"order-{number}"} for number in range(3)]}
    ask("read", "POST", f"{name}/messages", 403, json=messages)
    ask("enqueue", "POST", f"{name}/messages", 201, json=messages)
    ask("enqueue", "GET", f"{name}/messages", 403)
    page = ask("read", "GET", f"{name}/messages", 200).json()
    assert [one["payload"]["order"] for one in page["messages"]] == [0, 1, 2]
    ask("read", "POST", f"{name}/claims", 403)
    claim = ask("work", "POST", f"{name}/claims", 201, params={"limit": 2}).json()
    assert [one["key"] for one in claim["messages"]] == ["order-0", "order-1"]
    ask("work", "GET", f"{name}/claims", 403)
    opened = ask("work", "PUT", f"{name}/cursors/reader", 201)
    assert opened.json()["position"] == ask("read", "GET", name, 200).json()["start"]
    assert ask("work", "DELETE", f"{name}/messages", 200, params={"claim": claim["id"]}).json()["deleted"] == 2
    left = ask("read", "GET", f"{name}/messages", 200).json()["messages"]
    assert [one["id"] for one in left] == [page["messages"][2]["id"]]
    ask("work", "POST", f"{name}/purge", 403)
    ask("manage", "POST", f"{name}/purge", 200)
    assert ask("read", "GET", f"{name}/messages", 200).json()["messages"] == []
    ask("manage", "DELETE", name, 204)
    assert {(one.action, one.target) for one in db.actions.list() if one.who == f"{name}-manage"} >= {
        ("set", f"feed {name}"),
        ("purge", f"feed {name}"),
        ("remove", f"feed {name}"),
    }
