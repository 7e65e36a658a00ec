"""Data sets: their files, and what can be known about them without torch; among them images in folders."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tuner.errors import DataError
from tuner.storage.regular_files import sha256

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
OF_FILE_MANAGERS = frozenset({"thumbs.db", "desktop.ini", "icon\r"})  # silently skipped, like hidden files

ImageFiles = dict[str, dict[str, list[Path]]]  # split ("train" | "validation" | "test") -> class -> files, all sorted


class Source(ABC):
    """Where a data set's images come from.

    `native_size` is the edge of its images in pixels (None: they differ), `default_size` the one that trials resize
    them to unless the space says otherwise, `classes` the number of classes (None: known after a look at the files).
    """

    name: str
    channels: int
    classes: int | None = None
    native_size: int | None = None
    default_size: int | None = None

    @abstractmethod
    def files(self, data_dir: Path) -> list[Path]:
        """The existing files of the data set, sorted."""

    def missing(self, data_dir: Path) -> list[str]:
        """What would have to be downloaded, in words; empty if nothing is missing."""
        return []

    @abstractmethod
    def check(self, data_dir: Path) -> None:
        """Raise DataError if the data set is damaged, or doesn't exist here and can't be downloaded."""

    def image_folder(self, data_dir: Path) -> Folder | None:
        """The image files that the data set is read from; None if it has files of another kind."""
        return None

    def is_present(self, data_dir: Path) -> bool:
        """Whether the data set can be read without a download."""
        return not self.missing(data_dir)

    def fingerprint(self, data_dir: Path) -> str | None:
        """16 hexadecimal digits that change with the data: with names, sizes and contents of the files."""
        return digest((path.name, str(path.stat().st_size), sha256(path)) for path in self.files(data_dir))

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """A cheap key for the present state on disk, from modification times in ns; for caches within one process."""
        return tuple((str(path), path.stat().st_mtime_ns) for path in self.files(data_dir))

    def class_names(self) -> tuple[str, ...] | None:
        """The class names in the order of the labels, if they can be found quickly; otherwise None."""
        return None

    def count_classes(self) -> int | None:
        """The number of classes, if it can be found quickly; otherwise None."""
        return self.classes


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that is left out of the data set.

    Attributes:
        path: relative to the data set's folder
        reason: what is wrong with it, after "it"
    """

    path: str
    reason: str

    def __str__(self) -> str:
        """For example `cat/1.jpg (it is cut off)`."""
        return f"{self.path} (it {self.reason})"


