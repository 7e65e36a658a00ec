"""Data sets by name: which files they are made of, and what can be known of them without torch."""

from __future__ import annotations

import hashlib
import math
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from tuner.errors import DataError, StudyError, shown
from tuner.space.values import is_one_of
from tuner.trial.hyperparameters import closest

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})

ImageFiles = dict[str, dict[str, list[Path]]]  # split ("train" | "validation" | "test") -> class -> files, all sorted


class Source(ABC):
    """Where a data set's images come from.

    `native_size` is the edge of its images in pixels (None: they differ), `default_size` the one that trials resize
    them to unless the space says otherwise, `classes` their number (None: known after a look at the files).
    """

    name: str
    channels: int
    classes: int | None = None
    native_size: int | None = None
    default_size: int | None = None
    downloadable: ClassVar[bool] = False

    @abstractmethod
    def files(self, data_dir: Path) -> list[Path]:
        """The files that the data set consists of, sorted; those that are there."""

    def missing(self, data_dir: Path) -> list[str]:
        """What would have to be downloaded, in words; empty when everything is there."""
        return []

    @abstractmethod
    def check(self, data_dir: Path) -> None:
        """Raise DataError if what is there is damaged, or if it isn't there and can't be downloaded."""

    def is_present(self, data_dir: Path) -> bool:
        """Whether the data set can be read without a download."""
        return not self.missing(data_dir)

    def fingerprint(self, data_dir: Path) -> str | None:
        """16 hexadecimal digits that change with the data: from names, sizes and contents of the files."""
        return _digest((path.name, str(path.stat().st_size), _content(path)) for path in self.files(data_dir))

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """A cheap mark of what is on disk now, by modification times in ns; for caches within one process."""
        return tuple((str(path), path.stat().st_mtime_ns) for path in self.files(data_dir))

    def count_classes(self) -> int | None:
        """How many classes a quick look finds; None where it takes more."""
        return self.classes


