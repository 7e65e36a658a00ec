"""A service whose drivers need no Ray, and waiting for what it does."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.service import driver
from tuner.service.devices import devices_here
from tuner.service.executors import LocalProcesses
from tuner.service.model import OVER, State, SubmittedStudy
from tuner.service.service import Service

COMMAND = (sys.executable, driver.__file__)
PATIENCE_SECONDS = 300.0  # on a busy machine; nothing is asserted about it


@contextmanager
def running(storage: Path, cpus: int = 1, command: tuple[str, ...] = COMMAND, **options: Any) -> Iterator[Service]:
    """A service with so many CPUs; at its end its drivers are killed."""
    service = Service(storage, devices=devices_here(cpus=cpus, gpus=0), executor=LocalProcesses(command), **options)
    service.start()
    try:
        yield service
    finally:
        service.close()
        end_drivers(storage)


def end_drivers(storage: Path) -> None:
    executor = LocalProcesses(COMMAND)
    for folder in (storage / ".service/drivers").iterdir():
        executor.kill(folder)


def wait_for(what: Callable[[], object], seconds: float = PATIENCE_SECONDS, every: float = 0.02) -> None:
    """Until it is so; a server is asked less often than by `every` as it is here: 20 requests a second are its limit."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it never came"
        time.sleep(every)


def wait_until(service: Service, study: int, *states: State) -> SubmittedStudy:
    """The study once it is in one of these states."""

    def reached() -> bool:
        found = service.study(study)
        assert found.state in states or found.state not in OVER, f"{found.state}: {found.reason}"
        return found.state in states

    wait_for(reached)
    return service.study(study)
