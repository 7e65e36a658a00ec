import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

from tuner import (
    ASHA,
    Budget,
    Grid,
    HyperBand,
    HyperOpt,
    ImageClassifier,
    MedianStopping,
    Random,
    Resources,
    Study,
    StudyError,
    choice,
    grid_search,
    loguniform,
    sample_from,
    uniform,
)
from tuner.errors import SpaceError


def build(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "name": "digits",
        "trial": ImageClassifier("digits", weights=None),
        "space": {"lr": loguniform(1e-4, 1e-1), "optimizer": choice(["adam", "sgd"])},
        **changes,
    }
    return Study(settings.pop("name"), **settings)


def trains_nothing() -> None:
    return


REFUSALS: list[tuple[Callable[[], object], str]] = [
    # The space
    (
        lambda: build(space={"lr": loguniform(0.0, 1)}),
        "loguniform needs low > 0, got low=0.0 for 'lr'; use uniform or raise low",
    ),
    (
        lambda: build(space={"optimizer": choice([])}),
        "choice needs at least one value, got an empty list for 'optimizer'; list what may be tried",
    ),
    (
        lambda: build(space={"momentum": uniform(0.9, 0.1)}),
        "uniform needs low < high, got low=0.9 and high=0.1 for 'momentum'; swap or widen them",
    ),
    (
        lambda: build(space={"learning_rate": loguniform(1e-4, 1e-1)}),
        "'learning_rate' is not a hyperparameter of ImageClassifier; did you mean 'lr'?",
    ),
    (
        lambda: build(
            space={"momentum": uniform(0.8, 0.9).when(optimiser="sgd"), "optimizer": choice(["adam", "sgd"])}
        ),
        "when needs another dimension of the space, got 'optimiser' for 'momentum'; did you mean 'optimizer'?",
    ),
    (
        lambda: build(space={"lr": choice([0.1, 0.2]).when(momentum=0.5), "momentum": choice([0.5]).when(lr=0.1)}),
        "conditions need an order, got a cycle through 'lr', 'momentum'; break it",
    ),
    # The data and the model
    (
        lambda: build(trial=ImageClassifier("fashion_mnist")),
        "data must be digits, fashion-mnist, cifar10, folder:PATH, table:PATH or a function, got 'fashion_mnist'; did you mean 'fashion-mnist'?",
    ),
    (
        lambda: build(trial=ImageClassifier("digits", model="resnet19", weights=None)),
        "model must be one of torchvision's classification models, got 'resnet19'; did you mean 'resnet18'?",
    ),
    (
        lambda: build(trial=ImageClassifier("nothing-like-it")),
        "data must be digits, fashion-mnist, cifar10, folder:PATH, table:PATH or a function, got 'nothing-like-it'; "
        "images of your own are 'folder:PATH'",
    ),
    (
        lambda: build(trial=3),
        "trial must be an ImageClassifier or a function of config, got 3; write ImageClassifier(...)",
    ),
    (
        lambda: build(trial=ImageClassifier),
        f"trial must be an ImageClassifier or a function of config, got {ImageClassifier!r}; write ImageClassifier(...)",
    ),
    (
        lambda: build(trial=trains_nothing, metric="loss", mode="min"),
        "a trial function takes one argument, the configuration, got trains_nothing: too many positional arguments; "
        "write def trains_nothing(config): ...",
    ),
    # Starting points
    (
        lambda: build(start_from=[{"lr": 2.0}]),
        "start_from[0] needs values inside the space, got lr=2.0 outside of loguniform(0.0001, 0.1); "
        "change the value or widen the space",
    ),
    (
        lambda: build(start_from=[{"lr": 0.01}, {"lrr": 0.01}]),
        "start_from[1]: 'lrr' is not in the space; did you mean 'lr'?",
    ),
    (
        lambda: build(start_from={"lr": 0.01}),
        "start_from needs a list of configurations, got {'lr': 0.01}; write [{...}]",
    ),
    (lambda: build(start_from=3), "start_from needs a list of configurations, got 3; write [{...}]"),
    (lambda: build(start_from=None), "start_from needs a list of configurations, got None; write [{...}]"),
    (lambda: build(start_from="lr"), "start_from needs a list of configurations, got 'lr'; write [{...}]"),
    (
        lambda: build(
            space={"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0.8, 0.9).when(optimizer="sgd")},
            start_from=[{"optimizer": "adam", "momentum": 0.85}],
        ),
        "start_from[0]: 'momentum' is part of a configuration only when optimizer in ['sgd']; leave it out",
    ),
    (
        lambda: build(space={"lr": loguniform(1e-4, 1e-1), "batch_size": 32}, start_from=[{"batch_size": 64}]),
        "start_from[0]: 'batch_size' is the constant 32 in the space, got 64; leave it out",
    ),
    # Search algorithms
    (
        lambda: build(space={"lr": grid_search([0.1, 0.2])}, search=HyperOpt()),
        "HyperOpt chooses values itself and can't take grid_search([0.1, 0.2]) for 'lr'; "
        "use choice([...]), or search=Grid()",
    ),
    (
        lambda: build(space={"lr": loguniform(1e-4, 1e-1)}, search=Grid()),
        "Grid needs a finite set of values, got loguniform(0.0001, 0.1) for 'lr'; "
        "use grid_search([...]), choice([...]) or a q… domain, or search=Random()",
    ),
    # Early stopping
    (
        lambda: build(scheduler=ASHA(grace_epochs=5), budget=Budget(max_epochs=5)),
        "ASHA needs a grace period below the trials' length, got grace_epochs=5 with max_epochs=5, "
        "which leaves nothing to stop; use at most 4",
    ),
    (
        lambda: build(scheduler=HyperBand(grace_epochs=9), budget=Budget(max_epochs=3)),
        "HyperBand needs a grace period below the trials' length, got grace_epochs=9 with max_epochs=3, "
        "which leaves nothing to stop; use at most 2",
    ),
    (
        lambda: build(scheduler=MedianStopping(grace_epochs=1), budget=Budget(max_epochs=1)),
        "MedianStopping needs a grace period below the trials' length, got grace_epochs=1 with max_epochs=1, "
        "which leaves nothing to stop; use NoEarlyStopping()",
    ),
    # The study itself
    (
        lambda: build(name="my study"),
        "a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got 'my study'; try 'my-study'",
    ),
    (
        lambda: build(mode="maximum"),
        "mode needs 'min' or 'max', got 'maximum'; use 'max' for an accuracy, 'min' for a loss",
    ),
    (
        lambda: build(name="///"),
        "a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got '///'; try 'my-study'",
    ),
    (
        lambda: build(name=".."),
        "a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got '..'; try 'my-study'",
    ),
    (
        lambda: build(name=7),
        "a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got 7; try '7'",
    ),
    (
        lambda: build(metric="f1"),
        "metric needs to be one that resnet18 on digits reports, got 'f1'; did you mean 'val_f1'?",
    ),
    (
        lambda: build(metric="bleu"),
        "metric needs to be one that resnet18 on digits reports, got 'bleu'; it has val_accuracy, val_loss, "
        "val_top5_accuracy, val_f1, train_loss, learning_rate, seconds, images_per_second, micro_batch_size, "
        "oom_retries, memory_peak_bytes, memory_bytes, device_utilisation, device_memory_bytes",
    ),
    (lambda: build(metric=1), "metric needs a str, got 1"),
    (
        lambda: build(trial=lambda config: None, metric="", mode="min"),
        "metric needs the name of what trials report, got ''; write metric='loss'",
    ),
    (
        lambda: build(trial=lambda config: None, metric=" ", mode="min"),
        "metric needs the name of what trials report, got ' '; write metric='loss'",
    ),
    (
        lambda: build(metric="val_accuracy", mode="min"),
        "val_accuracy is better high, got mode='min'; use mode='max', or leave it out",
    ),
    (lambda: build(search=Random), f"search needs a SearchAlgorithm, got {Random!r}; write Random()"),
    (lambda: build(search="random"), "search needs a SearchAlgorithm, got 'random'"),
    (lambda: build(scheduler=ASHA), f"scheduler needs a Scheduler, got {ASHA!r}; write ASHA()"),
    (lambda: build(scheduler=None), "scheduler needs a Scheduler, got None"),
    (lambda: build(budget=10), "budget needs a Budget, got 10"),
    (lambda: build(resources=Resources), f"resources needs a Resources, got {Resources!r}; write Resources()"),
    (lambda: build(space=[1]), "space needs a dict of names and domains, got [1]; write space={...}"),
    (lambda: build(seed=True), "seed needs a whole number of at least 0, got True; use 0"),
    (lambda: build(seed=1.5), "seed needs a whole number of at least 0, got 1.5; use 0"),
    (
        lambda: build(metric="val_loss", mode="max"),
        "val_loss is better low, got mode='max'; use mode='min', or leave it out",
    ),
    (
        lambda: build(metric="val_f1", mode="min"),
        "val_f1 is better high, got mode='min'; use mode='max', or leave it out",
    ),
    (
        lambda: build(metric="learning_rate"),
        "metric needs one to maximise or minimise, got 'learning_rate'; use one of val_accuracy, val_loss, "
        "val_top5_accuracy, val_f1, train_loss, seconds, images_per_second, oom_retries, memory_peak_bytes, "
        "memory_bytes, device_utilisation, device_memory_bytes",
    ),
    (lambda: build(seed=-1), "seed needs a whole number of at least 0, got -1; use 0"),
    (lambda: Budget(trials=0), "Budget.trials needs a whole number of at least 1, got 0; use 1 or more"),
    (lambda: Budget(max_epochs=2.5), "Budget.max_epochs needs a whole number of at least 1, got 2.5; use 1 or more"),  # type: ignore[arg-type]
    (
        lambda: Budget(device_hours=-1),
        "Budget.device_hours needs a number above 0, got -1; leave it out for no limit",
    ),
    (
        lambda: Budget(min_improvement=0),
        "Budget.min_improvement needs a number above 0, got 0; leave it out for no limit",
    ),
    (
        lambda: Budget(total_epochs=1.5),  # type: ignore[arg-type]
        "Budget.total_epochs needs a whole number of at least 1, got 1.5; use 1 or more",
    ),
    (
        lambda: Budget(target="0.9"),  # type: ignore[arg-type]
        "Budget.target needs a value of the metric, got '0.9'; leave it out for no limit",
    ),
    (
        lambda: build(budget=Budget(min_improvement=0.001), search=HyperOpt()),
        "Budget.min_improvement needs a search with a model of the metric, "
        "got HyperOpt(startup_trials=None, candidates=24, gamma=0.25); use MultiFidelityGP()",
    ),
    (lambda: Budget(hours=0), "Budget.hours needs a number above 0, got 0; leave it out for no limit"),
    (lambda: Resources(cpus=0), "Resources.cpus needs a number above 0, got 0; a trial needs some CPU to run on"),
    (lambda: Budget(trials=True), "Budget.trials needs a whole number of at least 1, got True; use 1 or more"),
    (lambda: Budget(max_epochs=None), "Budget.max_epochs needs a whole number of at least 1, got None; use 1 or more"),  # type: ignore[arg-type]
    (lambda: Budget(hours="2"), "Budget.hours needs a number above 0, got '2'; leave it out for no limit"),  # type: ignore[arg-type]
    (lambda: Budget(hours=math.inf), "Budget.hours needs a number above 0, got inf; leave it out for no limit"),
    (
        lambda: Resources(cpus=math.nan),
        "Resources.cpus needs a number above 0, got nan; a trial needs some CPU to run on",
    ),
    (lambda: Resources(cpus="2"), "Resources.cpus needs a number above 0, got '2'; a trial needs some CPU to run on"),  # type: ignore[arg-type]
    (lambda: Resources(gpus="1"), "Resources.gpus needs a number of at least 0, got '1'; use 0.5 for half a GPU"),  # type: ignore[arg-type]
    (lambda: Resources(gpus=1.5), "Resources.gpus above 1 needs a whole number, got 1.5; use 1 or 2"),
    (lambda: Resources(gpus="Auto"), "Resources.gpus needs a number or 'auto', got 'Auto'; write 'auto'"),  # type: ignore[arg-type]
    (lambda: Resources(cpus=" AUTO"), "Resources.cpus needs a number or 'auto', got ' AUTO'; write 'auto'"),  # type: ignore[arg-type]
    (
        lambda: Resources(cpus="auto", gpus=1),
        "Resources.cpus='auto' packs trials that train on the CPU, got gpus=1 too; use gpus='auto' alone, or gpus=0",
    ),
    (lambda: Resources(gpus=-1), "Resources.gpus needs a number of at least 0, got -1; use 0.5 for half a GPU"),
]


@pytest.mark.parametrize(("make", "message"), REFUSALS, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_what_cannot_work_is_refused_with_rule_value_and_fix(make: Callable[[], object], message: str) -> None:
    with pytest.raises(StudyError) as caught:
        make()
    assert str(caught.value) == message


def test_epochs_buy_as_many_trials_as_they_pay_for_unless_their_number_was_written() -> None:
    assert (Budget().trials, Budget(hours=1.0).trials) == (20, 20)
    assert Budget(total_epochs=90).trials is None
    assert Budget(trials=20, total_epochs=90).trials == 20
    assert build(budget=Budget()).with_options(total_epochs=90).budget.trials == 20
    assert build(budget=Budget(total_epochs=90)).with_options(trials=3, total_epochs=60).budget.trials == 3


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("val_f1", "max"),
        ("val_top5_accuracy", "max"),
        ("val_loss", "min"),
        ("seconds", "min"),
        ("images_per_second", "max"),
    ],
)
def test_a_metric_is_searched_in_its_own_direction(metric: str, mode: Literal["min", "max"]) -> None:
    assert build(metric=metric).mode == mode
    assert build(metric=metric, mode=mode).problem.mode == mode


