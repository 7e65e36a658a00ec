"""Pages for browsers, which their scripts fill from the API; scripts and styles are files in assets/."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from tuner.history.records import STATUSES
from tuner.service.database.webhooks import EVENTS
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role
from tuner.service.one_run import STUDY
from tuner.service.rights import SUBMITS
from tuner.service.service import FIRST_OF_USER
from tuner.service.web.context import caller_of, web_of
from tuner.service.web.routes.bodies import Id

router = APIRouter(include_in_schema=False)
ASSETS = Path(__file__).parent.parent / "assets"
OF_REPORTS = Path(__file__).parents[3] / "html_report/assets/shared"  # scripts that reports have, too
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# Its opaque origin keeps it from all that the page may do. Messages bring it a figure, and tell what is clicked there.
OF_DRAWING = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
ONE_RUN = f"/studies/{STUDY}"
_OF_OTHER_PAGES = ("enter.js", "open.js")
PACKING = 4  # half the time of 6, for 4 % more bytes
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_OF_ASSETS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_FOREVER = "private, max-age=31536000, immutable"  # its address has its version


@router.get("/")
def first(request: Request) -> Response:
    """Studies and devices; where there is one run alone, that."""
    if web_of(request).guests is not None:
        return RedirectResponse(ONE_RUN, 303)
    return _for_users(request)


@router.get("/studies/{study}")
def study(study: Id, request: Request) -> Response:
    """One study."""
    return _for_users(request)


@router.get("/compare")
def compare(request: Request) -> Response:
    """Studies side by side."""
    return _for_users(request)


@router.get("/account")
def account(request: Request) -> Response:
    """Tokens, webhooks and users; where there is one run alone there are none."""
    if web_of(request).guests is not None:
        return RedirectResponse(ONE_RUN, 303)
    return _for_users(request)


@router.get("/login")
def login(request: Request) -> Response:
    """Where a user logs in."""
    return _page("enter.html", way="login" if web_of(request).guests is None else "open")


@router.get("/welcome")
def welcome() -> Response:
    """Where a link that works once leads to; its secret is behind `#`, and reaches the server with the form alone."""
    return _page("enter.html", way="welcome")


@router.get("/open")
def link() -> Response:
    """Where the link of one run leads to; its secret is behind `#`, too."""
    return _page("enter.html", way="open")


@router.get("/assets/plotly.js")
def plotly(encoding: Annotated[str, Header(alias="accept-encoding", max_length=1000)] = "") -> Response:
    """The script that the installed plotly brings, compressed once and kept by browsers."""
    headers = {**_OF_ASSETS, "cache-control": _FOREVER, "vary": "accept-encoding"}
    headers["cross-origin-resource-policy"] = "cross-origin"  # `drawing.html` has an origin of its own
    packed = _plotly()
    if "gzip" not in encoding:
        return Response(gzip.decompress(packed), media_type=KINDS[".js"], headers=headers)
    return Response(packed, media_type=KINDS[".js"], headers=headers | {"content-encoding": "gzip"})


@router.get("/assets/drawing.html")
def drawing() -> Response:
    """A page in a sandbox, in which plotly may compile code; it draws what the page around it sends."""
    page = _page("drawing.html", plotly=version("plotly"))
    page.headers["content-security-policy"] = OF_DRAWING
    page.headers["x-frame-options"] = "SAMEORIGIN"
    return page


@router.get("/assets/looks.js")
def looks() -> Response:
    """What pages ask the server's own code: how figures look, and the names and numbers that both know."""
    return Response(_looks(), media_type=KINDS[".js"], headers=_OF_ASSETS | {"cache-control": "no-cache"})


@router.get("/assets/{name}")
def asset(name: str, known: Annotated[str, Header(alias="if-none-match", max_length=1000)] = "") -> Response:
    """A script or style of these pages; nothing if the browser has it as it is."""
    if name not in _assets():
        raise ServiceError(Code.NOT_FOUND, "an asset is one that a page names", repr(name)[:80], "reload the page")
    content = _assets()[name].read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _OF_ASSETS | {"cache-control": "no-cache", "etag": tag}
    if tag in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=KINDS[Path(name).suffix], headers=headers)


def _for_users(request: Request) -> Response:
    """The page, which shows nothing by itself, for those who have logged in; for others the login that leads to it."""
    alone = web_of(request).guests is not None
    try:
        caller_of(request)
    except ServiceError as error:
        if error.code is not Code.UNAUTHENTICATED:
            raise
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse("/login" if alone or asked == "/" else f"/login?{urlencode({'next': asked})}", 303)
    return _page("page.html", plotly=version("plotly"), alone=alone, modules=_modules())


def _page(name: str, **content: object) -> Response:
    text = _environment().get_template(name).render(**content)
    return HTMLResponse(text, headers={"content-security-policy": POLICY})


@cache
def _assets() -> dict[str, Path]:
    return {path.name: path for folder in (ASSETS, OF_REPORTS) for path in folder.iterdir() if path.suffix in KINDS}


@cache
def _modules() -> list[str]:
    """What `page.js` imports, and these in turn: a browser that is told so asks for all of them at once."""
    return [*sorted(name for name in _assets() if name.endswith(".js") and name not in _OF_OTHER_PAGES), "looks.js"]


@cache
def _looks() -> str:
    from tuner.plots import figure

    found = {name: getattr(figure, name) for name in ("FONT", "THEMES", "TITLE_LINE", "TITLE_ROOM")}
    found |= {"STATUSES": STATUSES, "ROLES": [*Role], "SUBMITS": SUBMITS, "EVENTS": EVENTS}
    found |= {"FIRST_OF_USER": FIRST_OF_USER}
    return "".join(f"export const {name} = {json.dumps(one)};\n" for name, one in found.items())


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    script = get_plotlyjs()
    return gzip.compress(f"{_without_styles(script)}\n{script}".encode(), PACKING, mtime=0)


def _without_styles(plotly: str) -> str:
    """A line that keeps plotly from inserting the styles of maps, which the pages lack and their policy forbids.

    It inserts each where no element has its id; without this line browsers would complain, and figures be the same.
    """
    ids = sorted(set(re.findall(r'getElementById\("([0-9a-f]{40,})"\)', plotly)))
    return f"for (const id of {ids}) document.head.append(Object.assign(document.createElement('template'), {{id}}));"


@cache
def _environment() -> Environment:
    files = FileSystemLoader(ASSETS)
    return Environment(loader=files, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
