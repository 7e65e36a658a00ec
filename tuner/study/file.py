"""The file that declares a study."""

from __future__ import annotations

import ast
import copy
import difflib
import importlib.util
import inspect
import itertools
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from tuner.errors import StudyError, describe_error, one_line, shown
from tuner.space import values
from tuner.study.counterparts import ARGUMENTS
from tuner.study.declaration import Study

STUDY_MODULE = values.STUDY_MODULE
_files: dict[str, Path] = {}  # by the names of the modules in use
sources: dict[str, str] = {}  # by the same names: programs that run the study files as if in their places
_brought: set[str] = set()  # folders that are searched for modules because they have a study file
_REFUSED_CALL = re.compile(
    r"(?P<name>\w+)(?:\.__init__)?\(\) (?:got an unexpected keyword argument '(?P<unknown>\w+)'"
    r"|(?P<missing>missing) |(?P<many>takes) .*given)"
)


def load_study(path: str | Path, *, original: Path | None = None) -> Study:
    """The `study` that the file declares.

    The file is run as Python; it can import modules from its folder. If it is a copy, name and folder of its module are
    those of the `original`. Raises StudyError if there
    is no such file, it fails to run (with the file's own line), declares no `study`, or imports a module with the same
    name as one in the folder of another study file of this process.
    """
    path = Path(path)
    if not _is_file(path):
        raise StudyError(
            f"a study file is a Python file that declares `study`, got {str(path)!r}, which is no file; {_nearby(path)}"
        )
    module = _execute(path, original or path.resolve())
    found = vars(module).get("study")
    if isinstance(found, Study):
        loaded = copy.copy(found)  # unchanged since its check
        object.__setattr__(loaded, "source", path.resolve())
        return loaded
    others = [name for name, value in vars(module).items() if isinstance(value, Study)]
    if others:
        raise StudyError(f"{path} needs its study under the name `study`, got {others[0]!r}; rename it")
    what = "nothing of that name" if found is None else f"a {type(found).__name__}"
    raise StudyError(f"{path} needs a module-level `study = Study(...)`, got {what}; see search_spaces/ for examples")


def _execute(path: Path, original: Path) -> ModuleType:
    name, imports_from = _module_name(path.resolve(), original.stem), original.parent
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise StudyError(f"a study file needs a name that ends in .py, got {str(path)!r}; rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name], _files[name] = module, path.resolve()
    if str(imports_from) not in sys.path:
        sys.path.append(str(imports_from))
        _brought.add(str(imports_from))
    _check_modules_beside(path, imports_from)
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a check leaves no files behind
    try:
        sources[name] = f"__file__ = {module.__file__!r}\nexec(compile({path.read_bytes()!r}, __file__, 'exec'))\n"
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _refusal(error, path) from error
    finally:
        sys.dont_write_bytecode = dont_write
    return module


def _module_name(path: Path, stem: str) -> str:
    """The file's name, without its folder, with a number if another file's module has that name."""
    name = STUDY_MODULE + re.sub(r"\W", "_", stem)
    further = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], further) if not _is_held_by_another(each, path))


def _is_held_by_another(name: str, path: Path) -> bool:
    file = _files.get(name, path) if name in sys.modules else path
    return file != path and file.exists()


def _check_modules_beside(path: Path, folder: Path) -> None:
    """Raise StudyError if Python would take a module from elsewhere rather than from the study file's own folder."""
    for name in imported_by(path) - {"tuner"}:
        beside = folder / f"{name}.py", folder / name / "__init__.py"
        own = [file for file in beside if file.exists() and not file.samefile(path)]
        found = _found(name)
        if found is None or not own or (Path(found).exists() and any(map(Path(found).samefile, own))):
            continue
        if not is_beside_a_study(found):
            raise StudyError(
                f"a module beside a study file needs a name of its own, got {str(own[0])!r}, but Python finds the "
                f"{name!r} that {path.name} imports in {found!r}; rename one of them"
            )
        raise StudyError(
            f"modules beside study files need different names in one process, got {name!r} in {str(folder)!r}, where "
            f"{found!r} is known already; rename one, or load {path.name} in a process of its own"
        )


def is_beside_a_study(file: str) -> bool:
    """Whether a module's file is only found because a study file is in its folder, or in its package's."""
    folder = Path(file).parent
    return str(folder.parent if Path(file).name == "__init__.py" else folder) in _brought


def folders_of_modules() -> list[Path]:
    """The folders of the modules of the study files that were loaded in this process."""
    return [Path(folder) for folder in sorted(_brought)]


