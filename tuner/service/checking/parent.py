"""Starts the process that loads a study file, watches its time and memory, and ends it with all it started."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import StudyError
from tuner.history.event_lines import DEEPEST, nested_deeper
from tuner.machine.child_process import started
from tuner.service.checking.study_facts import Facts
from tuner.service.child_sessions import clean_environment, end_session, session_bytes
from tuner.service.errors import Code, ServiceError
from tuner.service.model import EXTERNAL, Limits
from tuner.text import in_utf8, printable

LONGEST_ANSWER = 2_000_000  # bytes
LONGEST_MESSAGE = 2_000  # characters
LOOK_SECONDS = 0.1  # between checks of the memory
# Needless threads of numerical libraries would take memory
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Refined:
    """A study for the good region of another study's run: its file's name, the other's text and its own, and why."""

    main: str
    before: str
    after: str
    summary: str


def check(
    file: Path,
    options: Mapping[str, Any],
    limits: Limits,
    *,
    folder: Path | None = None,
    cluster: bool = False,
    external: bool = False,
) -> Facts:
    """The facts of a study file, loaded in its own process whose working directory is `folder`.

    An `external` one is JSON: the process limits the time and memory of reading it.

    Raises ServiceError with `tuner check`'s own message, or for a file that takes too long or too much memory.
    """
    task = {
        **{"file": str(file), "options": dict(options), "cluster": cluster, "external": external},
        **{"seconds": limits.check_seconds, "bytes": limits.check_bytes},
    }
    told = _answer(task, limits, folder)
    try:
        return _of_its_kind(Facts.read(told["facts"]), external=external)
    except (StudyError, KeyError, TypeError) as error:
        raise ServiceError(Code.REFUSED, f"{file.name} didn't say what it declares ({error}); load it alone") from error


def refined(run: str, file: Path, kind: str, limits: Limits) -> Refined:
    """The study `file` for the good region of the run, in the folder of the run's own file.

    It is written in a process with limits, because the run's own file is executed. Raises ServiceError.
    """
    task = {"run": run, "file": str(file), "kind": kind, "seconds": limits.check_seconds, "bytes": limits.check_bytes}
    found = _answer(task, limits, file.parent).get("refined")
    texts = [found.get(name) for name in ("before", "after", "summary")] if isinstance(found, dict) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ServiceError(Code.REFUSED, "the study can't be refined, got no answer; refine it by the command")
    return Refined(file.name, *map(str, texts))


def _of_its_kind(facts: Facts, *, external: bool) -> Facts:
    if (facts.kind == EXTERNAL) != external:
        raise StudyError("it names devices of another kind of study")
    return facts


def _answer(task: Mapping[str, Any], limits: Limits, folder: Path | None) -> dict[str, Any]:
    """The answer of the process; raises ServiceError if there is none, or if it refuses."""
    child, reading = started(
        "tuner.service.checking.child",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(_ONE_THREAD),
        cwd=folder,
        start_new_session=True,
    )
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        try:
            content = _watched(child, pipe.fileno(), task, limits)
        finally:
            end_session(child.pid)
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
    file = Path(task["file"])
    try:
        told = json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            Code.REFUSED, f"{file.name} needs to be loaded to its end, got a process that ended before; load it alone"
        ) from error
    told = in_utf8(told) if isinstance(told, dict) and not nested_deeper(told, DEEPEST) else {}
    if told.get("memory"):
        raise _too_much_memory(limits)
    if isinstance(refused := told.get("refused"), str):
        raise ServiceError(Code.REFUSED, _without_folder(printable(refused)[:LONGEST_MESSAGE], file))
    return told


def _watched(child: subprocess.Popen[bytes], pipe: int, task: Mapping[str, Any], limits: Limits) -> bytes:
    """Everything that the child writes before it ends or has to be ended."""
    content = b""
    until = time.monotonic() + limits.check_seconds
    if child.stdin is not None:
        child.stdin.write(json.dumps(task).encode() + b"\n")
        child.stdin.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if selector.select(LOOK_SECONDS):
                part = os.read(pipe, 65536)
                content += part
                if not part or len(content) > LONGEST_ANSWER:
                    return content
            elif _has_ended(child):  # while its own children keep the pipe open
                return content
            if time.monotonic() > until:
                raise _too_slow(limits)
            if session_bytes(child.pid) > limits.check_bytes:
                raise _too_much_memory(limits)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended; its process id isn't reused before it is waited for."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _too_slow(limits: Limits) -> ServiceError:
    return ServiceError(
        Code.REFUSED,
        f"a study file is loaded within {limits.check_seconds:g} s",
        "one that takes longer",
        "move what takes long into the trial's function",
    )


def _too_much_memory(limits: Limits) -> ServiceError:
    return ServiceError(
        Code.REFUSED,
        f"a study file is loaded within {limits.check_bytes / 1e9:g} GB of memory",
        "one that takes more",
        "load data in the trial's function",
    )


def _without_folder(message: str, file: Path) -> str:
    """The text without the server's folders, which users needn't see."""
    return message.replace(f"{file.parent}{os.sep}", "").replace(str(file.parent), ".")
