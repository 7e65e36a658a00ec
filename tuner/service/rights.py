"""Who may do what: asked before each change."""

from __future__ import annotations

from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role, SubmittedStudy, User

_ORDER = (Role.VIEWER, Role.WORKER, Role.SUBMITTER, Role.ADMIN)
HIGHEST, LOWEST = 10, -10  # priorities
HIGHEST_OF_ALL = 0  # the highest that everybody may give


SUBMITS = tuple(role for role in _ORDER if _ORDER.index(role) >= _ORDER.index(Role.SUBMITTER))


def has(user: User, role: Role) -> bool:
    """Whether the user's role is this one or a higher one."""
    return not user.disabled and _ORDER.index(user.role) >= _ORDER.index(role)


def require(user: User, role: Role, what: str) -> None:
    """Raise ServiceError unless the user has the role that `what` needs."""
    if not has(user, role):
        got = f"{user.name!r}, who is disabled" if user.disabled else f"{user.name!r}, who is {_article(user.role)}"
        raise ServiceError(Code.FORBIDDEN, f"{what} needs the role {role}", got, "ask an admin")


def require_own(user: User, study: SubmittedStudy, what: str) -> None:
    """Raise ServiceError unless the study is the user's own, or the user is an admin."""
    require(user, Role.SUBMITTER, what)
    if study.user_id != user.id and not has(user, Role.ADMIN):
        raise ServiceError(
            Code.FORBIDDEN,
            f"{what} needs a study of your own, or the role {Role.ADMIN}",
            f"study {study.id} of {study.user!r}",
            "ask its owner or an admin",
        )


def check_priority(user: User, priority: object) -> int:
    """The priority, if the user may give it. Raises ServiceError."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not LOWEST <= priority <= HIGHEST:
        raise ServiceError(
            Code.REFUSED, f"a priority is a whole number from {LOWEST} to {HIGHEST}", repr(priority)[:50], "use 0"
        )
    if priority > HIGHEST_OF_ALL and not has(user, Role.ADMIN):
        raise ServiceError(
            Code.FORBIDDEN,
            f"a priority above {HIGHEST_OF_ALL} needs the role {Role.ADMIN}",
            str(priority),
            f"use {HIGHEST_OF_ALL}, or ask an admin",
        )
    return priority


def _article(role: Role) -> str:
    return f"{'an' if role is Role.ADMIN else 'a'} {role}"