def test_a_functions_metric_is_maximised_unless_it_says_otherwise() -> None:
    def train(config: dict[str, Any]) -> None:
        return

    assert build(trial=train, metric="score").mode == "max"
    assert build(trial=train, metric="loss", mode="min").mode == "min"
    assert build(trial=train, metric="learning_rate", mode="min").mode == "min"


def test_a_misspelt_metric_is_refused_with_the_one_meant() -> None:
    with pytest.raises(StudyError, match=r"got 'val_acuracy'; did you mean 'val_accuracy'\?$"):
        build(metric="val_acuracy")


def test_sample_from_is_refused_where_a_model_would_have_to_learn_from_it() -> None:
    def twice(config: dict[str, float]) -> float:
        return 2 * config["momentum"]

    with pytest.raises(SpaceError) as caught:
        build(space={"momentum": uniform(0, 0.4), "label_smoothing": sample_from(twice)}, search=HyperOpt())
    assert str(caught.value) == (
        "HyperOpt learns from values it chose and can't take sample_from(twice) for 'label_smoothing'; "
        "compute it inside the trial, or use search=Random()"
    )
    assert build(space={"momentum": uniform(0, 0.4), "label_smoothing": sample_from(twice)}, search=Random())


def test_sample_from_that_only_gives_what_no_file_can_hold_is_refused_before_the_search() -> None:
    with pytest.raises(SpaceError, match=r"^sample_from needs values that the files of a run can hold, got <object"):
        build(space={"momentum": uniform(0, 0.4), "lr": sample_from(object)}, search=Random())


