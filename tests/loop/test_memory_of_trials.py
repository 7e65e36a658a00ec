"""What a search keeps in memory of each trial that has ended."""

import gc
import tracemalloc
from pathlib import Path

from tests.loop.simulation import build, parabola, study
from tuner import Budget
from tuner.console.standing import Plan, Progress
from tuner.history.events import Event
from tuner.loop.search_loop import SearchLoop

FIRST, LAST, MOST_BYTES = 100, 300, 8_000  # a trial; the limit is generous


class Shown:
    """The console's part of a search."""

    def __init__(self, plan: Plan) -> None:
        self._progress = Progress(plan)

    def on_event(self, event: Event) -> None:
        self._progress.on_event(event)


def run(loop: SearchLoop, trials: int) -> int:
    """Run so many trials of two epochs; returns the bytes that are held then."""
    for _ in range(trials):
        start = loop.next_action()
        assert start is not None
        loop.placed(start.trial, host="here", pid=1, devices=["1 CPUs"], gpus=[])
        for epoch in (1, 2):
            loop.report(start.trial, epoch, {"loss": parabola(start.config, epoch), "seconds": 0.1 * epoch})
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_an_ended_trial_takes_a_few_kilobytes_of_the_drivers_memory(tmp_path: Path) -> None:
    declared = study(budget=Budget(trials=LAST, max_epochs=2))
    loop = build(declared, tmp_path, listeners=[Shown(Plan.of(declared))])
    tracemalloc.start()
    try:
        before = run(loop, FIRST)
        grown = (run(loop, LAST - FIRST) - before) / (LAST - FIRST)
    finally:
        tracemalloc.stop()
    loop.close()
    assert len(loop.record.ended_trials) == LAST
    assert grown < MOST_BYTES
