"""The summary of a search for its page, from events with times of the test's own choosing."""

import json
from pathlib import Path

import pytest

from tests.history.events_of_a_run import ended, event, reported, started
from tests.results.simulated import gone_on_an_hour_later, of_events
from tests.service.web.serving import Served
from tuner.service.model import State
from tuner.service.web.summary import summary
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held


def test_epochs_that_were_trained_again_are_told_apart(served: Served, tmp_path: Path) -> None:
    study = served.study("anne", State.RUNNING, gone_on_an_hour_later(tmp_path / "told" / "1", killed=True))
    found = served.client("anne").get(f"/api/v1/studies/{study}/summary").json()
    assert (found["epochs"], found["epochs_again"]) == (3, 2)


def test_the_hours_that_early_stopping_saved_are_of_epochs_as_long_as_the_trained_ones(tmp_path: Path) -> None:
    """Six epochs of 10 s, of which two were trained again; two were saved."""
    events = gone_on_an_hour_later(tmp_path / "first", killed=True).events[:-1]
    events += [started(1, 4630.0), reported(1, 1, 4640.0, loss=5.0), ended(1, "stopped", 4640.0)]
    assert summary(of_events(tmp_path / "second", events)).saved_hours == pytest.approx(20 / 3600)


def test_what_the_last_hour_gained_is_of_an_hour_of_search(tmp_path: Path) -> None:
    """Two trials of an hour each, a pause of a day, and half an hour of the third."""
    events = [event("study_started"), started(0), reported(0, 1, 3600.0, loss=3.0), ended(0, "completed", 3600.0)]
    events += [started(1, 3600.0), reported(1, 1, 7200.0, loss=2.0), ended(1, "completed", 7200.0)]
    events += [event("study_interrupted", 7200.0, reason="Ctrl-C"), event("study_resumed", 90_000.0)]
    events += [started(2, 90_000.0), reported(2, 1, 91_800.0, loss=1.0)]
    with held(LocalFolder(tmp_path / "run")):
        found = summary(of_events(tmp_path / "run", events, status="running")).next_hour
    assert found is not None
    assert found.gained == 2.0


def test_what_the_last_hour_gained_is_told_of_the_winner_and_not_of_a_lucky_epoch(tmp_path: Path) -> None:
    """A trial of an hour with a mean of 0.2, and then one whose best epoch was 0.05 and whose mean is 0.3."""
    events = [event("study_started"), started(0)]
    events += [reported(0, epoch, 900.0 * epoch, loss=0.2) for epoch in (1, 2, 3, 4)] + [ended(0, "completed", 3600.0)]
    events += [started(1, 3600.0)]
    events += [reported(1, n, 3600 + 900.0 * n, loss=loss) for n, loss in enumerate((0.3, 0.05, 0.3, 0.3), start=1)]
    events += [ended(1, "completed", 7200.0), started(2, 7200.0), reported(2, 1, 8100.0, loss=0.9)]
    with held(LocalFolder(tmp_path / "run")):
        run = of_events(tmp_path / "run", events, status="running")
        assert run.best is not None
        assert run.best.trial == "00000"
        found = summary(run).next_hour
    assert found is not None
    assert found.gained == 0.0


def test_what_ships_in_place_of_the_winners_own_network_is_told(tmp_path: Path) -> None:
    events = [event("study_started"), event("combination_requested", how="auto")]
    events += [started(0), reported(0, 1, 10.0, loss=3.0), ended(0, "completed", 10.0)]
    combined = {"asked": "auto", "in": False, "failed": "out of memory"}
    told = {"trial": "00000", "epoch": 1, "metrics": {"loss": 3.0}, "combined": combined}
    run = of_events(tmp_path / "run", events)
    (tmp_path / "run" / "best").mkdir()
    (tmp_path / "run" / "best" / "metrics.json").write_text(json.dumps(told))
    best = summary(run).best
    assert best is not None
    assert best.ships == ["the best trials could not be averaged (out of memory); best/ has the winner's own network"]
