"""Trials that no worker can run, as the user's own program does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import StudyError
from tuner.trial.external import External
from tuner.worker.implementation import Implementation

if TYPE_CHECKING:
    from tuner.worker.assignment import Assignment
    from tuner.worker.reporting import WorkerSession


class RunElsewhere(Implementation[External]):
    """Refuses to run a trial."""

    def train(self, trial: External, assignment: Assignment, session: WorkerSession) -> None:
        """Raise StudyError."""
        raise StudyError(
            f"a worker runs a function or an ImageClassifier, got {trial.described}; your own program runs it, and "
            "asks for it with tuner.Search"
        )
