"""The search itself, free of Ray: what to run next, what a report leads to, what is written down.

Adapters ask `next_action` when a worker is free and tell what happened. Each thing that happens is written as an event,
then applied. The events alone rebuild this object: a `SearchLoop` given the events of earlier drivers goes on where
they end, and first does what the last driver had decided but not yet done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.errors import NO_REPORT, kept, shortened
from tuner.history.attempts import LOST, USED
from tuner.history.checkpoints import CheckpointStore
from tuner.history.events import Event, EventLog, Listener
from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.loop.earlier_runs import said_of
from tuner.loop.failing import Failing
from tuner.loop.judging import EARLY_STOPPING, Judge, Metrics
from tuner.loop.keeping import Keeper, Leading
from tuner.loop.limits import STOP, EpochTimes, Limits
from tuner.loop.packing import Admission, Place
from tuner.loop.queue import Entry, Queue, Start
from tuner.loop.refitting import Refitting
from tuner.loop.restoring import Replay, learned_before, tell_of_seeds
from tuner.loop.room import Actions, Room
from tuner.loop.steering import Steering
from tuner.loop.stopping import Stopping, stopper_of
from tuner.orders.order import Malformed, Order
from tuner.results.dead import news_of_dead
from tuner.schedule import Decision
from tuner.search import Learned, Proposals
from tuner.storage.folder import Folder
from tuner.study.declaration import Study


class SearchLoop:
    """Drives one study, in the order of events: search algorithm, early stopping, budget, events, checkpoints kept.

    `history` are the events of earlier drivers of the same run; `concurrency` is how many trials run at once, each on
    this many `devices`, or where `admission` lets them, `together` how many of them a worker trains as one, and
    `most_at_once` how many of them the devices hold, which may change, None for any number;
    `share_devices`: whether a device may have several trials; `learned` is what earlier studies suggest to start from,
    where there is no history; `opening` are further fields of this driver's first event. `before_writing` is called
    before each event and may raise, for instance if another driver took the run over; `pause` asks the driver to pause
    the search for a reason, such as a full disk. `announced`, which the driver sets, are the trials that write a
    checkpoint while they train on. Each method raises what `before_writing` raises, or OSError if an event can't be
    written: the run folder is then intact, and this object can no longer be used.

    Long because the order of events is in one place; what each step decides is in the other modules here.
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
        pause: Callable[[str], None] = lambda reason: None,
        most_at_once: int | None = None,
        share_devices: bool = True,
        together: int = 1,
    ) -> None:
        self.study, self.folder, self._together = study, folder, together
        self.wanted, self.most_at_once = concurrency, most_at_once
        self.record = RunRecord(study.metric, study.mode)
        self.announced: Collection[str] = ()
        self._listeners = Listeners(listeners, self.notice)
        self._before_writing, self._admission = before_writing, admission
        searcher = study.search.build(study.problem)
        starts = learned.starts if learned and not history else learned_before(history)
        self._proposals = Proposals(study.problem, searcher, starting_points=study.starting_points, learned=starts)
        self._stopping = Stopping(lambda can_pause: stopper_of(self.study, can_pause=can_pause))
        self._queue = Queue(
            study, self.record, self._proposals, self._stopping, admission, emit=self._emit, notice=self.notice
        )
        self._running: set[str] = set()
        self._failing = Failing(
            study.failures, self.record, self._queue, self._running, admission, share_devices, self._emit, self._end
        )
        self._idle, self._times = False, EpochTimes()
        replay = Replay(self.record, self._proposals, self._stopping, self._queue, study)
        for event in history:
            replay.tell(event)
            self._take_in(event)
        self._log = EventLog(folder)
        self._keeper = Keeper(
            self.record, CheckpointStore(folder), emit=self._emit, leading=Leading.of(study, self.record)
        )
        more = {"max_epochs": study.budget.max_epochs} | ({"learned": list(starts)} if starts and not history else {})
        self._emit("study_resumed" if history else "study_started", trials=study.trials, **more, **(opening or {}))
        if study.combine is not None and not self.record.confirming.asked_to_combine:
            self._emit("combination_requested", how=study.combine)
        for message, code in said_of(learned) if learned and not history else ():
            self.notice(message, code=code)
        self._carry_out_what_is_due()
        self._limits = Limits(study, self.record, devices)
        self._refitting = Refitting(study, self.record, self._queue, self._limits, self.notice)
        self._judge = Judge(study, self._proposals, self._stopping, self._limits, notice=self.notice)
        if history:
            self._take_lost_reports()
            self._keeper.compare_with_the_disk()
        self._queue.put_back(*(trial for trial in self.record.trials.values() if trial.status == "interrupted"))
        self._steering = Steering(self, self._proposals, self._limits, emit=self._emit)
        self._room = Room(
            *(self.record, folder, self._keeper, Actions(self._end, pause, self.notice)),
            limit_gb=lambda: self.study.budget.disk_gb,
            workers=lambda: self.concurrency if self._together > 1 else max(self.concurrency, len(self._running)),
            announced=lambda: len(self.announced),
        )
        self.make_room()
        self._steering.carry_out_what_is_due()

    # What to do next

    def next_action(self) -> Start | None:
        """What a free worker should do; None if no worker is free or there is nothing to do now."""
        self._idle = False
        self._end_eliminated()
        if len(self._running) >= self.concurrency * self._together:
            return None
        if self._over:
            return self._refit()
        self._queue.confirms_only = self._limits.reached() is not None or self.record.confirming.alone
        if (found := self._failing.next()) is not None:
            return self._start(*found)
        done = self._queue.exhausted or self._queue.confirms_only
        self._idle = done and not self._queue.waits_for_room and not self._running
        if self._idle:
            self._end_eliminated()
        return self._refit()

    def end_waiting(self, trials: Iterable[str]) -> None:
        """If a limit has ended the search, these running trials, which no worker has yet, don't begin."""
        for trial in self._running.intersection(trials) if self._over else ():
            self._end(trial, status="stopped", by=self.end_reason)

    def separate(self) -> None:
        """Workers can't train trials together after all."""
        self._together = 1

    def going_on(self, trial: str) -> Start:
        """How a running trial goes on after a stay that it shared with others."""
        return self._queue.start_of(self.record.trials[trial])

    @property
    def concurrency(self) -> int:
        """How many trials run at once: as many as are wanted, and as the devices hold."""
        return self.wanted if self.most_at_once is None else min(self.wanted, self.most_at_once)

    @property
    def running(self) -> frozenset[str]:
        """The trials that are on a worker, or on their way to one."""
        return frozenset(self._running)

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing will."""
        return self._searched and self._refitting.due() is None

    @property
    def _searched(self) -> bool:
        """Whether the search is done, apart from the winner's refit."""
        return not self._running and (self._idle or self._over)

    @property
    def _over(self) -> bool:
        """Whether a limit has ended the search."""
        return self._limits.reached() is not None and not self._limits.confirms

    def to_beat(self, start: Start) -> float | None:
        """The value that a trial must reach for its network to be kept; None if other seeds may change the order."""
        return None if self.study.repeats > 1 or not start.suggested else self._keeper.to_beat(start.config)

    @property
    def overdue(self) -> bool:
        """Whether a limit was reached so long ago that a trial which still hasn't ended its epoch must hang."""
        goes_on = not self._running or self._limits.confirms or self._refitting.goes_on(self._running)
        since = None if goes_on else self._limits.overrun_seconds()
        return since is not None and since > self._times.allowance

    @property
    def end_reason(self) -> str:
        """What ended the search: a limit of the budget, "space" where all of it was tried, "failures", …"""
        return self.record.ended or self._limits.end_reason(self._queue.ran_out)

    # What users order

    def obey(self, order: Order | Malformed, *, late: bool = False) -> None:
        """Answer an order by an event, then carry it out; one that was answered before is skipped.

        A `late` one was read when the search had ended: `stop` and `pause` then have nothing to do.
        """
        self._steering.obey(order, late=late)

    @property
    def stopped(self) -> bool:
        """Whether a user has ended the search: running trials are not waited for."""
        return self.record.steered.stopped_by is not None

    def end_by_order(self, *trials: str) -> None:
        """End trials that can still report, wherever they are."""
        for trial in trials:
            self._end(trial, status="stopped", by=STOP)
        self._end_eliminated()

    def change(self, study: Study, concurrency: int | None) -> None:
        """Go on with other limits of the same study, and with this many trials at once if that is given."""
        self.wanted = concurrency or self.wanted
        self._idle = False
        if study.budget != self.study.budget:
            self.study = study
            self._limits.replace(study)
            self._queue.expect(study)

    def expect_more(self, again: Iterable[str] = ()) -> None:
        """A user's order gave free workers something to run, such as failed trials `again`."""
        self._failing.run_again(again, self._proposals, self._stopping)
        self._idle = False

    # What happened

    def placed(self, trial: str, kind: str = "trial_placed", **where: Any) -> None:
        """A worker has begun with the trial: its `host`, `pid`, `devices`, `gpus`; or `trial_handed` to a `worker`."""
        if trial in self._running:
            self._emit(kind, trial=trial, **where)

    def computing(self, trial: str, **progress: Any) -> None:
        """How far the features of a frozen backbone are, which the trial computes before its epoch."""
        if trial in self._running:
            self._emit("features_computed", trial=trial, **progress)

    def report(
        self,
        trial: str,
        epoch: int,
        metrics: Metrics,
        *,
        saved: Sequence[int] = (),
        saves: bool = True,
        ago: float = 0,
        reading: Mapping[str, Sequence[str]] | None = None,
    ) -> Decision:
        """Take one epoch's metrics; what the trial should do now.

        `saved` are epochs whose checkpoints have come to the run folder since its last report; `saves` says whether the
        trial means to write any; `ago` are seconds since the epoch ended; `reading` is which names of its configuration
        the trial has `read`, and which `absent` ones it asked for, where there is news of that.
        """
        if trial not in self._running:
            return Decision.STOP
        record = self.record.trials[trial]
        self._times.report(trial)
        decision, ending = self._judge.judge(record, epoch, metrics, saved=epoch in saved, saves=saves)
        more: dict[str, Any] = dict(reading or {}) | ({} if ending is None else {"ending": ending})
        more |= {"ago": ago} if ago > 0.001 else {}
        self._emit("epoch_reported", trial=trial, epoch=epoch, metrics=metrics, decision=decision.value, **more)
        for each in saved:
            self._take_checkpoint(trial, each)
        self._tell_of_packing()
        self._carry_out(record)
        if saved or trial in self.announced:
            self.make_room()
        return decision

    def saved(self, trial: str, epoch: int) -> None:
        """A checkpoint of the trial has come to the run folder."""
        self._take_checkpoint(trial, epoch)
        self.make_room()

    def not_saved(self, trial: str, epoch: int) -> None:
        """The disk had no room for a checkpoint of the trial: pause the search."""
        self._room.refuse(trial, epoch)

    def tend_events(self) -> None:
        """Regular work, each second: sync events, and write those again that somebody has damaged, with a notice."""
        for name in self._log.tend():
            self.notice(f"{name} was cut off, replaced or deleted while the search ran; it was written again")

    def make_room(self) -> None:
        """Keep the run folder below its limit, and its disk from filling up; cheap."""
        self._room.make(self._failing.waiting)

    def returned(self, trial: str) -> None:
        """The trial's code returned by itself."""
        if trial not in self._running:
            return
        if self.record.trials[trial].epochs:
            self._end(trial, status="completed")
        else:
            self.failed(trial, "error", NO_REPORT)

    def failed(self, trial: str, cause: str, message: str, traceback: str | None = None, *, used: bool = False) -> None:
        """The trial has failed; it is tried again if the study says so, elsewhere if it had to share a device, or if
        its worker, `used` for other trials before, may be to blame.
        """
        if trial in self._running:
            final = self._limits.reached() is not None and not self._refitting.goes_on([trial])
            if self._failing.failed(trial, cause, *kept(message, traceback), final=final, used=used):
                self._running.discard(trial)
                record = self.record.trials[trial]
                if record.suggested and record.attempts.last.kind not in (LOST, USED):
                    self._proposals.fails(record.configuration)
            self._keeper.drop_unreported(trial)

    def lost(self, trial: str, cause: str, message: str, traceback: str | None = None) -> None:
        """The trial's worker or node died; it starts again from its last checkpoint, unless that happened too often.

        `cause`: "lost", "out_of_memory" (killed for its memory), "hung", or "drained", which counts for no limit.
        """
        if trial in self._running:
            if self._failing.lost(trial, cause, *kept(message, traceback)):
                self._running.discard(trial)
            self._keeper.drop_unreported(trial)

    def retry(self, trials: Iterable[str] = ()) -> list[str]:
        """Run these failed trials again, without names all except those that diverged; returns their ids.

        Each goes on from its last checkpoint, with as many tries as a new trial. Raises RunFolderError for a trial that
        hasn't failed, if there is no such trial, and if a limit leaves them no time.
        """
        names = self._failing.retry(trials, self._proposals, self._stopping, self._limits)
        self._idle = False
        return names

    def ask_for(self, kind: str, **request: Any) -> None:
        """Emit a request for work in addition to the search, such as `refit_requested`."""
        self._emit(kind, **request)
        self._limits.look_again()
        self._idle = False

    def notice(self, message: str, code: str | None = None) -> None:
        """Tell the user something that changes what they get."""
        self._emit("notice", message=shortened(message), code=code)

    def end(self, interrupted_by: str | None = None) -> None:
        """The search is over, or interrupted by what the text says; notices may still follow, until `close`."""
        if interrupted_by is not None:
            self._emit("study_interrupted", reason=interrupted_by)
            return
        for trial in sorted(self._running):  # they hang: a limit was reached long ago
            self._end(trial, status="stopped", by=self.end_reason)
        self._end_eliminated()
        self._queue.say_what_was_refused()
        self._refitting.say_why_not()
        self._keeper.compare_with_the_disk()  # unannounced checkpoints, and unfinished files of dead workers
        self._emit("study_ended", reason=self.end_reason)

    def flush(self) -> None:
        """Events so far are in the run folder, also after a power cut; from any thread."""
        self._log.flush()

    def close(self) -> None:
        """Write nothing from now on."""
        self.tend_events()
        self._log.close()

    # Inside: what to do next

    def _start(self, entry: Entry, place: Place | None) -> Start:
        start = replace(entry.start, place=place)
        known = self.record.trials.get(start.trial)
        fields = entry.fields | ({} if place is None else place.fields)
        if entry.kind == "trial_started":
            fields |= start.introduction
        suggested = entry.new and start.suggested
        if suggested:
            self._queue.adopt(start)
        self._emit(entry.kind, trial=start.trial, from_epoch=known.last_checkpoint if known else 0, **fields)
        self._running.add(start.trial)
        self._times.start(start.trial)
        if known is not None and known.suggested:
            self._proposals.goes_on(known.configuration)
        if suggested:
            self._stopping.start(start.trial, trusted=self._proposals.is_learned(start.config))
        self._tell_of_packing()
        return start

    def _refit(self) -> Start | None:
        """Train the winner again once everything else is done."""
        found = self._refitting.next() if self._searched else None
        return None if found is None else self._start(*found)

    def _tell_of_packing(self) -> None:
        if self._admission and (news := self._admission.packing.news()):
            self.notice(news[0], code=news[1])

    def _end_eliminated(self) -> None:
        """End the trials that wait and will never go on: paused ones, and once a limit is reached, lost ones too."""
        for trial in self._stopping.eliminated():
            if self.record.trials[trial].status == "paused":
                self._end(trial, status="stopped", by=EARLY_STOPPING)
        if self._searched:
            self._end_the_rest()

    def _end_the_rest(self) -> None:
        """When the search is done: end all trials that could still report, except for the refit that is due."""
        limit = self._limits.reached() or EARLY_STOPPING
        self._failing.clear()
        self._refitting.end_others(self._end)
        for record in [trial for trial in self.record.trials.values() if trial.live and trial.refits is None]:
            if record.attempts.due is not None:
                self._failing.end_as_failed(record)
            else:
                self._end(record.trial, status="stopped", by=limit)

    # Inside: what a report leads to

    def _carry_out(self, record: TrialRecord) -> None:
        """Do what was decided after the trial's last report, if it isn't done."""
        due = record.due
        if due is not None and due.decision == Decision.PAUSE.value:
            self._running.discard(record.trial)
            self._emit("trial_paused", trial=record.trial, epoch=due.epoch)
        elif due is not None:
            over = due.epoch >= full_length(record.config, self.study.budget.max_epochs)
            self._end(record.trial, **(due.ending or {"status": "completed" if over else "stopped"}))

    def _take_checkpoint(self, trial: str, epoch: int) -> None:
        record = self.record.trials[trial]
        if epoch in record.epochs and epoch not in record.checkpoints:
            self._emit("checkpoint_saved", trial=trial, epoch=epoch)
            self._room.take(trial, epoch)
            self._keeper.prune(trial)

    def _end(self, trial: str, **ending: Any) -> None:
        self._emit("trial_ended", trial=trial, **ending)
        self._running.discard(trial)
        self._times.end(trial)
        record = self.record.trials[trial]
        if record.suggested:
            self._proposals.end(record.configuration, ending["status"])
            self._stopping.end(trial)
        self._keeper.prune(trial)
        for said, code in news_of_dead(self.record, self.study.search_space):
            self.notice(said, code=code)

    def _emit(self, kind: str, **fields: Any) -> None:
        """Write an event, then apply it, then show it."""
        self._before_writing()
        event = self._log.append(kind, **fields)
        self._take_in(event)
        self._listeners.tell(event)

    def _take_in(self, event: Event) -> None:
        self.record.apply(event)
        tell_of_seeds(self._proposals, self.record, event)
        if self._admission is not None:
            self._admission.packing.apply(event)

    def _take_lost_reports(self) -> None:
        """Count the epochs of a trial as trained if only a checkpoint is left of them, as after a power cut."""
        for record, epoch, reports in self._keeper.ahead_of_events():
            self.notice(
                f"trial {record.trial} goes on from its checkpoint of epoch {epoch}, although its events end at epoch "
                f"{record.epoch}, as after a power cut"
            )
            for each in range(record.epoch + 1, epoch + 1):
                metrics = reports.get(each, {})
                judged = self._judge.judge(record, each, metrics, saved=True, saves=True)
                decision, ending = judged if each == epoch and metrics else (Decision.CONTINUE, None)
                told = {"trial": record.trial, "epoch": each, "metrics": metrics, "decision": decision.value}
                self._emit("epoch_reported", **told, **({"ending": ending} if ending else {}))
            self._carry_out(record)

    def _carry_out_what_is_due(self) -> None:
        """Do what the previous driver had decided but not yet done."""
        for record in list(self.record.trials.values()):
            if record.live and record.due is not None:
                self._carry_out(record)
            elif record.live and self._failing.gave_up(record):
                self._failing.end_as_failed(record)


class Listeners:
    """Get each event, in addition to the record; one that raises is left out from then on, which `notice` says."""

    def __init__(self, listeners: Iterable[Listener], notice: Callable[[str], None]) -> None:
        self._listeners, self._notice = list(listeners), notice

    def tell(self, event: Event) -> None:
        """An error in a listener must not end a search."""
        for listener in list(self._listeners):
            if not any(listener is known for known in self._listeners):
                continue  # left out while the failure of another one was noted
            try:
                listener.on_event(event)
            except Exception as error:
                self._listeners = [known for known in self._listeners if known is not listener]
                self._notice(f"{type(listener).__name__} raised an error and is not called any more: {error!r}")
