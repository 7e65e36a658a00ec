"""What a trial prints, while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tuner.history.events import EventFollower
from tuner.history.logs import LogFollower
from tuner.history.records import RunRecord
from tuner.results.found import load_run
from tuner.results.run import Run

POLL_SECONDS = 0.5


def follow_log(run: Run, trial: str) -> Iterator[str]:
    """The last lines of the trial's log, then new lines, until the trial has ended or the run has no driver."""
    log, events, over = LogFollower(run.folder, trial), EventFollower(run.folder), False
    record = RunRecord(run.metric, run.mode)
    while not over:
        alive = load_run(run.path).alive  # checked before the last events and lines are read
        for event in events.new():
            record.apply(event)
        over = not (alive and record.trials[trial].live)
        yield log.new()
        time.sleep(0 if over else POLL_SECONDS)
    yield log.rest()
