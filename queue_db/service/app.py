"""The ASGI application."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from queue_db import __version__
from queue_db.db import QueueDB
from queue_db.service.api import API, BESIDE, callbacks
from queue_db.service.api.group_settlement import Settling
from queue_db.service.auth import login
from queue_db.service.http import direct, errors, openapi, refusals
from queue_db.service.http.declared import Declared
from queue_db.service.http.guard import Guard
from queue_db.service.http.paths import Paths
from queue_db.service.http.pressure import Pressure
from queue_db.service.http.requests import Service, identity
from queue_db.service.live.arrivals import Arrivals
from queue_db.service.live.claims import Claims
from queue_db.service.live.diagnosis import Watch
from queue_db.service.live.ends import Ends
from queue_db.service.live.samples import Samples, lifespan
from queue_db.service.live.waits import Waits
from queue_db.service.pages import PAGES, routing
from queue_db.service.pages.board import Board
from queue_db.service.pages.render import by_name
from queue_db.service.settings import Settings


def service(db: QueueDB, settings: Settings | None = None) -> FastAPI:
    """Make an ASGI application of the REST API and the dashboard of a database; mount it as any other: ``app.mount("/queue", …)``.

    The caller closes ``db`` after the application has ended.

    :param settings: default: closed to requests without a token, and only for loopback host names.
    """
    made = Service(db, settings or Settings())
    samples = Samples(made, writes=not made.settings.read_only)
    app = FastAPI(
        title="queue_db",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        summary="A job queue in a SQL database",
        description=openapi.DESCRIPTION,
        generate_unique_id_function=lambda route: route.name,  # unique over all modules
        lifespan=lifespan(made, samples),
    )
    app.state.service = made
    app.state.watch = Watch(db)
    app.state.board = Board(db, made.clock, samples, app.state.watch)
    waits = Waits(db, made.ending)
    app.state.claims = Claims(db, waits, made.incidents, made.working)
    app.state.settling = Settling(made)
    app.state.arrivals = Arrivals(waits)
    app.state.ends = Ends(waits)
    app.state.pressure = Pressure(db, made.settings.max_rate, made.settings.max_depths)
    errors.install(app, routing.problem)
    refusals.install(app)
    openapi.install(app)
    exact = Declared(API, checked=direct.CHECKED)
    for router in API:
        app.include_router(router, prefix="/api/v1", dependencies=[Depends(identity), Depends(exact)])
    for router in BESIDE:
        app.include_router(router)
    if made.settings.callbacks:
        app.state.callbacks = Pressure(db, made.settings.callback_rate, {}, "address")
        app.include_router(callbacks.router)
    for pages in PAGES:
        app.include_router(pages)
    app.include_router(login.router)
    app.state.addresses = by_name(app.router, login.router, *PAGES)
    app.add_middleware(Paths, router=app.router)
    app.add_middleware(direct.Direct, owner=app, exact=exact)
    app.add_middleware(Guard, service=made)
    return app
