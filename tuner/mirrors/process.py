"""The processes that show a search elsewhere: the search starts them, and waits for them only a limited time."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tuner.errors import StudyError, shown
from tuner.machine.hardware import python_environment
from tuner.machine.installation import is_installed
from tuner.storage.folder import Folder, LocalFolder

Wandb = Literal["online", "offline", "off"]
CHOICES = ("online", "offline", "off")
HOW_TO_SWITCH_ON = "W&B is off: `wandb login` shows searches online, --wandb offline keeps them for `wandb sync`"
SERVERS, DATABASES = ("http", "https"), ("sqlite", "postgresql", "mysql", "mssql")  # that MLflow's client can use
END_SECONDS, INTERRUPTED_SECONDS = 60.0, 6.0  # that the end of a search waits until everything was received
_LOGIN = re.compile(r"(?<=://)[^/?#]*@")


class Mirrors:
    """Where a search is shown, and the processes that do it; their failures don't affect the search.

    Raises StudyError if what is asked for can't be done.
    """

    def __init__(self, wandb: str | None, mlflow: str | None) -> None:
        self._wandb, self._mlflow = wandb_mode(wandb), mlflow_address(mlflow)
        self.started: dict[str, tuple[subprocess.Popen[bytes], str]] = {}  # by names for messages; how to send the rest

    @property
    def recorded(self) -> dict[str, str | None]:
        """The fields of run.json, without passwords."""
        return {"wandb": self._wandb, "mlflow": self._mlflow and without_login(self._mlflow)}

    def start(self, folder: Folder) -> None:
        """Follow the run folder until `finish`; raises OSError if a process can't be started."""
        if self._wandb != "off":
            rest = sync_command(folder.path) if isinstance(folder, LocalFolder) else None
            self._start("W&B", "wandb", folder, [self._wandb], rest)
        if self._mlflow is not None:
            words = ["python", "-m", "tuner.mirrors.mlflow", folder.uri, without_login(self._mlflow)]
            self._start("MLflow", "mlflow", folder, [], shlex.join(words), MLFLOW_TRACKING_URI=self._mlflow)

    def finish(self, seconds: float) -> list[str]:
        """Wait at most `seconds` until all have sent the rest; returns what went wrong and what to do about it."""
        until, problems = time.monotonic() + seconds, []
        for process, _ in self.started.values():
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for service, (process, rest) in self.started.items():
            try:
                if process.wait(max(0.0, until - time.monotonic())) != 0:
                    problems.append(f"{service} has received only a part of the run; {rest}")
            except subprocess.TimeoutExpired:
                problems.append(f"{service} had not received everything after {seconds:.0f} s; {rest}")
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return problems

    def _start(
        self, service: str, name: str, folder: Folder, arguments: list[str], sends_rest: str | None, **secrets: str
    ) -> None:
        """Start the module of this name; other users of the machine don't see the `secrets`, its environment."""
        rest = f"send the rest with: {sends_rest}" if sends_rest else "the run folder has everything"
        log = Path(os.devnull)
        if isinstance(folder, LocalFolder):
            (folder.path / name).mkdir(exist_ok=True)
            log = folder.path / name / "mirror.log"
            rest = f"see {log}; {rest}"
        with log.open("ab") as file:
            process = subprocess.Popen(
                mirror_command(name, folder, *arguments),
                stdin=subprocess.PIPE,  # closed when the search is over or its driver has ended
                stdout=file,
                stderr=file,
                env={**python_environment(), **secrets},
                start_new_session=True,  # Ctrl-C only goes to the search; and it can be ended with its children
            )
        self.started[service] = process, rest


def mirror_command(name: str, folder: Folder, *arguments: str) -> list[str]:
    """The command of the process that follows the run, to be started once run.json is there."""
    return [sys.executable, "-m", f"tuner.mirrors.{name}", folder.uri, *arguments]


def wandb_mode(asked: str | None) -> Wandb:
    """The requested mode; by default online if the user is logged in, else off. Raises StudyError."""
    if asked is None:
        return "online" if logged_in() and os.environ.get("WANDB_MODE") not in ("offline", "disabled") else "off"
    if asked not in CHOICES:
        raise StudyError(f"wandb needs one of {', '.join(CHOICES)}, got {asked!r}")
    return asked  # type: ignore[return-value]


def logged_in() -> bool:
    """Whether this user has an API key for W&B's server, found without the server or W&B's own package."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    file = os.environ.get("NETRC")
    for path in [Path(file)] if file else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            if netrc(path).authenticators(host):
                return True
        except (OSError, NetrcParseError):
            continue
    return False


def sync_command(run_folder: Path) -> str:
    """The command that sends W&B's files of a run to the server, except for those that it already has."""
    return f"wandb sync --yes {shlex.quote(str(run_folder / 'wandb'))}/*run-*"


def mlflow_address(asked: str | None) -> str | None:
    """The requested address; None if there is none, or "off". Raises StudyError, also if a library is missing."""
    if asked is None or asked == "off":
        return None
    scheme, _, rest = asked.partition("://")
    scheme = scheme.lower().partition("+")[0]
    if (
        scheme not in (*SERVERS, *DATABASES)
        or (scheme in SERVERS and rest.startswith("/"))
        or "\0" in asked
        or not rest
    ):
        raise StudyError(
            "mlflow needs the address of a tracking server, or of a database such as sqlite:////data/mlflow.db, "
            f"got {shown(without_login(asked))}; use http://HOST:5000, or leave it out"
        )
    needed, package = ["mlflow"], "'image-tuner[mlflow]'"
    if scheme in DATABASES:
        needed, package = ["mlflow", "sqlalchemy", "alembic"], "mlflow"
    if missing := [library for library in needed if not is_installed(library)]:
        given = f"{scheme}, and an installation without {', '.join(missing)}"
        raise StudyError(f"mlflow needs the libraries for its address, got {given}; pip install {package}")
    return asked


def without_login(address: str) -> str:
    """An address without user and password."""
    return _LOGIN.sub("", address)
