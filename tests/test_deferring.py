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
import tuner.search.special_functions
from tuner.search.hyperopt_library import tpe
loaded = "scipy.stats" in sys.modules
import hyperopt, numpy
print("f2py" in vars(numpy), numpy.f2py.get_include.__name__)
print(loaded, tpe is hyperopt.tpe, hyperopt.atpe.scipy.stats.skew([1, 1, 4]) > 0)
"""
    assert said(code).split() == ["False", "get_include", "False", "True", "True"]


def test_a_function_that_is_taken_within_the_block_loads_its_module_when_it_is_called() -> None:
    code = """
with deferred(functions={"colorsys": "rgb_to_hsv rgb_to_hls"}):
    from colorsys import rgb_to_hsv
loaded = "colorsys" in sys.modules
print(loaded, rgb_to_hsv(0, 0, 1)[2], "colorsys" in sys.modules)
from colorsys import rgb_to_hls
print(rgb_to_hls.__module__)
"""
    assert said(BEGINNING + code).split() == ["False", "1", "True", "colorsys"]


def test_another_name_of_a_module_of_functions_is_the_modules_own() -> None:
    code = """
with deferred(functions={"wave": "open"}):
    from wave import Error, open
import wave
print(Error is wave.Error)
"""
    assert said(BEGINNING + code) == "True"


def test_random_configurations_need_neither_scipy_networkx_nor_tqdm_and_the_model_needs_the_first() -> None:
    code = """
import sys
from tuner import HyperOpt, Study, choice, uniform
study = Study(name="a", trial=print, space={"x": uniform(0, 1), "y": choice(["a", "b"])}, metric="loss", mode="min")
searcher = HyperOpt(startup_trials=3).build(study.problem)
for number in range(3):
    searcher.adopt(number, searcher.suggest(number))
    searcher.observe(number, 1, 0.5 - number / 10)
    searcher.end(number, "completed")
before = {"scipy.special", "scipy.stats", "networkx", "tqdm"} & sys.modules.keys()
after = sorted(searcher.suggest(3))
print(before, after, {"scipy.special", "networkx", "tqdm"} & sys.modules.keys())
"""
    assert said(code) == "set() ['x', 'y'] {'scipy.special'}"


def test_the_default_search_suggests_without_scipys_statistics_and_numpys_fortran() -> None:
    code = """
import sys
from tuner import Study, uniform
study = Study(name="a", trial=print, space={"x": uniform(0, 1)}, metric="loss", mode="min")
searcher = study.search.build(study.problem)
for number in range(8):
    searcher.adopt(number, searcher.suggest(number))
    searcher.observe(number, 1, 0.5 - number / 10)
    searcher.end(number, "completed")
print(sorted({"scipy.linalg", "scipy.special", "scipy.stats", "numpy.f2py"} & sys.modules.keys()))
"""
    assert said(code) == "['scipy.linalg', 'scipy.special']"


def test_a_module_of_a_package_that_is_loaded_is_deferred_too_and_found_there_afterwards() -> None:
    code = """
import xml
with deferred("xml.dom"):
    import xml.dom as kept
    from xml import dom
loaded = "xml.dom" in sys.modules or hasattr(xml, "dom")
import xml.dom
print(loaded, kept is dom, kept.Node is xml.dom.Node)
"""
    assert said(BEGINNING + code) == "False True True"


def test_whoever_looks_through_all_modules_loads_none() -> None:
    code = """
import inspect
with deferred(functions={"wave": "open"}):
    from wave import open
    inspect.getmodule(inspect.currentframe())
    for module in list(sys.modules.values()):
        hasattr(module, "__file__")
    print("wave" in sys.modules, type(sys.modules["wave"]).__name__)
print("wave" in sys.modules)
"""
    assert said(BEGINNING + code).split() == ["True", "_Deferred", "False"]
