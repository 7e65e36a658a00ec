import gc
import gzip
import os
import re
import shlex
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.commands import Finished, tuner
from tests.docs.blocks import blocks

ROOT = Path(__file__).parent.parent
README_SEARCH = "the search of README"
# what takes minutes in one process: whole searches, and files with few tests that are long
_LONG = re.compile(
    rf"end_to_end/|{README_SEARCH}|driver/test_cluster|test_extension|test_watch|doctor/|web/test_schema|test_mirror"
    r"|test_several_devices|memory/test_estimate|history/test_damage|docker/test_slurm|driver/test_nodes"
)
# what forks: autograd refuses to work in the copy of a process in which it has worked on another device than the CPU
_FORKS = ("tests/doctor/test_trial_steps.py", "tests/doctor/test_gpu.py")
_FILE = pytest.StashKey[Path]()  # of the last test that has begun
# what starts processes that are copies of one with torch (`tests.forked`), which is there once
_COPIES = tuple(
    f"tests/train/{name}.py"
    for name in ("parallel/test_group", "parallel/test_pipeline", "data/test_cache", "test_without_compiler")
)
ROOM_BYTES = 4 << 30  # several times what the tests have there at once

# The tests start hundreds of Pythons: where nothing keeps what is compiled, each compiles all of tuner again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

hypothesis.settings.register_profile("tuner", deadline=None)  # a busy machine is no fault of what is tested
hypothesis.settings.load_profile("tuner")


def _room(scope: str) -> Path:
    """The folder below `tests/` that a file is in."""
    return Path(*Path(scope.partition("::")[0]).parts[1:-1][:1])


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of a file run in one process, with what they share; whole searches wherever a process is free."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._rooms: dict[WorkerController, set[Path]] = {}  # folders of whose files a process has run some

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if "the_demo" in test or "a_page_about_runs" in test:
            return README_SEARCH
        if file in _COPIES:
            return _COPIES[0]
        return nodeid if "end_to_end/" in file else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """What needs a new process first; then what is long, then files of a folder of which the process has loaded
        the libraries, or no other has, then those with most tests, so that no process waits long for another's last one.
        """
        here = self._rooms.setdefault(node, set())
        elsewhere = set().union(*self._rooms.values()) - here

        def urgency(scope: str) -> tuple[bool, bool, bool, bool, int]:
            room, long = _room(scope), _LONG.search(scope) is not None
            return scope in _FORKS, long, room in here, room not in elsewhere, len(self.workqueue[scope])

        chosen = max(self.workqueue, key=urgency)
        here.add(_room(chosen))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """The tests' folders are in memory where it has room: on a disk, half of the time would be spent waiting for it.

    Signals end what tests start, also where the tests themselves run in the background, where shells ignore Ctrl-C and `nohup` SIGHUP.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if "PYTEST_XDIST_WORKER" in os.environ:  # threads that wait for each other would take the time of other processes
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    gc.disable()  # until everything is imported
    memory = Path("/dev/shm")
    if config.option.basetemp is None and memory.is_dir() and shutil.disk_usage(memory).free >= ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is there before the first test of a file stays, so no search for garbage looks through it again.

    Each trial ends with one, which would take a second once hundreds of files are through.
    """
    session = item.session
    if session.stash.get(_FILE, None) != item.path:
        session.stash[_FILE] = item.path
        gc.collect()
        gc.freeze()
        if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
            import torch

            torch.set_num_threads(1)  # there are more processes than CPUs: threads of each would wait for others'


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Decoded images and features of the tests stay out of the user's cache, also in processes that tests start."""
    os.environ["TUNER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def readme_search(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """The search that README's blocks make, with `--json`, and its storage folder, which a test that changes it copies."""
    folder = tmp_path_factory.mktemp("readme")
    for block in blocks(ROOT / "README.md"):
        if block.title:
            (folder / block.title).write_text(block.text)
        elif block.shortened is not None:
            (command,) = block.commands()
            words = shlex.split(f"{command} {block.shortened} --json")
            assert words[:3] == ["python", "-m", "tuner"]
            finished = tuner(*words[3:], folder=folder, timeout=900)
            assert finished.code == 0, finished.err
    return finished, folder / "runs"


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a subfolder ("FashionMNIST", "cifar10") -> the data folder that has it, or a skip that says why.

    It is looked for in $TUNER_TEST_DATA, or in data/ of the repository; files packed as .gz or .tar.xz are unpacked.
    """
    source = Path(os.environ.get("TUNER_TEST_DATA") or ROOT / "data").absolute()
    unpacked = tmp_path_factory.mktemp("data")

    def find(name: str) -> Path:
        folder = source / name
        if not folder.is_dir():
            pytest.skip(f"needs {name} under {source}; set TUNER_TEST_DATA to a folder that has it")
        packed = [file for file in folder.rglob("*") if file.suffix in (".gz", ".xz")]
        if not packed or (folder / "train").is_dir() or (folder / "raw" / "train-images-idx3-ubyte").is_file():
            return source
        if not (unpacked / name).is_dir():
            for file in packed:
                _unpack(file, unpacked / file.parent.relative_to(source))
        return unpacked

    return find


def _unpack(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".gz":
        with gzip.open(file) as packed, (folder / file.stem).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    else:
        with tarfile.open(file) as archive:
            archive.extractall(folder)  # of files of ours; Python 3.11.3 and before have no `filter`
