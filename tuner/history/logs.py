"""What a trial printed: `logs/<trial>.log` in the run folder, each line with its time in UTC and its epoch.

    2026-11-22T09:36:11Z tuner | trial 00007 begins on node-3, process 4242, cuda:0 (NVIDIA H100)
    2026-11-22T09:36:12Z epoch 1 | loading 5000 images
    2026-11-22T09:36:40Z epoch 2 rank 1 | a warning of the second process of a trial on several devices

The worker writes it (`tuner.worker.log_process`): at most 10 MB, of which the first and the last part are kept. Lines
of "tuner" say who ran the trial, what is left out, and what the threads of a trial that was killed as it hung were
doing, which the driver adds. A trial that printed nothing has no log.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress

from tuner.errors import RunFolderError
from tuner.storage.folder import Folder, LocalFolder

LOGS = "logs"
LIMIT_BYTES = 10_000_000
END_LINES = 20  # shown with a traceback
LONGEST_LINE = 500  # characters of such a line
_OWN = re.compile(r"\S{20} tuner \| ")  # a line that the trial didn't print
CHECKED_BYTES = 64  # compared by a follower to see that the log was continued where it stopped reading


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
    """The whole log; what isn't UTF-8 is shown as its escape. Raises RunFolderError if it can't be read."""
    try:
        return decoded(read_log(folder, trial))
    except OSError as error:
        raise RunFolderError(
            f"a trial's log needs to be a file that can be read, got {log_name(trial)} in {folder.uri!r} "
            f"({error.strerror or error}); check its permissions"
        ) from error


def end_of_log(folder: Folder, trial: str, lines: int = END_LINES) -> str:
    """The last lines that a trial printed, very long ones cut; empty if there are none to read."""
    try:
        found = decoded(read_log(folder, trial)[-lines * LONGEST_LINE * 4 :])
    except (OSError, RunFolderError):  # the latter if a link leads out of the run
        return ""
    kept = found.rstrip("\n").split("\n")
    while kept and _OWN.match(kept[-1]):
        kept.pop()
    return "\n".join(map(_cut, kept[-lines:]))


def add_to_log(folder: Folder, trial: str, text: str) -> None:
    """Add tuner's own lines at the end, if the log has room for them; for a trial whose worker has ended."""
    begin = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} tuner | "
    lines = "".join(f"{begin}{line}\n" for line in text.splitlines()).encode()
    with suppress(OSError, RunFolderError):
        content = read_log(folder, trial)
        lines = lines if not content or content.endswith(b"\n") else b"\n" + lines
        if len(content) + len(lines) > LIMIT_BYTES:
            return
        if not isinstance(folder, LocalFolder):
            folder.write(log_name(trial), content + lines)
            return
        path = folder.inside(log_name(trial))
        path.parent.mkdir(exist_ok=True)
        with path.open("ab", buffering=0) as file:  # the worker's last output may still be on its way
            file.write(lines)


def decoded(content: bytes) -> str:
    """The bytes as text; what isn't UTF-8 as its escape."""
    return content.decode("utf-8", "backslashreplace")


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "…"


class LogFollower:
    """Reads a log while the trial prints, from its last lines on."""

    def __init__(self, folder: Folder, trial: str, lines: int = END_LINES) -> None:
        self._folder, self._trial = folder, trial
        self._first = lines
        self._taken = -1  # bytes; -1 before the first look
        self._last = b""  # bytes that were taken last

    def new(self) -> str:
        """The complete lines since the last call; if the log was shortened meanwhile, its last lines."""
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
        """Like `new`, when nothing more will come: also a last line without a line end."""
        found = self.new()
        end = decoded(read_log(self._folder, self._trial, self._taken))
        return f"{found}{end}\n" if end else found

    def _beginning(self, content: bytes) -> int:
        """Where the log's last lines begin."""
        at = len(content)
        for _ in range(self._first + 1):
            at = content.rfind(b"\n", 0, max(0, at))
            if at < 0:
                return 0
        return at + 1
