"""All exceptions that tuner raises itself.

TunerError
├── StudyError            a study, an option or a folder can't work; raised before anything starts, exit code 2
│   ├── SpaceError        a search space that can't work, or a configuration outside of it
│   ├── DataError         a data set that is missing or malformed
│   ├── WeightsError      weights that are missing, or don't fit the model
│   └── RunFolderError    a folder that is no run, or a run that can't do what was asked
├── ReportError           what a program tells a `tuner.Search` of a trial can't be; nothing was recorded
├── SearchFailed          no trial of a search succeeded; its `run` is there
└── TrialError            ends one trial; the search goes on
    ├── TrialDiverged     the loss became NaN or infinite
    ├── TrialLost         its worker can't run it; it goes on elsewhere
    ├── WorkerSpent       an earlier trial goes on there or spoiled it; the next one starts elsewhere
    └── TrialOutOfMemory  the device or the host had too little memory

Messages say the rule, what was got, and the fix, in one line:
`loguniform needs low > 0, got low=0.0 for 'lr'; use uniform or raise low`.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tuner.errors.gpu_errors import advice, context_is_dead, is_device_fault

LONGEST_SHOWN = 300  # characters of a value in a message
LONGEST_MESSAGE, LONGEST_TRACEBACK = 4_000, 100_000  # characters that a run keeps of them
_from_python: ContextVar[bool] = ContextVar("from_python", default=False)  # who reads a message has called a function
NO_REPORT = "it returned without reporting anything; call tuner.report(...) once per epoch"


class TunerError(Exception):
    """Base class of all errors that tuner raises itself."""


class StudyError(TunerError):
    """The study can't work as it is written; nothing was started."""


class SpaceError(StudyError):
    """A search space that can't work, or a configuration outside of it."""


class DataError(StudyError):
    """A data set that is missing or malformed."""


class WeightsError(StudyError):
    """Weights that are missing or don't fit the model."""


class RunFolderError(StudyError):
    """A folder that is not a run, or a run that can't do what was asked."""


class ReportError(TunerError):
    """A program reported something impossible to `tuner.Search`; nothing was recorded."""


class SearchFailed(TunerError):  # noqa: N818
    """No trial of a search succeeded; `run` is the `Run` that it left."""

    def __init__(self, message: str, run: Any) -> None:
        super().__init__(message)
        self.run = run


class TrialError(TunerError):
    """One trial has failed; `cause` is what its record says."""

    cause = "error"


class TrialDiverged(TrialError):  # noqa: N818 -- the field's word, and it reads as what happened
    """The loss became NaN or infinite."""

    cause = "diverged"


class TrialLost(TrialError):  # noqa: N818
    """The worker can't run the trial; the trial goes on from its last checkpoint on another worker."""

    cause = "lost"


class WorkerSpent(TrialError):  # noqa: N818
    """A worker's last trial doesn't end or has spoiled it; or, without a message, the next trial needs a fresh worker.

    The next trial starts on another worker, and has lost nothing.
    """


class TrialOutOfMemory(TrialError):  # noqa: N818
    """Too little memory even for one image; with a `remedy`, too little unless all processes apply that."""

    cause = "out_of_memory"

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


def describe_failure(error: BaseException) -> tuple[str, str, str]:
    """Cause, one-line message and traceback of a trial's exception; the cause is "lost" if its GPU failed."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, TrialError):
        return error.cause, str(error), trace
    if isinstance(error, SystemExit):
        return "error", f"the trial's code called exit({error.code!r}); raise an exception instead", trace
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory", str(error) or type(error).__name__, trace
    if context_is_dead(error):
        line = one_line(str(error).split("\n")[0])
        return "lost" if is_device_fault(error) else "error", f"{type(error).__name__}: {line}; {advice(error)}", trace
    return "error", f"{type(error).__name__}: {error}".removesuffix(": "), trace


# For messages


def shown(value: object) -> str:
    """A value as messages show it: its repr in one line, shortened if it is long; its type if it has no repr."""
    try:
        text = repr(value)
    except Exception:  # a class whose __repr__ fails, a list that is too deep, a whole number of too many digits
        return f"a {type(value).__name__} that can't be shown"
    return _cut(one_line(text))


def describe_error(error: BaseException) -> str:
    """An exception's type and message in one line, even if its own class can't print it."""
    try:
        return _cut(one_line(f"{type(error).__name__}: {error}"))
    except Exception:
        return f"{type(error).__name__}, which can't be shown"


def last_line(error: BaseException) -> str:
    """The last line of an exception's message, which says what happened where a traceback stands before it."""
    return next(reversed(str(error).strip().splitlines()), type(error).__name__)


def one_line(text: str) -> str:
    """The text without line breaks, and without characters that can't be encoded."""
    return " ".join(part.strip() for part in text.splitlines()).encode(errors="backslashreplace").decode()


def shortened(text: str, most: int = LONGEST_MESSAGE) -> str:
    """A text of any length as a run keeps it: its beginning and its end, and between them how much is left out."""
    if len(text) <= most:
        return text
    kept = most // 2 - 50  # the words between are shorter than 100
    return f"{text[:kept]} … {len(text) - 2 * kept:,} characters are left out, see the trial's log … {text[-kept:]}"


def kept(message: str, traceback: str | None) -> tuple[str, str | None]:
    """What a run keeps of a failure's texts, which may have any length."""
    return shortened(message), traceback and shortened(traceback, LONGEST_TRACEBACK)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


@contextmanager
def asked_from_python() -> Iterator[None]:
    """Within the block `setting` names arguments of calls, no options of commands; for this thread."""
    token = _from_python.set(True)
    try:
        yield
    finally:
        _from_python.reset(token)


def setting(option: str, value: object = None, name: str | None = None) -> str:
    """A setting as who asked would write it: `--trials 22` of a command, `trials=22` of a call; `name` if another."""
    if not _from_python.get():
        return option if value is None else f"{option} {value}"
    return (name or option.removeprefix("--").replace("-", "_")) + ("" if value is None else f"={value}")


def switched_off(option: str, name: str) -> str:
    """What is switched off by `--no-history` of a command, by `history=False` of a call."""
    return f"{name}=False" if _from_python.get() else option


def did_you_mean(name: str, known: Iterable[str], spellings: Mapping[str, str] | None = None) -> str:
    """The end of a message about an unknown name; `spellings` are further names of some."""
    names = {known_name: known_name for known_name in known}
    close = difflib.get_close_matches(name, spelt := {**(spellings or {}), **names}, n=1)
    return f"did you mean {spelt[close[0]]!r}?" if close else f"it has {', '.join(names) or 'nothing'}"
