"""Tokens: how programs identify themselves, in place of a password."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tuner.service.access.tokens import Token
from tuner.service.web.context import Asking, Shown
from tuner.service.web.routes.bodies import Cursor, Id, Listed, NewToken, Size, TokenBody, TokenView
from tuner.service.web.routes.cursors import number_of, page_of

router = APIRouter(tags=["tokens"])


@router.get("/tokens")
def list_tokens(
    web: Shown,
    caller: Asking,
    limit: Size,
    everybodys: Annotated[bool, Query(description="for admins")] = False,
    cursor: Cursor = None,
) -> Listed[TokenView]:
    """Your own tokens, without their secrets."""
    found = web.access.tokens(caller.user, everybodys=everybodys, after=number_of(cursor), limit=limit + 1)
    return page_of(found, limit, _view)


@router.post("/tokens", status_code=201)
def create_token(body: TokenBody, web: Shown, caller: Asking) -> NewToken:
    """A new token of your own; its secret is shown this once."""
    token, secret = web.access.create_token(caller.user, body.name, body.role, body.days)
    return NewToken(**_view(token).__dict__, secret=secret)


@router.delete("/tokens/{token}", status_code=204)
def revoke_token(token: Id, web: Shown, caller: Asking) -> None:
    """End a token of your own; of anybody for admins."""
    web.access.revoke_token(caller.user, token)


def _view(token: Token) -> TokenView:
    return TokenView(
        id=token.id,
        user=token.user,
        name=token.name,
        role=token.role,
        created=token.created,
        expires=token.expires,
        used=token.used,
    )
