"""The methods that send orders to a search, for a run and for a search in the background."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from tuner.errors import RunFolderError
from tuner.orders.sending import Answer, foreseen, send
from tuner.results.run import RecordedRun
from tuner.study.budget import check_names


class Steerable:
    """Sends orders to the search of a run: each method only writes a file into the run's inbox.

    Each returns the search's answer, or with `wait=False` at once. If no search runs, `set`, `try_` and `note` wait in
    the inbox for `resume`. All raise StudyError for impossible values, and RunFolderError if the search refuses, isn't
    running although it has to be, or takes no orders.
    """

    def stop(self, trial: str | int | None = None, *, wait: bool = True) -> Answer:
        """End the search now, with a winner and a report; or one trial of it, by its id."""
        return self._order("stop", {"trial": trial}, wait)

    def pause(self, *, wait: bool = True) -> Answer:
        """End the search so that `resume` goes on with it: it saves, and frees its devices within 15 s."""
        return self._order("pause", {}, wait)

    def set(self, *, concurrency: int | None = None, wait: bool = True, **limits: float | None) -> Answer:
        """Change limits of `Budget` by their names, for the run as a whole, or how many trials run at once."""
        check_names(limits)
        return self._order("set", {**limits, "concurrency": concurrency}, wait)

    def try_(self, config: Mapping[str, Any], *, wait: bool = True) -> Answer:
        """Run a trial with this configuration on the next free worker; missing hyperparameters are sampled."""
        return self._order("try", {"config": dict(config)}, wait)

    def retry(self, trials: Iterable[str | int] = (), *, wait: bool = True) -> Answer:
        """Run failed trials again, by their ids; without any, all except those that diverged.

        For a run that isn't running use `tuner.resume(path, retry=True)`.
        """
        return self._order("retry", {"trials": list(trials) or None}, wait)

    def note(self, text: str, trial: str | int | None = None, *, wait: bool = True) -> Answer:
        """Write a note about the run, or about a trial."""
        return self._order("note", {"text": text, "trial": trial}, wait)

    def _order(self, verb: str, arguments: Mapping[str, Any], wait: bool) -> Answer:
        run = self._ordered
        answer = send(run, verb, arguments).answer(wait=wait)
        if answer.outcome == "refused":
            raise RunFolderError(answer.message)
        warning = foreseen(run, verb, arguments) if answer.outcome == "waiting" else None
        return replace(answer, message=f"{answer.message}; {warning}") if warning else answer

    @property
    def _ordered(self) -> RecordedRun:
        """The run to which the orders are sent."""
        return cast("RecordedRun", self)
