import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tuner import Folds
from tuner.errors import StudyError, WeightsError
from tuner.space import (
    Domain,
    Space,
    choice,
    grid_search,
    loguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tuner.trial import HYPERPARAMETERS, ImageClassifier
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.tasks import ONE_LABEL, TASKS, Task


def refusal(trial: ImageClassifier, space: dict[str, Any]) -> str:
    with pytest.raises(StudyError) as caught:
        trial.check(Space(space))
    return str(caught.value)


def test_declaring_a_trial_loads_neither_torch_nor_ray() -> None:
    code = (
        "import sys; from tuner.trial import ImageClassifier; ImageClassifier().model_facts;"
        "print(sorted({'torch', 'torchvision', 'ray', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def every_value_of(row: Hyperparameter) -> Domain | str:
    if row.kind == "text":
        return "resnet18" if row.name == "model" else "layer3.0"
    if row.kind == "bool" or row.choices:
        return grid_search(list(row.choices)) if row.choices else choice([True, False])
    return uniform(row.low, row.high) if row.kind == "float" else randint(int(row.low), int(row.high) + 1)


def test_a_space_of_every_hyperparameter_is_accepted() -> None:
    for task in TASKS.values():
        others = {*task.unused, *(row.name for each in TASKS.values() if each != task for row in each.hyperparameters)}
        known = {name: row for name, row in HYPERPARAMETERS.items() if name not in others}
        check_every_hyperparameter(task, known)


def check_every_hyperparameter(task: Task, known: dict[str, Hyperparameter]) -> None:
    space: dict[str, Any] = {name: every_value_of(row) for name, row in known.items()} | {
        "lr": loguniform(1e-4, 1e-1),
        "batch_size": qrandint(16, 128, 16),
        "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
        "weight_decay": sample_from(lambda config: 0.0),
        "image_size": quniform(16, 32, 4).when(model="efficientnet_b0"),
        "stochastic_depth": uniform(0, 0.9).when(model="efficientnet_b0"),
        "pooling": choice(["token", "mean", "token+mean"]).when(model="vit_b_32"),
        "blocks": choice([1, 4]).when(model="vit_b_32"),
        "optimizer": choice(["adam", "adamw", "sgd", *["lbfgs"] * (task is ONE_LABEL)]),
        "views": choice([0, *[8] * (task is ONE_LABEL)]),
    }
    ImageClassifier(my_data, task=task.name).check(Space({**space, "model": choice(["efficientnet_b0", "vit_b_32"])}))
    for name, row in known.items():
        if row.kind != "text":
            assert refusal(ImageClassifier(my_data, task=task.name), {name: "a word"}).startswith(f"{name} must be ")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            {"learning_rate": loguniform(1e-4, 1e-1)},
            "'learning_rate' is not a hyperparameter of ImageClassifier; did you mean 'lr'?",
        ),
        ({"learning_rate": 0.1}, "'learning_rate' is not a hyperparameter of ImageClassifier; did you mean 'lr'?"),
        ({"lr": uniform(0, 0.1)}, "lr must be a float from 1e-08 to 10, got 0"),
        ({"batch_size": choice([32, 0])}, "batch_size must be an int from 2 to 65536, got 0; move"),
        (
            {"batch_size": uniform(16, 128)},
            "batch_size must be an int from 2 to 65536, got uniform(16, 128); use randint",
        ),
        (
            {"batch_size": loguniform(16, 128)},
            "batch_size must be an int from 2 to 65536, got loguniform(16, 128); use lo",
        ),
        (
            {"optimizer": choice(["adam", "lion"])},
            "optimizer must be adam, adamw, sgd or lbfgs, got 'lion'; choose among",
        ),
        (
            {"optimizer": randint(0, 2)},
            "optimizer must be adam, adamw, sgd or lbfgs, got randint(0, 2); use choice([...])",
        ),
        ({"finetune": grid_search(["none"])}, "finetune must be all, head, gradual or lp-ft, got 'none'; choose among"),
        ({"nesterov": choice([0, 1])}, "nesterov must be True or False, got 0; write True or False"),
        ({"nesterov": randint(0, 2)}, "nesterov must be True or False, got randint(0, 2); use choice([...])"),
        ({"momentum": 1.5}, "momentum must be a float from 0 to 0.9999, got 1.5; move it into that range"),
        (
            {"weight_decay": randn(0, 1)},
            "weight_decay must be a float from 0 to 1, got randn(0, 1), which has no bounds",
        ),
        ({"epochs": randint(0, 5)}, "epochs must be an int from 1 to 10000, got 0; move it into that range"),
        ({"net": {"lr": uniform(0.1, 0.2)}}, "'net.lr' is not a hyperparameter of ImageClassifier; did you mean 'lr'?"),
    ],
)
def test_a_space_that_cant_work_is_refused(space: dict[str, Any], message: str) -> None:
    assert refusal(ImageClassifier(), space).startswith(message)


