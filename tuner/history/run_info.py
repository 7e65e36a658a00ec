"""`run.json`: the description of a run, and how it is read from a file that may be damaged, older, or foreign.

FORMAT counts the ways in which run folders were written:

    1   events without checksums
    2   each line of events ends with its checksum (`event_lines`); checkpoints lie where `checkpoints` says
    3   configurations hold values that JSON doesn't have, see `tuner.space.values.recorded`; a run whose values JSON
        has stays of format 2

It is raised when an earlier version would misread what is written now, not for new fields or new kinds of events, which
earlier versions skip. Every older format is read; `tests/history/format_N/` keeps a run of each. A newer one is refused
by its number. A run that is resumed takes the format of the version that goes on with it.

Fields that everything needs are `study`, `metric`, `mode`, `status` and `started`: without them the run is refused. Any
other field counts as not given if it is missing or of another type; a wrong type is reported as damage.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.errors import RunFolderError, StudyError
from tuner.history.event_lines import DEEPEST, EVENTS, cut, finite, is_count, is_mapping, nested_deeper
from tuner.space.values import LARGEST_EXACT
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import open_folder
from tuner.study.budget import LIMITS
from tuner.study.declaration import Study, recorded_costs

RUN_FILE = "run.json"
STUDY_FILE = "study.py"
STUDY_JSON = "study.json"  # of a study that no file declared, if plain data can express all of it
FORMAT = 3
TIME_FORMAT = "%Y-%m-%dT%H-%M-%S"
MODES = ("min", "max")
STATUSES = ("running", "finished", "interrupted", "failed")
Check = Callable[[object], bool]


def read_info(folder: Folder) -> tuple[dict[str, Any], list[str]]:
    """The content of run.json with every known field, and a sentence for each field of another type.

    Raises:
        RunFolderError: the file is missing, damaged, of a newer format, or lacks a required field.
    """
    info = _content(folder)
    if not isinstance(info, dict) or not is_count(info.get("format")) or info["format"] < 1:
        raise RunFolderError(
            f"{RUN_FILE} needs to describe a run, got something else in {folder.uri!r}; check the path{_rest(folder)}"
        )
    if info["format"] > FORMAT:
        raise RunFolderError(
            f"this tuner reads runs up to format {FORMAT}, got format {info['format']} in {folder.uri!r}; update tuner"
        )
    missing = [name for name in _NEEDED if name not in info]
    if missing:
        raise RunFolderError(
            f"{RUN_FILE} needs {', '.join(_NEEDED)}, got one without {', '.join(missing)} in {folder.uri!r}; "
            f"restore it{_rest(folder)}"
        )
    for name, (rule, is_sound) in _NEEDED.items():
        if not is_sound(info[name]):
            raise RunFolderError(
                f"{RUN_FILE} needs {rule} as {name}, got {cut(info[name])} in {folder.uri!r}; restore it{_rest(folder)}"
            )
    return _with_sound_fields(info)


def write_info(folder: Folder, info: dict[str, Any]) -> None:
    """Replace run.json as a whole; it is of this version's format from now on."""
    info |= {"format": max(2, info.get("format", 2)), "updated": now()}
    folder.write(RUN_FILE, (json.dumps(info, indent=2, default=str) + "\n").encode())


def new_run_folder(storage: str | Path, study: str) -> Folder:
    """The folder for a run that starts now; a second one within the same second gets a suffix."""
    base = open_folder(storage).child(study)
    stamp = datetime.now(UTC).strftime(TIME_FORMAT)
    taken = set(base.folders())
    names = (name for name in (stamp, *(f"{stamp}-{k}" for k in range(2, 1000))) if name not in taken)
    return next(folder for name in names if _made(folder := base.child(name)))


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _made(folder: Folder) -> bool:
    """Whether the folder is this run's now: False if another run took the name in the same moment."""
    if not isinstance(folder, LocalFolder):
        return True
    try:
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        folder.path.mkdir()
    except FileExistsError:
        if folder.path.is_dir():
            return False
        raise _no_folder(folder, "File exists") from None
    except OSError as error:
        raise _no_folder(folder, error.strerror) from error
    return True


def _no_folder(folder: LocalFolder, reason: str | None) -> RunFolderError:
    return RunFolderError(
        f"--storage needs a folder that can be written to, got {str(folder.path.parent.parent)!r} ({reason}); "
        "choose another"
    )


def _content(folder: Folder) -> Any:
    try:
        content = json.loads(folder.read(RUN_FILE).decode(), parse_constant=lambda _: None)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(
            f"a run is a folder with {RUN_FILE}, got {folder.uri!r}, which has none; check the path{_rest(folder)}"
        ) from error
    except OSError as error:
        raise RunFolderError(
            f"{RUN_FILE} needs to be a file that can be read, got one in {folder.uri!r} that can't "
            f"({error.strerror or error}); check its permissions{_rest(folder)}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(
            f"{RUN_FILE} needs to be JSON, got a damaged one in {folder.uri!r}; restore it{_rest(folder)} ({error})"
        ) from error
    if nested_deeper(content, DEEPEST):
        raise RunFolderError(
            f"{RUN_FILE} needs to describe a run, got one nested more than {DEEPEST} deep in {folder.uri!r}; restore it"
        )
    return content


