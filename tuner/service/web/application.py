"""The application: routes, guards and answers put together around one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from tuner.machine.version import __version__
from tuner.service.access import Access, Guests
from tuner.service.errors import ServiceError
from tuner.service.model import Change, State
from tuner.service.service import Service
from tuner.service.web import event_stream
from tuner.service.web.context import Web
from tuner.service.web.feeds import Feeds
from tuner.service.web.guards import Guards, Methods
from tuner.service.web.lines import Lines
from tuner.service.web.problems import MEDIA_TYPE, SCHEMA, add_handlers
from tuner.service.web.routes import (
    events,
    files,
    health,
    pages,
    queue,
    searches,
    sessions,
    studies,
    trials,
    users,
    webhooks,
)
from tuner.service.web.settings import WebSettings
from tuner.service.web.viewed_runs import Runs
from tuner.service.web.workers import Workers
from tuner.service.webhooks import Sender, Webhooks
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder

API = "/api/v1"
ROUTERS = (
    *(studies.router, searches.router, trials.router, trials.of_workers, files.router, events.router),
    *(queue.router, users.router, users.of_tokens, webhooks.router),
)
_ERROR = {"description": "Problem JSON: rule, got and fix", "content": {MEDIA_TYPE: {"schema": dict(SCHEMA)}}}


def application(
    service: Service, settings: WebSettings | None = None, access: Access | None = None, guests: Guests | None = None
) -> FastAPI:
    """The application of a service, to be run by `serve` or called by tests; with `guests` that of one run."""
    settings = settings or WebSettings()
    web = Web(
        service,
        access or Access(service.database, service.limits),
        settings,
        Feeds(partial(_folder, service)),
        Runs(service),
        Webhooks(service.database, Sender(service.database, settings.reach)),
        event_stream.Journal(service.database),
        Workers(service, Lines(service)),
        guests,
    )
    app = _Application(
        title="tuner",
        summary="A search service: studies are queued, run and watched",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lambda _: _lifespan(web),
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.web = web
    api = APIRouter(prefix=API, responses={"default": _ERROR})
    routers = (sessions.router, *ROUTERS, *([] if guests is None else [sessions.of_guests]))
    for router in routers:
        api.include_router(router)
    app.include_router(api)
    app.include_router(health.router, responses={"default": _ERROR})
    app.include_router(pages.router)
    add_handlers(app)
    routed = [*((API, router) for router in routers), ("", health.router)]
    methods = Methods(
        (prefix + route.path, route.methods or ())
        for prefix, router in routed
        for route in router.routes
        if isinstance(route, APIRoute)
    )
    app.add_middleware(Guards, settings=settings, limits=service.limits, methods=methods)
    return app


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The description, with the name of this server's cookie."""
        described = super().openapi()
        described["components"]["securitySchemes"]["session"]["name"] = self.state.web.cookie
        return described


@asynccontextmanager
async def _lifespan(web: Web) -> AsyncIterator[None]:
    loop, lines = asyncio.get_running_loop(), web.workers.lines

    def told(change: Change) -> None:
        with suppress(RuntimeError):  # the event loop has ended, and with it all viewers
            loop.call_soon_threadsafe(event_stream.tell, web.feeds, web.journal, change)
            if change.kind == "state" and change.state is State.RUNNING:
                loop.call_soon_threadsafe(lines.watch, change.study)

    web.feeds.told = web.journal.newest
    leave = web.service.subscribe(told)
    web.webhooks.sender.start()
    for study in await asyncio.to_thread(lines.running):  # searches of an earlier server
        lines.watch(study)
    try:
        yield
    finally:
        await asyncio.to_thread(web.webhooks.sender.close)
        leave()
        web.feeds.close()
        await web.workers.close()


def _folder(service: Service, study: int) -> Folder | None:
    """The folder of a study's run; None while it has none."""
    try:
        path = service.study(study).run
    except ServiceError:
        return None
    return None if path is None else open_folder(path)