def test_an_image_size_that_the_model_cant_take_is_refused() -> None:
    message = refusal(ImageClassifier(model="vgg11"), {"image_size": choice([64, 28])})
    assert message.startswith("vgg11 needs images of at least 32 pixels, got image_size=28")


def test_unknown_data_and_models_are_refused() -> None:
    assert refusal(ImageClassifier(data="mnits"), {"lr": 0.1}).startswith("data must be digits, fashion-mnist, cifar10")
    assert refusal(ImageClassifier(model="resnet"), {"lr": 0.1}).startswith("model must be one of torchvision's")


def test_a_configuration_is_filled_up_with_defaults_of_the_right_type() -> None:
    values = ImageClassifier(weights=None).hyperparameters({"batch_size": 32.0, "epochs": 2})
    assert values == {name: row.default for name, row in HYPERPARAMETERS.items()} | {
        "batch_size": 32,
        "epochs": 2,
        "image_size": 24,
        "model": "resnet18",
    }
    assert type(values["batch_size"]) is int


@pytest.mark.parametrize(
    ("data", "model", "pixels"),
    [
        ("digits", "resnet18", 24),
        ("fashion-mnist", "resnet18", 28),
        ("cifar10", "resnet18", 32),
        ("folder:pets", "resnet18", 64),
        ("digits", "vit_b_16", 224),
    ],
)
def test_the_default_image_size_follows_data_and_model(data: str, model: str, pixels: int) -> None:
    assert ImageClassifier(data, model, weights=None).default_image_size == pixels


def test_what_would_be_downloaded_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    trial = ImageClassifier("fashion-mnist", data_dir=tmp_path)
    trial.check_files()
    weights = tmp_path / "torch/hub/checkpoints/resnet18-f37072fd.pth"
    assert trial.missing_downloads() == [
        f"Fashion-MNIST (30 MB) into {tmp_path / 'FashionMNIST/raw'}",
        f"weights of resnet18 into {weights}",
    ]
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert ImageClassifier("digits").missing_downloads() == []


@pytest.mark.parametrize("weights", [None, "none"])
def test_random_weights_need_no_file(weights: str | None) -> None:
    trial = ImageClassifier(weights=weights)
    trial.check_files()
    assert trial.weights_file is None
    assert trial.missing_downloads() == []


def test_weights_that_arent_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "imagnet.pt"
    with pytest.raises(WeightsError) as caught:
        ImageClassifier(weights=path).check_files()
    assert str(caught.value) == (
        f"weights must be pretrained, none or the path of a saved state_dict, got '{path}', and there is no file {path}; "
        "correct it, or use --weights none for random weights"
    )


def test_a_resolved_trial_works_from_any_folder(tmp_path: Path) -> None:
    trial = ImageClassifier("folder:pets", weights="best.pt", data_dir="../data").resolved(tmp_path)
    assert trial.data == f"folder:{tmp_path / 'pets'}"
    assert trial.weights == str(tmp_path / "best.pt")
    assert trial.data_folder == tmp_path / "../data"
    assert ImageClassifier().resolved(tmp_path) == ImageClassifier(data_dir=str(tmp_path / "data"))


def test_the_metrics_are_the_ones_that_an_epoch_reports() -> None:
    from tuner.train import EpochResult

    names = {field.name for field in fields(EpochResult)} | {f"val_{name}" for name in ONE_LABEL.metrics}
    assert set(ImageClassifier().reports) == names - {
        "epoch",
        "validation",
        "batch_norm",
        "step_path",
        "threads",
        "memory_reserved_bytes",
    }  # no metrics, or no numbers