def test_a_study_can_try_no_more_trials_than_its_space_has() -> None:
    assert build(space={"batch_size": choice([8, 16, 32])}, budget=Budget(trials=10)).trials == 3
    assert build(budget=Budget(trials=None)).trials is None


def test_of_two_values_the_mode_says_which_is_better() -> None:
    accuracy, loss = build(), build(metric="val_loss", mode="min")
    assert [accuracy.better(0.9, 0.8), accuracy.better(0.8, 0.9), accuracy.better(0.8, 0.8)] == [True, False, False]
    assert [loss.better(0.9, 0.8), loss.better(0.8, 0.9), loss.better(0.8, 0.8)] == [False, True, False]
    assert accuracy.better(0.0, None)
    assert loss.better(9.0, None)


def test_a_study_does_not_change() -> None:
    with pytest.raises(AttributeError):
        build().seed = 1  # type: ignore[misc]


def test_a_studys_name_may_have_letters_of_any_language_and_fits_a_folder() -> None:
    for name in ("größe", "Ärzte-2", "猫", "a" * 100):
        assert Study(name, trial=lambda config: None, space={"x": uniform(0, 1)}).name == name
    for name in ("猫" * 34, "a" * 101):
        with pytest.raises(
            StudyError, match=r"^a study's name takes at most 100 bytes as UTF-8, got 10[12]; shorten it"
        ):
            Study(name, trial=lambda config: None, space={"x": uniform(0, 1)})


