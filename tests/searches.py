"""Studies of small functions, and what can be seen of a search from beside it."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CURVE = """
def train(config):
    for epoch in range(1, 10):
        tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch)
"""
RESUMABLE = """
import os
import tempfile
from pathlib import Path

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 10):
        time.sleep(float(os.environ.get("EPOCH_SECONDS", 0.15)))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch, first=first, checkpoint=folder)
"""


def study(body: str, settings: str = "", *, trials: int = 6) -> str:
    return f"""{body}
study = Study(
    "simple", trial=train, space={{"x": uniform(0, 1)}}, metric="loss", mode="min",
    budget=Budget(trials={trials}, max_epochs=9), {settings}
)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def sessions_of(driver: int) -> set[int]:
    """The kernel's sessions that a live driver and what it started are in."""
    return {driver, *(session for _, parent, session, _ in _processes() if parent == driver)}


def processes_of(sessions: set[int]) -> list[str]:
    """Command lines of the live processes of sessions, the first one of each left out where it is the driver's."""
    return [command for pid, _, session, command in _processes() if session in sessions and pid != os.getpid()]


def ray_process(driver: int, name: str) -> int:
    """The id of a process that a driver started for Ray, "raylet" or "gcs_server"."""
    return next(pid for pid, parent, _, command in _processes() if parent == driver and f"/{name} " in f"{command} ")


def _processes() -> Iterator[tuple[int, int, int, str]]:
    """Id, parent, session and command line of every live process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if state[0] != "Z":
                yield int(entry.name), int(state[1]), int(state[3]), command


def epochs_reported(storage: Path) -> int:
    files = list(storage.glob("*/*/events/*.jsonl"))  # not into tune/, where checkpoints vanish meanwhile
    return sum(file.read_text().count('"epoch_reported"') for file in files)
