"""Whether this worker's node is being drained: by `ray drain-node`, a cloud's notice, or SIGTERM."""

from __future__ import annotations

import time

LOOK_SECONDS = 1.0  # between two requests to the cluster, which are made at the end of an epoch


class DrainWatch:
    """Asks at most once a second; draining never ends. Only nodes of a `joined` cluster are drained."""

    def __init__(self, *, joined: bool) -> None:
        self._joined, self._draining, self._asked = joined, False, 0.0

    def draining(self) -> bool:
        """Whether a trial should leave as soon as it is saved."""
        now = time.monotonic()
        if self._joined and not self._draining and now - self._asked >= LOOK_SECONDS:
            self._asked = now
            self._draining = _is_drained()
        return self._draining


def _is_drained() -> bool:
    try:
        import ray
        from ray._private.state import state

        return ray.get_runtime_context().get_node_id() in state.get_draining_nodes()
    except Exception:  # no answer: the next epoch asks again
        return False
