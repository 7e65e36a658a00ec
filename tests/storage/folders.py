"""Folders of files, on a disk and behind an object store's interface."""

from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.object_folder import ObjectFolder


def local(path: Path) -> Folder:
    return LocalFolder(path)


def store(path: Path) -> Folder:
    """An object store whose bucket is a folder: pyarrow's own file systems, without a network."""
    bucket = SubTreeFileSystem(str(path), LocalFileSystem())
    return ObjectFolder("s3://bucket/", bucket, "")


def fill(path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/deep/3.txt", "a/0.txt", "top.txt"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)


KINDS = pytest.mark.parametrize("kind", [local, store])


def whole(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()}
