"""Runs the command line as a user does, in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import main

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)


def environment(**more: str) -> dict[str, str]:
    """As a user's, with nothing in it that speeds tuner up or slows it down."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", **more}


def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every download goes to a proxy that refuses, until the test ends."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first use in a process


def start(
    *arguments: str | Path, folder: Path, program: tuple[str, str] = ("-m", "tuner"), **more: str
) -> "subprocess.Popen[str]":
    """Start `python -m tuner …` in a folder, or another `program` of Python."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def tuner(*arguments: str | Path, folder: Path, timeout: float = 300, **more: str) -> Finished:
    """Run `python -m tuner …` in a folder to its end."""
    process = start(*arguments, folder=folder, **more)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Finished(process.returncode, out, err)


def study_file(folder: Path, body: str, name: str = "space.py") -> Path:
    """A study file whose trial is the function `train` of `body`; `settings` in it go to Study."""
    path = folder / name
    path.write_text("import time\n\nimport tuner\nfrom tuner import *\n\n" + body)
    return path


def run_main(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process: what `main` returns, or argparse raises."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err
