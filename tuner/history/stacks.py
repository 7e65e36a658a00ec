"""What the threads of a hung trial were doing when it was killed: left in the run folder by its worker.

The worker is dead by then and can't report it. The driver makes it part of the trial's events, and deletes the file.
"""

from __future__ import annotations

from contextlib import suppress

from tuner.storage.folder import Folder

STACKS = "stacks"  # the folder of their files
HUNG = "hung"  # the cause
LONGEST = 100_000  # characters


def stacks_name(trial: str) -> str:
    """The file of a trial."""
    return f"{STACKS}/{trial}.txt"


def take_stacks(folder: Folder, trial: str) -> str | None:
    """The stacks of a trial that was killed as it hung, and delete their file; None where it died of something else."""
    name = stacks_name(trial)
    try:
        content = folder.read(name)
        folder.remove(name)
    except OSError:
        return None
    return content.decode("utf-8", "replace").replace("\0", "")[:LONGEST].strip() or None


def drop_stacks(folder: Folder, trial: str) -> None:
    """Delete the file of a trial that did not hang."""
    with suppress(OSError):
        folder.remove(stacks_name(trial))


def hung_message(minutes: float | None) -> str:
    """What a hung trial's record says."""
    return f"it reported nothing for {minutes or 0:g} minutes (hung_minutes), so it was killed; its stacks show where"
