"""Waits for an object store that doesn't answer for a while, so that the search doesn't end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import wraps
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar

LONGEST_SECONDS = 120.0  # the longest outage
SHORTEST_WAIT, LONGEST_WAIT = 0.5, 5.0  # between two tries, doubled each time; pyarrow tries for 6 s by itself
# messages of pyarrow (with the libraries of Amazon and Azure) and obstore about temporary problems: no connection, an
# answer that says so, or an HTTP status of 500 and more
_PASSING = re.compile(
    r"NETWORK_CONNECTION|curlCode: (6|7|28|52|56)\b|REQUEST_TIMEOUT|SLOW_DOWN|THROTTLING|SERVICE_UNAVAILABLE"
    r"|INTERNAL_FAILURE|HTTP status 5\d\d|[Tt]imed? ?out|Connection (refused|reset)"
    r"|HTTP error|status code: (5\d\d|429)|error decoding response body"
    r"|Fail to get a new connection|Connection was closed|Error while (sending|polling)"
    r"|\[(ServerBusy|OperationTimedOut|InternalError)\]"
)
_answered: set[str] = (
    set()
)  # stores that have answered before; errors of others, such as a wrong address, are raised at once
_lock = threading.Lock()
Method = TypeVar("Method", bound=Callable[..., Any])


class InStore(Protocol):
    """What lies in an object store, by its name."""

    @property
    def store(self) -> str: ...


def waits_for_the_store(method: Method) -> Method:
    """Decorates a method of what lies in a store: repeats it, for two minutes at most, while that is down."""

    @wraps(method)
    def lasting(place: InStore, *arguments: Any, **options: Any) -> Any:
        until, wait = monotonic() + LONGEST_SECONDS, SHORTEST_WAIT
        while True:
            try:
                answer = method(place, *arguments, **options)
            except OSError as error:
                if not is_passing(error) or place.store not in _answered or monotonic() + wait > until:
                    raise
            else:
                with _lock:
                    _answered.add(place.store)
                return answer
            sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    return lasting  # type: ignore[return-value]


def is_passing(error: OSError) -> bool:
    """Whether the store may answer later: it wasn't reached, or was overloaded; not if it refuses."""
    return not isinstance(error, FileNotFoundError | PermissionError) and bool(_PASSING.search(str(error)))
