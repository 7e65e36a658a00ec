"""The process that loads or refines a study file under limits: `python -m tuner.service.checking.child DESCRIPTOR`."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tuner.machine.child_process import end_with_the_input

if TYPE_CHECKING:
    from tuner.study.declaration import Study

LARGEST_FILE = 10_000_000  # bytes that it may write
SUBREAPER = 36  # for prctl(2): orphaned processes below it become its children, and are found there


def main(descriptor: int) -> None:
    """Do what the first line of standard input says; write facts, or the error, as JSON to the descriptor."""
    task = json.loads(sys.stdin.readline())
    _limit(task["seconds"], task["bytes"])
    end_with_the_input()
    from tuner.errors import RunFolderError, StudyError, describe_error, one_line

    try:
        if "run" in task:
            told: dict[str, Any] = {"refined": refined(task["run"], task["file"], task["kind"])}
        else:
            told = {"facts": _facts(task)}
    except (StudyError, RunFolderError) as error:
        told = {"refused": one_line(str(error))}
    except MemoryError:
        told = {"memory": True}
    except BaseException as error:
        told = {"refused": describe_error(error)}
    with os.fdopen(descriptor, "w", encoding="utf-8") as answer:
        answer.write(json.dumps(told, default=str))
    signal.pause()  # until the server ends it, together with processes that the study's code left running


def _facts(task: Mapping[str, Any]) -> dict[str, Any]:
    if task["external"]:
        return facts_of_json(task["file"], task["options"])
    return facts(task["file"], task["options"], task["cluster"])


def facts(file: str, options: Mapping[str, Any], cluster: bool) -> dict[str, Any]:
    """Load the study with its options, check it here, and return its facts; raises StudyError as `tuner check` does."""
    from tuner.errors import StudyError
    from tuner.space import space_record
    from tuner.study.file import load_study

    study = load_study(file).with_options(**options)
    if study.declared_trial.asked_for:
        raise StudyError(
            f"a study file needs trials that the service runs, got {study.declared_trial.described}; submit the study "
            "as JSON, tuner.study_to_json(study) writes it"
        )
    study.check_here(cluster=cluster)
    return {**_common(study), **_needs(study), "space": space_record(study.search_space)}


def facts_of_json(file: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Like `facts`, for a study in JSON; nothing in it is executed."""
    from tuner.errors import StudyError
    from tuner.service.model import EXTERNAL
    from tuner.space import space_record
    from tuner.study.as_json import study_from_json, study_to_json

    study = study_from_json(Path(file).read_bytes()).with_options(**options)
    if study.resources.packed is not None:
        raise StudyError(
            f"Resources.{study.resources.packed}='auto' needs trials that the service runs, got trials that workers "
            "ask for; leave it out, or say how many a trial holds"
        )
    study_to_json(study)  # because its run stores it as JSON
    return {**_common(study), "space": space_record(study.search_space), "kind": EXTERNAL, "each": 1.0, "missing": []}


def _needs(study: Study) -> dict[str, Any]:
    """What the study needs: devices, data and weights."""
    from tuner.machine.hardware import this_machine

    resources = study.resources.resolve(gpus_present=this_machine().gpus, uses_gpu=study.uses_gpu)
    on_gpu = resources.gpu_count > 0
    return {
        "kind": "gpu" if on_gpu else "cpu",
        "each": resources.gpu_count if on_gpu else resources.cpu_count,
        "packed": study.resources.packed is not None,
        "missing": study.declared_trial.missing_downloads(stored=False),
    }


def _common(study: Study) -> dict[str, Any]:
    return {
        "name": study.name,
        "metric": study.metric,
        "mode": study.mode,
        "trials": study.trials,
        "max_epochs": study.budget.max_epochs,
        "budget": asdict(study.budget),
        "search": repr(study.search),
        "scheduler": repr(study.scheduler),
        "trial": study.declared_trial.described,
    }


def refined(run: str, file: str, kind: Literal["grid", "narrowed"]) -> dict[str, str]:
    """The good region of a run as a study file, and the run's own file, as texts; raises StudyError, RunFolderError."""
    from tuner.results import load_run, refine

    found = refine(load_run(run), kind, trust=True)
    path = Path(file)
    return {"before": found.declared_text(path), "after": found.text(path), "summary": found.summary}


def _limit(seconds: float, size: int) -> None:
    """Limit CPU time, its own memory, and size of files; the parent watches the clock and the total memory."""
    with_reserve = int(seconds) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (with_reserve, with_reserve))
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
