"""Errors as problem JSON (RFC 9457) with rule, got and fix; never a traceback."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tuner.errors import TunerError, one_line, shown
from tuner.service.access.credentials import without_secrets
from tuner.service.errors import Code, ServiceError

MEDIA_TYPE = "application/problem+json"
NO_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>no such page · tuner</title>'
    '<link rel="stylesheet" href="/assets/style.css"><main><h1>There is no page at this address</h1>'
    '<p><a href="/">Go to the first page</a></p></main></html>'
)
STATUSES: Mapping[Code, int] = {
    Code.NOT_FOUND: 404,
    Code.REFUSED: 422,
    Code.CONFLICT: 409,
    Code.TOO_MANY: 429,
    Code.TOO_LARGE: 413,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.FULL: 507,
    Code.UNAVAILABLE: 503,
}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "urn:tuner:problem: and a code"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "one sentence with rule, what was got, and a fix"},
        "rule": {"type": "string"},
        "got": {"type": "string"},
        "fix": {"type": "string"},
        "field": {"type": "string", "description": "where in the request it is"},
    },
}
_CODES = {
    400: "malformed",
    404: "not_found",
    405: "method",
    408: "too_slow",
    413: "too_large",
    421: "wrong_host",
    422: "refused",
    500: "failed",
}
_log = logging.getLogger("tuner.service.web")


def problem(
    status: int,
    rule: str,
    got: str | None = None,
    fix: str | None = None,
    *,
    code: str | None = None,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer that says what is wrong; parts that are None are left out."""
    detail = rule + (f", got {got}" if got else "") + (f"; {fix}" if fix else "")
    told = {
        "type": f"urn:tuner:problem:{code or _CODES.get(status, 'refused')}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": without_secrets(detail),
        "rule": without_secrets(rule),
        "got": got and without_secrets(got),
        "fix": fix,
        "field": field,
    }
    content = {name: _encodable(value) for name, value in told.items() if value is not None}
    return JSONResponse(content, status, dict(headers or {}), media_type=MEDIA_TYPE)


def of_service(error: ServiceError) -> Response:
    """The answer to a user's mistake."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if error.code is Code.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    told = (STATUSES[error.code], error.rule, error.got, error.fix)
    return problem(*told, code=error.code, field=error.field, headers=headers)


def of_validation(errors: Sequence[Mapping[str, Any]]) -> Response:
    """The answer to a request that doesn't match the API's description, about its first wrong part."""
    first = errors[0]
    place = [str(part) for part in first.get("loc", ())]
    field = ".".join(place[1:]) or (place[0] if place else "body")
    is_json = first.get("type") in ("json_invalid", "value_error.jsondecode")
    rule = "a body is JSON" if is_json else f"{field}: {_sentence(str(first.get('msg', 'is wrong')))}"
    return problem(
        422, rule, _got(first, field), "see /api/v1/openapi.json for what a request has", field=field, code="refused"
    )


def add_handlers(app: FastAPI) -> None:
    """Answer every error of an application with a problem."""
    app.add_exception_handler(ServiceError, _on_service_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(TunerError, _on_tuner_error)
    app.add_exception_handler(Exception, _on_exception)


async def _on_service_error(_: Request, error: Exception) -> Response:
    return of_service(error) if isinstance(error, ServiceError) else _failed()


async def _on_validation_error(request: Request, error: Exception) -> Response:
    if _by_browser(request):
        return _no_page()
    return of_validation(error.errors()) if isinstance(error, RequestValidationError) else _failed()


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _failed()
    if error.status_code == 400:  # a body that can't be read as JSON, for instance nested too deeply
        return problem(
            422, "a request's body is JSON that can be read", "another", "check it", field="body", code="refused"
        )
    if error.status_code == 404 and _by_browser(request):
        return _no_page()
    path = without_secrets(shown(request.url.path))
    rule, got, fix = {
        404: ("an address is one that /api/v1/openapi.json names", path, "check it"),
        405: ("an address takes only its own methods", f"{request.method} of {path}", "see /api/v1/openapi.json"),
    }.get(error.status_code, (str(error.detail), None, None))
    return problem(error.status_code, rule, got, fix, headers=error.headers)


async def _on_tuner_error(_: Request, error: Exception) -> Response:
    return problem(409, one_line(str(error)), code=Code.CONFLICT)


async def _on_exception(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, without_secrets(request.url.path), exc_info=error)
    return _failed()


def _by_browser(request: Request) -> bool:
    """Whether somebody wanted to open a page, rather than to see what the API answers."""
    wants_page = "text/html" in request.headers.get("accept", "")
    return wants_page and request.method == "GET" and not request.url.path.startswith("/api/")


def _no_page() -> Response:
    return HTMLResponse(NO_PAGE, 404, {"content-security-policy": "default-src 'none'; style-src 'self'"})


def _failed() -> Response:
    return problem(500, "the server has failed at this", None, "its log says why; try again, or tell its admin")


def _got(error: Mapping[str, Any], field: str) -> str | None:
    """The value, unless it is or holds a secret, or is missing."""
    if error.get("type") in ("missing", "json_invalid") or any(name in field for name in ("password", "secret")):
        return None
    value = error.get("input")
    return shown(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"


def _sentence(text: str) -> str:
    return text[:1].lower() + text[1:]


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
