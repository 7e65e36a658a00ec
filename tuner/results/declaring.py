"""The study of a run, read from its folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuner.errors import RunFolderError, StudyError
from tuner.history.run_info import STUDY_FILE, STUDY_JSON
from tuner.results.run import RecordedRun
from tuner.results.wording import going_on_by
from tuner.storage.folder import Folder
from tuner.storage.hub import at_commits, commits_in
from tuner.storage.locations import fetched_file, require_own
from tuner.study.as_json import study_from_json
from tuner.study.declaration import Study
from tuner.study.file import load_study


def declared_study(run: RecordedRun, *, trust: bool = True) -> Study:
    """See `tuner.Run.declared_study`."""
    original = run.info["study_file"]
    if original is None:
        raise RunFolderError(
            f"a run started from Python is resumed from Python, got {run.path!r}; call {going_on_by(run)}"
        )
    if original == STUDY_JSON:
        return as_begun(run, lambda: _from_json(run.folder))
    if not trust:
        require_own(run.folder, STUDY_FILE)
    with tempfile.TemporaryDirectory() as temporary:
        file = fetched_file(run.folder, STUDY_FILE, Path(temporary))
        return as_begun(run, lambda: load_study(file, original=Path(original)))


def as_begun(run: RecordedRun, load: Callable[[], Study]) -> Study:
    """The study that `load` gives, checked with the hub's models at the commits with which the run began."""
    weights = run.info["weights_fingerprint"]
    with at_commits(commits_in(weights)):
        study = load()
        return replace(study, trial=study.declared_trial.at_commits(weights)) if commits_in(weights) else study


def _from_json(folder: Folder) -> Study:
    """The study in study.json: it is data and nothing is executed, so it may come from anybody."""
    try:
        return study_from_json(folder.read(STUDY_JSON))
    except (OSError, StudyError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StudyError(f"{STUDY_JSON} of {folder.uri!r} can't be read: {reason}") from error
