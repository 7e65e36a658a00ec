"""Changes in a run's study file since the run began, and whether its trials can still be compared with new ones."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePath
from typing import Any

from tuner.errors import RunFolderError, StudyError
from tuner.history.events import Event
from tuner.history.run_info import STUDY_FILE, STUDY_JSON
from tuner.space import space_record
from tuner.space.values import canonical
from tuner.storage.folder import Folder
from tuner.study.as_json import study_from_json, study_to_json
from tuner.study.declaration import Study

MOST_LINES = 40  # that are shown of a difference
MOST_NAMED = 3  # hyperparameters whose difference is shown, and files


def comparable(study: Study) -> dict[str, Any]:
    """What two studies must have in common for their trials to be compared, as plain data by name."""
    return {
        "metric": study.metric,
        "mode": study.mode,
        "seed": study.seed,
        "space": space_record(study.search_space),
        **({"limits": dict(study.limits), "latency": repr(study.latency)} if study.measured else {}),
        **({"second metric": study.second.metric, "second mode": study.second.mode} if study.second else {}),
        **study.declared_trial.identity(),
    }


def check_comparable(study: Study, info: dict[str, Any], where: str) -> None:
    """Raise RunFolderError if the study's new trials couldn't be compared with the run's trials."""
    before = info.get("comparable")
    if not isinstance(before, dict) or not before:
        return
    now = comparable(study)
    for name in (name for name in {**before, **now} if canonical(before.get(name)) != canonical(now.get(name))):
        was, got = (f" {before.get(name)!r}", f" {now.get(name)!r}")
        if name == "space":
            was, got = "", f" ({_differences(before.get(name), now[name])})"
        raise RunFolderError(
            f"a run keeps the {name} that it began with{was}, got another one{got} in {where}: trials could not be "
            f"compared; change it back, or start a new run, which learns from this one"
        )
    if info.get("data_fingerprint") != study.declared_trial.fingerprint():
        raise RunFolderError(
            f"a run keeps the data that it began with, got other files of {now.get('data')} for {where}"
            f"{_newer(study, info)}: trials could not be compared; restore the files, or start a new run"
        )
    weights = {info.get("weights_fingerprint"), study.declared_trial.weights_fingerprint()}
    if None not in weights and len(weights) > 1:  # None: an earlier version's run, or no file (reported elsewhere)
        raise RunFolderError(
            f"a run keeps the weights that it began with, got other contents of {now.get('weights')} for {where}: "
            "trials could not be compared; restore the file, or start a new run"
        )


def _newer(study: Study, info: dict[str, Any]) -> str:
    """In brackets the files of the data that were written after the run began, as far as that is known."""
    try:
        began = datetime.fromisoformat(info["started"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return ""
    found = study.declared_trial.data_changed_since(began)
    if found is None:
        return ""
    newer = [str(path) for path in found]
    if not newer:
        return " (none is newer than the run: some were removed, renamed, or put there with an older time)"
    more = f" and {len(newer) - MOST_NAMED} more" if len(newer) > MOST_NAMED else ""
    return f" (newer than the run: {', '.join(newer[:MOST_NAMED])}{more})"


def _differences(before: Any, now: dict[str, Any]) -> str:
    """Which hyperparameters differ between two spaces, as `space_record` writes them."""
    before = before if isinstance(before, dict) else {}
    changed = [name for name in {**before, **now} if canonical(before.get(name)) != canonical(now.get(name))]
    told = [f"{name} {_entry(now.get(name))}, was {_entry(before.get(name))}" for name in changed[:MOST_NAMED]]
    return "; ".join(told) + (f"; and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else "")


def _entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        return "not in it"
    text = str(entry["domain"]) if "domain" in entry else repr(entry.get("constant"))
    return text + (f" when {entry['when']}" if "when" in entry else "")


@dataclass(frozen=True)
class StudyText:
    """The text of a run's study file now, and as the earlier driver had it; None if there was none."""

    now: str
    before: str | None
    version_before: int = 1
    name: str = STUDY_FILE

    @property
    def changed(self) -> bool:
        """Whether somebody edited the file."""
        return self.before is not None and self.before != self.now

    @property
    def version(self) -> int:
        """The number of the present text, counted from 1."""
        return self.version_before + self.changed

    @property
    def difference(self) -> str:
        """The lines that differ, as `diff -u` shows them."""
        before, now = (self.before or "").splitlines(), self.now.splitlines()
        lines = list(difflib.unified_diff(before, now, "before", "now", n=0, lineterm=""))
        more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        return "\n".join(lines[:MOST_LINES] + more)

    def keep_before(self, folder: Folder) -> str:
        """Write the earlier text next to the new one; returns its file's name."""
        name = f"study.{self.version_before}{PurePath(self.name).suffix}"
        folder.write(name, (self.before or "").encode("utf-8", "surrogateescape"))
        return name


def write_study_file(folder: Folder, study: Study) -> str | None:
    """Write the study's declaration; returns what run.json records: its file's path, study.json, or None for only a
    note.

    A study that no file declared is written as JSON if JSON can express all of it.
    """
    if study.source is not None:
        folder.write(STUDY_FILE, study.source.read_bytes())
        return str(study.source)
    as_json = _as_json(study)
    if as_json is not None:
        folder.write(STUDY_JSON, f"{as_json}\n".encode())
        return STUDY_JSON
    folder.write(STUDY_FILE, f'"""Declared in Python, not in a file."""\n\n# {study!r}\n'.encode())
    return None


def study_text(folder: Folder, history: Sequence[Event] = ()) -> StudyText:
    """The study file in the run folder, and its text according to the run's events."""
    name, now = _stored(folder)
    texts = [event for event in history if isinstance(event.get("study_file"), str)]
    if not texts:
        return StudyText(now, None, name=name)
    version = texts[-1].get("study_version")
    return StudyText(now, texts[-1]["study_file"], version if isinstance(version, int) else 1, name)


def _stored(folder: Folder) -> tuple[str, str]:
    """Name and text of the file that declares the run's study."""
    for name in (STUDY_FILE, STUDY_JSON):
        with suppress(OSError):
            return name, folder.read(name).decode("utf-8", "replace")
    return STUDY_FILE, ""


def _as_json(study: Study) -> str | None:
    """The study as JSON, None if that would lose something, such as a function."""
    try:
        told = study_to_json(study)
        same = _in_one_form(study_from_json(told)) == _in_one_form(study)
    except StudyError:
        return None
    return told if same else None


def _in_one_form(study: Study) -> Study:
    """The study in one form: its space parsed, its starting points a tuple."""
    return replace(study, space=study.search_space, start_from=tuple(study.start_from))
