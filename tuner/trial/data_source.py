"""The base class of data sets: their files, and what can be known about them without torch."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.storage.files import sha256

if TYPE_CHECKING:
    from tuner.trial.image_folder import Folder


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


def digest(rows: Iterable[tuple[str, ...]]) -> str:
    """16 hexadecimal digits that change with the rows and their order."""
    found = hashlib.sha256()
    for row in rows:
        found.update("\x1f".join(row).encode("utf-8", "surrogateescape") + b"\x1e")
    return found.hexdigest()[:16]
