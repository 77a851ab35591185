"""What the drivers for asyncio share: a network that is gone must not be waited for without end."""

from __future__ import annotations

import os
import socket
from typing import Any

#: Seconds after which a connection that does not answer is broken: less than a third of the default lease, so that a completion
#: whose reply is lost is looked up while the lease holds, and more than the longest wait for a lock.
GONE_AFTER = 15

# Seconds, seconds, times, milliseconds. Not every system has all of them.
_WAITS = {"TCP_KEEPIDLE": 9, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": GONE_AFTER * 1000}


def limit_waits(connection: Any, _record: Any) -> None:
    """Let the kernel end a dead connection, where the driver has no option for it: for ``connect`` events."""
    driver = connection.driver_connection
    # asyncpg's place, and aiomysql's.
    transport = getattr(driver, "_transport", None) or getattr(getattr(driver, "_writer", None), "transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # The sockets of event loops refuse options. Options belong to the open socket, so a duplicate of its descriptor can set them.
    with socket.socket(found.family, found.type, found.proto, fileno=os.dup(found.fileno())) as twin:
        twin.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _WAITS.items():
            if hasattr(socket, name):
                twin.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