def _found(name: str) -> str | None:
    """The file of the module that an import would give."""
    try:
        found = importlib.util.find_spec(name)
    except ValueError:  # __main__, or a module that a program created
        return None
    return None if found is None else found.origin


def imported_by(path: Path) -> set[str]:
    """The modules that a file's own code imports anywhere; for those in packages the package."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the file; running it will show them
            tree = ast.parse(path.read_bytes())
    except Exception:  # whatever is wrong with it, running it will show
        return set()
    names = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}


def _refusal(error: BaseException, path: Path) -> StudyError:
    """Why loading the file failed, in one line."""
    if isinstance(error, StudyError):
        where = f" ({_line_of(error, path)})"
        return type(error)(one_line(str(error)).removesuffix(where) + where)
    if isinstance(error, SystemExit):
        return StudyError(f"{path} needs to declare a study and return, got exit({shown(error.code)}); remove it")
    refused = _refused_call(error, path)
    if refused is not None:
        return StudyError(f"{refused} ({_line_of(error, path)})")
    what = f"{path} does not run: {describe_error(error)}"
    if isinstance(error, SyntaxError):  # its text names file and line, maybe of a module that the file imports
        return StudyError(f"{what}; fix the file")
    return StudyError(f"{what} ({_line_of(error, path)}); fix the file")


def _refused_call(error: BaseException, path: Path) -> str | None:
    """The message for a wrong call of one of tuner's functions: what it takes and what it got; None for any other
    error.
    """
    refused = _REFUSED_CALL.match(str(error)) if type(error) is TypeError else None
    frame = _last_frame(error)
    if refused is None or frame is None or frame.f_code.co_filename != str(path.resolve()):
        return None
    called = getattr(sys.modules.get("tuner"), refused["name"], None)
    if not callable(called) or frame.f_globals.get(refused["name"], called) is not called:  # one of the file's own
        return None
    own = ("_", "source", "second", "costs", "conditions")
    known = [name for name in inspect.signature(called).parameters if name not in own]
    name = refused["name"]
    if refused["unknown"]:
        close = difflib.get_close_matches(refused["unknown"], known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        if name == "Study" and refused["unknown"] in ARGUMENTS:
            hint = f"; write {ARGUMENTS[refused['unknown']]}"
        return f"{name} has no {refused['unknown']!r}; it has {', '.join(known) or 'no settings'}{hint}"
    detail = str(error).partition("() ")[2]
    if refused["missing"]:
        return f"{name} needs {_written(called)}, got a call {detail}; add it"
    return f"{name} needs {name}({', '.join(known)}) at most, got a call that {detail}; leave some out"


def _written(called: Callable[..., Any]) -> str:
    """How a function of tuner is called: `loguniform(low, high)`, with its required arguments."""
    needed = []
    for parameter in inspect.signature(called).parameters.values():
        if parameter.default is parameter.empty:
            keyword = parameter.kind is parameter.KEYWORD_ONLY
            needed.append(f"{parameter.name}=…" if keyword else parameter.name)
    return f"{called.__name__}({', '.join(needed)})"


def _last_frame(error: BaseException) -> FrameType | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1] if frames else None


def _line_of(error: BaseException, path: Path) -> str:
    """`file, line N` of the study file where the error came from."""
    name = str(path.resolve())
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == name]
    return f"{path.name}, line {_line_within(path, lines[-1], describe_error(error))}" if lines else path.name


def _line_within(path: Path, line: int, message: str) -> int:
    """The line of the first name or text in quotes of a message, in the statement that begins at a line; else that."""
    places: dict[str, int] = {}
    try:
        with warnings.catch_warnings(action="ignore"):  # of the file, which it has shown
            statements = ast.parse(path.read_bytes()).body
    except Exception:  # it may have changed or deleted itself
        return line
    for statement in statements:
        if statement.lineno == line:
            for node in ast.walk(statement):
                if isinstance(node, ast.keyword) and node.arg is not None:
                    places.setdefault(node.arg, node.lineno)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    places.setdefault(node.value, node.lineno)
    return next((places[name] for name in re.findall(r"'([^']+)'", message) if name in places), line)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or contains a NUL
        return False


def _nearby(path: Path) -> str:
    try:
        folder = path.parent if path.parent.is_dir() else Path()
    except (OSError, ValueError):
        folder = Path()
    candidates = [str(folder / file.name) for file in sorted(folder.glob("*.py"))]
    candidates += [str(file) for file in sorted(Path("search_spaces").glob("*.py"))]
    close = difflib.get_close_matches(str(path), candidates, n=1, cutoff=0.4)
    return f"did you mean {close[0]!r}?" if close else "give the path of one"
