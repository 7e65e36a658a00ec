"""The search itself, free of Ray: what to run next, what a report leads to, what is written down.

Adapters ask `next_action` when a worker is free and tell what happened. Each thing that happens is written as an event,
then applied. The events alone rebuild this object: a `SearchLoop` given the events of earlier drivers goes on where
they end, and first does what the last of them had decided and not done any more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.history.checkpoints import CheckpointStore
from tuner.history.events import Event, EventLog, Listener, finite
from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.loop.earlier import describe
from tuner.loop.keeping import not_needed
from tuner.loop.limits import Limits
from tuner.loop.packing import Admission, Place, Refusal, Wait
from tuner.loop.stopping import Stopping
from tuner.schedule import Decision, EarlyStopper
from tuner.search import Learned, Proposals
from tuner.storage.folder import Folder
from tuner.study import Study

CANNOT_PAUSE = (
    "this trial saves no checkpoint, so it can't pause: trials are stopped where they would have been paused; "
    "pass tuner.report(checkpoint=FOLDER) to let the scheduler pause and go on"
)
LEARNED = "learned"
LOSSES_ALLOWED = 3  # a trial is tried again so often after its worker or node died
SHORTEST_ALLOWANCE = 30.0  # seconds that trials have to end their epoch once a limit is reached, or
EPOCHS_ALLOWED = 2  # this many times the longest epoch so far, whichever is more
EARLY_STOPPING, OUT_OF_MEMORY = "early_stopping", "out_of_memory"
MOST_REFUSED = 100  # configurations in a row that fit on no device: the rest of the space won't either
Ending = dict[str, Any]  # fields of the event that ends a trial


@dataclass(frozen=True)
class Start:
    """Run a trial: a new one, or one that was paused, lost its worker, or was left by an earlier driver.

    `reported` of its `epochs` are recorded: it goes on from the newest checkpoint of these. `halvings` says how often a
    worker was killed for the memory that it took; `place` is where it goes, None where that is Ray's affair.
    """

    trial: str
    number: int
    config: dict[str, Any]
    seed: int
    epochs: int
    reported: int = 0
    halvings: int = 0
    place: Place | None = None


@dataclass(frozen=True)
class _Entry:
    """What would run next: the event that says so, the trial, and further fields of the event."""

    kind: str
    start: Start
    fields: dict[str, Any]
    new: bool = False


class SearchLoop:
    """Drives one study in the order things happen: search algorithm, early stopping, budget, events, checkpoints kept.

    `history` are the events of earlier drivers of the same run; `concurrency` is how many trials run at once, each on
    so many `devices`, or where `admission` lets them; `learned` is what earlier studies suggest to start from, for a
    run that has no history; `opening` are further fields of this driver's first event. `before_writing` is called
    before each event and may raise, as where another driver took the run over. Each method raises what that raises, or
    OSError where an event can't be written: what is in the run folder is whole then, and this object of no more use.
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
        opening: Mapping[str, Any] | None = None,
        before_writing: Callable[[], None] = lambda: None,
        admission: Admission | None = None,
    ) -> None:
        self.study, self.folder, self.concurrency = study, folder, concurrency
        self.record = RunRecord(study.metric, study.mode)
        self._listeners, self._before_writing = list(listeners), before_writing
        self._admission, self._refused, self._refused_in_a_row = admission, 0, 0
        self._waiting: _Entry | None = None  # until there is room for it
        searcher = study.search.build(study.problem)
        starts = learned.configs if learned and not history else _learned_before(history)
        self._proposals = Proposals(study.problem, searcher, starting_points=study.starting_points, learned=starts)
        self._stopping = Stopping(self._build_stopper)
        self._running: set[str] = set()
        self._incumbent: TrialRecord | None = None  # when checkpoints were last looked at
        self._exhausted = self._idle = self._nothing_expected = False
        self._last_report: dict[str, float] = {}  # or start, of each running trial, by the monotonic clock
        self._longest_epoch = 0.0
        for event in history:
            self._replay(event)
        self._log = EventLog(folder)
        self._checkpoints = CheckpointStore(folder)
        more = {"learned": starts, **(opening or {})} if starts and not history else opening or {}
        self._emit("study_resumed" if history else "study_started", trials=study.trials, **more)
        if learned and (learned.configs or learned.passed_over) and not history:
            self.notice(describe(learned), code=LEARNED)
        self._carry_out_what_is_due()
        if history:
            self._compare_with_the_disk()
        self._again = [trial for trial in self.record.trials.values() if trial.status == "interrupted"]
        self._limits = Limits(study, self.record, devices)

    # What to do next

    def next_action(self) -> Start | None:
        """What a free worker should do; None where no worker is free or there is nothing to do now."""
        self._idle = False
        self._end_eliminated()
        if len(self._running) >= self.concurrency or self._limits.reached():
            return None
        action = self._start_next()
        self._idle = action is None and self._waiting is None and self._exhausted and not self._running
        if self._idle:
            self._end_eliminated()
        return action

    @property
    def running(self) -> frozenset[str]:
        """The trials that are on a worker, or on their way to one."""
        return frozenset(self._running)

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing will."""
        return not self._running and (self._limits.reached() is not None or self._idle)

    @property
    def overdue(self) -> bool:
        """Whether a limit was reached so long ago that a trial which still hasn't ended its epoch must hang."""
        since = self._limits.overrun_seconds()
        allowed = max(SHORTEST_ALLOWANCE, EPOCHS_ALLOWED * self._longest_epoch)
        return since is not None and bool(self._running) and since > allowed

    @property
    def end_reason(self) -> str:
        """What ended the search: a limit of the budget, "space" where all of it was tried, or "failures"."""
        reached = self._limits.reached()
        if reached is not None:
            return reached
        if self._nothing_expected:
            return "min_improvement"
        budget = self.study.budget.trials
        return "space" if budget is None or len(self.record.trials) < budget else "trials"

    # What happened

    def report(
        self, trial: str, epoch: int, metrics: dict[str, Any], *, saved: Sequence[int] = (), saves: bool = True
    ) -> Decision:
        """Take one epoch's metrics; what the trial should do now.

        `saved` are epochs whose checkpoints have come to the run folder since its last report; `saves` says whether the
        trial means to write any.
        """
        if trial not in self._running:
            return Decision.STOP
        record = self.record.trials[trial]
        self._time_epoch(trial)
        decision, ending = self._judge(record, epoch, metrics, saved=epoch in saved, saves=saves)
        why = {} if ending is None else {"ending": ending}
        self._emit("epoch_reported", trial=trial, epoch=epoch, metrics=metrics, decision=decision.value, **why)
        for each in saved:
            self.saved(trial, each)
        self._tell_of_packing()
        if record.due is not None:
            self._carry_out(record)
        return decision

    def saved(self, trial: str, epoch: int) -> None:
        """A checkpoint of the trial has come to the run folder."""
        record = self.record.trials[trial]
        if epoch in record.epochs and epoch not in record.checkpoints:
            self._emit("checkpoint_saved", trial=trial, epoch=epoch)
            self._prune(trial)

    def returned(self, trial: str) -> None:
        """The trial's code came to its end by itself."""
        if trial not in self._running:
            return
        if self.record.trials[trial].epochs:
            self._end(trial, status="completed")
        else:
            message = "it returned without reporting anything; call tuner.report(...) once per epoch"
            self.failed(trial, "error", message)

    def failed(self, trial: str, cause: str, message: str, traceback: str | None = None) -> None:
        """The trial is spoilt; one whose memory ran out because it shared a device only has to go on elsewhere."""
        if cause == OUT_OF_MEMORY and self._admission is not None and self._admission.packing.shares(trial):
            self.lost(trial, cause, message)
        elif trial in self._running:
            self._end(trial, status="failed", cause=cause, message=message, traceback=traceback)

    def lost(self, trial: str, cause: str, message: str) -> None:
        """The trial's worker or node died; it starts again from its last checkpoint, unless that happened too often."""
        if trial not in self._running:
            return
        record = self.record.trials[trial]
        self._emit("trial_lost", trial=trial, cause=cause, message=message)
        if record.losses > LOSSES_ALLOWED:
            self.failed(trial, cause, message)
        else:
            self._running.discard(trial)
            self._again.append(record)

    def notice(self, message: str, code: str | None = None) -> None:
        """Tell the user something that changes what they get."""
        self._emit("notice", message=message, code=code)

    def end(self, interrupted_by: str | None = None) -> None:
        """The search is over, or interrupted by what the text says; notices may still follow, until `close`."""
        if interrupted_by is not None:
            self._emit("study_interrupted", reason=interrupted_by)
            return
        for trial in sorted(self._running):  # they hang: a limit was reached long ago
            self._end(trial, status="stopped", by=self.end_reason)
        self._end_eliminated()
        if self._refused:
            self.notice(f"{self._refused} configurations were passed over, as they fit on no device", code="refused")
        self._compare_with_the_disk()  # what came without word, and what dead workers left unfinished
        self._emit("study_ended", reason=self.end_reason)

    def close(self) -> None:
        """Nothing more is written."""
        self._log.close()

    # Inside: what to do next

    def _start_next(self) -> Start | None:
        """Start what waits or comes next, if there is room for it; configurations that fit nowhere are passed over."""
        if self._waiting is None and self._admission is not None and not self._admission.packing.has_room:
            return None
        entry, self._waiting = self._waiting or self._next_entry(), None
        while entry is not None:
            place = self._admit(entry)
            if isinstance(place, Wait):
                self._waiting = entry
                return None
            if not isinstance(place, Refusal):
                return self._enter(entry, place)
            self._refuse(entry, place)
            entry = self._next_entry()
        return None

    def _next_entry(self) -> _Entry | None:
        if self._again:
            record = self._again.pop(0)
            return _Entry("trial_started", self._start_of(record), {"number": record.number})
        return self._resume_paused() or self._suggest() or self._resume_paused()

    def _admit(self, entry: _Entry) -> Place | Wait | Refusal | None:
        """None where trials are alike to their devices: Ray finds a place for it."""
        start = entry.start
        return None if self._admission is None else self._admission.of(start.trial, start.config, new=entry.new)

    def _refuse(self, entry: _Entry, refusal: Refusal) -> None:
        """The configuration becomes no trial; after too many in a row no more are looked for."""
        self._emit("configuration_refused", config=entry.start.config, least_bytes=refusal.least_bytes)
        self._pass_over(entry.start.config)
        if self._refused == 1:
            self.notice(str(refusal), code="refused")
        if self._refused_in_a_row >= MOST_REFUSED:
            self.notice(f"{MOST_REFUSED} configurations in a row fit on no device; no more are tried", code="refused")
            self._suggest_no_more()

    def _pass_over(self, config: dict[str, Any]) -> None:
        self._proposals.refuse(config)
        self._refused += 1
        self._refused_in_a_row += 1

    def _suggest(self) -> _Entry | None:
        if self._exhausted:
            return None
        number = len(self.record.trials)
        self._nothing_expected = self._expects_too_little(number)
        config = None if self._nothing_expected else self._proposals.propose(number)
        if config is None:
            self._suggest_no_more()
            return None
        start = Start(f"{number:05d}", number, config, trial_seed(self.study.seed, number), self._length(config))
        return _Entry("trial_started", start, {"number": number}, new=True)

    def _suggest_no_more(self) -> None:
        self._exhausted = True
        self._stopping.no_more_coming()

    def _expects_too_little(self, number: int) -> bool:
        least = self.study.budget.min_improvement
        if least is None or number >= (self.study.trials or math.inf):
            return False
        expected = self._proposals.expected_improvement(number)
        return expected is not None and expected < least

    def _resume_paused(self) -> _Entry | None:
        trial = self._stopping.resumable()
        while trial is not None and self.record.trials[trial].status != "paused":
            trial = self._stopping.resumable()  # it couldn't pause, or has ended meanwhile
        if trial is None:
            return None
        start = self._start_of(self.record.trials[trial])
        return _Entry("trial_resumed", start, {"epoch": start.reported})

    def _start_of(self, record: TrialRecord) -> Start:
        length = self._length(record.config)
        return Start(
            record.trial, record.number, record.config, record.seed, length, record.epoch, record.memory_losses
        )

    def _enter(self, entry: _Entry, place: Place | None) -> Start:
        start = replace(entry.start, place=place)
        known = self.record.trials.get(start.trial)
        fields = entry.fields | ({} if place is None else place.fields)
        if entry.kind == "trial_started":
            fields |= {"config": start.config, "seed": start.seed}
        if entry.new:
            self._proposals.adopt(start.number, start.config)
            self._refused_in_a_row = 0
        self._emit(entry.kind, trial=start.trial, from_epoch=known.last_checkpoint if known else 0, **fields)
        self._running.add(start.trial)
        self._last_report[start.trial] = time.monotonic()
        if entry.new:
            self._stopping.start(start.trial, trusted=self._proposals.is_learned(start.config))
        self._tell_of_packing()
        return start

    def _tell_of_packing(self) -> None:
        news = self._admission and self._admission.packing.news()
        if news:
            self.notice(news[0], code=news[1])

    def _end_eliminated(self) -> None:
        """End the trials that wait and will never go on: paused ones, and once a limit is reached, lost ones too."""
        for trial in self._stopping.eliminated():
            if self.record.trials[trial].status == "paused":
                self._end(trial, status="stopped", by=EARLY_STOPPING)
        if self.finished:
            limit = self._limits.reached() or EARLY_STOPPING
            self._again.clear()
            self._waiting = None
            for record in [trial for trial in self.record.trials.values() if trial.live]:
                self._end(record.trial, status="stopped", by=limit)

    # Inside: what a report leads to

    def _judge(
        self, record: TrialRecord, epoch: int, metrics: dict[str, Any], *, saved: bool, saves: bool
    ) -> tuple[Decision, Ending | None]:
        """What the trial does after this report, and how it ends if it does."""
        problem = self._problem_with(metrics)
        if problem is not None:
            return Decision.STOP, {"status": "failed", "cause": problem[0], "message": problem[1]}
        value = metrics[self.study.metric]
        again = epoch in record.epochs  # after an interruption; it was judged the first time
        limit = self._limits.reached(epochs=0 if again else 1, value=value)
        decision = Decision.CONTINUE
        if not again:
            self._proposals.observe(record.number, epoch, value)
            decision = self._stopping.report(record.trial, epoch, value)
        if epoch >= self._length(record.config):
            return Decision.STOP, {"status": "completed"}
        if limit is not None:
            return Decision.STOP, {"status": "stopped", "by": limit}
        if decision is Decision.PAUSE and not saved:
            decision = self._without_pausing(saves)
        return decision, {"status": "stopped", "by": EARLY_STOPPING} if decision is Decision.STOP else None

    def _without_pausing(self, saves: bool) -> Decision:
        if saves:  # its checkpoint could not be written, which a note has said: better that it goes on than is lost
            return Decision.CONTINUE
        self.notice(CANNOT_PAUSE, code="cannot_pause")
        return self._stopping.give_up_pausing()

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

    def _carry_out(self, record: TrialRecord) -> None:
        """Do what was decided after the trial's last report."""
        due = record.due
        if due is not None and due.decision == Decision.PAUSE.value:
            self._running.discard(record.trial)
            self._emit("trial_paused", trial=record.trial, epoch=due.epoch)
        elif due is not None:
            over = due.epoch >= self._length(record.config)
            self._end(record.trial, **(due.ending or {"status": "completed" if over else "stopped"}))

    def _end(self, trial: str, **ending: Any) -> None:
        self._emit("trial_ended", trial=trial, **ending)
        self._running.discard(trial)
        self._last_report.pop(trial, None)
        self._proposals.end(self.record.trials[trial].number, ending["status"])
        self._stopping.end(trial)
        self._prune(trial)

    def _time_epoch(self, trial: str) -> None:
        now = time.monotonic()
        self._longest_epoch = max(self._longest_epoch, now - self._last_report.get(trial, now))
        self._last_report[trial] = now

    # Inside: events, checkpoints

    def _emit(self, kind: str, **fields: Any) -> None:
        """Write an event, then apply it, then show it."""
        self._before_writing()
        event = self._log.append(kind, **fields)
        self._take_in(event)
        for listener in list(self._listeners):
            if not any(listener is known for known in self._listeners):
                continue  # left out while another one's failure was told
            try:
                listener.on_event(event)
            except Exception as error:  # a fault in what only looks on must not end a search
                self._listeners = [known for known in self._listeners if known is not listener]
                self.notice(f"{type(listener).__name__} failed and is left out from now on: {error!r}")

    def _take_in(self, event: Event) -> None:
        self.record.apply(event)
        if self._admission is not None:
            self._admission.packing.apply(event)

    def _prune(self, changed: str | None = None) -> None:
        """Delete what a change of this trial has made needless; None for anything."""
        incumbent = self.record.best_ended_trial
        among = None if changed is None or incumbent is not self._incumbent else [self.record.trials[changed]]
        self._incumbent = incumbent
        for trial, epoch in not_needed(self.record, among):
            self._emit("checkpoint_deleted", trial=trial, epoch=epoch)
            self._checkpoints.delete(trial, epoch)

    def _compare_with_the_disk(self) -> None:
        """Take note of checkpoints that came or went while no driver looked; delete what belongs to no known epoch."""
        present = {trial: set(self._checkpoints.epochs(trial)) for trial in self._checkpoints.trials()}
        for trial, epochs in present.items():
            self._checkpoints.sweep(trial)
            record = self.record.trials.get(trial)
            known = set(record.epochs) if record else set()
            for epoch in sorted(epochs - known):
                self._checkpoints.delete(trial, epoch)
            for epoch in sorted((epochs & known) - (record.checkpoints if record else set())):
                self._emit("checkpoint_saved", trial=trial, epoch=epoch)
        for record in self.record.trials.values():
            for epoch in sorted(record.checkpoints - present.get(record.trial, set())):
                self._emit("checkpoint_deleted", trial=record.trial, epoch=epoch)
        self._prune()

    def _length(self, config: dict[str, Any]) -> int:
        """Epochs of a trial that nothing stops."""
        return full_length(config, self.study.budget.max_epochs)

    def _build_stopper(self, can_pause: bool) -> EarlyStopper:
        return self.study.scheduler.build(
            mode=self.study.mode,
            max_epochs=self.study.budget.max_epochs,
            can_pause=can_pause,
            trials=self.study.trials,
        )

    # Inside: going on with a run

    def _replay(self, event: Event) -> None:
        """Bring search algorithm and early stopper to where they were after the event, then the record."""
        kind, trial = event["event"], event.get("trial", "")
        known = self.record.trials.get(trial)
        if kind == "trial_started" and known is None:
            self._proposals.adopt(event["number"], event["config"])
            self._stopping.start(trial, trusted=self._proposals.is_learned(event["config"]))
        elif known is not None:
            self._replay_known(kind, known, event)
        elif kind == "notice" and event.get("code") == "cannot_pause":
            self._stopping.give_up_pausing()
        elif kind == "configuration_refused":
            self._pass_over(event["config"])
        self._take_in(event)

    def _replay_known(self, kind: str, record: TrialRecord, event: Event) -> None:
        if kind == "trial_resumed" or (kind == "trial_started" and record.paused):
            self._stopping.replay_resumption(record.trial)
        elif kind == "epoch_reported":
            value = event["metrics"].get(self.study.metric)
            if finite(value) and event["epoch"] not in record.epochs:
                self._proposals.observe(record.number, event["epoch"], value)
                self._stopping.report(record.trial, event["epoch"], value)
        elif kind == "trial_ended":
            self._proposals.end(record.number, event["status"])
            self._stopping.end(record.trial)

    def _carry_out_what_is_due(self) -> None:
        """What the driver before had decided and not done any more."""
        for record in list(self.record.trials.values()):
            if record.live and record.due is not None:
                self._carry_out(record)


def _learned_before(history: Sequence[Event]) -> Sequence[dict[str, Any]]:
    """The configurations that the run's first driver learned from earlier studies."""
    kept = (event.get("learned") or event.get("configs") for event in history)  # older runs had them in a notice
    return next((configs for configs in kept if configs), ())


def trial_seed(study_seed: int, number: int) -> int:
    """The seed of a study's trial: 32 bits that depend on nothing but the study's seed and the trial's number."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1)[0])
