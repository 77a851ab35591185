"""The web server that runs the application."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI


def server(app: FastAPI, host: str = "127.0.0.1", port: int = 8321) -> uvicorn.Server:
    """A server for the application; ``run()`` serves until SIGINT or SIGTERM.

    :param port: 0: a free one.
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
        )
    )
