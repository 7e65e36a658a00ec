"""Users, and the links by which they set their password."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from tuner.service.model import User
from tuner.service.web.context import Admin, Shown, Viewer, Web
from tuner.service.web.routes.bodies import Cursor, Listed, NewUser, Size, UserBody, UserChangeBody, UserView
from tuner.service.web.routes.cursors import number_of, page_of

router = APIRouter(tags=["users"])
UserName = Annotated[str, Path(max_length=64, description="a user's name")]


@router.get("/users")
def list_users(web: Shown, user: Admin, limit: Size, cursor: Cursor = None) -> Listed[UserView]:
    """All users, in the order in which they were added."""
    found = web.access.users(number_of(cursor), limit + 1)
    return page_of(found, limit, _view)


@router.get("/users/me")
def show_oneself(user: Viewer) -> UserView:
    """Who asks; the role is the token's where that is the lower one."""
    return _view(user)


@router.post("/users", status_code=201)
def add_user(body: UserBody, web: Shown, user: Admin) -> NewUser:
    """Add a user; the link, by which they set their password, works once."""
    added, secret = web.access.add_user(user, body.name, body.role, body.weight)
    return NewUser(**_view(added).__dict__, link=link(web, secret))


@router.post("/users/{name}:link", status_code=201)
def make_link(name: UserName, web: Shown, user: Admin) -> NewUser:
    """A new link for a user who has forgotten the password."""
    found, secret = web.access.invite(user, name)
    return NewUser(**_view(found).__dict__, link=link(web, secret))


@router.patch("/users/{name}")
def change_user(name: UserName, body: UserChangeBody, web: Shown, user: Admin) -> UserView:
    """Change a user's role or weight, or whether they may log in."""
    changed = web.access.change_user(user, name, role=body.role, weight=body.weight, disabled=body.disabled)
    return _view(changed)


@router.delete("/users/{name}", status_code=204)
def remove_user(name: UserName, web: Shown, user: Admin) -> None:
    """Let a user in no more; their studies and their name stay."""
    web.access.change_user(user, name, disabled=True)


def link(web: Web, secret: str) -> str:
    """An address that works once. The secret stands behind `#`, which browsers send to no server."""
    return f"{web.settings.url}/welcome#{secret}"


def _view(user: User) -> UserView:
    return UserView(name=user.name, role=user.role, weight=user.weight, created=user.created, disabled=user.disabled)
