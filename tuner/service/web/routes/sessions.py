"""Logging in and out of a browser, and passwords."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from tuner.service.errors import Code, ServiceError
from tuner.service.web.context import Asking, Shown, Web, address_of, check_origin
from tuner.service.web.routes.bodies import AcceptBody, LinkBody, LoginBody, PasswordBody, UserView

router = APIRouter(tags=["login"])
of_guests = APIRouter(tags=["login"])  # where there are no accounts


@router.post("/login")
def log_in(body: LoginBody, request: Request, response: Response, web: Shown) -> UserView:
    """Begin a session, which a cookie carries that no script can read."""
    check_origin_if_any(request)
    user, secret, expires = web.access.log_in(body.name, body.password, address_of(request))
    set_cookie(response, web, secret, expires)
    return UserView.model_validate(user)


@router.post("/logout", status_code=204)
def log_out(request: Request, response: Response, caller: Asking, web: Shown) -> None:
    """End the session."""
    secret = request.cookies.get(web.cookie)
    if secret is not None:
        web.access.log_out(secret)
    response.delete_cookie(web.cookie, path="/", secure=web.settings.secure, httponly=True, samesite="strict")


@router.post("/welcome", status_code=201)
def accept(body: AcceptBody, request: Request, response: Response, web: Shown) -> UserView:
    """Set one's password by a link that works once; the first makes the first admin."""
    check_origin_if_any(request)
    user = web.access.accept(body.secret, body.password, body.name, address_of(request))
    return UserView.model_validate(user)


@router.put("/users/me/password", status_code=204)
def change_password(body: PasswordBody, request: Request, response: Response, caller: Asking, web: Shown) -> None:
    """Set your own password; all other sessions and all tokens end."""
    secret, expires = web.access.change_password(caller.user, body.old, body.new, address_of(request))
    if caller.by_cookie:
        set_cookie(response, web, secret, expires)


@of_guests.post("/open", status_code=201)
def enter(body: LinkBody, request: Request, response: Response, web: Shown) -> UserView:
    """Begin a session by a link that works once."""
    check_origin_if_any(request)
    if web.guests is None:
        raise ServiceError(Code.NOT_FOUND, "links open the page of one run", "another server", "log in")
    user, secret, expires = web.guests.enter(body.secret)
    set_cookie(response, web, secret, expires)
    return UserView.model_validate(user)


def check_origin_if_any(request: Request) -> None:
    """Raise ServiceError for a request of a foreign page: it must not log a browser in as somebody else."""
    if "origin" in request.headers:
        check_origin(request)


def set_cookie(response: Response, web: Web, secret: str, expires: float) -> None:
    """Give a browser its session."""
    response.set_cookie(
        web.cookie,
        secret,
        max_age=max(0, int(expires - time.time())),
        path="/",
        secure=web.settings.secure,
        httponly=True,
        samesite="strict",
    )
