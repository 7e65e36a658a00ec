"""A study file and the modules from its folder that it imports: checked name by name, and written read-only."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import unicodedata
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.errors import shown
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Limits, Submission
from tuner.storage.durable import sync_all

STUDY_JSON = "study.json"  # the only file of a study whose trials workers ask for
_MODULE = re.compile(r"[^/]+\.py")
_LONGEST_NAME = 255  # bytes of UTF-8, in file systems
_DEEPEST = 16


def check_bundle(submission: Submission, limits: Limits) -> None:
    """Raise ServiceError for a bundle that is too large, has no study file, or has a name that leads outside."""
    files = submission.files
    if len(files) > limits.bundle_files:
        raise _too_large(f"at most {limits.bundle_files} files", f"{len(files)}")
    for path in files:
        _check_path(path)
    _check_alike(files)
    if submission.external:
        _check_size(files[submission.main], limits)
        return
    if not _MODULE.fullmatch(submission.main) or submission.main not in files:
        raise ServiceError(
            Code.REFUSED,
            "a submission needs its study file, a .py file at the top of its files",
            shown(submission.main),
            f"name one of {shown(sorted(files)[:5])}" if files else "add it",
        )
    _check_size(files[submission.main], limits)
    total = sum(map(len, files.values()))
    if total > limits.bundle_bytes:
        raise _too_large(f"at most {limits.bundle_bytes:,} bytes in all", f"{total:,}")


def of_json(content: bytes, **changes: Any) -> Submission:
    """The submission of a study in JSON; `changes` are other fields."""
    return Submission(STUDY_JSON, {STUDY_JSON: content}, external=True, **changes)


def _check_size(study_file: bytes, limits: Limits) -> None:
    if len(study_file) > limits.study_file_bytes:
        raise _too_large(f"at most {limits.study_file_bytes:,} bytes in its study file", f"{len(study_file):,}")


def digest_of(submission: Submission) -> str:
    """A digest that identifies a submission, independent of the order of its files."""
    found = hashlib.sha256()
    settings: dict[str, Any] = {name: value for name, value in vars(submission).items() if name != "files"}
    found.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for path, content in sorted(submission.files.items()):
        found.update(f"{path}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def written(files: Mapping[str, bytes], within: Path) -> Path:
    """A new folder with the files, which is read-only from now on; the paths must be checked."""
    folder = within / f".new-{uuid.uuid4().hex}"
    try:
        for path, content in files.items():
            target = folder.joinpath(*path.split("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
            target.chmod(0o444)
        sync_all(folder)
    except BaseException:
        remove(folder)
        raise
    return folder


def lay_out(new: Path, target: Path) -> None:
    """Rename a folder of `written` to its final name; files of an earlier failed submission there are deleted."""
    remove(target)
    new.rename(target)
    for folder in (*_folders(target), target):
        folder.chmod(0o555)


def read_back(folder: Path, limits: Limits) -> dict[str, bytes]:
    """The files of a bundle, which are still within its limits; other entries are left out."""
    found: dict[str, bytes] = {}
    for inner, _, names in os.walk(folder):
        for name in names:
            path = Path(inner) / name
            if path.is_symlink() or not path.is_file() or path.suffix == ".pyc":
                continue
            found[path.relative_to(folder).as_posix()] = path.read_bytes()[: limits.bundle_bytes]
    return found


def remove(folder: Path) -> None:
    """Delete a bundle, if it exists."""
    if folder.is_dir():
        folder.chmod(0o755)
        for inner in _folders(folder):
            inner.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)


def _folders(folder: Path) -> Iterator[Path]:
    """The folders inside, each before its content."""
    for path in folder.iterdir():
        if path.is_dir():
            yield path
            yield from _folders(path)


def _check_path(path: str) -> None:
    parts = path.split("/")
    sound = len(parts) <= _DEEPEST and all(map(_is_name, parts))
    if not sound:
        raise ServiceError(
            Code.REFUSED,
            "the files of a submission lie in the study file's folder or below it",
            shown(path),
            "leave out absolute paths, '..', backslashes and control characters",
        )


def _is_name(part: str) -> bool:
    """Whether it is a plain name of a file or folder on every file system."""
    try:
        length = len(part.encode())
    except UnicodeEncodeError:
        return False
    odd = "\\" in part or ":" in part or any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in part)
    return 0 < length <= _LONGEST_NAME and part not in (".", "..") and not odd


def _check_alike(files: Mapping[str, bytes]) -> None:
    """Refuse two names that are the same on some file systems, and a name that is a file and a folder."""
    seen: dict[str, tuple[str, bool]] = {}
    for path in files:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            name, is_file = "/".join(parts[:depth]), depth == len(parts)
            key = unicodedata.normalize("NFC", name).casefold()
            other, was_file = seen.setdefault(key, (name, is_file))
            if other != name or was_file != is_file:
                raise ServiceError(
                    Code.REFUSED,
                    "the files of a submission need names that differ by more than case",
                    f"{shown(other)} and {shown(name)}",
                    "rename one",
                )


def _too_large(rule: str, got: str) -> ServiceError:
    return ServiceError(
        Code.TOO_LARGE,
        f"a submission takes {rule}",
        got,
        "leave out what the study doesn't import; data has its own place",
    )
