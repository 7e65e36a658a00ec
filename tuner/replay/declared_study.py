"""The study with which a trial was started: its text from the run's events, with the run's options."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import RunFolderError
from tuner.history.records import TrialRecord
from tuner.results.declaring import as_begun
from tuner.results.run import RecordedRun
from tuner.storage.locations import require_own
from tuner.study.declaration import Study
from tuner.study.file import load_study

STUDY_FILE = "study.py"


@dataclass(frozen=True)
class Declared:
    """The study of a trial.

    Attributes:
        study: with the run's options, and absolute paths
        versions: of the study file with which the trial was trained, in order
        edited_since: whether the run's copy has another text now
        given: whether it was passed as an argument, not read from the run
        code: fingerprint of the trial's code, if the trial is only code
    """

    study: Study
    code: str | None = None
    versions: tuple[int, ...] = ()
    edited_since: bool = False
    given: bool = False


def declared(run: RecordedRun, trial: TrialRecord, study: Study | None = None, *, trust: bool = False) -> Declared:
    """The study with which the trial ran; `study` is needed for a run that was started from Python.

    The study file is run as Python, with `trust` even if it may be another user's.

    Raises:
        RunFolderError: a study is needed, or the folder is another user's.
        StudyError: the study can't be read any more.
    """
    if study is not None:
        return Declared(_as_driven(study, run), study.declared_trial.source_fingerprint(), given=True)
    if run.info["study_file"] is None:
        raise RunFolderError(
            f"a replay of a run that was started from Python needs its study, got {run.path!r}; "
            f"call tuner.load_run({run.path!r}).replay({trial.trial!r}, study=study)"
        )
    versions = tuple(dict.fromkeys(_versions_of(run, trial.trial)))
    text = _texts(run).get(versions[-1] if versions else 1)
    now = _text_now(run)
    if not trust:
        require_own(run.folder, STUDY_FILE)
    found, code = _load(text or now or "", run)
    return Declared(_as_driven(found, run), code, versions, edited_since=None not in (text, now) and text != now)


def _as_driven(study: Study, run: RecordedRun) -> Study:
    """The study as `resume` prepares it."""
    changed = study.with_options(**run.info["options"])
    resolved = changed.declared_trial.resolved(Path(run.info["working_directory"]))
    return replace(changed, trial=resolved.at_commits(run.info["weights_fingerprint"]))


def _load(text: str, run: RecordedRun) -> tuple[Study, str | None]:
    """The study and its code's fingerprint, which needs the file."""
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / STUDY_FILE
        file.write_text(text, encoding="utf-8")
        found = as_begun(run, lambda: load_study(file, original=Path(run.info["study_file"])))
        return found, found.declared_trial.source_fingerprint()


def _texts(run: RecordedRun) -> dict[int, str]:
    """The texts of the study file by their versions; older runs have none."""
    opening = (event for event in run.events if event["event"] in ("study_started", "study_resumed"))
    return {event.get("study_version", 1): event["study_file"] for event in opening if event.get("study_file")}


def _versions_of(run: RecordedRun, trial: str) -> Iterator[int]:
    """The version of the study file at each start of the trial."""
    version = 1
    for event in run.events:
        version = event.get("study_version", version) if event["event"].startswith("study_") else version
        if event["event"] in ("trial_started", "trial_resumed") and event["trial"] == trial:
            yield version


def _text_now(run: RecordedRun) -> str | None:
    try:
        return run.folder.read(STUDY_FILE).decode("utf-8", "replace")
    except OSError:
        return None
