"""Whatever a search, or the replay of one, can tell an early stopper: it decides, and raises nothing."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.each import EAGER
from tuner import MedianStopping
from tuner.schedule import Decision, EarlyStopper, Scheduler

MAX_EPOCHS = 12
VALUES = st.floats(allow_nan=False, allow_infinity=False)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.booleans()),
        st.tuples(st.just("report"), st.integers(0, 5), st.integers(1, 5), VALUES),
        st.tuples(st.just("report"), st.integers(0, 5), st.just(1), st.sampled_from([-1.0, 0.0, 1.0, 1e308, -1e308])),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("resume")),
        st.tuples(st.just("eliminate")),
        st.tuples(st.just("no more")),
    ),
    max_size=60,
)


@dataclass
class Replay:
    """Trials as a search has them, so that a stopper is told only what can happen."""

    stopper: EarlyStopper
    epochs: dict[str, int] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)

    def take(self, step: tuple[Any, ...]) -> None:
        kind, *details = step
        if kind == "start":
            self.start(*details)
        elif kind == "report":
            self.report(*details)
        elif kind == "end":
            self.end(*details)
        elif kind == "resume":
            self.resume()
        elif kind == "eliminate":
            for trial in self.stopper.eliminated():
                assert trial in self.epochs
                self.stopper.end(trial)
                self.paused.discard(trial)
        else:
            self.stopper.more_coming(False)

    def start(self, trusted: bool) -> None:
        trial = f"{len(self.epochs):05d}"
        self.epochs[trial] = 0
        self.running.add(trial)
        self.stopper.start(trial)
        if trusted:
            self.stopper.trust(trial)

    def report(self, index: int, gap: int, value: float) -> None:
        """Of one of the running trials, some epochs later: those between failed to report a number, or were lost."""
        for trial in sorted(self.running)[index : index + 1]:
            self.epochs[trial] += gap
            decision = self.stopper.report(trial, self.epochs[trial], value)
            over = self.epochs[trial] >= MAX_EPOCHS or decision is Decision.STOP
            if over:
                self.stopper.end(trial)
            if over or decision is Decision.PAUSE:
                self.running.discard(trial)
            if decision is Decision.PAUSE and not over:
                self.paused.add(trial)

    def end(self, index: int) -> None:
        for trial in sorted(self.running | self.paused)[index : index + 1]:
            self.running.discard(trial)
            self.paused.discard(trial)
            self.stopper.end(trial)

    def resume(self) -> None:
        """As the search does, which passes over what ended meanwhile."""
        trial = self.stopper.resumable()
        if trial is not None and trial in self.paused:
            self.paused.discard(trial)
            self.running.add(trial)


@pytest.mark.parametrize("scheduler", EAGER, ids=repr)
@settings(deadline=None, max_examples=150, derandomize=True)
@given(steps=STEPS, mode=st.sampled_from(["min", "max"]), can_pause=st.booleans(), trials=st.none() | st.integers(1, 8))
def test_no_sequence_of_a_search_makes_it_raise(
    scheduler: Scheduler, steps: list[tuple[Any, ...]], mode: Literal["min", "max"], can_pause: bool, trials: int | None
) -> None:
    stopper = scheduler.build(mode=mode, max_epochs=MAX_EPOCHS, can_pause=can_pause, trials=trials)
    replay = Replay(stopper)
    for step in steps:
        replay.take(step)
    assert can_pause or not replay.paused


def test_values_at_the_end_of_all_numbers_have_a_mean() -> None:
    stopper = MedianStopping(grace_epochs=1, min_trials=1).build(mode="max", max_epochs=9, can_pause=True, trials=None)
    for epoch in (1, 2):
        stopper.report("a", epoch, 1.5e308)
    assert [stopper.report("b", epoch, 0.0) for epoch in (1, 2)] == [Decision.STOP, Decision.STOP]


def test_a_trial_without_a_value_between_grace_and_epoch_is_nothing_to_compare_with() -> None:
    stopper = MedianStopping(grace_epochs=3, min_trials=1).build(mode="max", max_epochs=9, can_pause=True, trials=None)
    stopper.report("a", 2, 1.0)
    stopper.report("a", 8, 1.0)
    assert stopper.report("b", 4, 0.0) is Decision.CONTINUE
    stopper.report("c", 4, 0.5)
    assert stopper.report("d", 4, 0.0) is Decision.STOP
