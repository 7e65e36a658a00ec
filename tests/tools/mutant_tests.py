"""Copies of the checkout to run tests in, and the record of which tests run which lines."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.tools.mutant_plugin import CONTEXT

TOOLS = Path(__file__).parent  # the plugin is imported from here: a tree has a package `tests` of its own
# A changed program may send signals to any process that it can see, so it sees only its own.
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_AS_A_USER = ("--user", "--map-current-user")
_UNRECORDED_SECONDS = 30.0  # that a test takes of which nothing is known
_FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Finished:
    """One run of pytest: its exit code, None if the time limit ended it; what it printed."""

    code: int | None
    output: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether a test failed, or the tests came to no end, or couldn't even start."""
        return self.code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)

    @property
    def reason(self) -> str:
        """The first test that failed, or why there is none."""
        if self.code is None:
            return "time limit"
        found = _FIRST_FAILURE.search(self.output)
        return found.group(1) if found else f"exit code {self.code}"


class Tree:
    """A copy of the files of a checkout that git knows or would add. It may be changed, and tests run in it.

    They run in a process namespace of their own: they see no other process, and what they leave behind ends with them.
    Raises OSError if the system has no such namespaces.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.path = folder / "tree"
        self._temporary = folder / "t"  # a short name, as the paths of sockets are limited
        self._running: subprocess.Popen[str] | None = None
        self._data = os.environ.get("TUNER_TEST_DATA") or str(root / "data")
        for name in _files(root):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.path / name)

    @contextlib.contextmanager
    def changed(self, name: str, source: str) -> Iterator[None]:
        """One file reads otherwise for a while."""
        file = self.path / name
        before = file.read_text()
        try:
            _write(file, source)
            yield
        finally:
            _write(file, before)

    def pytest(self, arguments: Iterable[str], *, limit: float | None = None, **environment: str) -> Finished:
        """Run tests for at most this many seconds."""
        started = time.monotonic()
        self._temporary.mkdir()
        # a shell as the first process waits for those that lose their parent
        command = [*alone(), "sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "pytest"]
        self._running = process = subprocess.Popen(
            [*command, "--rootdir=.", "-p", "mutant_plugin", "-p", "no:cacheprovider", *arguments],
            cwd=self.path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(self.path), str(TOOLS))),  # before an editable install
                "TMPDIR": str(self._temporary),
                "TUNER_TEST_DATA": self._data,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
            return Finished(process.returncode, output, time.monotonic() - started)
        except subprocess.TimeoutExpired:
            return Finished(None, "", time.monotonic() - started)
        finally:
            self.end()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            shutil.rmtree(self._temporary, ignore_errors=True)

    def end(self) -> None:
        """End the tests that run, if any; from another thread, too."""
        if self._running is not None and self._running.poll() is None:
            self._running.kill()  # this is `unshare`; with it, the kernel ends all that is in its namespace


def _files(root: Path) -> list[str]:
    """Those that git knows or would add, and that are there."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (root / name).is_file()]


def _write(file: Path, source: str) -> None:
    file.write_text(source)
    # Python knows a compiled file by its source's size and second, which may be those of the last change.
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


@cache
def alone() -> tuple[str, ...]:
    """How a process namespace is begun here; raises OSError if it can't be."""
    command = ALONE if os.geteuid() == 0 else (*ALONE, *_AS_A_USER)
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise OSError(f"mutants run in a process namespace of their own; `{shlex.join(command)}` says: {tried.stderr}")
    return command


