"""By how much a winner is better than what was there without the search, and what can't be said of that."""

from pathlib import Path
from typing import Any

import pytest

from tests.results.simulated import simulated
from tests.results.test_findings import with_accuracies
from tuner import ASHA, Budget, ImageClassifier, NoEarlyStopping, Random, Run, Study, choice, loguniform, uniform
from tuner.lifecycle.description import trainer_defaults
from tuner.results.gains import DEFAULTS, FIRST, START, Gain, gains

SPACE = {"lr": loguniform(1e-4, 1e-1), "optimizer": choice(["sgd", "adam"]), "width": uniform(0, 1)}


def reached(config: dict[str, Any], epoch: int) -> float:
    """Best at a small width; the trainer's defaults, in the middle, reach 0.7 less."""
    return float(1.5 - config["width"]) * (1 - 0.5**epoch) + 0.01 * (config["optimizer"] == "adam")


def run_of(folder: Path, defaults: dict[str, Any], **changes: Any) -> Run:
    settings = {"space": SPACE, "curve": reached, "mode": "max", "search": Random(), "scheduler": NoEarlyStopping()}
    run = simulated(folder, **{**settings, "budget": Budget(trials=30, max_epochs=9), **changes})
    run.info |= {"defaults": defaults}
    return run


def known(run: Run) -> dict[str, Gain]:
    found = gains(run)
    assert found is not None
    return {one.over: one for one in found.known}


def test_over_the_first_trial_and_over_what_the_study_starts_from(tmp_path: Path) -> None:
    run = with_accuracies(tmp_path, [0.5, 0.7, 0.9])
    run.info |= {"start_from": [run.record.trials["00001"].config]}
    found = known(run)
    assert (found[FIRST].by, found[START].by) == (pytest.approx(0.4), pytest.approx(0.2))
    assert (found[FIRST].trial, found[START].trial) == ("00000", "00001")
    told = gains(run)
    assert told is not None
    assert told.told == [("0.4", "better than the first trial"), ("0.2", "better than what the study starts from")]


def test_a_smaller_loss_is_a_gain(tmp_path: Path) -> None:
    run = simulated(tmp_path, space={"lr": uniform(0, 1)}, curve=lambda config, epoch: config["lr"] / epoch)
    assert known(run)[FIRST].by > 0


def test_that_the_other_trial_was_cut_short_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, {}, scheduler=ASHA(), curve=lambda config, epoch: config["width"] * epoch)
    cut = min(run.record.trials.values(), key=lambda trial: trial.config["width"])
    run.info |= {"start_from": [cut.config]}
    found = known(run)[START if cut.number else FIRST]
    assert found.words.endswith(f"(which was trained {cut.epoch} of 9 epochs)")


def test_a_trial_that_nearly_had_the_defaults_is_what_they_reach(tmp_path: Path) -> None:
    run = run_of(tmp_path, {})
    other = list(run.record.trials.values())[7]
    run.info |= {"defaults": {**other.config, "width": other.config["width"] + 0.01}}
    found = known(run)[DEFAULTS]
    assert found.trial == other.trial
    assert run.best is not None
    assert found.by == pytest.approx(reached(run.best.config, 9) - reached(other.config, 9), abs=0.001)
    run.info |= {"defaults": {**other.config, "width": other.config["width"] + 0.05}}
    assert known(run).get(DEFAULTS, Gain(0, "")).trial is None


def test_a_first_trial_with_the_defaults_is_named_once(tmp_path: Path) -> None:
    run = run_of(tmp_path, {})
    run.info |= {"defaults": run.record.trials["00000"].config}
    assert list(known(run)) == [f"{FIRST}, which had {DEFAULTS}"]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_defaults_that_no_trial_had_are_told_by_the_model_with_their_doubt(tmp_path: Path, mode: str) -> None:
    sign = 1 if mode == "max" else -1
    defaults = {"lr": 0.001, "optimizer": "adam", "width": 0.75}
    run = run_of(tmp_path, defaults, mode=mode, curve=lambda config, epoch: sign * reached(config, epoch))
    found = known(run)[DEFAULTS]
    assert run.best is not None
    truth = reached(run.best.config, 9) - reached(defaults, 9)
    assert 0 < found.low < truth < found.high
    assert found.trial is None
    assert "by the model of the trials (80 % interval; no trial had them)" in found.words


