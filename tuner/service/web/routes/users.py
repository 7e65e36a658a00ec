"""Users, the links by which they set their password, and the tokens by which their programs identify themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from tuner.service.model import place_of
from tuner.service.web.context import Admin, Asking, Shown, Viewer, Web
from tuner.service.web.routes.bodies import (
    Cursor,
    Id,
    Listed,
    NewToken,
    NewUser,
    Size,
    TokenBody,
    TokenView,
    UserBody,
    UserChangeBody,
    UserView,
    page_of,
)

router = APIRouter(tags=["users"])
UserName = Annotated[str, Path(max_length=64, description="a user's name")]
of_tokens = APIRouter(tags=["tokens"])


@router.get("/users")
def list_users(web: Shown, user: Admin, limit: Size, cursor: Cursor = None) -> Listed[UserView]:
    """All users, in the order in which they were added."""
    found = web.access.users(place_of(cursor), limit + 1)
    return page_of(found, limit, UserView.model_validate)


@router.get("/users/me")
def show_oneself(user: Viewer) -> UserView:
    """Who asks; the role is the token's where that is the lower one."""
    return UserView.model_validate(user)


@router.post("/users", status_code=201)
def add_user(body: UserBody, web: Shown, user: Admin) -> NewUser:
    """Add a user; the link, by which they set their password, works once."""
    added, secret = web.access.add_user(user, body.name, body.role, body.weight)
    return NewUser(**vars(UserView.model_validate(added)), link=link(web, secret))


@router.post("/users/{name}:link", status_code=201)
def make_link(name: UserName, web: Shown, user: Admin) -> NewUser:
    """A new link for a user who has forgotten the password."""
    found, secret = web.access.invite(user, name)
    return NewUser(**vars(UserView.model_validate(found)), link=link(web, secret))


@router.patch("/users/{name}")
def change_user(name: UserName, body: UserChangeBody, web: Shown, user: Admin) -> UserView:
    """Change a user's role, weight or caps, or whether they may log in."""
    caps = body.model_dump(include={"most_devices", "most_hours"}, exclude_unset=True)
    changed = web.access.change_user(user, name, role=body.role, weight=body.weight, disabled=body.disabled, caps=caps)
    return UserView.model_validate(changed)


@router.delete("/users/{name}", status_code=204)
def remove_user(name: UserName, web: Shown, user: Admin) -> None:
    """Let a user in no more; their studies and their name stay."""
    web.access.change_user(user, name, disabled=True)


def link(web: Web, secret: str) -> str:
    """An address that works once. The secret stands behind `#`, which browsers send to no server."""
    return f"{web.settings.url}/welcome#{secret}"


@of_tokens.get("/tokens")
def list_tokens(
    web: Shown,
    caller: Asking,
    limit: Size,
    everybodys: Annotated[bool, Query(description="for admins")] = False,
    cursor: Cursor = None,
) -> Listed[TokenView]:
    """Your own tokens, without their secrets."""
    found = web.access.tokens(caller.user, everybodys=everybodys, after=place_of(cursor), limit=limit + 1)
    return page_of(found, limit, TokenView.model_validate)


@of_tokens.post("/tokens", status_code=201)
def create_token(body: TokenBody, web: Shown, caller: Asking) -> NewToken:
    """A new token of your own; its secret is shown this once."""
    token, secret = web.access.create_token(caller.user, body.name, body.role, body.days)
    return NewToken(**vars(TokenView.model_validate(token)), secret=secret)


@of_tokens.delete("/tokens/{token}", status_code=204)
def revoke_token(token: Id, web: Shown, caller: Asking) -> None:
    """End a token of your own; of anybody for admins."""
    web.access.revoke_token(caller.user, token)
