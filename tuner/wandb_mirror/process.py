"""The process that shows a search in Weights & Biases: the search starts it, and waits for it only a limited time."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tuner.errors import StudyError
from tuner.machine.hardware import python_environment
from tuner.storage.folder import Folder, LocalFolder
from tuner.wandb_mirror.mirror import FOLDER, logged_in, mirror_command

Wandb = Literal["online", "offline", "off"]
_log = logging.getLogger(__name__)  # unless set up, it goes to stderr
CHOICES = ("online", "offline", "off")
END_SECONDS, INTERRUPTED_SECONDS = 60.0, 6.0  # that the end of a search waits until W&B has received the rest


def wandb_mode(asked: str | None) -> Wandb:
    """The requested mode; by default online if the user is logged in, else off. Raises StudyError."""
    if asked is None:
        return "online" if logged_in() and os.environ.get("WANDB_MODE") not in ("offline", "disabled") else "off"
    if asked not in CHOICES:
        raise StudyError(f"wandb needs one of {', '.join(CHOICES)}, got {asked!r}")
    return asked  # type: ignore[return-value]


class MirrorProcess:
    """Follows the run folder until `finish`; its failures don't affect the search."""

    def __init__(self, folder: Folder, mode: Literal["online", "offline"]) -> None:
        self._folder = folder
        log = Path(os.devnull)
        if isinstance(folder, LocalFolder):
            (folder.path / FOLDER).mkdir(exist_ok=True)
            log = folder.path / FOLDER / "mirror.log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                mirror_command(folder, mode),
                stdin=subprocess.PIPE,  # closed when the search is over or its driver has ended
                stdout=file,
                stderr=file,
                env=python_environment(),
                start_new_session=True,  # Ctrl-C only goes to the search; and it can be ended with its children
            )

    @property
    def pid(self) -> int:
        """The id of the process, and of the group of everything that it starts."""
        return self._process.pid

    def finish(self, seconds: float) -> str | None:
        """Wait at most `seconds` until W&B has the rest; returns what went wrong and what to do about it, or None."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._end()
            return f"W&B had not received everything after {seconds:.0f} s; {self._how_to_sync()}"
        return None if code == 0 else f"W&B has received only a part of the run; {self._how_to_sync()}"

    def finish_or_say(self, seconds: float) -> None:
        """Like `finish`; what went wrong is logged, because the run's last event is already written."""
        problem = self.finish(seconds)
        if problem is not None:
            _log.warning(problem)

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _how_to_sync(self) -> str:
        if not isinstance(self._folder, LocalFolder):
            return "the run folder has everything"
        folder = self._folder.path
        return f"see {folder / FOLDER / 'mirror.log'}; send the rest with: {sync_command(folder)}"


def sync_command(run_folder: Path) -> str:
    """The command that sends W&B's files of a run to the server, except for those that it already has."""
    return f"wandb sync --yes {shlex.quote(str(run_folder / FOLDER))}/*run-*"
