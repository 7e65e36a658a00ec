"""Early stopping for a search: it keeps all reports, so that it can switch to a stopper that never pauses."""

from __future__ import annotations

from collections.abc import Callable

from tuner.schedule import Decision, EarlyStopper
from tuner.study.declaration import Study

Build = Callable[[bool], EarlyStopper]  # argument: whether trials can pause


def stopper_of(study: Study, *, can_pause: bool) -> EarlyStopper:
    """The study's early stopper, for one search."""
    budget = study.budget
    return study.scheduler.build(
        mode=study.mode, max_epochs=budget.max_epochs, can_pause=can_pause, trials=study.trials
    )


class Stopping:
    """The early stopper of one search.

    `build(can_pause)` makes one. The search begins with one that may pause trials.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._stopper = build(True)
        self._journal: list[tuple[str, str, int, float]] = []
        self._judged_anew: dict[Decision, list[str]] = {}  # trials by their new decision, once pausing was given up
        self._more_coming = self._changed = True

    def start(self, trial: str, *, trusted: bool) -> None:
        """A new trial; a trusted one's configuration did well in earlier studies."""
        self._tell("start", trial)
        if trusted:
            self._tell("trust", trial)

    def report(self, trial: str, epoch: int, value: float) -> Decision:
        """What the trial does after this epoch."""
        return self._tell("report", trial, epoch, value)

    def price(self, trial: str, value: float) -> None:
        """The trial's second objective, of which higher is better."""
        self._tell("price", trial, 0, value)

    def end(self, trial: str) -> None:
        """The trial is over."""
        self._tell("end", trial)

    def restart(self, trial: str) -> None:
        """The trial failed and runs again."""
        self._tell("restart", trial)

    def no_more_coming(self) -> None:
        """No new trial will start."""
        self._more_coming, self._changed = False, True
        self._stopper.more_coming(False)

    def expect(self, trials: int | None) -> None:
        """At most `trials` more will start, None for no limit; this replaces the previous number."""
        self._more_coming = trials is None or trials > 0
        self._changed = True
        self._stopper.expect(trials)

    def resumable(self) -> str | None:
        """A paused trial that goes on now, each handed out once; None if there is none.

        After pausing was given up it may also be one that runs or has ended: the early stopper doesn't know.
        """
        left = self._judged_anew.get(Decision.CONTINUE)
        trial = left.pop(0) if left else self._stopper.resumable()
        self._changed = self._changed or trial is not None
        return trial

    def replay_resumption(self, trial: str) -> None:
        """Hand out trials up to this one, as an earlier driver did."""
        handed_out = self.resumable()
        while handed_out not in (trial, None):
            handed_out = self.resumable()

    def eliminated(self) -> list[str]:
        """Paused trials that will never go on, each named once; looks only if something was reported since."""
        if not self._changed:
            return []
        self._changed = False
        return [*self._judged_anew.pop(Decision.STOP, []), *self._stopper.eliminated()]

    def give_up_pausing(self) -> Decision:
        """Replace the stopper by one that never pauses, and give it all reports so far; its decision on the last one.

        It also judges the trials that wait: they go on, or are eliminated.
        """
        self._stopper = self._build(False)
        journal, self._journal = self._journal, []
        decision = Decision.CONTINUE
        judged: dict[str, Decision] = {}
        for call, trial, epoch, value in journal:
            decision = self._tell(call, trial, epoch, value)
            if call == "report":
                judged[trial] = decision
        for trial, each in judged.items():
            self._judged_anew.setdefault(each, []).append(trial)
        if not self._more_coming:
            self._stopper.more_coming(False)
        return decision

    def _tell(self, call: str, trial: str, epoch: int = 0, value: float = 0.0) -> Decision:
        self._journal.append((call, trial, epoch, value))
        self._changed = True
        if call == "report":
            return self._stopper.report(trial, epoch, value)
        if call == "start":
            self._stopper.start(trial)
        elif call == "trust":
            self._stopper.trust(trial)
        elif call == "price":
            self._stopper.price(trial, value)
        elif call == "restart":
            self._stopper.restart(trial)
        else:
            self._stopper.end(trial)
        return Decision.CONTINUE
