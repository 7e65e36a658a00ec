"""That the runs which reports are tested with are what their names say."""

from pathlib import Path

from tests.results.kinds_of_runs import (
    all_failed,
    interrupted,
    long_unicode,
    one_hyperparameter,
    seven_decades,
    sixty_conditional,
    two_trials,
)
from tuner.results.findings import findings_of


def test_sixty_trials_have_conditions_failures_of_two_kinds_and_options_that_are_none(tmp_path: Path) -> None:
    run = sixty_conditional(tmp_path)
    trials = run.record.trials.values()
    assert len(trials) == 60
    assert {"momentum" in trial.config for trial in trials} == {True, False}
    assert None in [trial.config["augmentation"] for trial in trials]
    assert sorted(len(one.trials) for one in findings_of(run).failures) == [6, 6]
    assert {trial.epoch for trial in trials if trial.status == "failed"} == {0, 1}
    assert run.record.counts()["stopped"] > 10
    assert (run.status, run.images["validation"], len(run.record.steered.notes)) == ("finished", 500, 3)
    assert run.record.wall_seconds > 600


def test_small_failed_and_interrupted_searches(tmp_path: Path) -> None:
    assert len(two_trials(tmp_path / "two").record.trials) == 2
    failed = all_failed(tmp_path / "failed")
    assert (failed.best, failed.record.counts()["failed"]) == (None, 8)
    cut = interrupted(tmp_path / "cut")
    assert (cut.status, cut.record.epochs()) == ("interrupted", 90)
    assert cut.record.counts()["interrupted"] > 0


def test_one_hyperparameter_seven_decades_and_long_names(tmp_path: Path) -> None:
    assert list(one_hyperparameter(tmp_path / "one").space.dimensions) == ["lr"]
    values = [value for *_, value in seven_decades(tmp_path / "decades").record.reports() if value]
    assert min(values) < 1e-4
    assert max(values) > 1e7
    assert max(map(len, long_unicode(tmp_path / "long").space.dimensions)) > 70
