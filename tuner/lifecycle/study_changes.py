"""What was changed in a run's study file since the run began, and whether its trials stay comparable with new ones."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.events import Event
from tuner.results.run import STUDY_FILE
from tuner.space import space_record
from tuner.storage.folder import Folder
from tuner.study import Study

MOST_LINES = 40  # of a difference that is shown


def comparable(study: Study) -> dict[str, Any]:
    """What two studies must have in common for their trials to be compared, as plain data by name."""
    return {
        "metric": study.metric,
        "mode": study.mode,
        "seed": study.seed,
        "space": space_record(study.search_space),
        **study.declared_trial.identity(),
    }


def check_comparable(study: Study, info: dict[str, Any], where: str) -> None:
    """Raise RunFolderError where trials of the study could not be compared with those that the run has."""
    before = info.get("comparable")
    if not isinstance(before, dict) or not before:
        return
    now = comparable(study)
    for name in (name for name in {**before, **now} if before.get(name) != now.get(name)):
        was, got = ("", "") if name == "space" else (f" {before.get(name)!r}", f" {now.get(name)!r}")
        raise RunFolderError(
            f"a run keeps the {name} that it began with{was}, got another one{got} in {where}: trials could not be "
            f"compared; change it back, or start a new run, which learns from this one"
        )
    if info.get("data_fingerprint") != study.declared_trial.fingerprint():
        raise RunFolderError(
            f"a run keeps the data that it began with, got other files for {where}: trials could not be compared; "
            "restore the files, or start a new run"
        )


@dataclass(frozen=True)
class StudyText:
    """The text of a run's study file now, and as the earlier driver had it; None if there was none."""

    now: str
    before: str | None
    version_before: int = 1

    @property
    def changed(self) -> bool:
        """Whether somebody edited the file."""
        return self.before is not None and self.before != self.now

    @property
    def version(self) -> int:
        """The number of the text of now, counted from 1."""
        return self.version_before + self.changed

    @property
    def difference(self) -> str:
        """The lines that differ, as `diff -u` shows them."""
        before, now = (self.before or "").splitlines(), self.now.splitlines()
        lines = list(difflib.unified_diff(before, now, "before", "now", n=0, lineterm=""))
        more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        return "\n".join(lines[:MOST_LINES] + more)

    def keep_before(self, folder: Folder) -> str:
        """Write the earlier text next to the new one; its name."""
        name = f"study.{self.version_before}.py"
        folder.write(name, (self.before or "").encode("utf-8", "surrogateescape"))
        return name


def write_study_file(folder: Folder, study: Study) -> None:
    """Write the study's file as it is, or a word on what it was in Python."""
    if study.source is not None:
        folder.write(STUDY_FILE, study.source.read_bytes())
    else:
        folder.write(STUDY_FILE, f'"""Declared in Python, not in a file."""\n\n# {study!r}\n'.encode())


def study_text(folder: Folder, history: Sequence[Event] = ()) -> StudyText:
    """The study file in the run folder, beside what the run's events say it was."""
    try:
        now = folder.read(STUDY_FILE).decode("utf-8", "replace")
    except OSError:
        now = ""
    texts = [event for event in history if isinstance(event.get("study_file"), str)]
    if not texts:
        return StudyText(now, None)
    version = texts[-1].get("study_version")
    return StudyText(now, texts[-1]["study_file"], version if isinstance(version, int) else 1)