def test_a_budget_in_minutes_is_one_in_hours() -> None:
    assert Budget(minutes=30) == Budget(hours=0.5)
    assert Budget(minutes=5).hours == 0.08333
    assert replace(Budget(minutes=30), trials=3) == Budget(hours=0.5, trials=3)
    with pytest.raises(StudyError) as caught:
        Budget(hours=1, minutes=5)
    assert str(caught.value) == ("Budget takes hours or minutes, got hours=1 and minutes=5; leave one of them out")
    for wrong in (0, -1, "5", True, float("nan")):
        with pytest.raises(StudyError, match=r"^Budget\.minutes needs a number above 0, got "):
            Budget(minutes=wrong)


def test_a_budget_in_full_trainings_is_one_in_epochs_of_all_trials() -> None:
    assert Budget(full_trainings=10, max_epochs=9) == Budget(total_epochs=90, max_epochs=9)
    assert Budget(full_trainings=10, max_epochs=9).trials is None
    assert Budget(trials=12, full_trainings=np.int64(3)) == Budget(trials=12, total_epochs=30)
    with pytest.raises(StudyError) as caught:
        Budget(total_epochs=90, full_trainings=10)
    assert str(caught.value) == (
        "Budget takes total_epochs or full_trainings, got total_epochs=90 and full_trainings=10; leave one of them out"
    )
    for wrong in (0, 2.5, "3", True):
        with pytest.raises(StudyError, match=r"^Budget\.full_trainings needs a whole number of at least 1, got "):
            Budget(full_trainings=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "told"), [("val_loss", True), ("test/RMSE", True), ("lossless", False), ("f1", False)]
)
def test_a_function_s_metric_that_sounds_low_and_is_maximised_is_told(metric: str, told: bool) -> None:
    def declared(**mode: Any) -> Study:
        return Study("f", trial=lambda config: None, space={"x": uniform(0, 1)}, metric=metric, **mode)

    said = f"{metric} is maximised; if it is better low, set mode='min'"
    assert (said in declared().notices) is told
    assert said not in declared(mode="min").notices


@pytest.mark.parametrize(("classes", "refused"), [(2, True), (5, True), (6, False)])
def test_a_top5_accuracy_of_up_to_five_classes_is_refused(tmp_path: Path, classes: int, refused: bool) -> None:
    for name in range(classes):
        (tmp_path / f"c{name}").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / f"c{name}" / "1.png")
    study = Study(
        "s",
        trial=ImageClassifier(data=f"folder:{tmp_path}", weights=None),
        space={"lr": loguniform(1e-4, 1)},
        metric="val_top5_accuracy",
        resources=Resources(cpus=1),
    )
    if not refused:
        study.check_here()
        return
    with pytest.raises(
        StudyError, match=f"needs more than 5 classes, got {classes}, of which it would always be 1; use"
    ):
        study.check_here()
