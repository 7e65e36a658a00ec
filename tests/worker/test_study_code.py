"""Modules beside a study file: which travel to other nodes, and where a worker imports them from."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import study_file
from tests.searches import study
from tuner import load_study
from tuner.worker import study_code

STUDY = """
import numpy
import torch
from travelling import losses

def train(config):
    import travelling_later

    tuner.report(loss=losses.loss(config["x"]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A study with a package and modules beside it, and one that nothing imports."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "travelling" / "part").mkdir(parents=True)
    (tmp_path / "travelling" / "__init__.py").touch()
    (tmp_path / "travelling" / "losses.py").write_text("import travelling_factor\n\ndef loss(x):\n    return x\n")
    (tmp_path / "travelling" / "part" / "__init__.py").touch()
    for name in ("factor", "later", "unused"):
        (tmp_path / f"travelling_{name}.py").touch()
    study_file(tmp_path, study(STUDY))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("travelling")]:
        del sys.modules[name]


def test_what_the_study_imports_from_beside_it_travels_and_nothing_else(folder: Path) -> None:
    trial = load_study(folder / "space.py").declared_trial
    names = ["travelling", "travelling_factor.py", "travelling_later.py"]
    assert study_code.modules_beside(trial)[folder] == names
    told = study_code.runtime_environment(trial)
    assert told is not None
    assert {str(folder / name) for name in names} <= set(told["py_modules"])
    assert str(folder / "travelling_unused.py") not in told["py_modules"]


def test_originals_go_before_copies_where_they_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = load_study(folder / "space.py").declared_trial
    told = study_code.runtime_environment(trial)
    assert told is not None
    sys.path.remove(str(folder))
    monkeypatch.setattr(sys, "path", ["copies", *sys.path])
    study_code.extend_import_path(["further"], told["env_vars"])
    assert (sys.path[:2], sys.path[-1]) == ([str(folder), "copies"], "further")
    monkeypatch.setattr(sys, "path", ["copies"])
    (folder / "travelling" / "part" / "__init__.py").write_text("edited = True\n")  # an older or newer copy of a node
    study_code.extend_import_path([str(folder)], told["env_vars"])
    assert sys.path == ["copies", str(folder)]


def test_a_study_without_modules_beside_it_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    study_file(
        tmp_path, study("def train(config):\n    import json\n\n    tuner.report(loss=config['x'])\n"), "alone.py"
    )
    trial = load_study(tmp_path / "alone.py").declared_trial
    assert tmp_path not in study_code.modules_beside(trial)
