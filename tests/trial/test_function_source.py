"""A function's fingerprint: the same for the same code, another for other code, also of what it uses."""

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tuner.trial import FunctionTrial, ImageClassifier
from tuner.trial.function import source_fingerprint

CODE = '''
import math

RATE = 0.5

class Model:
    """A model."""
    def step(self):
        return helper(1)

def helper(x):
    return x + 1

def unused(x):
    return x

def train(config):
    """Train."""
    model = Model()  # a comment
    return model.step() * math.pi
'''


def of(tmp_path: Path, code: str, name: str = "train", *, number: list[int] = [0]) -> str | None:  # noqa: B006
    number[0] += 1
    file = tmp_path / f"module_{number[0]}.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # as those of study files are
    spec.loader.exec_module(module)
    return source_fingerprint(vars(module)[name])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # a comment", ""),
        ('"""Train."""', '"""Train a model."""'),
        ("model.step() * math.pi", "(model.step()\n        * math.pi)"),
        ("return x\n", "return -x\n"),  # of what isn't used
        ("RATE = 0.5", "\nRATE = 0.5\n"),
    ],
)
def test_what_does_not_change_what_a_function_does_leaves_its_fingerprint(tmp_path: Path, old: str, new: str) -> None:
    assert old in CODE
    found = of(tmp_path, CODE)
    assert found is not None
    assert len(found) == 16
    assert of(tmp_path, CODE.replace(old, new)) == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* math.pi", "* math.e"),
        ("return helper(1)", "return helper(2)"),  # of a class that it uses
        ("return x + 1", "return x + 2"),  # of a function that the class uses
    ],
)
def test_other_code_has_another_fingerprint_also_where_it_is_only_used(tmp_path: Path, old: str, new: str) -> None:
    assert old in CODE
    assert of(tmp_path, CODE.replace(old, new)) != of(tmp_path, CODE)


def scaled(factor: float, config: dict[str, Any]) -> float:
    return factor * float(config["x"])


class Called:
    def __call__(self, config: dict[str, Any]) -> None:
        scaled(1, config)


def test_partial_functions_objects_and_what_has_no_source() -> None:
    assert source_fingerprint(partial(scaled, 1.0)) != source_fingerprint(partial(scaled, 2.0))
    assert source_fingerprint(Called()) == source_fingerprint(Called()) is not None
    several = {
        "one": lambda config: None,
        "another": lambda config: 0,
    }
    assert len({source_fingerprint(each) for each in several.values()} - {None}) == 2
    assert source_fingerprint(print) is None
    namespace: dict[str, Any] = {}
    exec("def typed_in(config): ...", namespace)
    assert source_fingerprint(namespace["typed_in"]) is None


def test_a_function_calls_itself_and_a_classifier_has_none() -> None:
    assert FunctionTrial(_recursive).source_fingerprint() == source_fingerprint(_recursive) is not None
    assert ImageClassifier("digits").source_fingerprint() is None


def _recursive(config: dict[str, Any]) -> Any:
    return _recursive({}) if config else None
