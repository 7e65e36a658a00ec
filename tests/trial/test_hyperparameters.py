from pathlib import Path

import pytest

from tuner.errors import StudyError
from tuner.trial.hyperparameters import HYPERPARAMETERS, find, markdown


def test_the_table_has_the_hyperparameters_of_the_contract() -> None:
    assert list(HYPERPARAMETERS) == [
        "epochs",
        "lr",
        "batch_size",
        "optimizer",
        "momentum",
        "weight_decay",
        "finetune",
        "label_smoothing",
        "image_size",
    ]


def test_every_default_is_a_value_that_its_own_row_accepts() -> None:
    assert [row.name for row in HYPERPARAMETERS.values() if row.default is None] == ["epochs", "image_size"]
    assert all(row.accepts(row.default) for row in HYPERPARAMETERS.values() if row.default is not None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("learning_rate", "lr"), ("LR", "lr"), ("momentun", "momentum"), ("bs", "batch_size"), ("wd", "weight_decay")],
)
def test_an_unknown_name_gets_the_nearest_one(name: str, meant: str) -> None:
    with pytest.raises(StudyError) as caught:
        find(name)
    assert str(caught.value) == f"'{name}' is not a hyperparameter of ImageClassifier; did you mean '{meant}'?"


def test_a_name_like_none_gets_the_whole_list() -> None:
    with pytest.raises(StudyError) as caught:
        find("xyzzy")
    assert str(caught.value) == (
        "'xyzzy' is not a hyperparameter of ImageClassifier; it has epochs, lr, batch_size, optimizer, momentum, "
        "weight_decay, finetune, label_smoothing, image_size"
    )


@pytest.mark.parametrize(
    ("name", "value", "coerced"),
    [("batch_size", 32.0, 32), ("lr", 1, 1.0), ("optimizer", "sgd", "sgd"), ("momentum", 0, 0.0)],
)
def test_values_become_the_kinds_own_type(name: str, value: object, coerced: object) -> None:
    result = HYPERPARAMETERS[name].coerce(value)
    assert result == coerced
    assert type(result) is type(coerced)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 1, "batch_size must be an int from 2 to 65536, got 1; move it into that range"),
        ("batch_size", 32.5, "batch_size must be an int from 2 to 65536, got 32.5; move it into that range"),
        ("epochs", True, "epochs must be an int from 1 to 10000, got True; move it into that range"),
        ("lr", 0.0, "lr must be a float from 1e-08 to 10, got 0.0; move it into that range"),
        ("lr", float("nan"), "lr must be a float from 1e-08 to 10, got nan; move it into that range"),
        ("lr", "0.1", "lr must be a float from 1e-08 to 10, got '0.1'; move it into that range"),
        ("optimizer", "lion", "optimizer must be adam or sgd, got 'lion'; choose among 'adam', 'sgd'"),
        ("finetune", ["all"], "finetune must be all or head, got ['all']; choose among 'all', 'head'"),
    ],
)
def test_a_value_that_cant_work_is_refused_with_rule_value_and_fix(name: str, value: object, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        HYPERPARAMETERS[name].coerce(value)
    assert str(caught.value) == message


def test_markdown_has_a_row_for_each() -> None:
    lines = markdown().splitlines()
    assert len(lines) == 2 + len(HYPERPARAMETERS)
    assert lines[3] == "| `lr` | float | 1e-08 to 10, log | 0.001 | Learning rate, constant over the trial. |"


def test_the_readme_shows_the_table() -> None:
    assert markdown() in (Path(__file__).parents[2] / "README.md").read_text()
