"""Mistakes of the service's users: one exception, whose code says which kind it is.

Messages say the rule, what was got, and the fix, as all of tuner's do.
"""

from __future__ import annotations

from enum import StrEnum

from tuner.errors import TunerError


class Code(StrEnum):
    """Kinds of refusals, which the web part turns into HTTP statuses."""

    NOT_FOUND = "not_found"
    REFUSED = "refused"  # the study or a value can't work
    CONFLICT = "conflict"  # not in this state
    TOO_MANY = "too_many"
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"  # unknown caller
    FORBIDDEN = "forbidden"
    FULL = "full"  # the server's disk
    UNAVAILABLE = "unavailable"  # temporarily


class ServiceError(TunerError):
    """A refusal: `rule`, what was `got` and the `fix`; a complete sentence from elsewhere is only in `rule`.

    `field` is the place in the request.
    """

    def __init__(
        self,
        code: Code,
        rule: str,
        got: str | None = None,
        fix: str | None = None,
        *,
        retry_after: float | None = None,
        field: str | None = None,
    ) -> None:
        self.code, self.rule, self.got, self.fix = code, rule, got, fix
        self.retry_after, self.field = retry_after, field
        super().__init__(rule + (f", got {got}" if got else "") + (f"; {fix}" if fix else ""))
