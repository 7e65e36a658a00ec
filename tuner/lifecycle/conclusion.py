"""What follows a search: tables, winner, report, and the final state in run.json.

Each step replaces its files completely, may fail without stopping the other steps, and can be repeated. Last of all
run.json says that the run is concluded; `resume` concludes a run that isn't.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.errors import TunerError, describe_error, last_line
from tuner.history.records import RunRecord
from tuner.history.run_info import now, write_info
from tuner.history.scored import BEST
from tuner.lifecycle.interruption import RAY_IS_GONE, Interruption
from tuner.lifecycle.report_loading import begin_loading
from tuner.lifecycle.writing_best import NEW, NoNetworkError, ScoringInterrupted, holds_network, is_written
from tuner.loop.room import disk_too_full
from tuner.loop.search_loop import SearchLoop
from tuner.results.run import RecordedRun
from tuner.storage.folder import Folder
from tuner.storage.lease import Lease
from tuner.storage.locations import no_space
from tuner.text import command

_log = logging.getLogger(__name__)  # for problems after the last event; goes to stderr unless logging is configured
SECONDS_FOR_REPORT = 5.0  # of the grace period that must be left for the report
CONCLUDED = ("finished", "failed")

WriteWinner = Callable[[Callable[[], bool]], list[str]]


@dataclass(frozen=True)
class Outcome:
    """How a driver's search ended: by itself, or interrupted, as `interrupted_by` says, perhaps by its own error."""

    interrupted_by: str | None = None
    error: BaseException | None = None

    @property
    def finished(self) -> bool:
        """Whether the search ended by itself."""
        return self.interrupted_by is None


def outcome_of(error: BaseException, folder: Folder) -> Outcome:
    """The outcome of a search that an error ended; a full disk only pauses it: all written files are complete."""
    if no_space(error):
        return Outcome(disk_too_full(folder.uri, None, "none"))
    line = last_line(error) if str(error).strip() else ""
    return Outcome(f"{type(error).__name__}: {line}", error)


def is_concluded(run: RecordedRun) -> bool:
    """Whether everything that follows a search was done for the run in its present state."""
    return run.info["status"] in CONCLUDED and (is_written(run.folder, run.record) or bool(run.info.get("unscored")))


@dataclass
class Conclusion:
    """Concludes one driver's search; after a request to end, within the grace period.

    `write_winner` writes `best/`, returns what the user should know, and raises ScoringInterrupted as soon as the
    function it gets returns that it has to end; `winner_step` describes it to the user. `tell` is called with each
    step, for the user who waits.
    """

    loop: SearchLoop
    info: dict[str, Any]
    interrupted: Interruption
    lease: Lease
    write_winner: WriteWinner
    winner_step: str = "copying the winner"
    tell: Callable[[str], None] = lambda step: None

    def perform(self, outcome: Outcome) -> Outcome:
        """Do all steps; returns the outcome, which changes if the conclusion itself is interrupted."""
        record, folder = self.loop.record, self.loop.folder
        if self.loop.stopped and outcome.error is None and outcome.interrupted_by != RAY_IS_GONE:
            outcome = Outcome()  # the order was obeyed, even if something interrupted the search in the same moment
        if no_space(self._step("the last events", lambda: self.loop.end(outcome.interrupted_by))):
            outcome = self._disk_full()
        self._step("the tables", self._write_tables)
        if outcome.finished:
            outcome = self._write_winner(outcome)
        elif not is_written(folder, record) and folder.files(BEST):
            self._notice("best/ still holds an earlier winner; it is replaced when the search is done")
        self._step("the end of the events", self.loop.close)
        self._take_down(outcome, record)
        if not self.interrupted.hurried and self.interrupted.seconds_left() > SECONDS_FOR_REPORT:
            self.tell("writing the report")
            self._step("report.html", self._write_report)
        self._step("run.json", lambda: write_info(folder, self.info))
        return outcome

    def _write_tables(self) -> None:
        from tuner.results.tables import write_tables

        study = self.loop.study
        write_tables(self.loop.folder, self.loop.record, study.costs, next(iter(study.reported[1:]), None))

    def _write_winner(self, outcome: Outcome) -> Outcome:
        """A search is valid without its winner's test score: an error here becomes a notice."""
        folder, record = self.loop.folder, self.loop.record
        self.info["unscored"] = None
        if record.best_trial() is not None:
            begin_loading(len(record.trials))
            self.tell(self.winner_step)
        try:
            for sentence in self.write_winner(self._must_leave):
                self._notice(sentence)
        except ScoringInterrupted:
            return Outcome(interrupted_by=self.interrupted.reason or "the run was taken over")
        except Exception as error:
            if no_space(error):
                self._step(NEW, lambda: folder.delete(NEW))
                return self._disk_full()
            self.info["unscored"] = why = last_line(error)
            scored = "" if isinstance(error, NoNetworkError) else "the winner could not be scored on the test split: "
            kept = "" if isinstance(error, NoNetworkError) or is_written(folder, record) else self._earlier_kept()
            self._notice(
                f"{scored}{why}{kept}; its configuration and metrics are in the tables, and start_from in a new "
                "study trains it again"
            )
        return outcome

    def _earlier_kept(self) -> str:
        """A part of a sentence about another winner's `best/`, which is deleted if it has no network."""
        if holds_network(self.loop.folder):
            return "; best/ keeps the network of an earlier winner"
        self._step(f"{BEST}/", lambda: self.loop.folder.delete(BEST))
        return ""

    def _disk_full(self) -> Outcome:
        """End the conclusion: `resume` does the rest once there is room."""
        return Outcome(disk_too_full(self.loop.folder.uri, None, "none"))

    def _must_leave(self) -> bool:
        """Whether scoring has to end: half of the grace period is for what follows."""
        asked = self.interrupted
        late = asked.seconds_left() < asked.grace_seconds / 2
        return asked.hurried or late or asked.reason == RAY_IS_GONE or self.lease.lost

    def _take_down(self, outcome: Outcome, record: RunRecord) -> None:
        """Set what run.json will say."""
        best = record.best_trial()
        status = "interrupted" if not outcome.finished else "finished" if best else "failed"
        reason = self.loop.end_reason if outcome.finished else "error" if outcome.error else outcome.interrupted_by
        self.info |= {
            "status": status,
            "ended": now(),
            "end_reason": reason,
            "interrupted_by": outcome.interrupted_by,
            "trials": record.counts(),
            "best": best and best.trial,
            "wall_seconds": round(record.active_seconds, 3),
        }

    def _write_report(self) -> None:
        from tuner.html_report import write_report

        run = RecordedRun(self.loop.folder)
        run.info = self.info  # as run.json will be
        try:
            self.info["report"] = write_report(run)
        except Exception as error:
            again = command("report", self.loop.folder.uri)
            why = str(error) if isinstance(error, TunerError) else describe_error(error)
            raise OSError(f"{why}; try again with: {again}") from error

    def _notice(self, message: str) -> None:
        self._step("a notice", lambda: self.loop.notice(message))

    def _step(self, what: str, step: Callable[[], object]) -> Exception | None:
        """Do a step; if it fails, for instance on a full disk, return why and let the other steps run.

        Nothing is written once another driver has taken the run over.
        """
        if self.lease.lost:
            return None
        try:
            step()
        except Exception as error:
            _log.warning("%s could not be written: %s", what, error)
            return error
        return None