@dataclass(frozen=True)
class Found:
    """What is in a folder of images.

    Attributes:
        images: by split and class; a class or split without any is left out
        left_out: files among them that aren't image files that can be opened, sorted
    """

    images: ImageFiles
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Folder(Source):
    """Image files, a class per subfolder: `PATH/<class>/*` or `PATH/train/<class>/*` with `test` and maybe `val`."""

    path: Path
    default_size: int | None = 64
    channels: int = 3

    SPLITS: ClassVar[dict[str, str]] = {
        "train": "train",
        "val": "validation",
        "valid": "validation",
        "validation": "validation",
        "test": "test",
    }

    @property
    def name(self) -> str:  # type: ignore[override]
        """The data set's name, as in the study file."""
        return f"folder:{self.path}"

    @property
    def place(self) -> str:
        """Where the images are, for messages."""
        return str(self.path)

    @property
    def has_splits(self) -> bool:
        """Whether the folder is split on disk: `train` holds classes (and isn't a class itself)."""
        train = self.path / "train"
        return train.is_dir() and bool(_subfolders(train))

    def split_folders(self) -> dict[str, Path]:
        """The folder of each split.

        Raises:
            DataError: the folder doesn't exist, or has other folders besides its splits.
        """
        if not self.path.is_dir():
            raise DataError(f"folder:PATH needs a folder of images, got {self.path}, which isn't one; correct the path")
        if not self.has_splits:
            return {"train": self.path}
        for folder in _subfolders(self.path):
            if folder.name not in self.SPLITS:
                raise DataError(
                    f"next to train/ there may only be {', '.join(list(self.SPLITS)[1:])}, got "
                    f"{self.place}/{folder.name}; "
                    "move or rename it"
                )
        return {self.SPLITS[folder.name]: folder for folder in _subfolders(self.path)}

    def image_folder(self, data_dir: Path) -> Folder:
        """The folder itself."""
        return self

    def class_names(self) -> tuple[str, ...]:
        """The names of the classes that have training images."""
        return tuple(self.scan()["train"])

    def count_classes(self) -> int | None:
        """The number of classes that have training images."""
        return len(self.scan()["train"])

    def scan(self) -> ImageFiles:
        """The image files of every split and class; see `look`."""
        return self.look().images

    def look(self) -> Found:
        """The image files of every split and class, and what is left out.

        Raises:
            DataError: fewer than two classes have images, or a class has none in the training split.
        """
        images: ImageFiles = {}
        left_out: list[LeftOut] = []
        for split, folder in self.split_folders().items():
            images[split] = {}
            loose = (path for path in folder.iterdir() if _is_named_as_image(path) and path.is_file())
            left_out += [LeftOut(self.relative(path), "lies outside of any class") for path in loose]
            for child in _subfolders(folder):
                found, others = _files(child)
                left_out += [LeftOut(self.relative(path), reason) for path, reason in others]
                if found:
                    images[split][child.name] = found
                else:
                    left_out.append(LeftOut(f"{self.relative(child)}/", "is a class without images"))
        self._check_classes(images, left_out)
        return Found({split: classes for split, classes in images.items() if classes}, tuple(_sorted(left_out)))

    def relative(self, path: Path) -> str:
        """A path for messages: relative to the folder, with / between its parts."""
        return path.relative_to(self.path).as_posix()

    def _check_classes(self, images: ImageFiles, left_out: list[LeftOut]) -> None:
        if len(images["train"]) < 2:
            empty = [found.path for found in left_out if found.path.endswith("/")]
            raise DataError(
                f"a folder of images needs at least 2 classes, a subfolder each, got {sorted(images['train'])} in "
                f"{self.place}{_without_images(empty)}; name the folder that holds the classes"
            )
        for split, classes in images.items():
            for name in classes.keys() - images["train"].keys():
                raise DataError(f"every class needs training images, got '{name}' in {split} only; add it to train/")

    def files(self, data_dir: Path) -> list[Path]:
        """All image files."""
        return [path for classes in self.scan().values() for images in classes.values() for path in images]

    def check(self, data_dir: Path) -> None:
        """Raise DataError if the folder doesn't exist or isn't laid out as a class per subfolder."""
        self.scan()

    def fingerprint(self, data_dir: Path) -> str:
        """A fingerprint of the images' relative names and sizes; contents aren't read."""
        sizes = ((self.relative(path), str(path.stat().st_size)) for path in self.files(data_dir))
        return digest(sizes)

    def content_key(self) -> str:
        """16 hexadecimal digits that change with the images' names, sizes and times; contents aren't read."""
        stats = ((path, path.stat()) for path in self.files(self.path))
        return digest((str(path.absolute()), str(stat.st_size), str(stat.st_mtime_ns)) for path, stat in stats)

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """The times of the classes' folders, which change when files are added or removed."""
        folders = [folder for split in self.split_folders().values() for folder in _subfolders(split)]
        return tuple((str(folder), folder.stat().st_mtime_ns) for folder in folders)


def _without_images(classes: list[str]) -> str:
    return f", and {', '.join(classes)} without images ({', '.join(sorted(IMAGE_SUFFIXES))})" if classes else ""


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


def _is_named_as_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def _files(folder: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """A class's image files, sorted, and the other entries with what is wrong with them."""
    found: list[Path] = []
    others: list[tuple[Path, str]] = []
    for entry in _visible(folder):
        path = folder / entry.name
        if (problem := _problem(entry)) is None:
            found.append(path)
        else:
            others.append((path, problem))
    return sorted(found), others


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (
                entry
                for entry in entries
                if not entry.name.startswith((".", "__")) and entry.name.lower() not in OF_FILE_MANAGERS
            )
    except PermissionError as error:
        raise DataError(f"a class's folder must be readable, got {folder}: {error.strerror}; change that") from error


def _problem(entry: os.DirEntry[str]) -> str | None:
    """Why an entry of a class's folder can't be an image, judged by name and permissions; None if it may be one."""
    suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 -- of many thousands
    if entry.is_dir():
        return "is a folder inside a class, whose images must lie directly in it"
    if suffix not in IMAGE_SUFFIXES:
        return f"ends in {suffix!r}, not as images that are read" if suffix else "has no ending of an image"
    if not entry.is_file():
        return "is a link to nothing" if entry.is_symlink() else "is no regular file"
    return None if os.access(entry.path, os.R_OK) else "may not be read by this user"


def _sorted(left_out: list[LeftOut]) -> list[LeftOut]:
    return sorted(left_out, key=lambda found: found.path)


def digest(rows: Iterable[tuple[str, ...]]) -> str:
    """16 hexadecimal digits that change with the rows and their order."""
    found = hashlib.sha256()
    for row in rows:
        found.update("\x1f".join(row).encode("utf-8", "surrogateescape") + b"\x1e")
    return found.hexdigest()[:16]
