"""Pickles a trial or a study for another process; separate from the code that runs it, which loads Ray Tune.

Study files travel with what is pickled. There their modules can be imported by name, also by processes that are started
there, so that a trial's code can pickle its functions and classes itself.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from ray import cloudpickle

from tuner.machine.temporary import OwnedFolder
from tuner.space.values import OF_STUDY_FILE, canonical
from tuner.study.declaration import Study
from tuner.study.file import STUDY_MODULE, sources
from tuner.trial import Trial

_folder: OwnedFolder | None = None  # of the study files that came here
_PROGRAM = """import os as _os
_here = _os.getcwd()
_os.chdir({folder!r})  # relative paths outside of functions mean the same as in the driver
try:
    exec(compile({text!r}, __file__, "exec"))
finally:
    _os.chdir(_here)
"""


def pickle_trial(trial: Trial) -> bytes:
    """The trial for another process, including the code of study files: workers can't import these files."""
    return with_code_of_studies(trial)


def pickle_study(study: Study) -> bytes:
    """The study for another process, in the same way."""
    return with_code_of_studies(study)


def sendable(config: Mapping[str, Any]) -> Any:
    """The configuration as Ray may pickle it: if it has functions of study files, pickled with their code."""
    return with_code_of_studies(config) if f"{OF_STUDY_FILE}." in canonical(config) else config


def received(config: Any) -> dict[str, Any]:
    """What `sendable` made, where the import path is the driver's."""
    return dict(cloudpickle.loads(config) if isinstance(config, bytes) else config)


def with_code_of_studies(value: object) -> bytes:
    """Pickled with the code of all study files that were loaded here: a partial function doesn't name its own."""
    modules = [module for name, module in sys.modules.copy().items() if name.startswith(STUDY_MODULE)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        _Pickler(pickled := io.BytesIO(), modules).dump_with_files(value)
        return pickled.getvalue()
    finally:
        for module in modules:
            if module.__spec__ is not None:  # it wasn't brought here
                cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Notes the functions and classes of study files that it pickles."""

    def __init__(self, file: io.BytesIO, modules: list[ModuleType]) -> None:
        super().__init__(file)
        self._files = {each.__name__: sources[each.__name__] for each in modules if each.__name__ in sources}
        self._noted: dict[str, dict[str, Any]] = {name: {} for name in self._files}

    def dump_with_files(self, value: object) -> None:
        """Pickle the value, so that loading it anywhere brings the study files there, too."""
        self.dump(_WithFiles((value, self._files, self._noted)))  # in this order

    def reducer_override(self, obj: Any) -> Any:
        """Called for each object before it is pickled."""
        if isinstance(obj, type | FunctionType) and obj.__module__ in self._noted:
            self._noted[obj.__module__][obj.__qualname__] = obj
        return super().reducer_override(obj)


class _WithFiles(tuple[Any, ...]):
    """Is loaded as its first element."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bring, tuple(self)


def bring(value: Any, files: Mapping[str, str], objects: Mapping[str, Mapping[str, Any]]) -> Any:
    """Let this process and its children import study files that came with the value, which is returned."""
    global _folder  # noqa: PLW0603 -- one for each process
    for name, text in files.items():
        module = sys.modules.setdefault(name, ModuleType(name))
        if module.__spec__ is None:  # it wasn't loaded from its file here
            if _folder is None:
                _folder = OwnedFolder("code")
                atexit.register(_folder.delete)
            program = _PROGRAM.format(folder=os.getcwd(), text=text)  # noqa: PTH109 -- before a trial changes it
            (_folder.path / f"{name}.py").write_text(program, encoding="utf-8")
            sources[name] = text
            vars(module).update(objects[name])
            for qualname, each in objects[name].items():
                each.__qualname__ = qualname  # a class inside another has lost it
            cloudpickle.register_pickle_by_value(module)
            sys.path += [str(_folder.path)] if str(_folder.path) not in sys.path else []
    return value
