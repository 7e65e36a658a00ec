"""A search that workers ask over a socket: `python -m tuner.ask_tell.detached FOLDER/task.json`.

A search service starts it. The task is as in `tuner.cli.detached`, with a study in JSON; requests come in at `socket`
in the same folder, see `desk.py`. For other files there see `tuner.lifecycle.detached`.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tuner.ask_tell.desk import Desk
from tuner.ask_tell.leases import holders
from tuner.ask_tell.line import Line
from tuner.ask_tell.search import Search
from tuner.lifecycle.detached import Task, perform, tell_begun
from tuner.results.found import load_run
from tuner.search import Proposals
from tuner.storage.folder import LocalFolder
from tuner.study import Study
from tuner.study_json import study_from_json

LOOK_SECONDS = 0.25
SOCKET = "socket"


def search(task: Task, folder: LocalFolder) -> str:
    """Serve a search until it is over, or told to end; returns the run's status."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    found, desk = _begun(task)
    with Line(folder.path / SOCKET, desk):
        print(f"serving the search {found.run.path}", flush=True)
        tell_begun(folder, found.run.path)
        while not found.over and not told.wait(LOOK_SECONDS):
            desk.look()
        found.close()  # waits until everything after the search is written
        desk.close()
    print(f"the search is {found.run.status}", flush=True)
    return found.run.status


def _begun(task: Task) -> tuple[Search, Desk]:
    """The search and its desk: a new one, or one that goes on with the workers that it had."""
    if task["run"] is None:
        study = study_from_json(Path(task["study"]).read_bytes())
        _load(study)
        new = Search(study, storage=task["storage"], **task["options"], **task["driving"])
        return new, Desk(new)
    earlier = load_run(task["run"])
    _load(earlier.declared_study())
    had, cut_off = holders(earlier.events), sum(trial.live for trial in earlier.record.trials.values())
    found = Search.resume(task["run"], **task["limits"], **task["driving"], retry=[] if task["retry"] else None)
    desk = Desk(found)
    desk.take_back(had, cut_off)
    return found, desk


def _load(study: Study) -> None:
    """Import what suggestions need in advance: it takes a second, for which the first workers shouldn't wait."""
    Proposals(study.problem, study.search.build(study.problem)).propose(0)


if __name__ == "__main__":
    sys.exit(perform(sys.argv[1], search))
