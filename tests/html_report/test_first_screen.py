"""What stands first in a report, as text."""

import re
import shlex
from pathlib import Path

import pytest

from tests.results.kinds_of_runs import (
    all_failed,
    interrupted,
    one_hyperparameter,
    seven_decades,
    sixty_conditional,
    two_trials,
)
from tests.results.simulated import simulated
from tuner import choice, load_run, uniform
from tuner.cli.parsing import assignment
from tuner.history.run_info import write_info
from tuner.html_report import report_html
from tuner.html_report.first_screen import copies, history
from tuner.results.gains import gains


def test_the_gain_is_said_with_the_luck_of_the_best_of_many(tmp_path: Path) -> None:
    for seed, luck in ((0, False), (3, True)):  # the first trial is the best, and the second
        run = two_trials(tmp_path / str(seed), seed=seed)
        found = gains(run)
        assert found is not None
        assert found.by_luck is luck
        amount = found.told[0][0]
        page = re.sub(r"<[^>]+>", "", report_html(run))
        of_luck = " Part of that is luck, as it is the best of 2.\n"
        said = f"{amount} better than the first trial.{of_luck}" if luck else "No better than the first trial.\n"
        assert said in page


def test_no_gain_has_digits_that_nobody_can_know(tmp_path: Path) -> None:
    run = sixty_conditional(tmp_path)
    found = gains(run)
    assert found is not None
    (gain,) = found.known
    assert gain.by == pytest.approx(0.0004283, rel=1e-3)
    assert gain.amount == "0.00043"
    assert "<strong>0.00043</strong> better than the first trial, which is within the noise.</p>" in report_html(run)


def test_a_run_without_a_winner_has_no_gain_no_history_and_nothing_to_copy(tmp_path: Path) -> None:
    run = all_failed(tmp_path)
    assert (gains(run), history(run), copies(run)) == (None, None, [])
    page = report_html(run)
    assert "No trial has reported val_accuracy: 8 of 8 failed." in page
    assert page.index('id="failed"') < page.index('id="trials"')


def test_the_history_stays_within_its_picture(tmp_path: Path) -> None:

    for make in (one_hyperparameter, seven_decades, sixty_conditional):
        drawn = history(make(tmp_path / make.__name__))
        assert drawn is not None
        heights = [float(found) for found in re.findall(r'cy="([^"]+)"', drawn.picture)]
        assert len(heights) > 15
        assert 0 <= min(heights) < 20
        assert max(heights) <= 160


def test_of_two_trials_the_worse_one_is_drawn_below_the_best(tmp_path: Path) -> None:
    """The second, 0.1 behind, lay on the line of the best."""
    drawn = history(two_trials(tmp_path))
    assert drawn is not None
    best, worse = (float(found) for found in re.findall(r'cy="([^"]+)" r="2.5"', drawn.picture))
    assert (best, worse) == (8, 152)
    assert (drawn.above, drawn.below) == ("0.662", "0.5615")
    assert not drawn.shorter


def test_the_history_marks_trials_that_were_not_trained_in_full(tmp_path: Path) -> None:
    drawn = history(sixty_conditional(tmp_path))
    assert drawn is not None
    assert drawn.shorter
    assert drawn.picture.count('class="shorter"') == 43
    assert drawn.beyond == 0


def test_little_is_said_of_what_mattered_where_little_can_be(tmp_path: Path) -> None:
    """Two trials show no good region, and one hyperparameter has none to be compared with."""
    two = report_html(two_trials(tmp_path / "two"))
    assert "What mattered" not in two
    assert "Half of the trials" not in two
    assert "still improving" not in two  # its first trial got better by training
    one = report_html(one_hyperparameter(tmp_path / "one"))
    assert set(re.findall(r'id="plot-(importance|slices|ranks|parallel-coordinates)"', one)) == {"slices"}


def test_an_unfinished_search_has_no_winner_yet(tmp_path: Path) -> None:
    page = report_html(interrupted(tmp_path))
    assert "Trial 00000 is the best so far, with" in page
    assert "The winner</h2>" not in page


def test_a_loss_over_decades_is_so_many_times_lower(tmp_path: Path) -> None:
    """A loss of 1.9e-05 was 0.047 better than one of 0.047."""
    found = gains(seven_decades(tmp_path))
    assert found is not None
    assert found.told[0] == ("2,500 times", "lower than the first trial")


def test_the_command_gives_the_winner_to_a_search_as_it_is(tmp_path: Path) -> None:
    run = simulated(
        tmp_path / "a run", space={"kind": choice(["16", "it's", None]), "depth": choice([1, 2]), "lr": uniform(0, 1)}
    )
    assert run.best is not None
    text = {one.label: one.text for one in copies(run)}["command"]
    words = shlex.split(text)
    assert words[4] == run.path
    assert dict(assignment(word) for word in words[5:]) == run.best.config


def test_the_facts_name_functions_and_memory_as_people_do(tmp_path: Path) -> None:
    page = report_html(sixty_conditional(tmp_path))
    assert "<td>function train</td>" in page
    assert "memory 25.3 GB" in page
    assert "0x7f3a5c0d2e80" not in page
    assert "/runs/elsewhere" not in page


def test_a_trial_that_was_not_trained_to_its_end_is_marked(tmp_path: Path) -> None:
    page = report_html(sixty_conditional(tmp_path))
    assert "<small>of 27</small>" in page
    assert 'class="shorter"' in page
    assert "the old split, not comparable with spring&#39;s" in page
    assert "looks odd after epoch 3" in page


def test_figures_with_nothing_to_show_are_left_out(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    write_info(run.folder, run.info)
    assert 'id="plot-costs"' not in report_html(load_run(tmp_path))
    assert report_html(all_failed(tmp_path / "failed")).count("data-plot=") == 1
