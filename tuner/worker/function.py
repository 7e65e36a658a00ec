"""The work of a trial that is a user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.trial import FunctionTrial
from tuner.worker.implementation import Implementation
from tuner.worker.read_values import Reading, asks_by_name
from tuner.worker.working_folder import working_folder

if TYPE_CHECKING:
    from tuner.worker.assignment import Assignment
    from tuner.worker.reporting import WorkerSession


class FunctionCall(Implementation[FunctionTrial]):
    """Calls the function, which reports by itself."""

    def train(self, trial: FunctionTrial, assignment: Assignment, session: WorkerSession) -> None:
        """See `Implementation.train`."""
        session.reading = Reading(assignment.config) if asks_by_name(trial.function) else None
        with working_folder(assignment) as session.keeping:
            try:
                trial.function(assignment.config if session.reading is None else session.reading)
            except KeyError as error:
                advice = session.reading and session.reading.advice(error)
                if not advice:
                    raise
                raise LookupError(advice).with_traceback(error.__traceback__) from None
