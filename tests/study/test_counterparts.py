"""Settings of Ray Tune and Optuna are refused with what to write instead."""

from typing import Any

import numpy as np
import optuna
import pytest
from ray import tune
from ray.tune import schedulers
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.search.optuna import OptunaSearch

import tuner
from tests.commands import study_file
from tests.commands import tuner as command
from tuner import ASHA, StudyError, choice, load_study, quniform, randn, uniform


def train(config: dict[str, Any]) -> None:
    tuner.report(loss=config["x"])


def declared(**settings: Any) -> tuner.Study:
    return tuner.Study("ported", **{"trial": train, "space": {"x": uniform(0, 1)}, "metric": "loss", **settings})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"scheduler": schedulers.ASHAScheduler(max_t=9, grace_period=3)},
            "; write scheduler=ASHA(grace_epochs=GRACE_PERIOD, reduction_factor=REDUCTION_FACTOR) with budget=",
        ),
        (
            {"scheduler": schedulers.HyperBandScheduler()},
            "; write scheduler=HyperBand(reduction_factor=REDUCTION_FACTOR)",
        ),
        ({"scheduler": schedulers.MedianStoppingRule()}, "; write scheduler=MedianStopping()"),
        ({"scheduler": schedulers.FIFOScheduler()}, "; write scheduler=NoEarlyStopping()"),
        ({"scheduler": optuna.pruners.HyperbandPruner()}, "with budget=Budget(max_epochs=MAX_RESOURCE)"),
        ({"scheduler": schedulers.ASHAScheduler}, "; write scheduler=ASHA(grace_epochs=GRACE_PERIOD"),
        ({"scheduler": ASHA}, "; write ASHA()"),
        ({"search": HyperOptSearch()}, "; write search=HyperOpt()"),
        ({"search": OptunaSearch()}, "; write search=Optuna()"),
        ({"search": optuna.samplers.TPESampler()}, "; write search=Optuna()"),
    ],
)
def test_an_object_of_another_library_is_refused_with_its_counterpart(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(StudyError) as caught:
        declared(**settings)
    assert told in str(caught.value)


def test_a_class_that_extends_one_with_a_counterpart_has_none() -> None:
    """Population based training extends Ray's FIFO, which stops nothing."""
    with pytest.raises(StudyError) as caught:
        declared(
            scheduler=schedulers.PopulationBasedTraining(hyperparam_mutations={"lr": [0.1]}, metric="loss", mode="min")
        )
    assert "; write" not in str(caught.value)


def test_a_class_of_ray_becomes_a_function_by_the_line_that_is_told() -> None:
    class Trains(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"loss": 1.0}

    with pytest.raises(
        StudyError, match=r"trainable = Trains\(config\), which calls tuner.report\(trainable.step\(\)\)"
    ):
        declared(trial=Trains)


@pytest.mark.parametrize(
    ("argument", "told"),
    [("num_samples=3", "write budget=Budget(trials=...)"), ("direction='minimize'", "write mode='min' or mode='max'")],
)
def test_an_argument_of_another_library_is_refused_with_ours(tmp_path: Any, argument: str, told: str) -> None:
    body = f'study = Study("s", trial=lambda config: None, space={{"x": uniform(0, 1)}}, metric="m", {argument})\n'
    with pytest.raises(StudyError) as caught:
        load_study(study_file(tmp_path, body))
    assert f"; {told} (" in str(caught.value)


@pytest.mark.parametrize("parent", [uniform(0, 1), randn(0, 1)])
def test_a_condition_that_never_holds_is_refused(parent: Any) -> None:
    with pytest.raises(StudyError, match=r"separate values, got n=0\.5 for .x., but .n. is"):
        declared(space={"n": parent, "x": uniform(0, 1).when(n=0.5)})


@pytest.mark.parametrize("parent", [quniform(0, 1, 0.5), choice([0.5, 1.0]), 0.5])
def test_a_condition_on_separate_values_is_taken(parent: Any) -> None:
    study = declared(space={"n": parent, "x": uniform(0, 1).when(n=0.5), "y": uniform(0, 1)})
    found = [study.search_space.sample(np.random.default_rng(seed)) for seed in range(40)]
    assert all(("x" in config) == (config["n"] == 0.5) for config in found)
    assert any("x" in config for config in found)


@pytest.mark.parametrize(
    ("low", "high", "fix"), [(0.05, 1.0, "use low=0.1"), (0.1, 1.04, "use high=1.0"), (0.01, 0.09, "use a smaller q")]
)
def test_the_proposed_bound_is_inside_the_range(low: float, high: float, fix: str) -> None:
    with pytest.raises(StudyError, match=f"multiples of q, .* for 'x'; {fix}$"):
        declared(space={"x": quniform(low, high, 0.1)})


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"PYTHONOPTIMIZE": "2"},
            "a search needs docstrings, which Ray reads as it is imported, got Python with PYTHONOP",
        ),
        (
            {"LC_ALL": "C", "PYTHONUTF8": "0"},
            "a search needs file names in UTF-8, got Python that takes them for ascii",
        ),
    ],
)
@pytest.mark.ray
def test_a_python_that_ray_cant_work_with_is_refused_with_the_setting(
    tmp_path: Any, variables: dict[str, str], told: str
) -> None:
    (folder := tmp_path / "été").mkdir()
    study_file(folder, 'study = Study("s", trial=lambda c: None, space={"x": uniform(0, 1)}, metric="m")\n')
    refused = command("run", "space.py", folder=folder, **variables)
    assert (refused.code, told in refused.err) == (2, True), refused.err