@dataclass(frozen=True)
class Digits(Source):
    """Handwritten digits, 1,797 images of 8x8 pixels in 17 grey levels, that come with scikit-learn."""

    name: str = "digits"
    channels: int = 1
    classes: int | None = 10
    native_size: int | None = 8
    default_size: int | None = 24

    def files(self, data_dir: Path) -> list[Path]:
        """scikit-learn's own file."""
        package = find_spec("sklearn")
        if package is None or package.origin is None:
            raise DataError("digits need scikit-learn, which isn't installed; pip install scikit-learn")
        return [Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"]

    def check(self, data_dir: Path) -> None:
        """Raise DataError if scikit-learn isn't there."""
        self.files(data_dir)


@dataclass(frozen=True)
class FashionMnist(Source):
    """Fashion-MNIST, 60,000 + 10,000 grey images of 28x28 pixels (Xiao et al. 2017, arXiv:1708.07747)."""

    name: str = "fashion-mnist"
    channels: int = 1
    classes: int | None = 10
    native_size: int | None = 28
    default_size: int | None = 28
    downloadable: ClassVar[bool] = True

    IDX_FILES: ClassVar[tuple[str, ...]] = (
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
    )

    def folder(self, data_dir: Path) -> Path:
        """Where torchvision keeps the four files."""
        return data_dir / "FashionMNIST" / "raw"

    def files(self, data_dir: Path) -> list[Path]:
        """The four IDX files, those that are there."""
        return [path for name in self.IDX_FILES if (path := self.folder(data_dir) / name).is_file()]

    def missing(self, data_dir: Path) -> list[str]:
        """One line if any of the four files isn't there."""
        absent = len(self.IDX_FILES) - len(self.files(data_dir))
        return [f"Fashion-MNIST (30 MB) into {self.folder(data_dir)}"] if absent else []

    def check(self, data_dir: Path) -> None:
        """Raise DataError if one of the files is shorter or longer than its header says."""
        for path in self.files(data_dir):
            if not idx_is_whole(path):
                raise DataError(
                    f"an IDX file must be as long as its header says, got {path} of {path.stat().st_size} bytes; "
                    "delete it and download it again"
                )


@dataclass(frozen=True)
class Cifar10(Source):
    """CIFAR-10, 50,000 + 10,000 colour images of 32x32 pixels (Krizhevsky 2009), as one of two layouts.

    torchvision's batch files, or `cifar10/train/<class>/*.jpg` with `cifar10/test/<class>/*.jpg`.
    """

    name: str = "cifar10"
    channels: int = 3
    classes: int | None = 10
    native_size: int | None = 32
    default_size: int | None = 32
    downloadable: ClassVar[bool] = True

    BATCH_FILES: ClassVar[tuple[str, ...]] = (
        "batches.meta",
        *(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
    )

    def image_folder(self, data_dir: Path) -> Folder | None:
        """The data set as `cifar10/train/<class>/*.jpg` and `cifar10/test/<class>/*.jpg`, if it is there so."""
        folder = data_dir / self.name
        return Folder(folder, self.default_size) if (folder / "train").is_dir() else None

    def files(self, data_dir: Path) -> list[Path]:
        """Torchvision's batch files, or the image files."""
        if folder := self.image_folder(data_dir):
            return folder.files(data_dir)
        batches = data_dir / "cifar-10-batches-py"
        return [path for name in self.BATCH_FILES if (path := batches / name).is_file()]

    def missing(self, data_dir: Path) -> list[str]:
        """One line if neither form is there."""
        if self.image_folder(data_dir) or len(self.files(data_dir)) == len(self.BATCH_FILES):
            return []
        return [f"CIFAR-10 (163 MB) into {data_dir / 'cifar-10-batches-py'}"]

    def check(self, data_dir: Path) -> None:
        """Raise DataError if the folders of images don't hold both splits."""
        folder = self.image_folder(data_dir)
        if folder and "test" not in folder.scan():
            raise DataError(
                f"cifar10 as folders needs train/ and test/, got {folder.path} without test/; "
                "add it or remove the folder"
            )

    def fingerprint(self, data_dir: Path) -> str | None:
        """Of the batch files' contents, or of the images' names and sizes."""
        folder = self.image_folder(data_dir)
        return folder.fingerprint(data_dir) if folder else super().fingerprint(data_dir)

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """Of the batch files, or of the classes' folders."""
        folder = self.image_folder(data_dir)
        return folder.signature(data_dir) if folder else super().signature(data_dir)


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
        """As the study file has it."""
        return f"folder:{self.path}"

    @property
    def has_splits(self) -> bool:
        """Whether the folder is split on disk: `train` holds classes (and isn't a class itself)."""
        train = self.path / "train"
        return train.is_dir() and bool(_subfolders(train))

    def split_folders(self) -> dict[str, Path]:
        """Split -> its folder.

        Raises:
            DataError: the folder isn't there, or holds other folders beside its splits.
        """
        if not self.path.is_dir():
            raise DataError(f"folder:PATH needs a folder of images, got {self.path}, which isn't one; correct the path")
        if not self.has_splits:
            return {"train": self.path}
        for folder in _subfolders(self.path):
            if folder.name not in self.SPLITS:
                raise DataError(
                    f"next to train/ there may only be {', '.join(list(self.SPLITS)[1:])}, got {folder}; "
                    "move or rename it"
                )
        return {self.SPLITS[folder.name]: folder for folder in _subfolders(self.path)}

    def count_classes(self) -> int | None:
        """Folders of classes, whatever is in them."""
        return len(_subfolders(self.split_folders()["train"]))

    def scan(self) -> ImageFiles:
        """The image files of every split and class.

        Raises:
            DataError: fewer than two classes, a class without images, a class that isn't in the training split.
        """
        found = {split: _classes(folder) for split, folder in self.split_folders().items()}
        if len(found["train"]) < 2:
            raise DataError(
                f"a folder of images needs at least 2 classes, a subfolder each, got {sorted(found['train'])} "
                f"in {self.path}; name the folder that holds the classes"
            )
        for split, classes in found.items():
            self._check_classes(split, classes, set(found["train"]))
        return found

    def _check_classes(self, split: str, classes: dict[str, list[Path]], known: set[str]) -> None:
        for name, images in classes.items():
            if name not in known:
                raise DataError(f"every class needs training images, got '{name}' in {split} only; add it to train/")
            if not images:
                raise DataError(
                    f"a class needs images ({', '.join(sorted(IMAGE_SUFFIXES))}), got none in {split} for '{name}' "
                    f"under {self.path}; add some or remove the subfolder"
                )

    def files(self, data_dir: Path) -> list[Path]:
        """All image files."""
        return [path for classes in self.scan().values() for images in classes.values() for path in images]

    def check(self, data_dir: Path) -> None:
        """Raise DataError if the folder isn't there or isn't laid out as a class per subfolder."""
        self.scan()

    def fingerprint(self, data_dir: Path) -> str:
        """Of the images' relative names and sizes; contents aren't read."""
        sizes = ((path.relative_to(self.path).as_posix(), str(path.stat().st_size)) for path in self.files(data_dir))
        return _digest(sizes)

    def content_key(self) -> str:
        """16 hexadecimal digits that change with the images' names, sizes and times; contents aren't read."""
        stats = ((path, path.stat()) for path in self.files(self.path))
        return _digest((str(path.absolute()), str(stat.st_size), str(stat.st_mtime_ns)) for path, stat in stats)

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """Of the classes' folders, whose times change when files come or go."""
        folders = [folder for split in self.split_folders().values() for folder in _subfolders(split)]
        return tuple((str(folder), folder.stat().st_mtime_ns) for folder in folders)


@dataclass(frozen=True)
class FunctionSource(Source):
    """Images that a function of the user's returns: in the size they have, with whatever classes they show."""

    function: Callable[[], Any]
    channels: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        """The function's, with brackets."""
        return f"{function_name(self.function)}()"

    def files(self, data_dir: Path) -> list[Path]:
        """None that are known of."""
        return []

    def check(self, data_dir: Path) -> None:
        """Nothing: only a call of the function tells."""

    def fingerprint(self, data_dir: Path) -> None:
        """Unknown."""
        return


KNOWN_SOURCES: dict[str, Source] = {source.name: source for source in (Digits(), FashionMnist(), Cifar10())}


def function_name(function: Callable[..., Any]) -> str:
    """A function's own name, or its class's for a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


def find_source(data: str | Callable[[], Any]) -> Source:
    """The source that a study calls `data`: a known name, `folder:PATH`, or a function.

    Raises:
        StudyError: there is no such data set; the nearest one is named.
    """
    if callable(data):
        return FunctionSource(data)
    if is_one_of(data, KNOWN_SOURCES):
        return KNOWN_SOURCES[data]
    if isinstance(data, str) and data.removeprefix("folder:").strip() not in ("", data) and "\0" not in data:
        return Folder(Path(data.removeprefix("folder:")).expanduser())
    spelt = {name.replace("-", ""): name for name in KNOWN_SOURCES}
    near = closest(re.sub(r"[\s_-]", "", data.lower()), spelt) if isinstance(data, str) else None
    hint = f"did you mean '{spelt[near]}'?" if near else "images of your own are 'folder:PATH'"
    raise StudyError(f"data must be {', '.join(KNOWN_SOURCES)}, folder:PATH or a function, got {shown(data)}; {hint}")


def idx_is_whole(path: Path) -> bool:
    """Whether a file of unsigned bytes in the IDX format is as long as its header says."""
    with path.open("rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            return False
        sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        return False
    shape: tuple[int, ...] = struct.unpack(f">{head[3]}I", sizes)
    return path.stat().st_size == 4 + len(sizes) + math.prod(shape)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


def _classes(folder: Path) -> dict[str, list[Path]]:
    return {child.name: _images(child) for child in _subfolders(folder)}


def _images(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(rows: Iterable[tuple[str, ...]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update("\x1f".join(row).encode() + b"\x1e")
    return digest.hexdigest()[:16]
