"""`tuner completion`: a script that lets a shell complete commands of tuner, and the answers that the script asks for.

The library argcomplete (https://kislyuk.github.io/argcomplete) takes verbs, options and choices from the parsers. An
argument's other values follow from its placeholder in the help, such as `RUN` or `N|auto`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuner.cli.outcome import SUCCESS

SHELLS = ("bash", "zsh", "fish")
STORAGE, RUN_FILE = "runs", "run.json"

Completer = Callable[..., Iterator[str]]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that will read the script")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["tuner"], use_defaults=False, shell=options.shell))
    return SUCCESS


def answer(parser: argparse.ArgumentParser) -> None:
    """Give the shell the completions of its line, and end the process."""
    import argcomplete

    for action in _arguments(parser):
        if action.choices is None:
            vars(action)["completer"] = _completer(str(action.metavar or ""))
    argcomplete.autocomplete(parser, always_complete_options=False)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of the parser and of its verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _arguments(verb)
        else:
            yield action


def _completer(placeholder: str) -> Completer:
    """The completer for a placeholder: its lower-case words, and the kinds of paths that it names."""
    parts = placeholder.split("|")

    def complete(prefix: str, **_: Any) -> Iterator[str]:
        yield from (part for part in parts if part.isidentifier() and part.islower())
        for part in parts:
            if part in _PATHS:
                yield from _PATHS[part](prefix)

    return complete


def runs(prefix: str) -> Iterator[str]:
    """Run folders, and folders with runs, which stand for their newest run; else folders to descend into.

    Before a folder is named, only `runs` is looked into: the working directory may be large.
    """
    for text, path in _matches(prefix):
        if path.is_dir():
            below = _runs_below(path) if "/" in prefix or path.name == STORAGE else []
            if below or (path / RUN_FILE).is_file():
                yield from (text, *(f"{text}/{run}" for run in below))
            else:
                yield f"{text}/"


def _runs_below(folder: Path) -> list[str]:
    """The run folders in a study's folder or in a storage folder, relative to it."""
    found = (path.parent for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/{RUN_FILE}"))
    return [path.relative_to(folder).as_posix() for path in found]


def files(prefix: str, suffix: str = "") -> Iterator[str]:
    """Files with these endings, and folders to descend into."""
    for text, path in _matches(prefix):
        if path.is_dir():
            yield f"{text}/"
        elif text.endswith(suffix):
            yield text


def folders(prefix: str) -> Iterator[str]:
    """Folders."""
    return (text for text in files(prefix) if text.endswith("/"))


def python_files(prefix: str) -> Iterator[str]:
    """Python files, and folders to descend into."""
    return files(prefix, ".py")


_PATHS: dict[str, Callable[[str], Iterator[str]]] = {
    "RUN": runs,
    "SPACE.py": python_files,
    "FILE.py": python_files,
    "FILE": files,
    "IMAGE": files,
    "PATH": files,
    "DIR": folders,
}


def _matches(prefix: str) -> Iterator[tuple[str, Path]]:
    """Files and folders whose paths begin with the text: the completed text, and the path. Hidden ones only if the text
    begins their name.
    """
    head, slash, tail = prefix.rpartition("/")
    try:
        entries = sorted(Path(head + slash).expanduser().iterdir())
    except (OSError, RuntimeError):  # no such folder, or no such user
        return
    for entry in entries:
        if entry.name.startswith(tail) and (tail or not entry.name.startswith(".")):
            yield f"{head}{slash}{entry.name}", entry
