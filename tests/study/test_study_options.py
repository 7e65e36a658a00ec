"""What lies over a study: `with_options`, and the command line's options."""

import pytest

from tests.study.test_declaration import build
from tuner import (
    Budget,
    ImageClassifier,
    Resources,
    StudyError,
    choice,
    loguniform,
    randint,
    uniform,
)
from tuner.errors import SpaceError


def test_without_options_a_study_stays_the_same_object() -> None:
    study = build()
    assert study.with_options() is study
    assert study.with_options(fixed={}) is study


def test_options_lie_over_what_the_file_says_and_leave_the_rest() -> None:
    study = build(budget=Budget(trials=30, max_epochs=7, hours=2.0), resources=Resources(cpus=2, gpus=0.5), seed=3)
    assert study.with_options(trials=5).budget == Budget(trials=5, max_epochs=7, hours=2.0)
    assert study.with_options(target=0.9, total_epochs=50, device_hours=3).budget == Budget(
        trials=30, max_epochs=7, hours=2.0, device_hours=3, total_epochs=50, target=0.9
    )
    assert study.with_options(hours=0.5).budget == Budget(trials=30, max_epochs=7, hours=0.5)
    assert study.with_options(cpus=1).resources == Resources(cpus=1, gpus=0.5)
    assert study.with_options(gpus=0).resources == Resources(cpus=2, gpus=0)
    changed = study.with_options(name="other", seed=0)
    assert (changed.name, changed.seed, changed.budget) == ("other", 0, study.budget)
    assert (study.name, study.seed) == ("digits", 3)


def test_options_are_checked_like_the_file() -> None:
    with pytest.raises(StudyError, match=r"^a study's name becomes a folder: .* got 'a b'; try 'a-b'$"):
        build().with_options(name="a b")
    with pytest.raises(StudyError, match=r"^Budget.trials needs a whole number of at least 1, got 0"):
        build().with_options(trials=0)
    with pytest.raises(StudyError, match=r"^Resources.gpus above 1 needs a whole number, got 2.5; use 2 or 3$"):
        build().with_options(gpus=2.5)


def test_set_of_a_constant_changes_it() -> None:
    study = build(space={"lr": loguniform(1e-4, 1e-1), "batch_size": 32}, start_from=[{"lr": 0.01}])
    fixed = study.with_options(fixed={"batch_size": 64})
    assert fixed.search_space.constants == {"batch_size": 64}
    assert fixed.starting_points == [{"lr": 0.01, "batch_size": 64}]


def test_set_of_every_dimension_leaves_one_configuration() -> None:
    fixed = build().with_options(fixed={"lr": 0.01, "optimizer": "adam"})
    assert (list(fixed.search_space.dimensions), fixed.trials) == ([], 1)


def test_set_takes_what_a_function_declared_and_nothing_else() -> None:
    study = build(trial=lambda config: None, metric="loss", mode="min", space={"net": {"width": randint(1, 9)}})
    assert study.with_options(fixed={"net.width": 4}).search_space.constants == {"net.width": 4}
    with pytest.raises(SpaceError, match=r"^'lr' is not a hyperparameter of the study; it has net.width$"):
        study.with_options(fixed={"lr": 0.1})


def test_set_fixes_a_dimension_even_outside_of_its_range_and_starting_points_follow() -> None:
    study = build(
        space={"epochs": randint(4, 10), "lr": loguniform(1e-4, 1e-1)}, start_from=[{"epochs": 9, "lr": 0.01}]
    )
    fixed = study.with_options(fixed={"epochs": 1})
    assert fixed.search_space.constants == {"epochs": 1}
    assert list(fixed.search_space.dimensions) == ["lr"]
    assert fixed.starting_points == [{"epochs": 1, "lr": 0.01}]


def test_set_settles_conditions_and_drops_what_they_rule_out() -> None:
    space = {"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0.8, 0.99).when(optimizer="sgd")}
    study = build(space=space, start_from=[{"optimizer": "sgd", "momentum": 0.9}])
    adam = study.with_options(fixed={"optimizer": "adam"})
    assert (list(adam.search_space.dimensions), adam.starting_points) == ([], [{"optimizer": "adam"}])
    sgd = study.with_options(fixed={"optimizer": "sgd"})
    assert sgd.starting_points == [{"optimizer": "sgd", "momentum": 0.9}]
    assert sgd.search_space.dimensions["momentum"].conditions == ()


def test_set_may_add_a_hyperparameter_that_the_space_leaves_out() -> None:
    assert build().with_options(fixed={"image_size": 16}).search_space.constants == {"image_size": 16}


def test_set_of_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        SpaceError, match=r"^'optimiser' is not a hyperparameter of the study; did you mean 'optimizer'\?$"
    ):
        build().with_options(fixed={"optimiser": "sgd"})


def test_set_knows_what_other_libraries_call_a_hyperparameter_and_names_each_once() -> None:
    with pytest.raises(
        SpaceError, match=r"^'learning_rate' is not a hyperparameter of the study; did you mean 'lr'\?$"
    ):
        build().with_options(fixed={"learning_rate": 0.1})
    with pytest.raises(SpaceError, match=r"; it has lr, ") as refused:
        build().with_options(fixed={"qqqq": 0.1})
    names = str(refused.value).partition("; it has ")[2].split(", ")
    assert len(names) == len(set(names)) > 30


def test_set_of_an_impossible_value_is_refused() -> None:
    with pytest.raises(StudyError, match=r"^optimizer must be adam, adamw, sgd or lbfgs, got 'lion'"):
        build().with_options(fixed={"optimizer": "lion"})


def test_weights_and_data_dir_change_the_trial() -> None:
    trial = build().with_options(weights="imagenet", data_dir="elsewhere").declared_trial
    assert isinstance(trial, ImageClassifier)
    assert (trial.weights, str(trial.data_dir)) == ("imagenet", "elsewhere")
    none = build().with_options(weights="none").declared_trial
    assert isinstance(none, ImageClassifier)
    assert none.weights is None


def test_weights_of_a_function_are_refused() -> None:
    study = build(trial=lambda config: None, metric="loss", mode="min")
    with pytest.raises(StudyError, match=r"^--weights needs an ImageClassifier, got the function '<lambda>'"):
        study.with_options(weights="none")


def test_data_dir_and_weights_of_a_function_are_refused_together() -> None:
    study = build(trial=lambda config: None, metric="loss", mode="min")
    with pytest.raises(StudyError) as caught:
        study.with_options(weights="none", data_dir="data")
    assert str(caught.value) == (
        "--weights and --data-dir need an ImageClassifier, got the function '<lambda>'; "
        "read the setting inside the function instead"
    )
