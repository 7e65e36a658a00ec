"""A study submitted again, with changes in its study file."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.service.bundles import read_back
from tuner.service.database import studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Submission
from tuner.service.service import Service


@dataclass(frozen=True)
class StudyFile:
    """A study's file as it was submitted: Python, or JSON if workers ask for its trials."""

    name: str
    text: str


def study_file(service: Service, study: int) -> StudyFile:
    """The file of a study. Raises ServiceError if it is gone, or no text in UTF-8."""
    found = service.study(study)
    try:
        content = (service.folder.bundle(study) / found.main).read_bytes() if found.main else None
    except OSError:
        content = None
    if content is None:
        raise _gone(study)
    try:
        return StudyFile(found.main, content.decode())
    except UnicodeDecodeError as error:
        raise ServiceError(
            Code.CONFLICT,
            "a study file that is shown is text in UTF-8",
            found.main,
            "fetch all files of its run",
        ) from error


def again(service: Service, study: int, content: bytes) -> Submission:
    """A study with this file, and with its other files, its options, devices and predecessors as they are now.

    A priority above 0 is not taken over. Raises ServiceError if its files are gone.
    """
    found, files = service.study(study), read_back(service.folder.bundle(study), service.limits)
    if found.main not in files:
        raise _gone(study)
    with service.database.reading() as connection:
        wanted = studies.wanted_devices(connection, study)
    return Submission(
        found.main,
        {**files, found.main: content},
        priority=min(0, found.priority),
        preemptible=found.preemptible,
        devices=wanted,
        after=found.after,
        options=found.options,
        external=found.external,
    )


def _gone(study: int) -> ServiceError:
    return ServiceError(
        Code.NOT_FOUND, "a study's file is kept until the study is deleted", f"study {study}", "submit it anew"
    )
