"""The work of a trial that is a user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.trial import FunctionTrial
from tuner.worker.implementation import Implementation
from tuner.worker.reading import Reading

if TYPE_CHECKING:
    from tuner.worker.assignment import Assignment
    from tuner.worker.reporting import WorkerSession


class FunctionCall(Implementation[FunctionTrial]):
    """Calls the function, which reports by itself."""

    def train(self, trial: FunctionTrial, assignment: Assignment, session: WorkerSession) -> None:
        """See `Implementation.train`."""
        session.reading = Reading(assignment.config)
        trial.function(session.reading.config)
