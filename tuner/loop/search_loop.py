"""The search itself, free of Ray: what to run next, what a report leads to, what is written down.

Adapters ask `next_action` when a worker is free and tell what happened. Everything told becomes an event first, so that
the events alone rebuild this object: a `SearchLoop` given the events of earlier drivers goes on where they end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tuner.loop.earlier import describe
from tuner.loop.keeping import CheckpointKeeper
from tuner.loop.limits import Limit, Limits
from tuner.results.events import Event, EventLog, Listener, finite
from tuner.results.folder import Folder
from tuner.results.records import RunRecord, TrialRecord, full_length
from tuner.schedule import Decision, EarlyStopper
from tuner.search import EndStatus, Learned, Proposals
from tuner.study import Study

CANNOT_PAUSE = (
    "this trial saves no checkpoint, so it can't pause: trials are stopped where they would have been paused; "
    "pass tuner.report(checkpoint=FOLDER) to let the scheduler pause and go on"
)


LEARNED = "learned"
EndReason = Limit | Literal["trials", "space", "min_improvement"]


class StudyInterrupted(BaseException):
    """Leaves whatever runs the loop, past handlers for Exception; the events hold all that is needed to go on."""


@dataclass(frozen=True)
class Start:
    """Run a trial: a new one, or one that an earlier driver left, from the checkpoint of an epoch."""

    trial: str
    number: int
    config: dict[str, Any]
    seed: int
    epochs: int
    from_epoch: int = 0
    from_checkpoint: str | None = None


@dataclass(frozen=True)
class Resume:
    """Go on with a trial that this driver paused."""

    trial: str


class SearchLoop:
    """Drives one study in the order things happen: search algorithm, early stopping, budget, events, checkpoints kept.

    `history` are the events of earlier drivers of the same run; `concurrency` is how many trials run at once, each on
    so many `devices`; `learned` is what earlier studies suggest to start from, for a run that has no history.
    """

    def __init__(
        self,
        study: Study,
        folder: Folder,
        *,
        concurrency: int,
        devices: float = 1,
        history: Sequence[Event] = (),
        learned: Learned | None = None,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.study, self.concurrency = study, concurrency
        self.record = RunRecord(study.metric, study.mode)
        self._listeners = list(listeners)
        searcher = study.search.build(study.problem)
        starts = learned.configs if learned and not history else _learned_before(history)
        self._proposals = Proposals(study.problem, searcher, starting_points=study.starting_points, learned=starts)
        self._journal: list[tuple[str, str, int, float]] = []
        self._stopper = self._build_stopper(can_pause=True)
        self._running: set[str] = set()
        self._exhausted = self._idle = self._nothing_expected = False
        self._here: set[str] = set()
        for event in history:
            self._replay(event)
        self._log = EventLog(folder)
        self._keeper = CheckpointKeeper(folder, self.record)
        self._emit("study_resumed" if history else "study_started", trials=study.trials)
        if learned and (learned.configs or learned.passed_over) and not history:
            self._emit("notice", message=describe(learned), code=LEARNED, configs=learned.configs)
        self._again = [trial for trial in self.record.trials.values() if trial.status == "interrupted"]
        self._limits = Limits(study, self.record, devices)

    # What to do next

    def next_action(self) -> Start | Resume | None:
        """What a free worker should do; None where no worker is free or there is nothing to do now."""
        self._idle = False
        if len(self._running) >= self.concurrency or self._limits.reached():
            return None
        if self._again:
            return self._start_again(self._again.pop(0))
        action = self._resume_paused() or self._start_new() or self._resume_paused()
        self._idle = action is None and self._exhausted and not self._running
        return action

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing will."""
        return not self._running and (self._limits.reached() is not None or self._idle)

    @property
    def end_reason(self) -> EndReason:
        """What ended the search: a limit of the budget, or "space" where every configuration was tried."""
        reached = self._limits.reached()
        if reached is not None:
            return reached
        if self._nothing_expected:
            return "min_improvement"
        budget = self.study.budget.trials
        return "space" if budget is None or len(self.record.trials) < budget else "trials"

    def drop_eliminated(self) -> list[str]:
        """End the paused trials that will never go on, and name them, each once."""
        over = [trial for trial in self._stopper.eliminated() if self.record.trials[trial].live]
        if self.finished:
            over += [t.trial for t in self.record.trials.values() if t.status == "paused" and t.trial not in over]
        for trial in over:
            self._end(trial, "stopped")
        return over

    # What happened

    def report(self, trial: str, epoch: int, metrics: dict[str, Any], *, has_checkpoint: bool) -> Decision:
        """Take one epoch's metrics; what the trial should do now."""
        record = self.record.trials[trial]
        if not record.live:
            return Decision.STOP
        problem = self._problem_with(metrics)
        if problem is not None:
            self._emit("epoch_reported", trial=trial, epoch=epoch, metrics=metrics, decision="stop")
            self.failed(trial, *problem)
            return Decision.STOP
        decision = self._decide(record, epoch, metrics[self.study.metric], has_checkpoint)
        self._emit("epoch_reported", trial=trial, epoch=epoch, metrics=metrics, decision=decision.value)
        if decision is Decision.PAUSE:
            self._running.discard(trial)
            self._emit("trial_paused", trial=trial, epoch=epoch)
        elif decision is Decision.STOP:
            self._end(trial, "completed" if epoch >= self._epochs(record.config) else "stopped")
        return decision

    def saved(self, trial: str, epoch: int, path: str) -> None:
        """A checkpoint of the trial lies at `path`, relative to the run folder."""
        self._emit("checkpoint_saved", trial=trial, epoch=epoch, path=path)
        self._prune()

    def returned(self, trial: str) -> None:
        """The trial's code came to its end by itself."""
        record = self.record.trials[trial]
        if not record.live:
            return
        if record.epochs:
            self._end(trial, "completed")
        else:
            message = "it returned without reporting anything; call tuner.report(...) once per epoch"
            self.failed(trial, "error", message)

    def failed(self, trial: str, cause: str, message: str, traceback: str | None = None) -> None:
        """The trial is spoilt."""
        if self.record.trials[trial].live:
            self._end(trial, "failed", cause=cause, message=message, traceback=traceback)

    def lost(self, trial: str, message: str) -> None:
        """The trial's worker died; it starts again elsewhere from its last checkpoint."""
        self._emit("trial_lost", trial=trial, message=message)

    def notice(self, message: str, code: str | None = None) -> None:
        """Tell the user something that changes what they get."""
        self._emit("notice", message=message, code=code)

    def close(self, *, interrupted: bool) -> None:
        """The last event of this driver."""
        if interrupted:
            self._emit("study_interrupted")
        else:
            self._emit("study_ended", reason=self.end_reason)
        self._log.close()

    # Inside

    def _start_new(self) -> Start | None:
        if self._exhausted:
            return None
        number = len(self.record.trials)
        self._nothing_expected = self._expects_too_little(number)
        config = None if self._nothing_expected else self._proposals.suggest(number)
        if config is None:
            self._exhausted = True
            self._stopper.more_coming(False)
            return None
        trial = f"{number:05d}"
        seed = trial_seed(self.study.seed, number)
        start = Start(trial, number, config, seed, self._epochs(config))
        self._introduce(trial, config)
        self._enter(start)
        return start

    def _expects_too_little(self, number: int) -> bool:
        least = self.study.budget.min_improvement
        if least is None or number >= (self.study.trials or math.inf):
            return False
        expected = self._proposals.expected_improvement(number)
        return expected is not None and expected < least

    def _start_again(self, record: TrialRecord) -> Start:
        epoch, path = record.last_checkpoint or (0, None)
        start = Start(record.trial, record.number, record.config, record.seed, self._epochs(record.config), epoch, path)
        self._enter(start)
        return start

    def _resume_paused(self) -> Start | Resume | None:
        trial = self._stopper.resumable()
        while trial is not None and self.record.trials[trial].status != "paused":
            trial = self._stopper.resumable()  # an interruption came between: it runs already, or has ended
        if trial is None:
            return None
        if trial not in self._here:  # paused by an earlier driver: no worker and no Ray trial knows it
            return self._start_again(self.record.trials[trial])
        self._running.add(trial)
        self._emit("trial_resumed", trial=trial, epoch=self.record.trials[trial].epoch)
        return Resume(trial)

    def _enter(self, start: Start) -> None:
        self._running.add(start.trial)
        self._here.add(start.trial)
        self._emit(
            "trial_started",
            trial=start.trial,
            number=start.number,
            config=start.config,
            seed=start.seed,
            from_epoch=start.from_epoch,
        )

    def _decide(self, record: TrialRecord, epoch: int, value: float, has_checkpoint: bool) -> Decision:
        again = epoch in record.epochs  # after an interruption; it was judged the first time
        reached = self._limits.reached(epochs=0 if again else 1, value=value)
        over = epoch >= self._epochs(record.config) or reached is not None
        if again:
            return Decision.STOP if over else Decision.CONTINUE
        self._proposals.observe(record.number, epoch, value)
        decision = self._tell_stopper("report", record.trial, epoch, value)
        if over:
            return Decision.STOP
        if decision is Decision.PAUSE and not has_checkpoint:
            self.notice(CANNOT_PAUSE, code="cannot_pause")
            decision = self._stop_instead_of_pausing()
        return decision

    def _problem_with(self, metrics: dict[str, Any]) -> tuple[str, str] | None:
        name = self.study.metric
        if name not in metrics:
            reported = ", ".join(sorted(metrics)) or "nothing"
            return "error", f"the study's metric {name!r} was not reported, got {reported}; report it or change metric="
        if isinstance(metrics[name], int | float) and not finite(metrics[name]):
            return "diverged", f"{name} = {metrics[name]}"
        if not finite(metrics[name]):
            return "error", f"the study's metric needs a number, got {name}={metrics[name]!r}; report a float"
        return None

    def _end(self, trial: str, status: EndStatus, **why: str | None) -> None:
        self._running.discard(trial)
        self._proposals.end(self.record.trials[trial].number, status)
        self._tell_stopper("end", trial)
        self._emit("trial_ended", trial=trial, status=status, **why)
        self._prune()

    def _emit(self, kind: str, **fields: Any) -> None:
        event = self._log.append(kind, **fields)
        self.record.apply(event)
        for listener in list(self._listeners):
            try:
                listener.on_event(event)
            except Exception as error:  # a fault in what only looks on must not end a search
                self._listeners.remove(listener)
                self.notice(f"{type(listener).__name__} failed and is left out from now on: {error!r}")

    def _prune(self) -> None:
        for trial, epoch in self._keeper.prune():
            self._emit("checkpoint_deleted", trial=trial, epoch=epoch)

    def _epochs(self, config: dict[str, Any]) -> int:
        """How long the trial is."""
        return full_length(config, self.study.budget.max_epochs)

    # The early stopper, and how it is rebuilt

    def _build_stopper(self, *, can_pause: bool) -> EarlyStopper:
        return self.study.scheduler.build(
            mode=self.study.mode,
            max_epochs=self.study.budget.max_epochs,
            can_pause=can_pause,
            trials=self.study.trials,
        )

    def _introduce(self, trial: str, config: dict[str, Any]) -> None:
        """Tell the early stopper of a new trial."""
        self._tell_stopper("start", trial)
        if self._proposals.is_learned(config):
            self._tell_stopper("trust", trial)

    def _tell_stopper(self, call: str, trial: str, epoch: int = 0, value: float = 0.0) -> Decision:
        self._journal.append((call, trial, epoch, value))
        if call == "start":
            self._stopper.start(trial)
        elif call == "trust":
            self._stopper.trust(trial)
        elif call == "end":
            self._stopper.end(trial)
        else:
            return self._stopper.report(trial, epoch, value)
        return Decision.CONTINUE

    def _stop_instead_of_pausing(self) -> Decision:
        """Replace the early stopper by one that never pauses, told all so far; what it says to the last report."""
        self._stopper = self._build_stopper(can_pause=False)
        journal, self._journal = self._journal, []
        decision = Decision.CONTINUE
        for entry in journal:
            decision = self._tell_stopper(*entry)
        if self._exhausted:
            self._stopper.more_coming(False)
        return decision

    def _replay(self, event: Event) -> None:
        """Bring search algorithm and early stopper to where they were after the event, then the record."""
        kind, trial = event["event"], event.get("trial", "")
        if kind == "trial_started" and trial not in self.record.trials:
            self._proposals.adopt(event["number"], event["config"])
            self._introduce(trial, event["config"])
        elif kind == "trial_resumed" or (kind == "trial_started" and self.record.trials[trial].paused):
            self._stopper.resumable()
        elif kind == "epoch_reported":
            self._replay_report(self.record.trials[trial], event)
        elif kind == "trial_ended":
            self._proposals.end(self.record.trials[trial].number, event["status"])
            self._tell_stopper("end", trial)
        elif kind == "notice" and event.get("code") == "cannot_pause":
            self._stop_instead_of_pausing()
        self.record.apply(event)

    def _replay_report(self, record: TrialRecord, event: Event) -> None:
        value = event["metrics"].get(self.study.metric)
        if finite(value) and event["epoch"] not in record.epochs:
            self._proposals.observe(record.number, event["epoch"], value)
            self._tell_stopper("report", record.trial, event["epoch"], value)


def _learned_before(history: Sequence[Event]) -> Sequence[dict[str, Any]]:
    """The configurations that the run's first driver learned from earlier studies."""
    notices = (event for event in history if event["event"] == "notice" and event.get("code") == LEARNED)
    return next((event["configs"] for event in notices), ())


def trial_seed(study_seed: int, number: int) -> int:
    """The seed of a study's trial: 32 bits that depend on nothing but the study's seed and the trial's number."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1)[0])
