"""Drives an early stopper over given learning curves, one worker, no executor."""

from collections.abc import Mapping, Sequence

from tuner.schedule import Decision, EarlyStopper


def run_trial(stopper: EarlyStopper, trial: str, curve: Sequence[float], *, after: int = 0) -> int:
    """Report the curve from the epoch after `after` until it is paused, stopped or over; the last epoch reported."""
    for epoch in range(after + 1, len(curve) + 1):
        decision = stopper.report(trial, epoch, curve[epoch - 1])
        if decision is Decision.PAUSE and epoch < len(curve):
            return epoch
        if decision is Decision.STOP:
            stopper.end(trial)
            return epoch
    stopper.end(trial)
    return len(curve)


def run_search(stopper: EarlyStopper, curves: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Resume what can go on, else start the next trial; the last epoch of each trial when nothing is left to do."""
    epochs: dict[str, int] = {}
    waiting = list(curves)
    while True:
        trial = stopper.resumable()
        if trial is None and waiting:
            trial = waiting.pop(0)
            stopper.start(trial)
        elif trial is None:
            stopper.more_coming(False)
            trial = stopper.resumable()
        if trial is None:
            return epochs
        epochs[trial] = run_trial(stopper, trial, curves[trial], after=epochs.get(trial, 0))
