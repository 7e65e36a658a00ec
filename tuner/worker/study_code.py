"""Modules next to a study file that other machines need: finds them, sends them, and lets workers import them.

Ray's runtime environment brings copies to every node. A node that has the same files at the same place, as on a shared
disk, uses those instead: there they also find the files next to them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.study.file import STUDY_MODULE, folders_of_modules, imported_by
from tuner.trial import Trial

VARIABLE = "TUNER_CODE"  # of a worker's environment: the driver's folders, what is sent of each, and its digest
LEFT_OUT = "__pycache__"


def modules_beside(trial: Trial) -> dict[Path, list[str]]:
    """Modules that the trial's code imports from its study files' or the program's folders: files and packages, by
    folder.

    It follows the modules' own imports, too, also inside functions. A package is sent as a whole.
    """
    folders = [*folders_of_modules(), *_folders_of_the_program()]
    found: dict[Path, list[str]] = {}
    files, seen = list(_files_of(trial)), set[str]()
    while files:
        for name in sorted(imported_by(files.pop()) - seen - {"tuner"}):
            seen.add(name)
            path = _beside(name, folders)
            if path is not None:
                found.setdefault(path.parent, []).append(path.name)
                files += _sources(path)
    return {folder: sorted(names) for folder, names in found.items()}


def runtime_environment(trial: Trial) -> dict[str, Any] | None:
    """The runtime environment for `ray.init` that brings the modules to every node; None if there are none."""
    beside = modules_beside(trial)
    if not beside:
        return None
    told = [[str(folder), names, digest(folder, names)] for folder, names in beside.items()]
    return {
        "py_modules": [str(folder / name) for folder, names in beside.items() for name in names],
        "excludes": [f"**/{LEFT_OUT}"],
        "env_vars": {VARIABLE: json.dumps(told)},
    }


def extend_import_path(folders: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """In a worker: let it import the modules that the driver can import, originals before copies."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    for folder, names, told in json.loads(environment.get(VARIABLE, "[]")):
        if sys.path[0] != folder and digest(Path(folder), names) == told:
            sys.path.insert(0, folder)


def digest(folder: Path, names: Sequence[str]) -> str | None:
    """A digest of modules' and packages' Python files in a folder; None if one is missing or can't be read."""
    total = hashlib.sha256()
    try:
        for name in names:
            for file in _sources(folder / name):
                total.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    except OSError:
        return None
    return total.hexdigest()


def _files_of(trial: Trial) -> Iterator[Path]:
    """The user's first files: study files that were loaded, and the modules of the trial's functions."""
    names = {name for name in sys.modules.copy() if name.startswith(STUDY_MODULE)}
    names |= {str(getattr(each, "__module__", "")) for each in trial.functions}
    for module in filter(None, map(sys.modules.get, sorted(names))):
        file = _file_of(module)
        if file is not None:
            yield file


def _folders_of_the_program() -> list[Path]:
    """Where Python looks first for the modules of a script, or of `python -m`."""
    file = _file_of(sys.modules["__main__"])
    here = [] if file is None else [file.parent]
    return [*here, Path.cwd()]


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) and file.endswith(".py") else None


def _beside(name: str, folders: Sequence[Path]) -> Path | None:
    """The module's file or package folder, if Python would load it from one of the folders."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module that a program created itself
        return None
    if found is None or not (found.origin or "").endswith(".py"):
        return None
    path = Path(str(found.origin)).resolve()
    path = path.parent if path.name == "__init__.py" else path
    return path if path.parent in {folder.resolve() for folder in folders} else None


def _sources(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]
