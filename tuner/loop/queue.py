"""What runs next: trials that go on, suggested configurations, and those for which no device has room."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.history.refits import Refit
from tuner.loop.limits import CONSTRAINT
from tuner.loop.packing import Admission, Place, Refusal, Wait
from tuner.loop.racing import next_to_repeat
from tuner.loop.stopping import Stopping
from tuner.search import Proposals
from tuner.study.declaration import Study

MOST_REFUSED = 100  # configurations in a row that fit on no device: the others aren't expected to fit either


@dataclass(frozen=True)
class Start:
    """Run a trial: a new one, or one that was paused, lost its worker, or was left by an earlier driver.

    `reported` of its `epochs` are recorded: it goes on from the newest checkpoint among them. `halvings` says how often
    a worker was killed for the memory that it took; `place` is where it goes, None if Ray decides; `fresh`, whether it
    needs a worker that has run nothing yet.
    """

    trial: str
    number: int
    config: dict[str, Any]
    seed: int
    epochs: int
    reported: int = 0
    halvings: int = 0
    fresh: bool = False
    place: Place | None = None
    repeats: str | None = None  # the first trial of its configuration, if it repeats that with another seed
    refit_epochs: int | None = None  # if it is the winner's refit: after how many of the `epochs` it ends

    @property
    def suggested(self) -> bool:
        """Whether it is the first trial of its configuration."""
        return self.repeats is None and self.refit_epochs is None

    @property
    def introduction(self) -> dict[str, Any]:
        """Fields of its first event."""
        return {"config": self.config, "seed": self.seed}


@dataclass(frozen=True)
class Entry:
    """What would run next: its event, the trial, and further fields of the event."""

    kind: str
    start: Start
    fields: dict[str, Any]
    new: bool = False


class Queue:
    """Says what a free worker runs.

    First trials that go on, then those that `tuner confirm` asks for, leading configurations that a study races with
    further seeds, those that users order, paused ones, and suggestions last. With `confirms_only` only what `tuner
    confirm` asks for.

    `emit` writes an event and applies it; `notice` tells the user something, with a `code`.
    """

    def __init__(
        self,
        study: Study,
        record: RunRecord,
        proposals: Proposals,
        stopping: Stopping,
        admission: Admission | None,
        *,
        emit: Callable[..., None],
        notice: Callable[..., None],
    ) -> None:
        self._study, self._record, self._proposals, self._stopping = study, record, proposals, stopping
        self._admission, self._emit, self._notice = admission, emit, notice
        self._again: list[TrialRecord] = []  # lost their worker, or were left by an earlier driver
        self._waiting: Entry | None = None  # until there is room for it
        self._refused_in_a_row = 0
        self.refused = 0  # configurations that fit on no device
        self.exhausted = False  # nothing new will be suggested
        self.ran_out: str | None = None  # why, before all was tried: "min_improvement" or "constraint"
        self.confirms_only = False  # of an ended search

    @property
    def waits_for_room(self) -> bool:
        """Whether something would run if a device had room for it."""
        return self._waiting is not None

    @property
    def waiting(self) -> str | None:
        """The trial that waits for room, if it has run before."""
        return None if self._waiting is None or self._waiting.new else self._waiting.start.trial

    def put_back(self, *trials: TrialRecord) -> None:
        """Queue trials that start again before anything else does."""
        self._again += [trial for trial in trials if trial.refits is None]  # refits go on once the search is done

    def expect(self, study: Study) -> None:
        """Suggest within the study's new limits, even if nothing more was to be suggested before."""
        self._study, self.exhausted, self.ran_out = study, False, None
        self._proposals.expect(study.trials)
        self._stopping.expect(None if study.trials is None else max(0, study.trials - self._record.configurations))

    def clear(self) -> None:
        """Forget everything that waits: it won't run."""
        self._again.clear()
        self._waiting = None

    def next(self) -> tuple[Entry, Place | None] | None:
        """What starts now, and where; configurations that fit nowhere are skipped."""
        if self._waiting is not None and not self._can_start(self._waiting):
            self._waiting = None  # a user's order has ended it meanwhile
        if self._waiting is None and self._admission is not None and not self._admission.packing.has_room:
            return None
        entry, self._waiting = self._waiting or self._next_entry(), None
        while entry is not None:
            place = self._admit(entry)
            if isinstance(place, Wait):
                self._waiting = entry
                return None
            if not isinstance(place, Refusal):
                return entry, place
            self._refuse(entry, place)
            entry = self._next_entry()
        return None

    def adopt(self, start: Start) -> None:
        """A suggested configuration has become a trial."""
        self._proposals.adopt(self._record.configurations, start.config)
        self._refused_in_a_row = 0

    def pass_over(self, config: dict[str, Any]) -> None:
        """The configuration fits on no device, so it doesn't become a trial."""
        self._proposals.refuse(config)
        self.refused += 1
        self._refused_in_a_row += 1

    def say_what_was_refused(self) -> None:
        """At the end of the search: how many configurations it had to skip."""
        if self.refused:
            message = f"{self.refused} configurations were skipped, as they need more memory than a device has"
            self._notice(message, code="refused")

    def refit(self, due: Refit) -> Entry:
        """The winner's configuration on training and validation images together; or the trial that has begun it."""
        if due.going_on is not None:
            start, fields, new = self.start_of(due.going_on), {"number": due.going_on.number}, False
        else:
            entry = self._first_start(due.winner.config, refits=due.winner.trial, refit_epochs=due.epochs)
            start, fields, new = entry.start, entry.fields, True
        return Entry("trial_started", replace(start, refit_epochs=due.epochs), fields, new)

    def place(self, entry: Entry) -> Place | Wait | Refusal | None:
        """Where this trial can run now; None if Ray chooses."""
        return self._admit(entry)

    # Inside

    def _next_entry(self) -> Entry | None:
        while (record := self._next_again()) is not None:
            if record.live:
                return Entry("trial_started", self.start_of(record), {"number": record.number})
        if self.confirms_only:
            return self._to_confirm()
        first = self._to_confirm() or self._raced() or self._ordered()
        return first or self._resume_paused() or self._suggest() or self._resume_paused()

    def _next_again(self) -> TrialRecord | None:
        found = next((one for one in self._again if one.confirms or not self.confirms_only), None)
        if found is not None:
            self._again.remove(found)
        return found

    def _to_confirm(self) -> Entry | None:
        """A configuration that `tuner confirm` asks for under another seed."""
        waiting = self._record.confirming.waiting
        return self._repetition(self._record.trials[waiting[0]], confirms=True) if waiting else None

    def _raced(self) -> Entry | None:
        """A leading configuration that needs another seed, if what is left of the budget pays for a whole trial."""
        first = next_to_repeat(self._record, self._study.repeats)
        if first is None:
            return None
        most = self._study.budget.total_epochs
        left = math.inf if most is None else most - self._record.search_epochs()
        return None if self._length(first.config) > left else self._repetition(first)

    def _repetition(self, first: TrialRecord, **fields: Any) -> Entry:
        entry = self._first_start(first.config, repeats=first.trial, **fields)
        return replace(entry, start=replace(entry.start, repeats=first.trial))

    def _ordered(self) -> Entry | None:
        """The earliest configuration that a user ordered."""
        found = next(iter(self._record.steered.waiting.items()), None)
        return None if found is None else self._first_start(found[1], order=found[0])

    def _can_start(self, entry: Entry) -> bool:
        known = None if entry.new else self._record.trials[entry.start.trial]
        if self.confirms_only and not (entry.fields.get("confirms") if known is None else known.confirms):
            return False
        return known is None or known.live

    def _admit(self, entry: Entry) -> Place | Wait | Refusal | None:
        """None if all trials need the same of a device: Ray chooses the place."""
        start = entry.start
        return None if self._admission is None else self._admission.of(start.trial, start.config, new=entry.new)

    def _refuse(self, entry: Entry, refusal: Refusal) -> None:
        """The configuration doesn't become a trial; after too many in a row the search stops looking."""
        about = {name: entry.fields[name] for name in ("order", "repeats") if name in entry.fields}
        self._emit("configuration_refused", config=entry.start.config, least_bytes=refusal.least_bytes, **about)
        self.pass_over(entry.start.config)
        if self.refused == 1:
            self._notice(str(refusal), code="refused")
        if self._refused_in_a_row >= MOST_REFUSED:
            self._notice(
                f"{MOST_REFUSED} configurations in a row need more memory than a device has; no more are tried",
                code="refused",
            )
            self._suggest_no_more()

    def _resume_paused(self) -> Entry | None:
        trial = self._stopping.resumable()
        while trial is not None and self._record.trials[trial].status != "paused":
            trial = self._stopping.resumable()  # it couldn't pause, or has ended meanwhile
        if trial is None:
            return None
        start = self.start_of(self._record.trials[trial])
        return Entry("trial_resumed", start, {"epoch": start.reported})

    def _suggest(self) -> Entry | None:
        if self.exhausted:
            return None
        number = self._record.configurations
        if self._expects_too_little(number):
            self.ran_out = "min_improvement"
        elif (config := self._proposals.propose(number)) is not None:
            return self._first_start(config)
        elif self._proposals.nothing_drawn:
            self.ran_out = CONSTRAINT
            self._notice(self._proposals.nothing_drawn, code=CONSTRAINT)
        self._suggest_no_more()
        return None

    def _first_start(self, config: dict[str, Any], **fields: Any) -> Entry:
        number = len(self._record.trials)
        config = self._study.search_space.restored(config)
        start = Start(f"{number:05d}", number, config, trial_seed(self._study.seed, number), self._length(config))
        return Entry("trial_started", start, {"number": number, **fields}, new=True)

    def _suggest_no_more(self) -> None:
        self.exhausted = True
        self._stopping.no_more_coming()

    def _expects_too_little(self, number: int) -> bool:
        least = self._study.budget.min_improvement
        if least is None or number >= (self._study.trials or math.inf):
            return False
        expected = self._proposals.expected_improvement(number)
        return expected is not None and expected < least

    def start_of(self, record: TrialRecord) -> Start:
        """How a trial goes on that has run before."""
        config, length = self._study.search_space.restored(record.config), self._length(record.config)
        known = (record.epoch, record.memory_losses, record.attempts.needs_fresh_worker)
        return Start(record.trial, record.number, config, record.seed, length, *known, repeats=record.repeats)

    def _length(self, config: dict[str, Any]) -> int:
        return full_length(config, self._study.budget.max_epochs)


def trial_seed(study_seed: int, number: int) -> int:
    """The seed of a study's trial: 32 bits that depend only on the study's seed and the trial's number."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1)[0])
