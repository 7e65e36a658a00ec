"""Modules that are loaded when something is taken from them: in processes of their own, as loading can't be undone."""

import subprocess
import sys

import pytest

from tests.commands import ROOT


def said(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


BEGINNING = "import sys; from tuner.deferring import deferred\n"


def test_an_import_within_the_block_loads_nothing_and_one_after_it_does() -> None:
    code = """
with deferred("wave", "xml.dom"):
    import wave
    import xml.dom
print("wave" in sys.modules, "xml.dom" in sys.modules)
import wave, xml.dom
print(wave.Error.__name__, xml.dom.Node.__name__)
"""
    assert said(BEGINNING + code).split() == ["False", "False", "Error", "Node"]


@pytest.mark.parametrize("taking", ["from wave import Error", "import wave; Error = wave.Error"])
def test_what_is_taken_within_the_block_is_the_modules_own(taking: str) -> None:
    code = f"with deferred('wave'):\n    {taking}\nimport wave\nprint(Error is wave.Error)"
    assert said(BEGINNING + code) == "True"


def test_a_name_bound_within_the_block_loads_the_module_later() -> None:
    code = """
with deferred("wave"):
    import wave as kept
loaded = "wave" in sys.modules
import wave
print(loaded, kept.Error is wave.Error)
"""
    assert said(BEGINNING + code) == "False True"


def test_a_module_that_is_loaded_already_and_one_that_is_not_there_stay_what_they_are() -> None:
    code = """
import wave
with deferred("wave", "no_such_module"):
    import wave as same
    import no_such_module
try:
    no_such_module.anything
except ModuleNotFoundError as error:
    print(same is wave, error)
"""
    assert said(BEGINNING + code) == "True No module named 'no_such_module'"


def test_hyperopt_comes_without_the_statistics_that_one_algorithm_of_its_needs_and_has_them_when_it_does() -> None:
    code = """
import sys
from tuner.search.hyperopt_library import tpe
loaded = "scipy.stats" in sys.modules
import hyperopt
print(loaded, tpe is hyperopt.tpe, hyperopt.atpe.scipy.stats.skew([1, 1, 4]) > 0)
"""
    assert said(code) == "False True True"
