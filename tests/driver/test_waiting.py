"""How many trials wait at once, foretold, beside what whole searches come to."""

from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, study
from tuner import ASHA, Budget, HyperBand, MedianStopping, NoEarlyStopping
from tuner.driver.disk_need import most_waiting
from tuner.history.events import Event


class Counting:
    """Remembers how many trials were paused at once at most."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self.most = 0

    def on_event(self, event: Event) -> None:
        if event["event"] == "trial_paused":
            self.paused.add(event["trial"])
        elif event["event"] in ("trial_resumed", "trial_ended"):
            self.paused.discard(event["trial"])
        self.most = max(self.most, len(self.paused))


@pytest.mark.parametrize("scheduler", [ASHA(1, 3), ASHA(2, 2), HyperBand(1, 3)], ids=repr)
def test_it_is_about_what_a_search_comes_to(tmp_path: Path, scheduler: Any) -> None:
    declared = study(scheduler=scheduler, budget=Budget(trials=27, max_epochs=9))
    counting = Counting()
    drive(build(declared, tmp_path, listeners=[counting]))
    foretold = most_waiting(declared, 1)
    assert foretold is not None
    assert 0.6 * counting.most <= foretold <= 1.6 * counting.most


def test_a_budget_of_epochs_bounds_it_by_what_it_pays_for(tmp_path: Path) -> None:
    declared = study(scheduler=ASHA(3, 3), budget=Budget(total_epochs=90, max_epochs=9))
    counting = Counting()
    loop = build(declared, tmp_path, listeners=[counting])
    drive(loop)
    assert (loop.record.epochs(), declared.trials, loop.end_reason) == (90, None, "total_epochs")
    assert len(loop.record.trials) > 10  # as many as the same epochs would train in full
    foretold = most_waiting(declared, 1)
    assert foretold is not None
    assert counting.most <= foretold <= 30


@pytest.mark.parametrize("scheduler", [NoEarlyStopping(), MedianStopping(), ASHA(rule="stop")], ids=repr)
def test_where_no_trial_pauses_none_waits(scheduler: Any) -> None:
    assert most_waiting(study(scheduler=scheduler), 2) == 0
    assert most_waiting(study(scheduler=scheduler, budget=Budget(trials=None, hours=1.0)), 2) == 0


def test_without_a_limit_of_trials_there_is_none_of_those_that_wait() -> None:
    assert most_waiting(study(scheduler=ASHA(), budget=Budget(trials=None, hours=1.0)), 2) is None


def test_a_large_study_is_foretold_from_a_part_of_it() -> None:
    budget = [Budget(trials=trials, max_epochs=27) for trials in (200, 2000)]
    small, large = (most_waiting(study(scheduler=ASHA(), budget=each), 4) for each in budget)
    assert large == 10 * (small or 0) > 0
