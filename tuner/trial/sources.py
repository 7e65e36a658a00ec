"""Data sets by name: their files, and what can be known about them without torch."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from tuner.errors import DataError, StudyError, shown
from tuner.storage.copies import Copy
from tuner.trial.data_source import Folder, Source
from tuner.trial.hyperparameters import closest
from tuner.trial.stored import Copies, StoredFolder, StoredTable, is_stored
from tuner.trial.table import PREFIX, Table, TableOfImages
from tuner.trial.tasks import ONE_LABEL, TASKS, Task


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

    def class_names(self) -> tuple[str, ...]:
        """The ten digits."""
        return tuple("0123456789")

    def check(self, data_dir: Path) -> None:
        """Raise DataError if scikit-learn isn't installed."""
        self.files(data_dir)


@dataclass(frozen=True)
class FashionMnist(Source):
    """Fashion-MNIST, 60,000 + 10,000 grey images of 28x28 pixels (Xiao et al. 2017, arXiv:1708.07747)."""

    name: str = "fashion-mnist"
    channels: int = 1
    classes: int | None = 10
    native_size: int | None = 28
    default_size: int | None = 28

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
        """Those of the four IDX files that exist."""
        return [path for name in self.IDX_FILES if (path := self.folder(data_dir) / name).is_file()]

    def missing(self, data_dir: Path) -> list[str]:
        """One line if any of the four files is missing."""
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
    """CIFAR-10, 50,000 + 10,000 colour images of 32x32 pixels (Krizhevsky 2009), in one of two layouts.

    torchvision's batch files, or `cifar10/train/<class>/*.jpg` with `cifar10/test/<class>/*.jpg`.
    """

    name: str = "cifar10"
    channels: int = 3
    classes: int | None = 10
    native_size: int | None = 32
    default_size: int | None = 32

    BATCH_FILES: ClassVar[tuple[str, ...]] = (
        "batches.meta",
        *(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
    )

    def image_files(self, data_dir: Path) -> Folder | None:
        """The data set as `cifar10/train/<class>/*.jpg` and `cifar10/test/<class>/*.jpg`, if it has this layout."""
        folder = data_dir / self.name
        return Folder(folder, self.default_size) if (folder / "train").is_dir() else None

    def files(self, data_dir: Path) -> list[Path]:
        """Torchvision's batch files, or the image files."""
        if folder := self.image_files(data_dir):
            return folder.files(data_dir)
        batches = data_dir / "cifar-10-batches-py"
        return [path for name in self.BATCH_FILES if (path := batches / name).is_file()]

    def missing(self, data_dir: Path) -> list[str]:
        """One line if neither layout exists."""
        if self.image_files(data_dir) or len(self.files(data_dir)) == len(self.BATCH_FILES):
            return []
        return [f"CIFAR-10 (163 MB) into {data_dir / 'cifar-10-batches-py'}"]

    def check(self, data_dir: Path) -> None:
        """Raise DataError if the folders of images don't hold both splits."""
        folder = self.image_files(data_dir)
        if folder and "test" not in folder.look().splits:
            raise DataError(
                f"cifar10 as folders needs train/ and test/, got {folder.path} without test/; "
                "add it or remove the folder"
            )

    def fingerprint(self, data_dir: Path) -> str | None:
        """A fingerprint of the batch files' contents, or of the images' names and sizes."""
        folder = self.image_files(data_dir)
        return folder.fingerprint(data_dir) if folder else super().fingerprint(data_dir)

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """The state of the batch files, or of the classes' folders."""
        folder = self.image_files(data_dir)
        return folder.signature(data_dir) if folder else super().signature(data_dir)


@dataclass(frozen=True)
class FunctionSource(Source):
    """Images that a user's function returns: in their own size, with any classes."""

    function: Callable[[], Any]
    declared: str | None = None
    channels: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        """The function's name, with brackets."""
        return f"{function_name(self.function)}()"

    @property
    def task(self) -> Task:
        """As declared; one label unless that is."""
        return TASKS[self.declared or ONE_LABEL.name]

    def files(self, data_dir: Path) -> list[Path]:
        """No files are known."""
        return []

    def check(self, data_dir: Path) -> None:
        """Does nothing: only a call of the function would show errors."""

    def fingerprint(self, data_dir: Path) -> None:
        """Unknown."""
        return


KNOWN_SOURCES: dict[str, Source] = {source.name: source for source in (Digits(), FashionMnist(), Cifar10())}


def function_name(function: Callable[..., Any]) -> str:
    """A function's own name, or its class's for a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


def find_source(data: str | Table | Callable[[], Any], copies: Copies = (), task: str | None = None) -> Source:
    """The source that a study calls `data`: a known name, `folder:` or `table:` with a path or URI, or a function.

    `copies` has the versions of what is copied from object stores, `task` is the name of a declared one.

    Raises:
        StudyError: there is no such data set, and the message names the nearest one; or its labels are of another task.
    """
    source = _named(data, copies, task)
    if task not in (None, source.task.name):
        raise StudyError(
            f"task={task!r} needs a table or a function, got {source.name}, whose images have {source.task.described} "
            "each; leave task out"
        )
    return source


def _named(data: str | Table | Callable[[], Any], copies: Copies, task: str | None) -> Source:
    if callable(data):
        return FunctionSource(data, task)
    if isinstance(data, str) and data in KNOWN_SOURCES:
        return KNOWN_SOURCES[data]
    if isinstance(data, str) and data.removeprefix("folder:").strip() not in ("", data) and "\0" not in data:
        place = data.removeprefix("folder:")
        if not is_stored(place):
            return Folder(Path(place).expanduser())
        copy = Copy(place, dict(copies).get(place)).settled
        return StoredFolder(copy.files, uri=place, version=copy.version)
    if isinstance(data, Table) or (isinstance(data, str) and data.startswith(PREFIX)):
        table = Table.of(str(data))
        if not is_stored(uri := str(table.path)):
            return TableOfImages(table, task)
        copy = Copy(uri, dict(copies).get(uri)).settled
        return StoredTable(table, task, uri=uri, version=copy.version, root=copy.files)
    spelt = {name.replace("-", ""): name for name in KNOWN_SOURCES}
    near = closest(re.sub(r"[\s_-]", "", data.lower()), spelt) if isinstance(data, str) else None
    hint = f"did you mean '{spelt[near]}'?" if near else f"images of your own are 'folder:{_place(data)}'"
    raise StudyError(
        f"data must be {', '.join(KNOWN_SOURCES)}, folder:PATH, table:PATH or a function, got {shown(data)}; {hint}"
    )


def _place(data: object) -> str:
    return str(data) if is_stored(data) else "PATH"


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
