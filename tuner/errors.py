"""Everything that tuner raises on purpose.

TunerError
├── StudyError            a study, an option or a folder can't work; raised before anything starts, exit code 2
│   ├── SpaceError        a search space that can't work, or a configuration outside of it
│   ├── DataError         a data set that is missing or malformed
│   ├── WeightsError      weights that are missing, or don't fit the model
│   └── RunFolderError    a folder that is no run, or a run that can't do what was asked
└── TrialError            spoils one trial; the search goes on
    ├── TrialDiverged     the loss became NaN or infinite
    └── TrialOutOfMemory  the device or the host had too little memory

Messages say the rule, what was got, and the fix, in one line:
`loguniform needs low > 0, got low=0.0 for 'lr'; use uniform or raise low`.
"""

from __future__ import annotations

import traceback


class TunerError(Exception):
    """Base of all errors that tuner raises on purpose."""


class StudyError(TunerError):
    """The study can't work as it is written; nothing was started."""


class SpaceError(StudyError):
    """A search space that can't work, or a configuration outside of it."""


class DataError(StudyError):
    """A data set that is missing or malformed."""


class WeightsError(StudyError):
    """Weights that are missing or don't fit the model."""


class RunFolderError(StudyError):
    """A folder that is no run, or a run that can't do what was asked."""


class TrialError(TunerError):
    """One trial is spoilt; `cause` is what its record says."""

    cause = "error"


class TrialDiverged(TrialError):  # noqa: N818 -- the field's word, and it reads as what happened
    """The loss became NaN or infinite."""

    cause = "diverged"


class TrialOutOfMemory(TrialError):  # noqa: N818
    """The device or the host had too little memory, whatever the batch; or unless all processes do as `remedy` says."""

    cause = "out_of_memory"

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


def describe_failure(error: BaseException) -> tuple[str, str, str]:
    """Cause, one-line message and traceback of a trial's exception."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, TrialError):
        return error.cause, str(error), trace
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory", str(error) or type(error).__name__, trace
    if context_is_dead(error):
        line = str(error).splitlines()[0]
        return "error", f"{type(error).__name__}: {line}; most often a label lies outside the model's classes", trace
    return "error", f"{type(error).__name__}: {error}", trace


def context_is_dead(error: BaseException) -> bool:
    """After a device-side assert or an illegal access the process can't use its GPU any more: it must be replaced."""
    return any(
        sign in str(error) for sign in ("device-side assert", "illegal memory access", "unspecified launch failure")
    )
