"""The modules in a study file's folder that it imports, for a client to send; found without executing anything."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tuner.errors import StudyError

_IMPORTERS = ("import_module", "__import__")


def bundle_of(study_file: str | Path) -> dict[str, bytes]:
    """The study file and the modules in its folder that it imports, directly or indirectly, by their paths.

    `import` counts anywhere in a file, also in functions, and `importlib.import_module` of a literal; a computed name
    can't be found. Of a package the bundle has `__init__.py` and the imported modules. Modules of Python itself and
    links that lead out of the folder are left out. Raises StudyError if the study file can't be read as Python.
    """
    file = Path(study_file)
    content = _read(file)
    folder = file.resolve().parent
    found = {file.name: content}
    waiting = [(PurePosixPath(file.name), content)]
    while waiting:
        path, text = waiting.pop()
        for module in _modules(path, text, first=path.name == file.name and len(path.parts) == 1):
            for each in _files_of(folder, module):
                name = each.as_posix()
                if name not in found and (inner := _inside(folder, each)) is not None:
                    found[name] = inner.read_bytes()
                    waiting.append((each, found[name]))
    return found


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:
        raise StudyError(
            f"a study file is a Python file, got {str(file)!r} ({getattr(error, 'strerror', None) or error}); "
            "check the path"
        ) from error


def _modules(path: PurePosixPath, content: bytes, *, first: bool) -> Iterator[tuple[str, ...]]:
    """Names of the modules that a file may import, each as its parts; `from a import b` gives a and a.b."""
    try:
        tree = ast.parse(content, filename=str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        if first:
            raise StudyError(f"a study file needs to be Python, got {path} ({error}); fix the file") from error
        return
    package = path.parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(package, node)
            if base is not None:
                yield base
                yield from ((*base, alias.name) for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and (name := _imported_by_call(node)) is not None:
            yield tuple(name.split("."))


def _base(package: tuple[str, ...], node: ast.ImportFrom) -> tuple[str, ...] | None:
    """The parts of the module after `from`; None if it leads out of the folder."""
    named = tuple(node.module.split(".")) if node.module else ()
    if not node.level:
        return named
    above = node.level - 1
    return None if above >= len(package) else (*package[: len(package) - above], *named)


def _imported_by_call(node: ast.Call) -> str | None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    first = node.args[0] if node.args else None
    if called in _IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def _files_of(folder: Path, module: tuple[str, ...]) -> Iterator[PurePosixPath]:
    """The files in the folder that importing a module runs: its packages', then its own."""
    if not module or module[0] in sys.stdlib_module_names:
        return
    for depth in range(1, len(module) + 1):
        path = PurePosixPath(*module[:depth])
        if (folder / path / "__init__.py").is_file():
            yield path / "__init__.py"
        elif (folder / f"{path}.py").is_file():
            yield PurePosixPath(f"{path}.py")


def _inside(folder: Path, path: PurePosixPath) -> Path | None:
    """The file, unless a link leads out of the folder."""
    real = (folder / path).resolve()
    return real if real.is_relative_to(folder) else None