@dataclass
class Record:
    """Which tests ran which lines of tuner/, once.

    `tests`: id -> outcome, and seconds to set up and in all. `lines`: file -> line -> ids. `sources`: file -> digest.
    """

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """As JSON, with the numbers of the tests in place of their ids."""
        numbers = {test: number for number, test in enumerate(self.tests)}
        lines = {
            path: {line: sorted(numbers[test] for test in tests) for line, tests in by_line.items()}
            for path, by_line in self.lines.items()
        }
        file.write_text(json.dumps({"tests": self.tests, "lines": lines, "sources": self.sources}))

    @classmethod
    def load(cls, file: Path) -> Record:
        """One that was saved."""
        stored = json.loads(file.read_text())
        ids = list(stored["tests"])
        lines = {
            path: {int(line): {ids[number] for number in numbers} for line, numbers in by_line.items()}
            for path, by_line in stored["lines"].items()
        }
        return cls(stored["tests"], lines, stored["sources"])

    def of_module(self, path: str) -> set[str]:
        """The tests that run any line of a file."""
        return set().union(*self.lines.get(path, {}).values())

    def seconds(self, tests: Iterable[str]) -> float:
        """What tests take together, with what the tests of each of their files share."""
        files = {_file(test) for test in tests}
        shared = dict.fromkeys(files, 0.0)
        for test, timing in self.tests.items():
            if (file := _file(test)) in files:
                shared[file] = max(shared[file], timing["setup"])
        return sum(self._seconds(test) for test in tests) + sum(shared.values())

    def shortest_first(self, tests: Iterable[str]) -> list[str]:
        """The files that take the least time first, as tests of one file share what they set up."""
        files: dict[str, list[str]] = {}
        for test in sorted(tests, key=lambda test: (self._seconds(test), test)):
            files.setdefault(_file(test), []).append(test)
        return [test for _, each in sorted(files.items(), key=lambda file: self.seconds(file[1])) for test in each]

    def _seconds(self, test: str) -> float:
        return float(self.tests[test]["seconds"]) if test in self.tests else _UNRECORDED_SECONDS


def record(tree: Tree, arguments: Iterable[str], jobs: int) -> tuple[Record, Finished]:
    """Run tests, and keep which lines each ran, itself or in processes that it started."""
    folder = tree.path / ".mutants"
    folder.mkdir()
    configuration, timings = folder / "coveragerc", folder / "timings.json"
    configuration.write_text(
        f"[run]\ndata_file = {folder / 'lines'}\nparallel = true\npatch = _exit\n"
        f"include = {tree.path / 'tuner'}/*\ncontext = ${{{CONTEXT}-}}\n"
    )
    workers = ["--numprocesses", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
    finished = tree.pytest([*workers, f"--timings-to={timings}", *arguments], COVERAGE_PROCESS_START=str(configuration))
    if not timings.is_file():
        raise OSError(f"the tests could not be recorded: {finished.output[-2000:]}")
    tests = json.loads(timings.read_text())
    recording = Record({test: _without_shared(timing) for test, timing in tests.items()})
    _add_lines(recording, tree, _lines(configuration), tests)
    return recording, finished


def _without_shared(timing: dict[str, Any]) -> dict[str, Any]:
    return {key: timing[key] for key in ("outcome", "setup", "seconds")}


def _lines(configuration: Path) -> coverage.CoverageData:
    gathered = coverage.Coverage(config_file=str(configuration), context=None)
    gathered.combine()
    return gathered.get_data()


def _add_lines(recording: Record, tree: Tree, data: coverage.CoverageData, tests: dict[str, dict[str, Any]]) -> None:
    sharing: dict[str, set[str]] = {test: {test} for test in tests}
    for test, timing in tests.items():
        for context in timing["shared"]:
            sharing.setdefault(context, set()).add(test)
    for file in data.measured_files():
        path = Path(file).relative_to(tree.path).as_posix()
        by_line = {
            line: set().union(*(sharing.get(context, set()) for context in contexts))
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        recording.lines[path] = {line: by for line, by in sorted(by_line.items()) if by}
        recording.sources[path] = digest(Path(file).read_text())


def digest(source: str) -> str:
    """Names a text."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def names(tree: Path, test: str, path: str) -> bool:
    """Whether a test's file names the room of a module, in its text or by its own place."""
    room = Path(path).parts[1].removesuffix(".py")
    file = _file(test)
    return file.startswith(f"tests/{room}/") or re.search(rf"\btuner[./]{room}\b", _text(tree / file)) is not None


@cache
def _text(file: Path) -> str:
    return file.read_text()


def _file(test: str) -> str:
    return test.partition("::")[0]
