"""Pages for browsers: what runs and waits, logging in, setting a password; their scripts are files in assets/."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from tuner.service.errors import Code, ServiceError
from tuner.service.web.context import Shown, caller_of
from tuner.service.web.overview import overview

router = APIRouter(include_in_schema=False)
ASSETS = Path(__file__).parent.parent / "assets"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
KINDS = {
    "page.js": "text/javascript",
    "enter.js": "text/javascript",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
}


@router.get("/")
def first(request: Request, web: Shown, part: Annotated[bool, Query()] = False) -> Response:
    """Studies and devices; `part` is what changes of the page."""
    try:
        user = caller_of(request).user
    except ServiceError as error:
        if error.code is not Code.UNAUTHENTICATED or part:
            raise
        return RedirectResponse("/login", 303)
    return _page("part.html" if part else "page.html", found=overview(web.service), user=user)


@router.get("/login")
def login() -> Response:
    """Where a user logs in."""
    return _page("enter.html", welcome=False)


@router.get("/welcome")
def welcome() -> Response:
    """Where a link that works once leads to; its secret is behind `#`, and reaches the server with the form alone."""
    return _page("enter.html", welcome=True)


@router.get("/assets/{name}")
def asset(name: str) -> Response:
    """A script or style of these pages."""
    if name not in KINDS:
        raise ServiceError(Code.NOT_FOUND, "an asset is one that a page names", repr(name)[:80], "reload the page")
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response((ASSETS / name).read_bytes(), media_type=KINDS[name], headers=headers)


def _page(name: str, **content: object) -> Response:
    text = _environment().get_template(name).render(**content)
    return HTMLResponse(text, headers={"content-security-policy": POLICY})


@cache
def _environment() -> Environment:
    files = FileSystemLoader(ASSETS)
    return Environment(loader=files, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
