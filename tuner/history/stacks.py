"""The stacks of a hung trial's threads when it was killed; its worker leaves them in the run folder.

The worker is dead by then and can't report it. The driver moves the text into the trial's events.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress

from tuner.storage.folder import Folder

STACKS = "stacks"  # the folder of their files
HUNG = "hung"  # the cause of such a failure
LONGEST = 100_000  # characters
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def stacks_name(trial: str) -> str:
    """The file's name for a trial."""
    return f"{STACKS}/{trial}.txt"


def take_stacks(folder: Folder, trial: str) -> str | None:
    """Read and delete the stacks of a trial that was killed because it hung; None if it died of something else."""
    name = stacks_name(trial)
    try:
        content = folder.read(name)
        folder.remove(name)
    except OSError:
        return None
    return _legible(content.decode("utf-8", "replace")).replace("\0", "")[:LONGEST].strip() or None


def drop_stacks(folder: Folder, trial: str) -> None:
    """Delete the file of a trial that did not hang."""
    with suppress(OSError):
        folder.remove(stacks_name(trial))


def hung_message(minutes: float | None) -> str:
    """What a hung trial's record says."""
    return f"it reported nothing for {minutes or 0:g} minutes (hung_minutes), so it was killed; its stacks show where"


def _legible(stacks: str) -> str:
    """Turn faulthandler's escapes for non-ASCII letters back into letters; other escapes stay."""
    return _ESCAPED.sub(_letter, stacks)


def _letter(escaped: re.Match[str]) -> str:
    code = int(next(digits for digits in escaped.groups() if digits), 16)
    letter = chr(code) if 0x80 <= code <= sys.maxunicode else ""
    return letter if letter.isprintable() and letter else escaped[0]
