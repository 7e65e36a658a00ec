"""What a trial printed: `logs/<trial>.log` in the run folder, each line with its time in UTC and its epoch.

    2026-11-22T09:36:11Z tuner | trial 00007 begins on node-3, process 4242, cuda:0 (NVIDIA H100)
    2026-11-22T09:36:12Z epoch 1 | loading 5000 images
    2026-11-22T09:36:40Z epoch 2 rank 1 | a warning of the second process of a trial on several devices

The worker writes it (`tuner.worker.log_process`): at most 10 MB, of which the first and the last part are kept. Lines
of "tuner" say who ran the trial, and what is left out. A trial that printed nothing has no log.
"""

from __future__ import annotations

from tuner.errors import RunFolderError
from tuner.storage.folder import Folder

LOGS = "logs"
END_LINES = 20  # that stand beside a traceback
LONGEST_LINE = 500  # characters of these
CHECKED_BYTES = 64  # by which a follower knows that a log still goes on from where it has read


def log_name(trial: str) -> str:
    """The log's name in the run folder."""
    return f"{LOGS}/{trial}.log"


def read_log(folder: Folder, trial: str, start: int = 0) -> bytes:
    """The log after its first `start` bytes; empty for a trial that printed nothing. Raises OSError."""
    try:
        return folder.read_from(log_name(trial), start)
    except FileNotFoundError:
        return b""


def log_text(folder: Folder, trial: str) -> str:
    """The whole log; what isn't UTF-8 is shown as its escape. Raises RunFolderError where it can't be read."""
    try:
        return decoded(read_log(folder, trial))
    except OSError as error:
        raise RunFolderError(
            f"a trial's log needs to be a file that can be read, got {log_name(trial)} in {folder.uri!r} "
            f"({error.strerror or error}); check its permissions"
        ) from error


def end_of_log(folder: Folder, trial: str, lines: int = END_LINES) -> str:
    """The last lines of a trial's log, each cut where it is very long; empty where there are none to read."""
    try:
        found = decoded(read_log(folder, trial)[-lines * LONGEST_LINE * 4 :])
    except (OSError, RunFolderError):  # the latter where a link leads out of the run
        return ""
    return "\n".join(_cut(line) for line in found.rstrip("\n").split("\n")[-lines:])


def decoded(content: bytes) -> str:
    """As text; what isn't UTF-8 as its escape."""
    return content.decode("utf-8", "backslashreplace")


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "…"


class LogFollower:
    """Reads a log while the trial prints, from its last lines on."""

    def __init__(self, folder: Folder, trial: str, lines: int = END_LINES) -> None:
        self._folder, self._trial = folder, trial
        self._first = lines
        self._taken = -1  # bytes; -1 before the first look
        self._last = b""  # of what was taken

    def new(self) -> str:
        """What has come since the last call, in whole lines; the last lines where the log was shortened meanwhile."""
        start = max(0, self._taken - len(self._last))
        content = read_log(self._folder, self._trial, start)
        if self._taken < 0 or not content.startswith(self._last):
            content = read_log(self._folder, self._trial)
            begin = self._beginning(content)
            start, found = 0, content[begin:]
        else:
            found = content[len(self._last) :]
        whole = found[: found.rfind(b"\n") + 1]
        self._taken = start + len(content) - (len(found) - len(whole))
        self._last = content[: self._taken - start][-CHECKED_BYTES:]
        return decoded(whole)

    def rest(self) -> str:
        """The same once nothing more will come: also a last line without an end."""
        found = self.new()
        end = decoded(read_log(self._folder, self._trial, self._taken))
        return f"{found}{end}\n" if end else found

    def _beginning(self, content: bytes) -> int:
        """Where its last lines begin."""
        at = len(content)
        for _ in range(self._first + 1):
            at = content.rfind(b"\n", 0, max(0, at))
            if at < 0:
                return 0
        return at + 1
