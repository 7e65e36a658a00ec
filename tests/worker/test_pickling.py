"""Study files that came with what was pickled can be imported there by name, in processes that are started there, too."""

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.commands import environment
from tuner.study.file import load_study
from tuner.trial import External
from tuner.worker.pickling import pickle_trial, with_code_of_studies
from tuner.worker.spoiling import ProcessState
from tuner.worker.study_code import modules_beside

STUDY = """
import multiprocessing
import pickle
from pathlib import Path

import helper
import tuner
from tuner import *

HERE = Path(__file__)

class Net:
    class Inner:
        pass

    def __init__(self, size):
        self.size = size

class Unnamed:
    pass

def square(x):
    return x * x + helper.offset

def where(_):
    return HERE.name, __name__

def train(config, made=Unnamed()):
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            print(how, pool.map(square, range(3)), pool.map(where, [0]), pool.map(type, [made, Net.Inner()]))
    print(pickle.loads(pickle.dumps(Net(3))).size, type(pickle.loads(pickle.dumps(made))) is type(made))

study = Study(
    "pickled", trial=train, space={"x": uniform(0, 1)}, metric="loss", mode="min", search=Random(), scheduler=ASHA(),
    budget=Budget(trials=2, max_epochs=1),
)
"""
WORKER = """
import sys
from pathlib import Path
from ray import cloudpickle

def loaded(times):
    for _ in range(times):
        trial = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
    return trial

if __name__ == "__main__":
    sys.path.append(sys.argv[2])
    loaded(2).function({"x": 1})
    from tuner.worker.pickling import pickle_trial
    Path(sys.argv[1]).write_bytes(pickle_trial(loaded(1)))  # as a worker does for the processes of a trial
"""


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("space", "space"),
        ("my net-2 (copy)", "my_net_2__copy_"),
        ("torch", "torch"),
        ("json", "json"),
        ("pickle", "pickle"),
        ("dépôt", "dépôt"),
    ],
)
def test_a_trial_can_pickle_functions_and_classes_of_its_study_file(tmp_path: Path, name: str, module: str) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "helper.py").write_text("offset = 0")
    file = tmp_path / "study" / f"{name}.py"
    file.write_text(STUDY)
    sys.path.append(str(tmp_path / "beside"))
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle_trial(load_study(file).declared_trial))
    sys.path.remove(str(tmp_path / "beside"))
    sys.modules.pop("helper")
    file.unlink()  # as on another node
    (tmp_path / "worker.py").write_text(WORKER)
    module = f"tuner_study_{module}"
    for _ in range(2):
        arguments = [sys.executable, "worker.py", str(pickled), str(tmp_path / "beside")]
        ran = subprocess.run(arguments, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        kinds = f"[<class '{module}.Unnamed'>, <class '{module}.Net.Inner'>]"
        assert ran.stdout.splitlines() == [
            *(f"{how} [0, 1, 4] [('{name}.py', '{module}')] {kinds}" for how in ("fork", "spawn", "forkserver")),
            "3 True",
        ]


@pytest.fixture
def imports_meanwhile() -> Iterator[None]:
    """Another module is there after each collection of garbage, as if a thread imported it at that moment."""
    names: list[str] = []

    def one_more(phase: str, info: dict[str, int]) -> None:
        names.append(f"imported_meanwhile_{len(names)}")
        sys.modules[names[-1]] = ModuleType(names[-1])

    threshold = gc.get_threshold()
    gc.callbacks.append(one_more)
    gc.set_threshold(5)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(one_more)
    assert names
    for name in names:
        del sys.modules[name]


@pytest.mark.usefixtures("imports_meanwhile")
@pytest.mark.parametrize("look", [lambda: with_code_of_studies(1), lambda: modules_beside(External()), ProcessState])
def test_modules_may_be_imported_while_it_looks_through_them(look: Callable[[], object]) -> None:
    look()
