"""How many trials are paused at once: found by simulating early stopping with made-up results."""

from __future__ import annotations

import math
import random

from tuner.schedule import Decision, EarlyStopper
from tuner.study.declaration import Study

MOST_PLAYED = 200  # trials; beyond that the number that waits grows in proportion
ORDERS = 3  # orders in which good and bad configurations come


def most_waiting(study: Study, workers: int) -> int | None:
    """About the most trials of a study that are paused at once; None if nothing limits the number of trials.

    A trial's results are a number drawn once, so that the curves don't cross; `workers` trials take turns.
    """
    trials = most_trials(study)
    if trials is None:
        return None if study.scheduler.rungs(study.budget.max_epochs) and _waiting(study, MOST_PLAYED, 1, 0) else 0
    played = min(trials, MOST_PLAYED)
    most = max(_waiting(study, played, workers, seed) for seed in range(ORDERS))
    return -(-most * trials // played)


def most_trials(study: Study) -> int | None:
    """The most trials that the study's limits allow if each reaches the first rung; None for no limit."""
    epochs, length = study.budget.total_epochs, study.budget.max_epochs
    if study.trials is not None or epochs is None:
        return study.trials
    shortest = min([*study.scheduler.rungs(length), length])
    return math.ceil(epochs / shortest)


def _waiting(study: Study, trials: int, workers: int, seed: int) -> int:
    """The most trials that wait, with one order of good and bad configurations."""
    draw = random.Random(seed)
    epochs, mode = study.budget.max_epochs, study.mode
    stopper = study.scheduler.build(mode=mode, max_epochs=epochs, can_pause=True, trials=study.trials and trials)
    rungs = [*study.scheduler.rungs(epochs), epochs]
    values = [draw.random() for _ in range(trials)]
    running: list[tuple[str, int]] = []  # trial, and how many rungs it has reached
    reached: dict[str, int] = {}
    paused: set[str] = set()
    started, most = 0, 0
    while True:
        while len(running) < workers:
            trial = stopper.resumable()
            if trial is not None and trial in paused:
                paused.discard(trial)
            elif started < trials:
                trial, started = str(started).zfill(5), started + 1
                stopper.start(trial)
                stopper.more_coming(started < trials)
            else:
                break
            running.append((trial, reached.get(trial, 0)))
        if not running:
            return most
        trial, rung = running.pop(0)
        reached[trial] = rung + 1
        decision = _report(stopper, trial, rungs[rung], values[int(trial)], last=rung + 1 == len(rungs))
        if decision is Decision.PAUSE:
            paused.add(trial)
        elif decision is Decision.CONTINUE:
            running.append((trial, rung + 1))
        paused -= set(stopper.eliminated())
        most = max(most, len(paused))


def _report(stopper: EarlyStopper, trial: str, epoch: int, value: float, *, last: bool) -> Decision:
    """What the trial does after a rung, or at its end."""
    decision = stopper.report(trial, epoch, value)
    if last or decision is Decision.STOP:
        stopper.end(trial)
        return Decision.STOP
    return decision
