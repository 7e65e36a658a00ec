"""Pages of lists that are in the order of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tuner.errors import shown
from tuner.service.errors import Code, ServiceError
from tuner.service.web.routes.bodies import Listed


class Numbered(Protocol):
    """What has a number by which its list is in order."""

    @property
    def id(self) -> int: ...


S = TypeVar("S", bound=Numbered)
T = TypeVar("T")


def number_of(cursor: str | None) -> int:
    """The number after which a page begins. Raises ServiceError for what is no cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise ServiceError(Code.REFUSED, "a cursor is what the page before gave", shown(cursor), "leave it out")
    return int(cursor)


def page_of(found: Sequence[S], limit: int, view: Callable[[S], T]) -> Listed[T]:
    """The first `limit` of what was found, and a cursor where there is more."""
    more = len(found) > limit
    return Listed(items=[view(one) for one in found[:limit]], cursor=str(found[limit - 1].id) if more else None)