def _rest(folder: Folder) -> str:
    """What a message says about the remaining files if run.json can't be used."""
    try:
        segments = folder.files(EVENTS)
    except OSError:
        return ""
    return f", as the events in {EVENTS}/ are still there" if segments else ""


def _with_sound_fields(info: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    damages = []
    for name, (rule, is_sound, default) in _OPTIONAL.items():
        if name not in info or info[name] is None:
            info[name] = copy(default)
        elif not is_sound(info[name]):
            damages.append(f"{RUN_FILE} needs {rule} as {name}, got {cut(info[name])}; it is left out")
            info[name] = copy(default)
    return info, damages


# What the fields are


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_amount(value: object) -> bool:
    return finite(value) and isinstance(value, int | float) and 0 <= value < LARGEST_EXACT


def _each(values: object, is_sound: Check) -> bool:
    return isinstance(values, list) and all(map(is_sound, values))


def _is_some(value: object, names: Iterable[str], is_sound: Check) -> bool:
    """Whether it is an object whose entries with these names are valid, or null."""
    return isinstance(value, dict) and all(value.get(name) is None or is_sound(value[name]) for name in names)


def _is_budget(value: object) -> bool:
    counts = ("trials", "max_epochs", "total_epochs")
    return _is_some(value, [limit.name for limit in LIMITS], finite) and _is_some(
        value, counts, lambda one: is_count(one) and one != 0
    )


def _are_options(value: object) -> bool:
    limits = [limit.name for limit in LIMITS]
    return (
        isinstance(value, dict)
        and set(value) <= {*inspect.signature(Study.with_options).parameters, *limits}
        and _is_some(value, ("name", "strategy", "placement", "weights", "data_dir"), _is_text)
        and _is_some(value, limits, finite)
        and _is_some(value, ("seed",), is_count)
        and _is_some(value, ("cpus", "gpus"), lambda one: _is_amount(one) or one == "auto")
        and _is_some(value, ("fixed",), is_mapping)
    )


def _is_space(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(entry, dict)
        and ("constant" in entry or isinstance(entry.get("domain"), str))
        and isinstance(when := entry.get("when", {}), dict)
        and all(isinstance(values, list) for values in when.values())
        for entry in value.values()
    )


def _are_limits(value: object) -> bool:
    return isinstance(value, dict) and all(_each(pair, finite) and len(pair) == 2 for pair in value.values())


def _is_objective(value: object) -> bool:
    return isinstance(value, dict) and _is_text(value.get("metric")) and value.get("mode") in MODES


def _are_costs(value: object) -> bool:
    try:
        recorded_costs(value)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StudyError):
        return False
    return True


def _is_forecast(value: object) -> bool:
    if not isinstance(value, dict) or not all(isinstance(each, bool) or finite(each) for each in value.values()):
        return False
    return bool(value.get("reduction_factor", 3) > 1)


_NEEDED: Mapping[str, tuple[str, Check]] = {
    "study": ("a name", _is_text),
    "metric": ("a name", _is_text),
    "mode": (" or ".join(map(repr, MODES)), lambda value: isinstance(value, str) and value in MODES),
    "status": (f"one of {', '.join(STATUSES)}", lambda value: isinstance(value, str) and value in STATUSES),
    "started": ("a time", _is_text),
}
_FAILURES = ("lost", "error", "out_of_memory", "alike", "hung_minutes")
_TEXTS = (
    "search", "scheduler", "warm_start", "trial", "started_from", "data_fingerprint", "weights_fingerprint",
    "git_commit", "study_file", "report", "address", "host", "python", "ended", "end_reason", "best", "updated",
    "unscored", "interrupted_by", "mlflow",
)  # fmt: skip
_OPTIONAL: Mapping[str, tuple[str, Check, Any]] = {
    **dict.fromkeys(_TEXTS, ("a text", _is_text, None)),
    **{
        name: ("an object", is_mapping, {})
        for name in ("machine", "versions", "trials", "comparable", "function_sources", "defaults")
    },
    "options": ("options of a study", _are_options, {}),
    "costs": ("costs of networks", _are_costs, None),
    "second": ("a metric and a mode", _is_objective, None),
    "seed": ("a count", is_count, None),
    "concurrency": ("a count", is_count, None),
    "asked": ("true or false", lambda value: isinstance(value, bool), False),
    "shared_gpus": ("a count", is_count, None),
    "sessions": ("a count", is_count, 1),
    "pid": ("a process", lambda value: is_count(value) and isinstance(value, int) and value < 2**31, 0),
    "wall_seconds": ("seconds", _is_amount, None),
    "wandb": ("a text", _is_text, "off"),
    "working_directory": ("a path", _is_text, "."),
    "command": ("a list of texts", lambda value: _each(value, _is_text), []),
    "start_from": ("a list of configurations", lambda value: _each(value, is_mapping), []),
    "rungs": ("a list of epochs", lambda value: _each(value, lambda one: is_count(one) and one != 0), []),
    "forecast": ("numbers", _is_forecast, {}),
    "budget": ("limits", _is_budget, {}),
    "resources": ("amounts", lambda value: _is_some(value, ("cpus", "gpus"), _is_amount), {}),
    "space": ("domains and constants", _is_space, None),
    "failures": ("numbers", lambda value: _is_some(value, _FAILURES, _is_amount), {}),
    "limits": ("lowest and highest values", _are_limits, None),
}
