import pytest

from tuner.errors import StudyError
from tuner.trial.hyperparameters import HYPERPARAMETERS, find, markdown


def test_the_table_has_what_the_study_files_of_the_contract_use() -> None:
    assert next(iter(HYPERPARAMETERS)) == "epochs"
    assert {"lr", "batch_size", "optimizer", "momentum", "weight_decay", "finetune", "image_size"} <= set(
        HYPERPARAMETERS
    )


RANGES = {
    "epochs": (1, 10_000),
    "blocks": (1, 4),
    "unfreeze_every": (1, 1_000),
    "probe_epochs": (1, 10_000),
    "probe_lr": (1e-8, 10),
    "backbone_lr_scale": (0, 10),
    "layer_decay": (0.01, 1),
    "lr": (1e-8, 10),
    "batch_size": (2, 65_536),
    "momentum": (0, 0.9999),
    "weight_decay": (0, 1),
    "clip_norm": (0, 1e6),
    "warmup_epochs": (0, 1_000),
    "step_epochs": (1, 10_000),
    "step_factor": (1e-6, 1),
    "ema_decay": (0, 0.99999),
    "label_smoothing": (0, 0.9),
    "dropout": (0, 0.95),
    "stochastic_depth": (0, 0.9),
    "mixup": (0, 10),
    "cutmix": (0, 10),
    "crop_padding": (0, 256),
    "random_resized_crop": (0, 1),
    "flip": (0, 1),
    "rand_augment_operations": (1, 8),
    "rand_augment_magnitude": (0, 30),
    "color_jitter": (0, 1),
    "random_erasing": (0, 1),
    "views": (0, 64),
    "image_size": (8, 1_024),
    "pipeline_micro_batches": (1, 65_536),
}


def test_a_number_is_accepted_up_to_both_ends_of_its_range_and_not_beyond() -> None:
    numeric = [row for row in HYPERPARAMETERS.values() if row.kind in ("int", "float")]
    assert [row.name for row in numeric] == list(RANGES)
    for row in numeric:
        low, high = RANGES[row.name]
        step = 1 if row.kind == "int" else 1e-9
        values = (low - step, low, high, high + step)
        assert [row.accepts(value) for value in values] == [False, True, True, False], row.name


def test_no_word_means_two_hyperparameters() -> None:
    words = [word for row in HYPERPARAMETERS.values() for word in (row.name, *row.aliases)]
    assert len(words) == len(set(words))


def test_every_default_is_a_value_that_its_own_row_accepts() -> None:
    assert [row.name for row in HYPERPARAMETERS.values() if row.default is None] == [
        "epochs",
        "model",
        "pooling",
        "probe_epochs",
        "probe_lr",
        "step_epochs",
        "stochastic_depth",
        "image_size",
        "strategy",
        "pipeline_micro_batches",
        "pipeline_split",
    ]
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
    names = ", ".join(HYPERPARAMETERS)
    assert str(caught.value) == f"'xyzzy' is not a hyperparameter of ImageClassifier; it has {names}"


@pytest.mark.parametrize(
    ("name", "value", "coerced"),
    [
        ("batch_size", 32.0, 32),
        ("lr", 1, 1.0),
        ("optimizer", "sgd", "sgd"),
        ("momentum", 0, 0.0),
        ("nesterov", True, True),
    ],
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
        ("epochs", True, "epochs must be an int from 1 to 10000, got True; write a number in that range"),
        ("lr", 0.0, "lr must be a float from 1e-08 to 10, got 0.0; move it into that range"),
        ("lr", float("nan"), "lr must be a float from 1e-08 to 10, got nan; write a number in that range"),
        ("lr", "0.1", "lr must be a float from 1e-08 to 10, got '0.1'; write a number in that range"),
        (
            "optimizer",
            "lion",
            "optimizer must be adam, adamw, sgd or lbfgs, got 'lion'; choose among 'adam', 'adamw', 'sgd', 'lbfgs'",
        ),
        (
            "finetune",
            ["all"],
            "finetune must be all, head, gradual or lp-ft, got ['all']; write choice(['all']) to try each",
        ),
        (
            "finetune",
            ["none"],
            "finetune must be all, head, gradual or lp-ft, got ['none']; choose among 'all', 'head', 'gradual', "
            "'lp-ft'",
        ),
    ],
)
def test_a_value_that_cant_work_is_refused_with_rule_value_and_fix(name: str, value: object, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        HYPERPARAMETERS[name].coerce(value)
    assert str(caught.value) == message


def test_markdown_has_a_row_for_each() -> None:
    lines = markdown().splitlines()
    assert len(lines) == 2 + len(HYPERPARAMETERS)
    assert "| `lr` | float | 1e-08 to 10, log | 0.001 | Learning rate at its highest. |" in lines
    assert "| `nesterov` | bool | True or False | False | Nesterov's momentum for `sgd`. |" in lines
