"""A study submitted again, with changes in its study file."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.service.bundles import read_back
from tuner.service.database import studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Submission, SubmittedStudy
from tuner.service.service import Service


@dataclass(frozen=True)
class StudyFile:
    """A study's file as it was submitted: Python, or JSON if workers ask for its trials."""

    name: str
    text: str


def study_file(service: Service, study: int) -> StudyFile:
    """The file of a study. Raises ServiceError if it is gone."""
    found = service.study(study)
    return StudyFile(found.main, _files(service, found)[found.main].decode(errors="replace"))


def again(service: Service, study: int, text: str) -> Submission:
    """A study with this text as its file, and all else as it was submitted: other files, options, devices.

    A priority above 0 is not taken over. Raises ServiceError if its files are gone.
    """
    found = service.study(study)
    files = {**_files(service, found), found.main: text.encode()}
    with service.database.reading() as connection:
        wanted = studies.wanted_devices(connection, study)
    return Submission(
        found.main,
        files,
        priority=min(0, found.priority),
        preemptible=found.preemptible,
        devices=wanted,
        options=found.options,
        external=found.external,
    )


def _files(service: Service, study: SubmittedStudy) -> dict[str, bytes]:
    found = read_back(service.folder.bundle(study.id), service.limits)
    if not study.main or study.main not in found:
        raise ServiceError(
            Code.NOT_FOUND, "a study's file is kept until the study is deleted", f"study {study.id}", "submit it anew"
        )
    return found
