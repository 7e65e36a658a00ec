from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner import (
    BOHB,
    Budget,
    Folds,
    History,
    HyperBand,
    ImageClassifier,
    Random,
    RecallAtPrecision,
    Resources,
    Study,
    StudyError,
    choice,
    grid_search,
    loguniform,
    quniform,
    randint,
    randn,
    uniform,
)
from tuner.results.study_text import study_text
from tuner.study.file import load_study

ROOT = Path(__file__).parents[2]
OWN = """
from tuner import *

def train(config):
    report(loss=config["x"])

study = Study(
    "own", trial=train, metric="loss", mode="min",
    space={"x": uniform(0, 1), "kind": choice([min, max]), "double": sample_from(lambda config: 2 * config["x"])},
    search=Random(), constraint=lambda config: config["x"] < 0.9,
)
"""


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules of the folder can be imported, for this test alone."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    import sys

    for name in ("own", "json"):
        module = sys.modules.get(name)
        if module is not None and str(tmp_path) in str(module.__file__):
            del sys.modules[name]


def written(study: Study, folder: Path, **options: Any) -> Study:
    path = folder / "next.py"
    path.write_text(study_text(study, "A title.", path, **options))
    return load_study(path)


@pytest.mark.parametrize("name", ["digits", "fashion_resnet18", "grid", "transfer"])
def test_the_text_of_a_study_declares_the_same_study(name: str, tmp_path: Path) -> None:
    study = load_study(ROOT / f"search_spaces/{name}.py")
    assert written(study, tmp_path) == study


def test_every_part_of_a_study_is_written(tmp_path: Path) -> None:
    study = Study(
        "all-of_it",
        trial=ImageClassifier("folder:some 'odd' place", model="resnet50", weights=Path("w.pt"), data_dir="d"),
        space={
            "lr": loguniform(1e-05, 0.1 + 0.2),
            "optimizer": choice(["adam", "sgd"]),
            "momentum": quniform(0.5, 0.9, 0.1).when(optimizer="sgd"),
            "weight_decay": uniform(0, 0.1).when(optimizer=["adam", "sgd"], momentum=[0.5, 0.6]),
            "epochs": randint(2, 9),
            "batch_size": 32,
        },
        metric="val_loss",
        mode="min",
        search=BOHB(min_points=7),
        scheduler=HyperBand(reduction_factor=4),
        budget=Budget(trials=None, max_epochs=27, hours=1.5, target=0.1, total_epochs=300, device_hours=2),
        resources=Resources(cpus=2, gpus=0),
        start_from=[{"lr": 1e-3}, {"optimizer": "sgd", "momentum": 0.7}],
        warm_start=History("elsewhere", studies=["one"], top=3),
        seed=11,
    )
    found = written(study, tmp_path)
    assert replace(found, trial=study.trial) == study  # a path is written as its text
    assert found.trial == replace(study.declared_trial, weights="w.pt")  # type: ignore[type-var]
    assert written(replace(study, warm_start=None), tmp_path).warm_start is None


def test_nested_spaces_and_conditions_on_their_names_come_back(tmp_path: Path, imports: None) -> None:
    (tmp_path / "own.py").write_text(OWN)
    space = {
        "net": {"kind": choice(["a", "b"]), "width": grid_search([1, 2]).when(kind="b")},
        "x": grid_search([0.5]).when(**{"net.kind": "a"}),
        "y": randn(0, 1),
    }
    study = replace(load_study(tmp_path / "own.py"), space=space, constraint=None)
    assert written(study, tmp_path).search_space == study.search_space


def test_code_of_ones_own_is_imported_from_its_file(tmp_path: Path, imports: None) -> None:
    (tmp_path / "own.py").write_text(OWN)
    study = load_study(tmp_path / "own.py")
    text = study_text(study, "A title.", tmp_path / "next.py")
    assert "from own import study as original\n" in text
    for line in (
        "trial=original.trial,",
        "constraint=original.constraint,",
        "'x': uniform(0, 1),",
        "'kind': original.search_space.dimensions['kind'],",
        "'double': original.search_space.dimensions['double'],",
    ):
        assert line in text
    found = written(study, tmp_path)
    assert found.declared_trial.name == "train"
    assert found.search_space.names == study.search_space.names
    assert found.search_space.constraint is not None
    assert not found.search_space.allows({"x": 0.95})


def test_options_that_changed_the_trial_are_written_with_it(tmp_path: Path, imports: None) -> None:
    (tmp_path / "own.py").write_text(
        "from tuner import *\nstudy = Study('own', trial=ImageClassifier(model=lambda config: None), space={'lr': 0.1})\n"
    )
    study = load_study(tmp_path / "own.py").with_options(data_dir="d")
    found = written(study, tmp_path, trial_options={"data_dir": "d"})
    assert isinstance(found.trial, ImageClassifier)
    assert found.trial.data_dir == "d"


def test_code_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    study = load_study(tmp_path / "own.py")
    elsewhere = tmp_path / "elsewhere" / "next.py"
    with pytest.raises(StudyError, match="-o must be in the same folder as"):
        study_text(study, "", elsewhere)
    elsewhere.parent.mkdir()
    (elsewhere.parent / "own.py").write_text(OWN)  # a copy, as a service has one of what its user wrote
    assert "from own import study as original" in study_text(study, "", elsewhere)
    (elsewhere.parent / "own.py").write_text(OWN + "# changed since\n")
    with pytest.raises(StudyError, match=r"or copy own\.py into the folder of the new study$"):
        study_text(study, "", elsewhere)
    for name, reason in (("json.py", "which is the name of another module"), ("my own.py", "which is no Python name")):
        (tmp_path / name).write_text(OWN)
        with pytest.raises(StudyError, match=reason):
            study_text(load_study(tmp_path / name), "", tmp_path / "next.py")
    with pytest.raises(StudyError, match="put it into a file"):
        study_text(
            Study("here", trial=lambda c: None, metric="a", space={"x": uniform(0, 1)}, search=Random()), "", elsewhere
        )


def test_a_cross_validation_and_metrics_by_name_are_written(tmp_path: Path) -> None:
    metrics = ["auroc", RecallAtPrecision(0.9, of="3")]
    trial = ImageClassifier(weights=None, validation=Folds(3), metrics=metrics)
    study = Study("folds", trial=trial, space={"lr": loguniform(1e-3, 1)}, metric="val_auroc")
    assert written(study, tmp_path).trial == trial
    assert "metrics=['auroc', RecallAtPrecision(precision=0.9, of='3')]" in (tmp_path / "next.py").read_text()
