"""Checks a search's GPUs before it starts, and switches off techniques that don't work there for its workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tuner.doctor.readiness import readiness
from tuner.driver.patching import environment
from tuner.errors import StudyError, shown
from tuner.history.events import Listener, tell
from tuner.machine.hardware import this_machine
from tuner.machine.techniques import TECHNIQUES, VARIABLE, switched_off
from tuner.study.declaration import Study

FIRST_LOOK = "first_look"  # code of the notice


@contextmanager
def gpus_checked(study: Study, address: str | None = None, listeners: Iterable[Listener] = ()) -> Iterator[list[str]]:
    """Within the block, techniques that don't work on this machine's GPUs are off; yields messages for the user.

    Nothing is checked for a search without GPUs, for trials that may not use torch, or on a cluster, whose nodes are
    other machines. The `listeners` get a notice before a check that takes a while.

    Raises StudyError if torch can't use the GPUs.
    """
    _check_names()
    machine = this_machine()
    resources = study.resources.resolve(gpus_present=machine.gpus, uses_gpu=study.uses_gpu)
    if address is not None or not (study.uses_gpu and machine.gpus and resources.gpus):
        yield []
        return
    # Sent now: there is no run yet whose events could store it.
    ready = readiness(machine.gpus, tell=lambda message: tell(listeners, "notice", message=message, code=FIRST_LOOK))
    ready.check()
    names = dict.fromkeys((*switched_off(), *ready.off))
    with environment({}, also_restored=[VARIABLE]):
        os.environ[VARIABLE] = ",".join(names)
        yield ready.notices


def _check_names() -> None:
    for name in switched_off():
        if name not in TECHNIQUES:
            known = ", ".join(TECHNIQUES)
            raise StudyError(
                f"{VARIABLE} takes a list of {known}, got {shown(os.environ[VARIABLE])}; remove other names"
            )