def my_data() -> tuple[Any, Any, Any]:
    return ((), (), ())


def my_model(config: dict[str, Any]) -> object:
    return config["width"]


def test_data_and_model_can_be_functions_which_add_names_to_the_space() -> None:
    trial = ImageClassifier(my_data, my_model)
    trial.check(Space({"width": randint(8, 64), "lr": loguniform(1e-4, 1e-1)}))
    assert trial.name == "my_model() on my_data()"
    assert trial.functions == (my_data, my_model)
    assert (trial.named_weights, trial.weights_file, trial.missing_downloads(), trial.fingerprint()) == (
        None,
        None,
        [],
        None,
    )
    values = trial.hyperparameters({"width": 12, "lr": 1})
    assert (values["width"], values["lr"], values["image_size"]) == (12, 1.0, None)
    assert ImageClassifier(my_data, "vit_b_16").hyperparameters({})["image_size"] == 224  # it takes no other


@pytest.mark.parametrize(
    ("trial", "space", "message"),
    [
        (ImageClassifier(model=my_model), {"learning_rate": 0.1}, "'learning_rate' is not a hyperparameter of Image"),
        (ImageClassifier(model=my_model), {"lr": 100}, "lr must be a float from 1e-08 to 10, got 100"),
        (ImageClassifier(), {"width": 3}, "'width' is not a hyperparameter of ImageClassifier"),
        (ImageClassifier(data=my_model), {}, "a data function takes no argument, got my_model(config: dict"),
        (ImageClassifier(model=my_data), {}, "a model function takes the hyperparameters, got my_data() -> "),
        (ImageClassifier(model=7), {}, "model must be a name or a function, got 7; write model=my_model"),  # type: ignore[arg-type]
        (
            ImageClassifier(data_memory_gb=-1),
            {},
            "data_memory_gb must be a number >= 0, got -1; raise it or leave it out",
        ),
    ],
)
def test_functions_that_cant_work_are_refused(trial: ImageClassifier, space: dict[str, Any], message: str) -> None:
    assert refusal(trial, space or {"lr": 0.1}).startswith(message)


@pytest.mark.parametrize("validation", [0, 1, 1.5, -0.2, True, "0.2", "val", float("nan"), [0.2]])
def test_a_share_for_validation_that_is_none_is_refused(validation: Any) -> None:
    assert refusal(ImageClassifier(validation=validation), {}) == (
        "validation must be a share of the training images between 0 and 1, 'folder' or Folds(5), got "
        f"{validation!r}; write validation=0.2"
    )


def test_all_parts_of_a_cross_validation_are_asked_for() -> None:
    with pytest.raises(TypeError, match="part"):
        Folds(3, part=1)  # type: ignore[call-arg]  # would train one network alone, without a word
    part = ImageClassifier(validation=Folds(3)).fold(1).validation
    assert isinstance(part, Folds)
    assert (part.count, part.part, part == Folds(3)) == (3, 1, False)


@pytest.mark.parametrize("group", ["", "(", 3, b"x"])
def test_a_group_that_is_no_pattern_is_refused(group: Any) -> None:
    message = refusal(ImageClassifier("folder:photos", group=group), {})
    assert message.startswith(f"group must be a regular expression for names of files, got {group!r} (")
    assert message.endswith("); correct it, as in group=r'^([^_]+)_'")


def test_a_cut_is_refused_where_there_is_nothing_to_cut() -> None:
    assert refusal(ImageClassifier(group="a"), {}) == (
        "group is a pattern of file names, got data='digits', which isn't a folder; leave it out"
    )
    assert refusal(ImageClassifier(lambda: None, validation=0.2), {}) == (
        "validation and group are for data that tuner cuts, got the function <lambda>(), which returns the splits itself; "
        "leave them out"
    )


def test_trials_of_another_cut_are_not_comparable_and_those_of_none_are_as_before() -> None:
    assert set(ImageClassifier(weights=None).identity()) == {"data", "model", "weights"}
    assert ImageClassifier(validation=0.2).identity()["validation"] == "0.2"
    assert ImageClassifier("folder:x", group="a").identity()["group"] == "a"
