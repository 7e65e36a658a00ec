import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.driver.simulation import build, drive, events_of, study
from tuner import ASHA, Random
from tuner.console.progress import Lines, LiveTable, Plan, Progress, Silence, display
from tuner.console.text import best_so_far, duration, settings, short

PLAN = Plan("simulated", "loss", "min", trials=6, max_epochs=9)


def search(folder: Path, listener: Lines | LiveTable | Progress) -> None:
    loop = build(study(search=Random(), scheduler=ASHA(grace_epochs=3)), folder, listeners=[listener])
    drive(loop)


def test_lines_name_every_start_and_end_and_the_best_so_far(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Lines(Progress(PLAN), stream) as lines:
        search(tmp_path, lines)
    printed = stream.getvalue().splitlines()
    assert printed[0] == "simulated: starting Ray"
    assert printed[1] == "trial 00000 started: x=0.637"
    assert printed[2].startswith(
        "trial 00000 completed after 9 epochs, best loss 0.2247; best so far 0.2247 by 00000; about "
    )
    assert len(printed) == 1 + 2 * 6 + 1
    assert printed[-1].startswith("6 of 6 trials: ")
    assert printed[-1].endswith(" in all")


def test_the_live_table_shows_trials_bar_totals_and_best_on_lines_of_their_own(tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=30, color_system=None)
    with LiveTable(Progress(PLAN), console) as table:
        search(tmp_path, table)
    last = stream.getvalue().split("trial  status")[-1]
    lines = [line.strip() for line in last.splitlines()]
    assert [line[:5] for line in lines[1:7]] == [f"{number:05d}" for number in range(6)]
    assert set(lines[7]) == {"━"}
    assert lines[8].startswith("6 of 6 trials: ")
    assert any(line.startswith("best loss ") for line in lines)


def test_a_display_fits_its_stream(tmp_path: Path) -> None:
    assert isinstance(display(PLAN, io.StringIO(), quiet=True), Silence)
    assert isinstance(display(PLAN, io.StringIO(), quiet=False), Lines)


def test_savings_are_the_share_of_epochs_that_ended_trials_did_not_need(tmp_path: Path) -> None:
    progress = Progress(PLAN)
    search(tmp_path, progress)
    trained = sum(trial.epoch for trial in progress.record.trials.values())
    assert progress.saved_share() == pytest.approx(1 - trained / 54)
    assert trained < 54


def test_a_display_that_knows_earlier_events_goes_on_with_them(tmp_path: Path) -> None:
    declared = study(search=Random())
    drive(build(declared, tmp_path), reports=20)
    earlier = events_of(tmp_path)
    stream = io.StringIO()
    lines = Lines(Progress(PLAN, earlier), stream)
    drive(build(declared, tmp_path, history=earlier, listeners=[lines]))
    assert "trial 00002 started, going on from epoch 2: " in stream.getvalue()


def test_numbers_and_times_are_short() -> None:
    assert [short(value) for value in (0.00093, 0.123456789, 32, "adam")] == ["0.00093", "0.1235", "32", "adam"]
    assert [duration(value) for value in (0.4, 42, 185, 7620)] == ["0 s", "42 s", "3 min 05 s", "2 h 07 min"]
    assert settings({"lr": 0.1, "net": {"width": 8}}) == "lr=0.1 net.width=8"


def test_without_a_result_there_is_no_best() -> None:
    assert best_so_far(Progress(PLAN).record) == "none yet"
