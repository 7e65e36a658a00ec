"""Ray's trial of a stay of one of ours."""

from __future__ import annotations

from ray.tune.experiment import Trial


class RayTrial(Trial):  # type: ignore[misc]
    """A Ray trial that knows its tuner trial, and keeps the exception if it fails: Ray only writes that to a file."""

    ours: str
    used = False  # whether its worker has run other trials before
    spent = False  # whether its worker shall not run another one
    last_error: BaseException | None = None

    def handle_error(self, exc: BaseException | None = None) -> None:
        """Keep the exception, then do what Ray does."""
        self.last_error = exc
        super().handle_error(exc)