def test_where_the_model_can_not_tell_better_from_worse_nothing_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, {})
    assert run.best is not None
    run.info |= {"defaults": {**run.best.config, "width": run.best.config["width"] + 0.05}}
    assert DEFAULTS not in known(run)


@pytest.mark.parametrize(
    "defaults",
    [
        {},  # of a function, or an older run
        {"lr": 0.5, "optimizer": "adam", "width": 0.75},  # outside of the space
        {"optimizer": "adam", "width": 0.75},  # not all are known
        {"lr": "high", "optimizer": "adam", "width": 0.75},
    ],
)
def test_defaults_that_the_space_does_not_have_are_not_spoken_of(tmp_path: Path, defaults: dict[str, Any]) -> None:
    assert DEFAULTS not in known(run_of(tmp_path, defaults))


def test_a_default_of_0_in_a_logarithmic_range_is_its_lowest_value_and_that_is_said(tmp_path: Path) -> None:
    space = {**SPACE, "weight_decay": loguniform(1e-6, 1e-2)}
    defaults = {"lr": 0.001, "optimizer": "adam", "width": 0.75, "weight_decay": 0.0}
    found = known(run_of(tmp_path, defaults, space=space))
    over = f"{DEFAULTS} (with 1e-06 for a weight_decay of 0, which was not searched)"
    assert found[over].low > 0
    assert f"better than {over} would be" in found[over].words


def test_a_gain_within_the_noise_is_called_so(tmp_path: Path) -> None:
    """Of 1,000 images one is 0.1 % and the standard error of the difference above 1 %."""
    (gain,) = known(with_accuracies(tmp_path, [0.9, 0.905])).values()
    assert gain.words.endswith("better than the first trial, which is within the noise")
    assert not gain.is_clear


def test_few_trials_know_nothing_of_defaults_that_none_had(tmp_path: Path) -> None:
    defaults = {"lr": 0.001, "optimizer": "adam", "width": 0.9}
    assert DEFAULTS not in known(run_of(tmp_path, defaults, budget=Budget(trials=11, max_epochs=9)))


def test_without_a_winner_there_are_no_gains(tmp_path: Path) -> None:
    assert gains(simulated(tmp_path, reports=0)) is None


def test_a_run_records_the_trainers_defaults_of_what_it_searches() -> None:
    def declared(trial: Any, space: dict[str, Any]) -> Study:
        return Study("defaults", trial=trial, space=space, metric="val_accuracy", mode="max", budget=Budget(trials=1))

    network = ImageClassifier("digits", model="resnet18")
    space = {"lr": loguniform(1e-4, 1e-1), "batch_size": choice([32, 64]), "epochs": choice([3, 9]), "momentum": 0.5}
    assert trainer_defaults(declared(network, space)) == {"lr": 1e-3, "batch_size": 64}
    assert trainer_defaults(declared(lambda config: None, {"lr": loguniform(1e-4, 1e-1)})) == {}


def test_a_factor_of_thousands_is_clear_though_the_first_trials_loss_is_noisy(tmp_path: Path) -> None:
    def curve(config: dict[str, Any], epoch: int) -> float:
        return config["scale"] * (3 if epoch % 2 else 1) * 10.0**-epoch

    space = {"scale": choice([1e-4, 1.0])}
    start = [{"scale": 1.0}, {"scale": 1e-4}]
    budget = Budget(trials=2, max_epochs=9)
    run = simulated(
        tmp_path, space=space, start_from=start, scheduler=NoEarlyStopping(), budget=budget, curve=curve, mode="min"
    )
    gain = known(run)[FIRST]
    assert gain.amount == "10,000 times"
    assert gain.noise > 0
    assert gain.is_clear
